package ops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// buried makes garbage of messages, each with its payload as its error.
func buriedIn(f *face.Fixture, payloads ...string) (ids []string) {
	f.T.Helper()
	q := f.QueueOn(f.Cli, nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		return fmt.Errorf("%w: no %s", delayqueue.ErrSkipRetry, msg.Payload)
	})
	for _, p := range payloads {
		ids = append(ids, f.Send(q, p, delayqueue.WithKey("key of "+p)).ID)
	}
	before := len(f.Check().Garbage)
	q.StartConsume()
	queuetest.Eventually(f.T, "all are garbage", func() bool { return len(f.Check().Garbage) >= before+len(payloads) })
	f.Must(q.Shutdown(queuetest.CtxB))
	return ids
}

func monitorSteersOne(f *face.Fixture, m *Queue) {
	handled := make(chan *delayqueue.Message, 1)
	started, release := make(chan struct{}), make(chan struct{})
	q := face.NoTick(f.Queue(nil)).WithConcurrent(2).WithRetryDelays(time.Hour).WithHandler(
		func(_ context.Context, msg *delayqueue.Message) error {
			switch {
			case msg.Payload == "slow":
				close(started)
				<-release
			case msg.Payload == "fails" && msg.Failures == 0:
				handled <- msg
				return queuetest.ErrBoom
			default:
				handled <- msg
			}
			return nil
		})
	q.StartConsume()
	a := f.Send(q, "a", face.InAnHour, delayqueue.WithKey("a"))
	f.Must(m.RescheduleBy(queuetest.CtxB, a.ID, time.Minute))
	if s := statusInQueue(f, m, a.ID); !s.Due.Equal(a.Due.Add(time.Minute)) || !s.At.Equal(s.Due) || s.Key != "a" {
		f.T.Errorf("a minute later than %v: %+v", a.Due, s)
	}
	f.Must(m.RescheduleBy(queuetest.CtxB, a.ID, -2*time.Minute))
	if s := statusInQueue(f, m, a.ID); !s.Due.Equal(a.Due.Add(-time.Minute)) {
		f.T.Errorf("two minutes earlier: %+v", s)
	}
	at := time.Now().Add(2 * time.Second).Truncate(time.Microsecond)
	f.Must(m.Reschedule(queuetest.CtxB, a.ID, at))
	if msg := queuetest.Receive(f.T, "it comes at its new time, woken by the alarm", handled); msg.ID != a.ID ||
		!msg.Due.Equal(at) || time.Now().Before(at) {
		f.T.Errorf("handled %+v at %v, want it at %v", msg, time.Now(), at)
	}
	b := f.Send(q, "fails", face.InAnHour)
	f.Must(m.RunNow(queuetest.CtxB, b.ID))
	queuetest.Receive(f.T, "it runs now", handled)
	queuetest.Eventually(f.T, "it waits for its retry", func() bool { return f.Where(b.ID) == "retry" })
	f.Must(m.RunNow(queuetest.CtxB, b.ID))
	if msg := queuetest.Receive(f.T, "its retry runs now", handled); msg.ID != b.ID || msg.Failures != 1 ||
		!msg.Due.Before(time.Now()) {
		f.T.Errorf("handled %+v", msg)
	}
	c := f.Send(q, "c", face.InAnHour, delayqueue.WithKey("c"))
	f.Must(m.Delete(queuetest.CtxB, c.ID))
	if s, err := m.GetKey(queuetest.CtxB, "c"); s != nil || !errors.Is(err, delayqueue.ErrNotFound) ||
		errors.Is(err, delayqueue.ErrNoQueue) {
		f.T.Errorf("deleted: %+v, %v", s, err)
	}
	slow := f.Send(q, "slow")
	queuetest.Receive(f.T, "a slow one is handled", started)
	for what, call := range map[string]func(id string) error{
		"reschedule": func(id string) error { return m.Reschedule(queuetest.CtxB, id, at) },
		"by":         func(id string) error { return m.RescheduleBy(queuetest.CtxB, id, time.Hour) },
		"run now":    func(id string) error { return m.RunNow(queuetest.CtxB, id) },
		"requeue":    func(id string) error { return m.Requeue(queuetest.CtxB, id) },
		"delete":     func(id string) error { return m.Delete(queuetest.CtxB, id) },
	} {
		for id, want := range map[string]delayqueue.State{slow.ID: delayqueue.StateUnack, c.ID: delayqueue.StateGone} {
			var wrong *delayqueue.StateError
			if err := call(id); !errors.As(err, &wrong) || !errors.Is(err, delayqueue.ErrWrongState) || wrong.State != want ||
				wrong.ID != id ||
				errors.Is(err, delayqueue.ErrNotFound) != (want == delayqueue.StateGone) {
				f.T.Errorf("%s of a message that is %s: %v", what, want, err)
			}
		}
	}
	var wrong *delayqueue.StateError
	if err := q.RescheduleKey(queuetest.CtxB, "c", at); !errors.As(err, &wrong) || wrong.Key != "c" ||
		!errors.Is(err, delayqueue.ErrNotFound) {
		f.T.Errorf("reschedule by a key that nobody has: %v", err)
	}
	d := f.Send(q, "d", face.InAnHour, delayqueue.WithKey("d"))
	f.Must(delayqueue.NewPublisher(f.Name, f.Cli).RescheduleKey(queuetest.CtxB, "d", at.Add(2*time.Hour)))
	if s := statusInQueue(f, m, d.ID); !s.Due.Equal(at.Add(2 * time.Hour)) {
		f.T.Errorf("rescheduled by its key: %+v", s)
	}
	if r, err := m.Cancel(queuetest.CtxB, slow.ID); err != nil || r.State != delayqueue.StateUnack || !r.Intercepted {
		f.T.Errorf("cancel of one that is being handled: %+v, %v", r, err)
	}
	close(release)
	for _, err := range []error{
		m.RescheduleBy(queuetest.CtxB, a.ID, 151*365*24*time.Hour), m.Reschedule(queuetest.CtxB, a.ID, message.MaxDue),
		m.PauseUntil(queuetest.CtxB, message.MaxDue),
	} {
		if !errors.Is(err, delayqueue.ErrBadOption) {
			f.T.Errorf("a time too far: %v", err)
		}
	}
}

