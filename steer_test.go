package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// buried makes garbage of messages, each with its payload as its error.
func (f *fixture) buried(payloads ...string) (ids []string) {
	f.t.Helper()
	q := f.queueOn(f.cli, nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *Message) error {
		return fmt.Errorf("%w: no %s", ErrSkipRetry, msg.Payload)
	})
	for _, p := range payloads {
		ids = append(ids, f.send(q, p, WithKey("key of "+p)).ID)
	}
	before := len(f.check().Garbage)
	q.StartConsume()
	eventually(f.t, "all are garbage", func() bool { return len(f.check().Garbage) >= before+len(payloads) })
	f.must(q.Shutdown(ctxB))
	return ids
}

func TestReschedule(t *testing.T) { onSharedServer(t, monitorSteersOne) }

func monitorSteersOne(f *fixture, m *Monitor) {
	handled := make(chan *Message, 1)
	started, release := make(chan struct{}), make(chan struct{})
	q := noTick(f.queue(nil)).WithConcurrent(2).WithRetryDelays(time.Hour).WithHandler(func(_ context.Context, msg *Message) error {
		switch {
		case msg.Payload == "slow":
			close(started)
			<-release
		case msg.Payload == "fails" && msg.Failures == 0:
			handled <- msg
			return errBoom
		default:
			handled <- msg
		}
		return nil
	})
	q.StartConsume()
	a := f.send(q, "a", inAnHour, WithKey("a"))
	f.must(m.RescheduleBy(ctxB, a.ID, time.Minute))
	if s := f.status(m, a.ID); !s.Due.Equal(a.Due.Add(time.Minute)) || !s.At.Equal(s.Due) || s.Key != "a" {
		f.t.Errorf("a minute later than %v: %+v", a.Due, s)
	}
	f.must(m.RescheduleBy(ctxB, a.ID, -2*time.Minute))
	if s := f.status(m, a.ID); !s.Due.Equal(a.Due.Add(-time.Minute)) {
		f.t.Errorf("two minutes earlier: %+v", s)
	}
	at := time.Now().Add(2 * time.Second).Truncate(time.Microsecond)
	f.must(m.Reschedule(ctxB, a.ID, at))
	if msg := receive(f.t, "it comes at its new time, woken by the alarm", handled); msg.ID != a.ID ||
		!msg.Due.Equal(at) || time.Now().Before(at) {
		f.t.Errorf("handled %+v at %v, want it at %v", msg, time.Now(), at)
	}
	b := f.send(q, "fails", inAnHour)
	f.must(m.RunNow(ctxB, b.ID))
	receive(f.t, "it runs now", handled)
	eventually(f.t, "it waits for its retry", func() bool { return f.where(b.ID) == "retry" })
	f.must(m.RunNow(ctxB, b.ID))
	if msg := receive(f.t, "its retry runs now", handled); msg.ID != b.ID || msg.Failures != 1 || !msg.Due.Before(time.Now()) {
		f.t.Errorf("handled %+v", msg)
	}
	c := f.send(q, "c", inAnHour, WithKey("c"))
	f.must(m.Delete(ctxB, c.ID))
	if s, err := m.GetKey(ctxB, "c"); s != nil || !errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoQueue) {
		f.t.Errorf("deleted: %+v, %v", s, err)
	}
	slow := f.send(q, "slow")
	receive(f.t, "a slow one is handled", started)
	for what, call := range map[string]func(id string) error{
		"reschedule": func(id string) error { return m.Reschedule(ctxB, id, at) },
		"by":         func(id string) error { return m.RescheduleBy(ctxB, id, time.Hour) },
		"run now":    func(id string) error { return m.RunNow(ctxB, id) },
		"requeue":    func(id string) error { return m.Requeue(ctxB, id) },
		"delete":     func(id string) error { return m.Delete(ctxB, id) },
	} {
		for id, want := range map[string]State{slow.ID: StateUnack, c.ID: StateGone} {
			var wrong *StateError
			if err := call(id); !errors.As(err, &wrong) || !errors.Is(err, ErrWrongState) || wrong.State != want || wrong.ID != id ||
				errors.Is(err, ErrNotFound) != (want == StateGone) {
				f.t.Errorf("%s of a message that is %s: %v", what, want, err)
			}
		}
	}
	var wrong *StateError
	if err := q.RescheduleKey(ctxB, "c", at); !errors.As(err, &wrong) || wrong.Key != "c" || !errors.Is(err, ErrNotFound) {
		f.t.Errorf("reschedule by a key that nobody has: %v", err)
	}
	if err := q.Reschedule(ctxB, "order-42", at); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "that is no id") {
		f.t.Errorf("a key where an id is wanted: %v", err)
	}
	if _, err := m.Get(ctxB, "order-42"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "that is no id") {
		f.t.Errorf("a key where an id is wanted: %v", err)
	}
	d := f.send(q, "d", inAnHour, WithKey("d"))
	f.must(NewPublisher(f.name, f.cli).RescheduleKey(ctxB, "d", at.Add(2*time.Hour)))
	if s := f.status(m, d.ID); !s.Due.Equal(at.Add(2 * time.Hour)) {
		f.t.Errorf("rescheduled by its key: %+v", s)
	}
	if r, err := m.Intercept(ctxB, slow.ID); err != nil || r.State != StateUnack || r.Intercepted {
		f.t.Errorf("intercept of one that is being handled: %+v, %v", r, err)
	}
	if r, err := m.Cancel(ctxB, slow.ID); err != nil || r.State != StateUnack || !r.Intercepted {
		f.t.Errorf("cancel of one that is being handled: %+v, %v", r, err)
	}
	close(release)
	for _, err := range []error{
		m.RescheduleBy(ctxB, a.ID, 151*365*24*time.Hour), m.Reschedule(ctxB, a.ID, maxDue), m.PauseUntil(ctxB, maxDue),
	} {
		if !errors.Is(err, ErrBadOption) {
			f.t.Errorf("a time too far: %v", err)
		}
	}
	if err := m.RescheduleBy(ctxB, a.ID, -30); !errors.Is(err, ErrBadOption) || !strings.Contains(err.Error(), "30*time.Second?") {
		f.t.Errorf("a shift without its unit: %v", err)
	}
}

