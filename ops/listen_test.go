package ops

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

func TestReportsOfOperators(t *testing.T) { onSharedServer(t, monitorTellsWhatPeopleDo) }

// monitorTellsWhatPeopleDo: every call that changes a queue is told, with who did it.
func monitorTellsWhatPeopleDo(f *face.Fixture, m *Queue) {
	heard := make(chan delayqueue.Event, 100)
	sub, err := Of(delayqueue.NewMonitor(f.Name, f.Cli)).ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
	f.Must(err)
	defer sub.Stop()
	q := f.Queue(nil)
	m.WithOperator("alice")
	dead := buriedIn(f, "x")[0]
	id := f.Send(q, "a", face.InAnHour).ID
	other := f.Send(q, "b", face.InAnHour).ID
	for _, c := range []struct {
		call  func() error
		code  delayqueue.EventCode
		count int
		ids   []string
	}{
		{func() error { return m.Pause(queuetest.CtxB) }, delayqueue.PausedEvent, 0, nil},
		{func() error { return m.Resume(queuetest.CtxB) }, delayqueue.ResumedEvent, 0, nil},
		{func() error { return m.Reschedule(queuetest.CtxB, id, time.Now().Add(2*time.Hour)) }, delayqueue.RescheduledEvent, 1, []string{id}},
		{func() error { return m.RescheduleBy(queuetest.CtxB, id, time.Hour) }, delayqueue.RescheduledEvent, 1, []string{id}},
		{func() error { return m.Requeue(queuetest.CtxB, dead) }, delayqueue.RequeuedEvent, 1, []string{dead}},
		{func() error { return m.Delete(queuetest.CtxB, dead) }, delayqueue.DeletedEvent, 1, []string{dead}},
		{func() error { _, err := m.Intercept(queuetest.CtxB, id); return err }, delayqueue.InterceptedEvent, 1, []string{id}},
		{func() error { _, err := m.BulkRescheduleBy(queuetest.CtxB, Bulk{}, time.Hour); return err }, delayqueue.RescheduledEvent, 1, nil},
		{func() error { return m.Delete(queuetest.CtxB, other) }, delayqueue.DeletedEvent, 1, []string{other}},
		{func() error { return m.DeleteQueue(queuetest.CtxB, true) }, delayqueue.QueueDeletedEvent, 0, nil},
	} {
		f.Must(c.call())
		if e := queuetest.Receive(f.T, c.code.String(), heard); e.Code != c.code || e.By != "alice" || e.Count != c.count || !slices.Equal(e.IDs, c.ids) {
			f.T.Errorf("%+v, want %s of %d %q", e, c.code, c.count, c.ids)
		}
	}
}

// TestListenerIsToldOfGaps: a connection that broke is made anew, and the listener knows that it may have missed
// something.
func TestListenerIsToldOfGaps(t *testing.T) {
	t.Parallel()
	f, _ := face.OwnServer(t)
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	heard := make(chan delayqueue.Event, 100)
	sub, err := m.ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
	f.Must(err)
	defer sub.Stop()
	f.Send(f.Queue(nil), "x", face.InAnHour)
	f.Must(f.Cli.(*redis.Client).Do(queuetest.CtxB, "client", "kill", "type", "pubsub").Err())
	if e := queuetest.Receive(t, "the gap", heard); e.Code != delayqueue.GapEvent || e.Count != 0 {
		t.Errorf("%+v, want a gap", e)
	}
	f.Must(m.Pause(queuetest.CtxB))
	if e := queuetest.Receive(t, "what follows", heard); e.Code != delayqueue.PausedEvent {
		t.Errorf("%+v, want paused", e)
	}
}

// TestListenerHearsAfterSilence: a connection that dies in silence is noticed, and made anew; the listener knows that it may have
// missed something. So it is if the client is of another type, and if new connections are silent as well for a while.
func TestListenerHearsAfterSilence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		other  bool // the client is of another type
		darken bool
	}{"half open": {}, "another type": {other: true}, "an outage": {darken: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			wire := redistest.NewWire(t, queuetest.Shared.Addr())
			var cli redis.UniversalClient = redis.NewClient(&redis.Options{Addr: wire.Addr()})
			t.Cleanup(func() { _ = cli.Close() })
			if c.other {
				cli = struct{ redis.UniversalClient }{cli}
			}
			heard := make(chan delayqueue.Event, 100)
			sub, err := Of(delayqueue.NewMonitor(f.Name, cli)).ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
			f.Must(err)
			defer sub.Stop()
			reporter := Of(delayqueue.NewMonitor(f.Name, f.Cli))
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

// A slowConn is a connection that brings a kilobyte at a time, three times a second, once slow is set.
type slowConn struct {
	net.Conn
	slow *atomic.Bool
}

func (c slowConn) Read(b []byte) (int, error) {
	if !c.slow.Load() {
		return c.Conn.Read(b)
	}
	time.Sleep(time.Second / 3)
	return c.Conn.Read(b[:min(len(b), 1024)])
}

// TestListenerOnASlowLine: an event that takes seconds to come through is no silence.
func TestListenerOnASlowLine(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var slow atomic.Bool
	cli := redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr(), Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		return slowConn{conn, &slow}, err
	}})
	t.Cleanup(func() { _ = cli.Close() })
	heard := make(chan delayqueue.Event, 100)
	sub, err := Of(delayqueue.NewMonitor(f.Name, cli)).ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
	f.Must(err)
	defer sub.Stop()
	slow.Store(true)
	ids := strings.Repeat(`,""`, 6_000)[1:]
	f.Must(f.Cli.Publish(queuetest.CtxB, f.Key("events"), fmt.Sprintf(`[{"code":%d,"ids":[%s]}]`, delayqueue.AckEvent, ids)).Err()) // 18 KB
	if e := queuetest.Receive(t, "the event", heard); e.Code != delayqueue.AckEvent || len(e.IDs) != 6_000 {
		t.Errorf("%v of %d", e.Code, len(e.IDs))
	}
}