func monitorRequeues(f *face.Fixture, m *Queue) {
	ids := buriedIn(f, "a", "b")
	if err := m.Reschedule(queuetest.CtxB, ids[0], time.Now()); !errors.Is(err, delayqueue.ErrWrongState) {
		f.T.Errorf("reschedule of garbage: %v", err)
	}
	other := f.Send(f.Queue(nil), "other", face.InAnHour, delayqueue.WithKey("key of b"))
	var dup *delayqueue.DuplicateKeyError
	if err := m.Requeue(queuetest.CtxB, ids[1]); !errors.As(err, &dup) || dup.ID != other.ID || dup.Key != "key of b" {
		f.T.Errorf("requeue of one whose key another holds: %v", err)
	}
	f.Must(m.Requeue(queuetest.CtxB, ids[0]))
	if s := statusInQueue(f, m, ids[0]); s.State != delayqueue.StateReady || s.Failures != 0 || s.Losses != 0 ||
		s.LastError != "skip retry: no a" || s.Delivery != 2 {
		f.T.Errorf("brought back: %+v", s)
	}
	if s, err := m.GetKey(queuetest.CtxB, "key of a"); err != nil || s == nil || s.ID != ids[0] {
		f.T.Errorf("its key finds %+v, %v", s, err)
	}
	failures := make(chan int, 10)
	q := f.Queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		failures <- msg.Failures
		return queuetest.ErrBoom
	})
	q.StartConsume()
	for want := range 4 {
		if n := queuetest.Receive(f.T, "all its retries", failures); n != want {
			f.T.Errorf("failures %d, want %d", n, want)
		}
	}
	queuetest.Eventually(f.T, "it is garbage again", func() bool { return f.Where(ids[0]) == "garbage" })
}

func monitorPauses(f *face.Fixture, m *Queue) {
	handled := make(chan string, 10)
	started, release := make(chan struct{}), make(chan struct{})
	q := f.Queue(func(p string) bool {
		if p == "slow" {
			close(started)
			<-release
		}
		handled <- p
		return true
	}).WithConcurrent(2)
	q.StartConsume()
	f.Send(q, "slow")
	queuetest.Receive(f.T, "it is handled", started)
	f.Must(m.Pause(queuetest.CtxB))
	// From the first fetch after this on nothing is handed out: that is due within a second.
	since := time.Now()
	queuetest.Eventually(f.T, "the consumer has looked", func() bool { return seenAfter(f.Base, since) })
	waits := f.Send(q, "waits")
	close(release)
	if p := queuetest.Receive(f.T, "a handler that was running finishes", handled); p != "slow" {
		f.T.Errorf("handled %q", p)
	}
	queuetest.Eventually(f.T, "two ticks have passed", func() bool {
		return seenAfter(f.Base, time.Now().Add(-time.Since(since)/2)) && time.Since(since) > 2*time.Second
	})
	if where := f.Where(waits.ID); where != "pending" || len(handled) > 0 {
		f.T.Errorf("handed out while paused: it is in %s", where)
	}
	f.Must(m.Resume(queuetest.CtxB))
	queuetest.Receive(f.T, "it comes after the pause", handled)
}