func TestRequeue(t *testing.T) { onSharedServer(t, monitorRequeues) }

func monitorRequeues(f *fixture, m *Monitor) {
	ids := f.buried("a", "b")
	if err := m.Reschedule(ctxB, ids[0], time.Now()); !errors.Is(err, ErrWrongState) {
		f.t.Errorf("reschedule of garbage: %v", err)
	}
	other := f.send(f.queue(nil), "other", inAnHour, WithKey("key of b"))
	var dup *DuplicateKeyError
	if err := m.Requeue(ctxB, ids[1]); !errors.As(err, &dup) || dup.ID != other.ID || dup.Key != "key of b" {
		f.t.Errorf("requeue of one whose key another holds: %v", err)
	}
	f.must(m.Requeue(ctxB, ids[0]))
	if s := f.status(m, ids[0]); s.State != StateReady || s.Failures != 0 || s.Losses != 0 ||
		s.LastError != "skip retry: no a" || s.Delivery != 2 {
		f.t.Errorf("brought back: %+v", s)
	}
	if s, err := m.GetKey(ctxB, "key of a"); err != nil || s == nil || s.ID != ids[0] {
		f.t.Errorf("its key finds %+v, %v", s, err)
	}
	failures := make(chan int, 10)
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *Message) error {
		failures <- msg.Failures
		return errBoom
	})
	q.StartConsume()
	for want := range 4 {
		if n := receive(f.t, "all its retries", failures); n != want {
			f.t.Errorf("failures %d, want %d", n, want)
		}
	}
	eventually(f.t, "it is garbage again", func() bool { return f.where(ids[0]) == "garbage" })
}

func TestPause(t *testing.T) { onSharedServer(t, monitorPauses) }

