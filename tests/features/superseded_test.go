package features

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A replacedOnce is a queue in which a message with the key k is replaced while its handler runs, once.
type replacedOnce struct {
	*face.Fixture
	q, sender  *delayqueue.DelayQueue
	begun, end chan struct{}
	got        chan delayqueue.Message // of later deliveries
	events     chan delayqueue.Event   // but for those of sends and hand-outs
	dead       chan error
}

// newReplacedOnce makes one whose first delivery ends with result, if the handler comes to that.
func newReplacedOnce(t *testing.T, result func() error) *replacedOnce {
	r := &replacedOnce{Fixture: face.New(t), begun: make(chan struct{}), end: make(chan struct{}),
		got: make(chan delayqueue.Message, 100), events: make(chan delayqueue.Event, 100), dead: make(chan error, 100)}
	r.q, r.sender = r.Queue(nil), r.Queue(nil)
	r.q.WithConcurrent(2).WithRetryDelays(time.Millisecond).WithHandler(
		func(ctx context.Context, msg *delayqueue.Message) error {
			if msg.Payload != "old" || msg.Delivery > 1 {
				r.got <- *msg
				return nil
			}
			close(r.begun)
			select {
			case <-r.end:
				return result()
			case <-ctx.Done(): // it is stopped
				return ctx.Err()
			}
		}).WithGarbageHandler(func(_ context.Context, _ *delayqueue.Message, err error) { r.dead <- err })
	sub := r.q.ListenEvent(func(e delayqueue.Event) {
		if e.Code != delayqueue.ReadyEvent && e.Code != delayqueue.DeliveredEvent {
			r.events <- e
		}
	})
	t.Cleanup(sub.Stop)
	return r
}

// TestSupersededDelivery: whatever becomes of a delivery whose message is replaced while it is handled, the new one
// alone goes on, and has the key.
func TestSupersededDelivery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result func() error
		opts   []delayqueue.MsgOption
		stop   bool
	}{
		"acked":           {result: func() error { return nil }},
		"failed":          {result: func() error { return queuetest.ErrBoom }},
		"failed for good": {result: func() error { return errors.Join(delayqueue.ErrSkipRetry, queuetest.ErrBoom) }},
		"panics":          {result: func() error { panic("boom") }},
		"Again":           {result: func() error { return delayqueue.Again(time.Millisecond) }},
		"Again past its deadline": {result: func() error { return delayqueue.Again(time.Hour) },
			opts: []delayqueue.MsgOption{delayqueue.WithDeadline(time.Now().Add(30 * time.Minute))}},
		"Snooze":  {result: func() error { return delayqueue.Snooze(time.Millisecond) }},
		"stopped": {stop: true},
	} {
		for _, on := range []delayqueue.Conflict{delayqueue.Replace, delayqueue.Reschedule} {
			t.Run(name+" "+on.String(), func(t *testing.T) {
				t.Parallel()
				r := newReplacedOnce(t, c.result)
				old := r.Send(r.sender, "old", append(c.opts, delayqueue.WithKey("k"))...)
				done := r.q.StartConsume()
				queuetest.Receive(t, "the first delivery", r.begun)
				renewed := r.Send(r.sender, "new", delayqueue.WithKey("k", on), face.InAnHour)
				if c.stop {
					_ = r.q.Shutdown(queuetest.Over())
					queuetest.Receive(t, "the stop", done)
				} else {
					close(r.end)
				}
				for e := queuetest.Receive(t, "its end", r.events); e.Code != delayqueue.SupersededEvent; e = queuetest.Receive(t,
					"its end", r.events) {
					if e.Code == delayqueue.AckEvent || e.Code == delayqueue.RetryEvent || e.Code == delayqueue.FinalFailedEvent {
						t.Errorf("event %v", e)
					}
				}
				if name == "Again" || name == "Snooze" {
					r.Log.Says(t, 1, "another send took its key", old.ID, "key=k")
				}
				if s := r.Check(); len(s.Messages) != 1 || s.Where(renewed.ID) != "pending" || s.Keys["k"] != renewed.ID {
					t.Errorf("left: %v, %v; the old one is %s", s.Messages, s.Keys, old.ID)
				}
				if got, err := r.sender.CancelKey(queuetest.CtxB, "k"); err != nil || got.ID != renewed.ID {
					t.Errorf("%+v, %v", got, err)
				}
				r.CheckEmpty()
				if len(r.got) > 0 || len(r.dead) > 0 {
					t.Errorf("%d deliveries more, %d in garbage", len(r.got), len(r.dead))
				}
			})
		}
	}
}

