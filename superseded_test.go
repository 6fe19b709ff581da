package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A replacedOnce is a queue in which a message with the key k is replaced while its handler runs, once.
type replacedOnce struct {
	*fixture
	q, sender  *DelayQueue
	begun, end chan struct{}
	got        chan Message // of later deliveries
	events     chan Event   // but for those of sends and hand-outs
	dead       chan error
}

// newReplacedOnce makes one whose first delivery ends with result, if the handler comes to that.
func newReplacedOnce(t *testing.T, result func() error) *replacedOnce {
	r := &replacedOnce{fixture: newFixture(t), begun: make(chan struct{}), end: make(chan struct{}),
		got: make(chan Message, 100), events: make(chan Event, 100), dead: make(chan error, 100)}
	r.q, r.sender = r.queue(nil), r.queue(nil)
	r.q.WithConcurrent(2).WithRetryDelays(time.Millisecond).WithHandler(func(ctx context.Context, msg *Message) error {
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
	}).WithGarbageHandler(func(_ context.Context, _ *Message, err error) { r.dead <- err })
	sub := r.q.ListenEvent(func(e Event) {
		if e.Code != ReadyEvent && e.Code != DeliveredEvent {
			r.events <- e
		}
	})
	t.Cleanup(sub.Stop)
	return r
}

// TestSupersededDelivery: whatever becomes of a delivery whose message is replaced while it is handled, the new one alone
// goes on, and has the key.
func TestSupersededDelivery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result func() error
		opts   []MsgOption
		stop   bool
	}{
		"acked":                   {result: func() error { return nil }},
		"failed":                  {result: func() error { return errBoom }},
		"failed for good":         {result: func() error { return errors.Join(ErrSkipRetry, errBoom) }},
		"panics":                  {result: func() error { panic("boom") }},
		"Again":                   {result: func() error { return Again(time.Millisecond) }},
		"Again past its deadline": {result: func() error { return Again(time.Hour) }, opts: []MsgOption{WithDeadline(time.Now().Add(30 * time.Minute))}},
		"Snooze":                  {result: func() error { return Snooze(time.Millisecond) }},
		"stopped":                 {stop: true},
	} {
		for _, on := range []Conflict{Replace, Reschedule} {
			t.Run(name+" "+on.String(), func(t *testing.T) {
				t.Parallel()
				r := newReplacedOnce(t, c.result)
				old := r.send(r.sender, "old", append(c.opts, WithKey("k"))...)
				done := r.q.StartConsume()
				receive(t, "the first delivery", r.begun)
				renewed := r.send(r.sender, "new", WithKey("k", on), inAnHour)
				if c.stop {
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					_ = r.q.Shutdown(ctx)
					receive(t, "the stop", done)
				} else {
					close(r.end)
				}
				for e := receive(t, "its end", r.events); e.Code != SupersededEvent; e = receive(t, "its end", r.events) {
					if e.Code == AckEvent || e.Code == RetryEvent || e.Code == FinalFailedEvent {
						t.Errorf("event %v", e)
					}
				}
				if s := r.check(); len(s.Messages) != 1 || s.Where(renewed.ID) != "pending" || s.Keys["k"] != renewed.ID {
					t.Errorf("left: %v, %v; the old one is %s", s.Messages, s.Keys, old.ID)
				}
				if got, err := r.sender.CancelKey(ctxB, "k"); err != nil || got.ID != renewed.ID {
					t.Errorf("%+v, %v", got, err)
				}
				r.checkEmpty()
				if len(r.got) > 0 || len(r.dead) > 0 {
					t.Errorf("%d deliveries more, %d in garbage", len(r.got), len(r.dead))
				}
			})
		}
	}
}

// TestCallOfSuperseded: who calls or awaits a message that is replaced while it is handled is told whether it was handled well.
func TestCallOfSuperseded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result func() error
		stop   bool
		last   string // the last error
	}{
		"acked":           {result: func() error { return nil }},
		"failed":          {result: func() error { return errBoom }, last: errBoom.Error()},
		"failed for good": {result: func() error { return fmt.Errorf("%w: declined", ErrSkipRetry) }, last: "skip retry: declined"},
		"Again":           {result: func() error { return Again(time.Millisecond) }},
		"stopped":         {stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplacedOnce(t, c.result)
			r.q.StartConsume()
			answer := make(chan awaitAnswer, 1)
			go func() {
				got, err := r.sender.Call(withTimeout(t), "old", WithKey("k"))
				answer <- awaitAnswer{got, err}
			}()
			receive(t, "the first delivery", r.begun)
			r.send(r.sender, "new", WithKey("k", Replace), inAnHour)
			if c.stop {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_ = r.q.Shutdown(ctx)
			} else {
				close(r.end)
			}
			a, well := receive(t, "the answer", answer), name == "acked"
			if a.result == nil || errors.Is(a.err, ErrSuperseded) == well || (a.err == nil) != well || a.result.Superseded == well ||
				a.result.State != StateDone || a.result.Err != c.last || a.result.At.IsZero() || !well && !strings.Contains(a.err.Error(), c.last) {
				t.Fatalf("%+v, %v", a.result, a.err)
			}
			m := NewMonitor(r.name, r.cli)
			again, err := m.Await(ctxB, a.result.ID)
			if again == nil || *again != *a.result || errors.Is(err, ErrSuperseded) == well {
				t.Errorf("awaited: %+v, %v", again, err)
			}
			if s := r.status(m, a.result.ID); s.State != StateDone || s.Superseded == well || s.LastError != c.last {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestDebouncedStateIsTheLast: the recipe "Debounce": of two versions of a document the second is handled last, also if
// the handler of the first fails while the second is sent, or its consumer dies.
func TestDebouncedStateIsTheLast(t *testing.T) {
	t.Parallel()
	r := newReplacedOnce(t, func() error { return errBoom })
	version := func(text string) *MessageInfo {
		return r.send(r.sender, text, WithKey("document-42", Replace), WithDelay(time.Millisecond), WithMaxWait(time.Minute))
	}
	version("old")
	r.q.StartConsume()
	receive(t, "version 1", r.begun)
	last := version("new")
	if msg := receive(t, "version 2", r.got); msg.ID != last.ID {
		t.Errorf("handled %+v", msg)
	}
	close(r.end)
	r.drained()
	if len(r.got) > 0 {
		t.Errorf("handled once more: %+v", <-r.got)
	}
}

// TestSupersededIsSeen: while its handler runs, a look says that a message is superseded, and finds the new one by the key.
func TestSupersededIsSeen(t *testing.T) {
	t.Parallel()
	r := newReplacedOnce(t, func() error { return errBoom })
	m := NewMonitor(r.name, r.cli)
	old := r.send(r.sender, "old", WithKey("k"))
	r.q.StartConsume()
	receive(t, "the first delivery", r.begun)
	renewed := r.send(r.sender, "new", WithKey("k", Replace), inAnHour)
	if got, err := m.Get(ctxB, old.ID); err != nil || !got.Superseded || got.Key != "k" || got.State != StateUnack || !got.EndedAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := m.GetKey(ctxB, "k"); err != nil || got.Superseded || got.ID != renewed.ID {
		t.Errorf("%+v, %v", got, err)
	}
	close(r.end)
	eventually(t, "it is counted", func() bool {
		days, err := m.History(ctxB, Daily, 2)
		return err == nil && days[0].Superseded+days[1].Superseded == 1 && days[0].Failed+days[1].Failed == 1 &&
			days[0].Garbage+days[1].Garbage+days[0].Acked+days[1].Acked == 0
	})
}