// TestListenerFollowsTheOwner: after a connection to a node of a Cluster has died in silence, the next one leads to the node that
// holds the queue by then.
func TestListenerFollowsTheOwner(t *testing.T) {
	t.Parallel()
	var holds atomic.Pointer[string]
	moveTo := func(s *redistest.Server) { addr := s.Addr(); holds.Store(&addr) }
	before, after := redistest.Start(t), redistest.Start(t)
	moveTo(before)
	f := face.On(t, after.Client(t))
	heard := make(chan delayqueue.Event, 100)
	sub, err := Of(delayqueue.NewMonitor(f.Name, queuetest.OneNodeCluster(t, func() string { return *holds.Load() }))).ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
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

// TestListenerStops: after Stop, and after the client was closed, nothing of it is left.
func TestListenerStops(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(cli *redis.Client, sub *delayqueue.Subscription, wire *redistest.Wire){
		"stopped":              func(_ *redis.Client, sub *delayqueue.Subscription, _ *redistest.Wire) { sub.Stop() },
		"the client is closed": func(cli *redis.Client, _ *delayqueue.Subscription, _ *redistest.Wire) { _ = cli.Close() },
		"stopped in an outage": func(_ *redis.Client, sub *delayqueue.Subscription, wire *redistest.Wire) {
			wire.Darken()
			sub.Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			wire := redistest.NewWire(t, queuetest.Shared.Addr())
			cli := queuetest.RedisClient(t, wire.Addr())
			m := Of(delayqueue.NewMonitor(f.Name, cli))
			sub, err := m.ListenEvent(queuetest.CtxB, func(delayqueue.Event) {})
			f.Must(err)
			defer sub.Stop()
			end(cli, sub, wire)
			queuetest.Eventually(t, "nobody is subscribed", func() bool {
				n, err := f.Cli.PubSubNumSub(queuetest.CtxB, f.Key("events")).Result()
				return err == nil && n[f.Key("events")] == 0
			})
		})
	}
}

// TestListenEventObeysItsContext: on a server that accepts and says nothing, and after its end.
func TestListenEventObeysItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: queuetest.Patience})
	defer cli.Close()
	m := Of(delayqueue.NewMonitor("orders", cli))
	over, cancel := context.WithCancel(queuetest.CtxB)
	cancel()
	if sub, err := m.ListenEvent(over, func(delayqueue.Event) {}); sub != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if sub, err := m.ListenEvent(queuetest.CtxB, nil); sub != nil || !errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("without a listener: %v", err)
	}
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(queuetest.CtxB, 50*time.Millisecond)
	defer cancel()
	if sub, err := m.ListenEvent(ctx, func(delayqueue.Event) {}); sub != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("on a server that hangs: %v", err)
	}
	for name, err := range Queues(ctx, cli) {
		if name != "" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("queues of a server that hangs: %q, %v", name, err)
		}
	}
}

func TestReports(t *testing.T) { onSharedServer(t, monitorReports) }

func monitorReports(f *face.Fixture, m *Queue) {
	heard := make(chan delayqueue.Event, 100)
	sub, err := m.ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
	f.Must(err)
	defer sub.Stop()
	other := delayqueue.NewPublisher(f.Name, f.Cli)
	defer other.EnableReport().Stop()
	q := f.Queue(func(string) bool { return true })
	defer q.EnableReport().Stop()
	info, err := other.Send(queuetest.CtxB, "x")
	f.Must(err)
	for _, want := range []delayqueue.EventCode{delayqueue.NewMessageEvent, delayqueue.ReadyEvent, delayqueue.DeliveredEvent, delayqueue.AckEvent} {
		if want == delayqueue.ReadyEvent {
			q.StartConsume()
		}
		if e := queuetest.Receive(f.T, want.String(), heard); e.Code != want || e.Count != 1 || !slices.Equal(e.IDs, []string{info.ID}) ||
			time.Since(e.Time) > queuetest.Patience {
			f.T.Errorf("%+v, want %s", e, want)
		}
	}
}