// TestCallOfSuperseded: who calls or awaits a message that is replaced while it is handled is told whether it was
// handled well.
func TestCallOfSuperseded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result func() error
		stop   bool
		last   string // the last error
	}{
		"acked":  {result: func() error { return nil }},
		"failed": {result: func() error { return queuetest.ErrBoom }, last: queuetest.ErrBoom.Error()},
		"failed for good": {result: func() error { return fmt.Errorf("%w: declined", delayqueue.ErrSkipRetry) },
			last: "skip retry: declined"},
		"Again":   {result: func() error { return delayqueue.Again(time.Millisecond) }},
		"stopped": {stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplacedOnce(t, c.result)
			r.q.StartConsume()
			type called struct {
				result *delayqueue.Result
				err    error
			}
			answer := make(chan called, 1)
			go func() {
				got, err := r.sender.Call(queuetest.WithTimeout(t), "old", delayqueue.WithKey("k"))
				answer <- called{got, err}
			}()
			queuetest.Receive(t, "the first delivery", r.begun)
			r.Send(r.sender, "new", delayqueue.WithKey("k", delayqueue.Replace), face.InAnHour)
			if c.stop {
				_ = r.q.Shutdown(queuetest.Over())
			} else {
				close(r.end)
			}
			a, well := queuetest.Receive(t, "the answer", answer), name == "acked"
			if a.result == nil || errors.Is(a.err, delayqueue.ErrSuperseded) == well || (a.err == nil) != well ||
				a.result.State != delayqueue.StateDone || a.result.Err != c.last || a.result.At.IsZero() || !well &&
				!strings.Contains(a.err.Error(), c.last) {
				t.Fatalf("%+v, %v", a.result, a.err)
			}
			m := delayqueue.NewMonitor(r.Name, r.Cli)
			again, err := m.Await(queuetest.CtxB, a.result.ID)
			if again == nil || *again != *a.result || errors.Is(err, delayqueue.ErrSuperseded) == well {
				t.Errorf("awaited: %+v, %v", again, err)
			}
		})
	}
}

// TestSupersededIsSeen: while its handler runs, a look says that a message is superseded, and finds the new one by
// the key. If it is kept, a look says later whether it was acked.
func TestSupersededIsSeen(t *testing.T) {
	t.Parallel()
	for _, well := range []bool{false, true} {
		t.Run(fmt.Sprint("acked ", well), func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			m, begun, end := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)), make(chan struct{}), make(chan struct{})
			q := f.Queue(nil).WithHandler(func(context.Context, *delayqueue.Message) error {
				close(begun)
				<-end
				if well {
					return nil
				}
				return queuetest.ErrBoom
			})
			old := f.Send(q, "old", delayqueue.WithKey("k"), delayqueue.WithRetention(time.Hour))
			q.StartConsume()
			queuetest.Receive(t, "the first delivery", begun)
			renewed := f.Send(q, "new", delayqueue.WithKey("k", delayqueue.Replace), face.InAnHour)
			if got, err := m.Get(queuetest.CtxB, old.ID); err != nil || !got.Superseded || got.Key != "k" ||
				got.State != delayqueue.StateUnack || !got.EndedAt.IsZero() {
				t.Errorf("%+v, %v", got, err)
			}
			if got, err := m.GetKey(queuetest.CtxB, "k"); err != nil || got.Superseded || got.ID != renewed.ID {
				t.Errorf("%+v, %v", got, err)
			}
			close(end)
			last := ""
			if !well {
				last = "boom"
				queuetest.Eventually(t, "it is counted", func() bool {
					days, err := m.History(queuetest.CtxB, ops.Daily, 2)
					return err == nil && days[0].Superseded+days[1].Superseded == 1 && days[0].Failed+days[1].Failed == 1 &&
						days[0].Garbage+days[1].Garbage+days[0].Acked+days[1].Acked == 0
				})
			}
			queuetest.Eventually(t, "it is done", func() bool { return f.Where(old.ID) == "done" })
			if s := statusInQueue(f, m, old.ID); s.State != delayqueue.StateDone || s.Superseded == well || s.LastError != last {
				t.Errorf("%+v", s)
			}
		})
	}
}
