package ops

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// monitorTellsWhatPeopleDo: every call that changes a queue is told, with who did it.
func monitorTellsWhatPeopleDo(f *face.Fixture, m *Queue) {
	heard := make(chan delayqueue.Event, 100)
	sub, err := delayqueue.NewMonitor(f.Name, f.Cli).ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
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
		{func() error { return m.Reschedule(queuetest.CtxB, id, time.Now().Add(2*time.Hour)) }, delayqueue.RescheduledEvent,
			1, []string{id}},
		{func() error { return m.RescheduleBy(queuetest.CtxB, id, time.Hour) }, delayqueue.RescheduledEvent, 1, []string{id}},
		{func() error { return m.Requeue(queuetest.CtxB, dead) }, delayqueue.RequeuedEvent, 1, []string{dead}},
		{func() error { return m.Delete(queuetest.CtxB, dead) }, delayqueue.DeletedEvent, 1, []string{dead}},
		{func() error { _, err := m.Intercept(queuetest.CtxB, id); return err }, delayqueue.InterceptedEvent, 1,
			[]string{id}},
		{func() error { _, err := m.BulkRescheduleBy(queuetest.CtxB, Bulk{}, time.Hour); return err },
			delayqueue.RescheduledEvent, 1, nil},
		{func() error { return m.Delete(queuetest.CtxB, other) }, delayqueue.DeletedEvent, 1, []string{other}},
		{func() error { return m.DeleteQueue(queuetest.CtxB, true) }, delayqueue.QueueDeletedEvent, 0, nil},
	} {
		f.Must(c.call())
		if e := queuetest.Receive(f.T, c.code.String(), heard); e.Code != c.code || e.By != "alice" || e.Count != c.count ||
			!slices.Equal(e.IDs, c.ids) {
			f.T.Errorf("%+v, want %s of %d %q", e, c.code, c.count, c.ids)
		}
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
			sub, err := m.Monitor().ListenEvent(queuetest.CtxB, func(delayqueue.Event) {})
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
	cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), ReadTimeout: queuetest.Patience})
	m := Of(delayqueue.NewMonitor("orders", cli))
	over, cancel := context.WithCancel(queuetest.CtxB)
	cancel()
	if sub, err := m.Monitor().ListenEvent(over, func(delayqueue.Event) {}); sub != nil ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if sub, err := m.Monitor().ListenEvent(queuetest.CtxB, nil); sub != nil || !errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("without a listener: %v", err)
	}
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(queuetest.CtxB, 50*time.Millisecond)
	defer cancel()
	if sub, err := m.Monitor().ListenEvent(ctx, func(delayqueue.Event) {}); sub != nil ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("on a server that hangs: %v", err)
	}
	for name, err := range Queues(ctx, cli) {
		if name != "" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("queues of a server that hangs: %q, %v", name, err)
		}
	}
}

func monitorReports(f *face.Fixture, m *Queue) {
	heard := make(chan delayqueue.Event, 100)
	sub, err := m.Monitor().ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard <- e })
	f.Must(err)
	defer sub.Stop()
	other := delayqueue.NewPublisher(f.Name, f.Cli)
	defer other.EnableReport().Stop()
	q := f.Queue(func(string) bool { return true })
	defer q.EnableReport().Stop()
	info, err := other.Send(queuetest.CtxB, "x")
	f.Must(err)
	for _, want := range []delayqueue.EventCode{delayqueue.NewMessageEvent, delayqueue.ReadyEvent,
		delayqueue.DeliveredEvent, delayqueue.AckEvent} {
		if want == delayqueue.ReadyEvent {
			q.StartConsume()
		}
		if e := queuetest.Receive(f.T, want.String(), heard); e.Code != want || e.Count != 1 ||
			!slices.Equal(e.IDs, []string{info.ID}) ||
			time.Since(e.Time) > queuetest.Patience {
			f.T.Errorf("%+v, want %s", e, want)
		}
	}
}