// seenAfter says whether a consumer has fetched since.
func seenAfter(f *queuetest.Base, t time.Time) bool {
	var us int64
	_, err := fmt.Sscan(f.Check().Fields["seen"], &us)
	return err == nil && us > t.UnixMicro()
}

// monitorPauseEnds: a pause ends at its instant, and consumers wake for it without a tick.
func monitorPauseEnds(f *face.Fixture, m *Queue) {
	handled := make(chan time.Time, 10)
	until := time.Now().Add(3 * time.Second)
	q := face.NoTick(f.Queue(func(string) bool { handled <- time.Now(); return true }))
	f.Send(q, "before")
	f.Must(m.PauseUntil(queuetest.CtxB, until))
	q.StartConsume()
	if at := queuetest.Receive(f.T, "it comes after the pause", handled); at.Before(until) {
		f.T.Errorf("handled %v before the end of the pause", until.Sub(at))
	}
	f.Must(m.Pause(queuetest.CtxB))
	f.Send(q, "while")
	queuetest.Eventually(f.T, "nobody is woken while it is paused", func() bool {
		return f.Check().Wake >= message.Forever || f.Check().Fields["armed"] != "0"
	})
	f.Must(m.Resume(queuetest.CtxB))
	queuetest.Receive(f.T, "it comes once resumed", handled)
}

func monitorDeletesQueue(f *face.Fixture, m *Queue) {
	q := f.Queue(func(string) bool { return true })
	f.Send(q, "x", face.InAnHour)
	q.StartConsume()
	queuetest.Eventually(f.T, "it is seen", func() bool {
		cs, err := m.Consumers(queuetest.CtxB)
		return err == nil && len(cs) == 1
	})
	if err := m.DeleteQueue(queuetest.CtxB, false); !errors.Is(err, ErrConsumersAlive) || !errors.Is(err, ErrNotEmpty) {
		f.T.Errorf("with a consumer and a message: %v", err)
	}
	if n := len(f.Check().Messages); n != 1 {
		f.T.Errorf("%d messages are left of 1", n)
	}
	f.Must(m.DeleteQueue(queuetest.CtxB, true))
	if n := len(f.Check().Messages); n != 0 {
		f.T.Errorf("%d messages are left after it was forced", n)
	}
	f.Must(q.Shutdown(queuetest.CtxB))
	last := f.Send(q, "y", face.InAnHour, delayqueue.WithSequence("s", 1))
	refused := func(what, counts string) {
		f.T.Helper()
		err := m.DeleteQueue(queuetest.CtxB, false)
		if !errors.Is(err, ErrNotEmpty) || errors.Is(err, ErrConsumersAlive) || !strings.Contains(err.Error(), counts) {
			f.T.Errorf("%s: %v", what, err)
		}
	}
	refused("a message", "messages: 1, schedules: 0")
	f.Must(m.Delete(queuetest.CtxB, last.ID))
	f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("schedules"), "e", "{}").Err())
	refused("a schedule", "messages: 0, schedules: 1")
	f.Must(f.Cli.Del(queuetest.CtxB, f.Key("schedules")).Err())
	f.Must(m.DeleteQueue(queuetest.CtxB, false)) // its sequence does not count
	f.CheckEmpty()
}

// TestPauseFor: a pause of so long is in the journal. One of no length is refused, and so is one until an instant
// that is over by the server's clock, or that has wrapped: neither ends a pause.
func TestPauseFor(t *testing.T) {
	f, m := newQueue(t)
	f.Send(f.Queue(nil), "x", face.InAnHour)
	f.Must(m.Pause(queuetest.CtxB))
	for _, bad := range []time.Duration{0, -time.Second, 30, message.MaxDelay + 1} {
		if err := m.PauseFor(queuetest.CtxB, bad); !errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("for %d: %v", bad, err)
		}
	}
	for name, at := range map[string]time.Time{"a minute ago": time.Now().Add(-time.Minute), "1970": time.Unix(0, 0),
		"before":  time.Unix(-1, 0),
		"wrapped": time.Unix(math.MaxInt64, 0)} {
		if err := m.PauseUntil(queuetest.CtxB, at); !errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("until %s: %v", name, err)
		}
	}
	if n, err := m.Counts(queuetest.CtxB); err != nil || !n.Paused || !n.PausedUntil.IsZero() {
		t.Errorf("%+v, %v", n, err)
	}
	f.Must(m.PauseFor(queuetest.CtxB, time.Hour))
	n, err := m.Counts(queuetest.CtxB)
	f.Must(err)
	if all := journalIn(f, m); !n.Paused || len(all) != 2 || all[0].Detail != "until "+instantText(n.PausedUntil) {
		t.Errorf("%+v, %+v", n, all)
	}
}
