package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func TestReportsOfOperators(t *testing.T) { onSharedServer(t, monitorTellsWhatPeopleDo) }

// monitorTellsWhatPeopleDo: every call that changes a queue is told, with who did it.
func monitorTellsWhatPeopleDo(f *fixture, m *Monitor) {
	heard := make(chan Event, 100)
	sub, err := NewMonitor(f.name, f.cli).ListenEvent(ctxB, func(e Event) { heard <- e })
	f.must(err)
	defer sub.Stop()
	q := f.queue(nil)
	m.WithOperator("alice")
	dead := f.buried("x")[0]
	id := f.send(q, "a", inAnHour).ID
	other := f.send(q, "b", inAnHour).ID
	for _, c := range []struct {
		call  func() error
		code  EventCode
		count int
		ids   []string
	}{
		{func() error { return m.Pause(ctxB) }, PausedEvent, 0, nil},
		{func() error { return m.Resume(ctxB) }, ResumedEvent, 0, nil},
		{func() error { return m.Reschedule(ctxB, id, time.Now().Add(2*time.Hour)) }, RescheduledEvent, 1, []string{id}},
		{func() error { return m.RescheduleBy(ctxB, id, time.Hour) }, RescheduledEvent, 1, []string{id}},
		{func() error { return m.Requeue(ctxB, dead) }, RequeuedEvent, 1, []string{dead}},
		{func() error { return m.Delete(ctxB, dead) }, DeletedEvent, 1, []string{dead}},
		{func() error { _, err := m.Intercept(ctxB, id); return err }, InterceptedEvent, 1, []string{id}},
		{func() error { _, err := m.BulkRescheduleBy(ctxB, Bulk{}, time.Hour); return err }, RescheduledEvent, 1, nil},
		{func() error { return m.Delete(ctxB, other) }, DeletedEvent, 1, []string{other}},
		{func() error { return m.DeleteQueue(ctxB, true) }, QueueDeletedEvent, 0, nil},
	} {
		f.must(c.call())
		if e := receive(f.t, c.code.String(), heard); e.Code != c.code || e.By != "alice" || e.Count != c.count || !slices.Equal(e.IDs, c.ids) {
			f.t.Errorf("%+v, want %s of %d %q", e, c.code, c.count, c.ids)
		}
	}
}

