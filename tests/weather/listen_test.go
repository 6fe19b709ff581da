package weather

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// TestListenerHearsAfterSilence: a connection that dies in silence is noticed, and made anew; the listener knows that
// it may have missed something. So it is if the client is of another type, and if new connections are silent as well
// for a while.
func TestListenerHearsAfterSilence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		other  bool // the client is of another type
		darken bool
	}{"half open": {}, "another type": {other: true}, "an outage": {darken: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.OnShared(t)
			wire := redistest.NewWire(t, queuetest.Shared.Addr())
			var cli redis.UniversalClient = redis.NewClient(&redis.Options{Addr: wire.Addr()})
			t.Cleanup(func() { _ = cli.Close() })
			if c.other {
				cli = struct{ redis.UniversalClient }{cli}
			}
			heard := make(chan delayqueue.Event, 100)
			sub, err := delayqueue.NewMonitor(f.Name, cli).ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
			f.Must(err)
			defer sub.Stop()
			reporter := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
			f.Send(f.Queue(nil), "x", face.InAnHour)
			for range 2 { // the second connection is watched, too
				if c.darken {
					wire.Darken()
					time.AfterFunc(3*time.Second, wire.Lighten)
				} else if wire.HalfOpen() == 0 {
					t.Fatal("there was no connection")
				}
				f.Must(reporter.Pause(queuetest.CtxB))
				if e := queuetest.Receive(t, "the gap", heard); e.Code != delayqueue.GapEvent {
					t.Errorf("%+v, want a gap", e)
				}
				f.Must(reporter.Resume(queuetest.CtxB))
				if e := queuetest.Receive(t, "what follows", heard); e.Code != delayqueue.ResumedEvent {
					t.Errorf("%+v, want resumed", e)
				}
			}
		})
	}
}

// TestListenerFollowsTheOwner: after a connection to a node of a Cluster has died in silence, the next one leads to
// the node that holds the queue by then.
func TestListenerFollowsTheOwner(t *testing.T) {
	t.Parallel()
	var holds atomic.Pointer[string]
	moveTo := func(s *redistest.Server) { addr := s.Addr(); holds.Store(&addr) }
	before, after := redistest.Start(t), redistest.Start(t)
	moveTo(before)
	f := face.On(t, after.Client(t))
	heard := make(chan delayqueue.Event, 100)
	sub, err := delayqueue.NewMonitor(f.Name, queuetest.OneNodeCluster(t, func() string {
		return *holds.Load()
	})).ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
	f.Must(err)
	defer sub.Stop()
	before.Pause()
	defer before.Resume()
	moveTo(after)
	if e := queuetest.Receive(t, "the gap", heard); e.Code != delayqueue.GapEvent {
		t.Errorf("%+v, want a gap", e)
	}
	f.Must(f.Cli.Publish(queuetest.CtxB, f.Key("events"), fmt.Sprintf(`[{"code":%d}]`, delayqueue.AckEvent)).Err())
	if e := queuetest.Receive(t, "what follows", heard); e.Code != delayqueue.AckEvent {
		t.Errorf("%+v, want acked", e)
	}
}
