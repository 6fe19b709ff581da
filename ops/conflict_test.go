package ops

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestWithKeyConflict: what a send is told of the message that has its key.
func TestWithKeyConflict(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	first := f.Send(q, "first", face.InAnHour, delayqueue.WithKey("k", delayqueue.Keep))
	if first.Existed || first.Key != "k" {
		t.Errorf("the first: %+v", first)
	}
	existed := func(what string, info *delayqueue.MessageInfo, due time.Time, payload string) {
		t.Helper()
		if !info.Existed || info.ID != first.ID || info.Key != "k" || !info.Due.Equal(due) {
			t.Errorf("%s: %+v, want %s, due %v", what, info, first.ID, due)
		}
		got, err := m.GetKey(queuetest.CtxB, "k")
		if err != nil || got.Payload != payload || !got.At.Equal(info.Due) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	existed("kept", f.Send(q, "x", delayqueue.WithKey("k", delayqueue.Keep)), first.Due, "first")
	replaced := f.Send(q, "second", delayqueue.WithKey("k", delayqueue.Replace), delayqueue.WithHeader("a", "b"), delayqueue.WithRetryCount(7))
	existed("replaced", replaced, first.Due, "second")
	if got, err := m.Get(queuetest.CtxB, first.ID); err != nil || got.Headers["a"] != "b" || got.MaxRetries != 7 {
		t.Errorf("replaced: %+v, %v", got, err)
	}
	at := time.Now().Add(2 * time.Hour).Truncate(time.Microsecond)
	existed("replaced, at an instant", f.Send(q, "third", delayqueue.WithSchedule(at), delayqueue.WithKey("k", delayqueue.Replace)), at, "third")
	existed("rescheduled", f.Send(q, "x", delayqueue.WithSchedule(at.Add(time.Minute)), delayqueue.WithKey("k", delayqueue.Reschedule)),
		at.Add(time.Minute), "third")
	f.Must(q.SendScheduleMsg("fourth", at, delayqueue.WithKey("k", delayqueue.Replace)))
	if got, err := m.GetKey(queuetest.CtxB, "k"); err != nil || got.Payload != "fourth" || !got.At.Equal(at) || got.ID != first.ID {
		t.Errorf("SendScheduleMsg: %+v, %v", got, err)
	}
	if _, err := q.Send(queuetest.CtxB, "x", delayqueue.WithKey("k")); !errors.Is(err, delayqueue.ErrDuplicateKey) {
		t.Errorf("refused: %v", err)
	}
	if n := len(f.Check().Messages); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestWithKeyHold: who sends again after the ack, within the time, is told of the message that was acked.
func TestWithKeyHold(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var got queuetest.Tally
	q, m := f.Queue(func(payload string) bool { got.Add(payload); return true }), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	q.StartConsume()
	hook := func(payload string, on delayqueue.Conflict) (*delayqueue.MessageInfo, error) {
		return q.Send(queuetest.CtxB, payload, delayqueue.WithKey("event-1", on), delayqueue.WithKeyHold(time.Hour))
	}
	first, err := hook("first", delayqueue.Keep)
	f.Must(err)
	f.Drained()
	for range 3 {
		if info, err := hook("again", delayqueue.Keep); err != nil || !info.Existed || info.ID != first.ID || !info.Due.IsZero() {
			t.Errorf("%+v, %v", info, err)
		}
	}
	for _, on := range []delayqueue.Conflict{delayqueue.Refuse, delayqueue.Replace, delayqueue.Reschedule} {
		var dup *delayqueue.DuplicateKeyError
		if _, err := hook("again", on); !errors.As(err, &dup) || dup.ID != first.ID || face.Fate(f, err) != delayqueue.StoredNo ||
			!strings.Contains(err.Error(), "WithKeyHold") {
			t.Errorf("%v: %v", on, err)
		}
	}
	if _, err := m.GetKey(queuetest.CtxB, "event-1"); !errors.Is(err, delayqueue.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if r, err := q.CancelKey(queuetest.CtxB, "event-1"); err != nil || r.State != delayqueue.StateGone {
		t.Errorf("cancel: %+v, %v", r, err)
	}
	if distinct, total := got.Counts(); distinct != 1 || total != 1 {
		t.Errorf("handled %v", got.N)
	}
}