// TestListenerIsToldOfGaps: a connection that broke is made anew, and the listener knows that it may have missed
// something.
func TestListenerIsToldOfGaps(t *testing.T) {
	t.Parallel()
	f, _ := ownServer(t)
	m := NewMonitor(f.name, f.cli)
	heard := make(chan Event, 100)
	sub, err := m.ListenEvent(ctxB, func(e Event) { heard <- e })
	f.must(err)
	defer sub.Stop()
	f.send(f.queue(nil), "x", inAnHour)
	f.must(f.cli.(*redis.Client).Do(ctxB, "client", "kill", "type", "pubsub").Err())
	if e := receive(t, "the gap", heard); e.Code != GapEvent || e.Count != 0 {
		t.Errorf("%+v, want a gap", e)
	}
	f.must(m.Pause(ctxB))
	if e := receive(t, "what follows", heard); e.Code != PausedEvent {
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
			f := newFixture(t)
			wire := redistest.NewWire(t, shared.Addr())
			var cli redis.UniversalClient = redis.NewClient(&redis.Options{Addr: wire.Addr()})
			t.Cleanup(func() { _ = cli.Close() })
			if c.other {
				cli = struct{ redis.UniversalClient }{cli}
			}
			heard := make(chan Event, 100)
			sub, err := NewMonitor(f.name, cli).ListenEvent(ctxB, func(e Event) { heard <- e })
			f.must(err)
			defer sub.Stop()
			reporter := NewMonitor(f.name, f.cli)
			f.send(f.queue(nil), "x", inAnHour)
			for range 2 { // the second connection is watched, too
				if c.darken {
					wire.Darken()
					time.AfterFunc(3*time.Second, wire.Lighten)
				} else if wire.HalfOpen() == 0 {
					t.Fatal("there was no connection")
				}
				f.must(reporter.Pause(ctxB))
				if e := receive(t, "the gap", heard); e.Code != GapEvent {
					t.Errorf("%+v, want a gap", e)
				}
				f.must(reporter.Resume(ctxB))
				if e := receive(t, "what follows", heard); e.Code != ResumedEvent {
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
	f := newFixture(t)
	var slow atomic.Bool
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr(), Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		return slowConn{conn, &slow}, err
	}})
	t.Cleanup(func() { _ = cli.Close() })
	heard := make(chan Event, 100)
	sub, err := NewMonitor(f.name, cli).ListenEvent(ctxB, func(e Event) { heard <- e })
	f.must(err)
	defer sub.Stop()
	slow.Store(true)
	f.must(NewMonitor(f.name, f.cli).store.publish(patience, []Event{{Code: AckEvent, IDs: make([]string, 6_000)}})) // 18 KB
	if e := receive(t, "the event", heard); e.Code != AckEvent || len(e.IDs) != 6_000 {
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
	f := fixtureOn(t, after.Client(t))
	heard := make(chan Event, 100)
	sub, err := NewMonitor(f.name, oneNodeCluster(t, func() string { return *holds.Load() })).ListenEvent(ctxB, func(e Event) { heard <- e })
	f.must(err)
	defer sub.Stop()
	before.Pause()
	defer before.Resume()
	moveTo(after)
	if e := receive(t, "the gap", heard); e.Code != GapEvent {
		t.Errorf("%+v, want a gap", e)
	}
	f.must(NewMonitor(f.name, f.cli).store.publish(patience, []Event{{Code: AckEvent}}))
	if e := receive(t, "what follows", heard); e.Code != AckEvent {
		t.Errorf("%+v, want acked", e)
	}
}

// TestListenerStops: after Stop, and after the client was closed, nothing of it is left.
func TestListenerStops(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(cli *redis.Client, sub *Subscription, wire *redistest.Wire){
		"stopped":              func(_ *redis.Client, sub *Subscription, _ *redistest.Wire) { sub.Stop() },
		"the client is closed": func(cli *redis.Client, _ *Subscription, _ *redistest.Wire) { _ = cli.Close() },
		"stopped in an outage": func(_ *redis.Client, sub *Subscription, wire *redistest.Wire) {
			wire.Darken()
			sub.Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			wire := redistest.NewWire(t, shared.Addr())
			cli := redis.NewClient(&redis.Options{Addr: wire.Addr()})
			t.Cleanup(func() { _ = cli.Close() })
			m := NewMonitor(f.name, cli)
			sub, err := m.ListenEvent(ctxB, func(Event) {})
			f.must(err)
			defer sub.Stop()
			end(cli, sub, wire)
			eventually(t, "its link is released", func() bool {
				links.mu.Lock()
				defer links.mu.Unlock()
				return links.byClient[cli] == nil || links.byClient[cli].users == 0
			})
			eventually(t, "nobody is subscribed", func() bool {
				n, err := f.cli.PubSubNumSub(ctxB, m.store.keys.events).Result()
				return err == nil && n[m.store.keys.events] == 0
			})
		})
	}
}

// TestListenEventObeysItsContext: on a server that accepts and says nothing, and after its end.
func TestListenEventObeysItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: patience})
	defer cli.Close()
	m := NewMonitor("orders", cli)
	over, cancel := context.WithCancel(ctxB)
	cancel()
	if sub, err := m.ListenEvent(over, func(Event) {}); sub != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if sub, err := m.ListenEvent(ctxB, nil); sub != nil || !errors.Is(err, ErrBadOption) {
		t.Errorf("without a listener: %v", err)
	}
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(ctxB, 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if sub, err := m.ListenEvent(ctx, func(Event) {}); sub != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("on a server that hangs: %v", err)
	}
	for name, err := range Queues(ctx, cli) {
		if name != "" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("queues of a server that hangs: %q, %v", name, err)
		}
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

// TestNilListener: a queue has no error to return.
func TestNilListener(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	defer func() {
		if recover() == nil {
			t.Error("a nil listener is accepted")
		}
	}()
	q.ListenEvent(nil)
}

// TestJunkEvents: whoever publishes rubbish does not fill the log.
func TestJunkEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	m := &Monitor{steerer: steerer{store: q.store, events: q.events}}
	heard := make(chan Event, 100)
	sub, err := m.ListenEvent(ctxB, func(e Event) { heard <- e })
	f.must(err)
	defer sub.Stop()
	for i := range 100 {
		f.must(f.cli.Publish(ctxB, q.store.keys.events, fmt.Appendf(nil, "junk %d", i)).Err())
	}
	f.must(f.cli.Publish(ctxB, q.store.keys.events, `[{"code":4,"count":1}]`).Err())
	if e := receive(t, "what can be read", heard); e.Code != AckEvent {
		t.Errorf("%+v", e)
	}
	f.log.says(t, 1, "events that cannot be read")
}