func monitorPauses(f *fixture, m *Monitor) {
	handled := make(chan string, 10)
	started, release := make(chan struct{}), make(chan struct{})
	q := f.queue(func(p string) bool {
		if p == "slow" {
			close(started)
			<-release
		}
		handled <- p
		return true
	}).WithConcurrent(2)
	q.StartConsume()
	f.send(q, "slow")
	receive(f.t, "it is handled", started)
	f.must(m.Pause(ctxB))
	// From the first fetch after this on nothing is handed out: that is due within a second.
	since := time.Now()
	eventually(f.t, "the consumer has looked", func() bool { return seenAfter(f, since) })
	waits := f.send(q, "waits")
	close(release)
	if p := receive(f.t, "a handler that was running finishes", handled); p != "slow" {
		f.t.Errorf("handled %q", p)
	}
	eventually(f.t, "two ticks have passed", func() bool {
		return seenAfter(f, time.Now().Add(-time.Since(since)/2)) && time.Since(since) > 2*time.Second
	})
	if where := f.where(waits.ID); where != "pending" || len(handled) > 0 {
		f.t.Errorf("handed out while paused: it is in %s", where)
	}
	f.must(m.Resume(ctxB))
	receive(f.t, "it comes after the pause", handled)
}

// seenAfter says whether a consumer has fetched since.
func seenAfter(f *fixture, t time.Time) bool {
	var us int64
	_, err := fmt.Sscan(f.check().Fields["seen"], &us)
	return err == nil && us > t.UnixMicro()
}

func TestPauseEnds(t *testing.T) { onSharedServer(t, monitorPauseEnds) }

// monitorPauseEnds: a pause ends at its instant, and consumers wake for it without a tick.
func monitorPauseEnds(f *fixture, m *Monitor) {
	handled := make(chan time.Time, 10)
	until := time.Now().Add(3 * time.Second)
	q := noTick(f.queue(func(string) bool { handled <- time.Now(); return true }))
	f.send(q, "before")
	f.must(m.PauseUntil(ctxB, until))
	q.StartConsume()
	if at := receive(f.t, "it comes after the pause", handled); at.Before(until) {
		f.t.Errorf("handled %v before the end of the pause", until.Sub(at))
	}
	f.must(m.Pause(ctxB))
	f.send(q, "while")
	eventually(f.t, "nobody is woken while it is paused", func() bool { return f.check().Wake >= forever || f.check().Fields["armed"] != "0" })
	f.must(m.Resume(ctxB))
	receive(f.t, "it comes once resumed", handled)
}

func TestDeleteQueue(t *testing.T) { onSharedServer(t, monitorDeletesQueue) }

func monitorDeletesQueue(f *fixture, m *Monitor) {
	q := f.queue(func(string) bool { return true })
	f.send(q, "x", inAnHour)
	q.StartConsume()
	eventually(f.t, "it is seen", func() bool { cs, err := m.Consumers(ctxB); return err == nil && len(cs) == 1 })
	if err := m.DeleteQueue(ctxB, false); !errors.Is(err, ErrConsumersAlive) {
		f.t.Errorf("with a consumer: %v", err)
	}
	if n := len(f.check().Messages); n != 1 {
		f.t.Errorf("%d messages are left of 1", n)
	}
	f.must(m.DeleteQueue(ctxB, true))
	if n := len(f.check().Messages); n != 0 {
		f.t.Errorf("%d messages are left after it was forced", n)
	}
	f.must(q.Shutdown(ctxB))
	f.send(q, "y", inAnHour)
	f.must(m.DeleteQueue(ctxB, false))
	f.checkEmpty()
}

// TestPauseUntilThePast: an instant that is over by the server's clock ends no pause, nor does one that has wrapped.
func TestPauseUntilThePast(t *testing.T) {
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	f.send(f.queue(nil), "x", inAnHour)
	f.must(m.Pause(ctxB))
	for name, at := range map[string]time.Time{"a minute ago": time.Now().Add(-time.Minute), "1970": time.Unix(0, 0), "before": time.Unix(-1, 0),
		"wrapped": time.Unix(math.MaxInt64, 0)} {
		if err := m.PauseUntil(ctxB, at); !errors.Is(err, ErrBadOption) {
			t.Errorf("until %s: %v", name, err)
		}
	}
	if n, err := m.Counts(ctxB); err != nil || !n.Paused || !n.PausedUntil.IsZero() {
		t.Errorf("%+v, %v", n, err)
	}
}
