package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestKeyHoldIsRespected: what was handled once is not handled again because somebody requeues an earlier try, or all of them;
// GetKey says why, and ReleaseKey lets it pass.
func TestKeyHoldIsRespected(t *testing.T) {
	f := face.New(t)
	opts := []delayqueue.MsgOption{delayqueue.WithKey("event-1", delayqueue.Keep), delayqueue.WithKeyHold(24 * time.Hour)}
	paid, refuses := 0, true
	q := f.Queue(nil).WithHandler(func(context.Context, *delayqueue.Message) error {
		if refuses {
			return delayqueue.ErrSkipRetry
		}
		paid++
		return nil
	})
	drain := func() {
		t.Helper()
		f.Must(queuetest.Failure(q.Drain(queuetest.CtxB)))
	}
	first, err := q.Send(queuetest.CtxB, "1", opts...)
	f.Must(err)
	drain()
	refuses = false
	second, err := q.Send(queuetest.CtxB, "1", opts...)
	if err != nil || second.Existed {
		t.Fatalf("%+v, %v", second, err)
	}
	drain()
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	held := new(KeyHeldError)
	if got, err := m.GetKey(queuetest.CtxB, "event-1"); got != nil || !errors.As(err, &held) || held.ID != second.ID || time.Until(held.Until) < 23*time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
	dup := new(delayqueue.DuplicateKeyError)
	if err := m.Requeue(queuetest.CtxB, first.ID); !errors.As(err, &dup) || dup.ID != second.ID || !dup.Held || dup.Key != "event-1" {
		t.Errorf("requeue: %v", err)
	}
	if r, err := m.BulkRequeue(queuetest.CtxB, Bulk{}); err != nil || r.Done != 0 || r.Passed[PassedKey] != 1 {
		t.Errorf("requeue of all: %+v, %v", r, err)
	}
	if _, err := q.Send(queuetest.CtxB, "1", delayqueue.WithKey("event-1")); !errors.As(err, &dup) || !dup.Held {
		t.Errorf("send: %v", err)
	}
	if found, err := m.Find(queuetest.CtxB, "event-1", Find{}, ""); err != nil || len(found.Matches) != 1 || found.Matches[0].ID != first.ID {
		t.Errorf("find: %+v, %v", found, err)
	}
	drain()
	if err := m.ReleaseKey(queuetest.CtxB, "event-1"); err != nil {
		t.Error(err)
	}
	if err := m.ReleaseKey(queuetest.CtxB, "event-1"); !errors.Is(err, delayqueue.ErrNotFound) {
		t.Errorf("released twice: %v", err)
	}
	if page, err := m.Journal(queuetest.CtxB, 0, ""); err != nil || page.Entries[0].Act != ActReleaseKey || page.Entries[0].Target != "event-1" {
		t.Errorf("%+v, %v", page, err)
	}
	if err := m.Requeue(queuetest.CtxB, first.ID); err != nil {
		t.Error(err)
	}
	if drain(); paid != 2 {
		t.Errorf("handled %d times", paid)
	}
}
