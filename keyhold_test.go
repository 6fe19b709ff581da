package delayqueue

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestKeyHoldIsRespected: what was handled once is not handled again because somebody requeues an earlier try, or all of them;
// GetKey says why, and ReleaseKey lets it pass.
func TestKeyHoldIsRespected(t *testing.T) {
	f := newFixture(t)
	opts := []MsgOption{WithKey("event-1", Keep), WithKeyHold(24 * time.Hour)}
	paid, refuses := 0, true
	q := f.queue(nil).WithHandler(func(context.Context, *Message) error {
		if refuses {
			return ErrSkipRetry
		}
		paid++
		return nil
	})
	drain := func() {
		t.Helper()
		if _, err := q.Drain(ctxB); err != nil {
			t.Fatal(err)
		}
	}
	first, err := q.Send(ctxB, "1", opts...)
	if err != nil {
		t.Fatal(err)
	}
	drain()
	refuses = false
	second, err := q.Send(ctxB, "1", opts...)
	if err != nil || second.Existed {
		t.Fatalf("%+v, %v", second, err)
	}
	drain()
	m := NewMonitor(f.name, f.cli)
	held := new(KeyHeldError)
	if got, err := m.GetKey(ctxB, "event-1"); got != nil || !errors.As(err, &held) || held.ID != second.ID || time.Until(held.Until) < 23*time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
	dup := new(DuplicateKeyError)
	if err := m.Requeue(ctxB, first.ID); !errors.As(err, &dup) || dup.ID != second.ID || !dup.Held || dup.Key != "event-1" {
		t.Errorf("requeue: %v", err)
	}
	if r, err := m.BulkRequeue(ctxB, Bulk{}); err != nil || r.Done != 0 || r.Passed[PassedKey] != 1 {
		t.Errorf("requeue of all: %+v, %v", r, err)
	}
	if _, err := q.Send(ctxB, "1", WithKey("event-1")); !errors.As(err, &dup) || !dup.Held {
		t.Errorf("send: %v", err)
	}
	if found, err := m.Find(ctxB, "event-1", Find{}, ""); err != nil || len(found.Matches) != 1 || found.Matches[0].ID != first.ID {
		t.Errorf("find: %+v, %v", found, err)
	}
	drain()
	if err := m.ReleaseKey(ctxB, "event-1"); err != nil {
		t.Error(err)
	}
	if err := m.ReleaseKey(ctxB, "event-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("released twice: %v", err)
	}
	if page, err := m.Journal(ctxB, 0, ""); err != nil || page.Entries[0].Act != ActReleaseKey || page.Entries[0].Target != "event-1" {
		t.Errorf("%+v, %v", page, err)
	}
	if err := m.Requeue(ctxB, first.ID); err != nil {
		t.Error(err)
	}
	if drain(); paid != 2 {
		t.Errorf("handled %d times", paid)
	}
}
