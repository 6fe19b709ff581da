package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestVerbsOnHandled has the rows of docs/life.md, What a verb does while a handler is at work.
func TestVerbsOnHandled(t *testing.T) {
	f, m := newQueue(t)
	started, release, ended := make(chan string, 1), make(chan struct{}, 1), make(chan error, 1)
	q := f.Queue(nil).WithLease(3 * time.Second).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
		started <- ""
		select {
		case <-release:
		case <-ctx.Done():
		}
		ended <- context.Cause(ctx)
		return nil
	})
	q.StartConsume()
	ctx, running := queuetest.CtxB, []delayqueue.State{delayqueue.StateUnack}
	var id string
	bulk := func(do func(context.Context, Bulk) (*BulkResult, error)) func() error {
		return func() error { return queuetest.Failure(do(ctx, Bulk{States: running})) }
	}
	refused := map[string]func() error{
		"Delete":        func() error { return m.Delete(ctx, id) },
		"Requeue":       func() error { return m.Requeue(ctx, id) },
		"RunNow":        func() error { return m.RunNow(ctx, id) },
		"Reschedule":    func() error { return m.Reschedule(ctx, id, time.Now().Add(time.Hour)) },
		"RescheduleBy":  func() error { return m.RescheduleBy(ctx, id, time.Hour) },
		"SkipToEnd":     func() error { return m.SkipToEnd(ctx, id) },
		"SkipToGarbage": func() error { return m.SkipToGarbage(ctx, id) },
		"BulkRequeue":   bulk(m.BulkRequeue), "BulkRunNow": bulk(m.BulkRunNow),
		"BulkReschedule": func() error {
			return queuetest.Failure(m.BulkReschedule(ctx, Bulk{States: running}, time.Now().Add(time.Hour)))
		},
		"DeleteQueue": func() error { return m.DeleteQueue(ctx, false) },
	}
	begin := func() {
		t.Helper()
		id = f.Send(q, "x", delayqueue.WithLane("l", 1)).ID
		queuetest.Receive(t, "it is handled", started)
	}
	begin()
	for what, call := range refused {
		if err := call(); err == nil || errors.Is(err, delayqueue.ErrNotFound) ||
			statusInQueue(f, m, id).State != delayqueue.StateUnack {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, err := m.Intercept(ctx, id); err != nil || got.Intercepted || got.State != delayqueue.StateUnack {
		t.Errorf("Intercept: %+v, %v", got, err)
	}
	f.Must(m.Pause(ctx))
	f.Must(queuetest.Failure(m.SetLimits(ctx, Limits{Concurrency: 1})))
	release <- struct{}{}
	if err := queuetest.Receive(t, "the handler ends", ended); err != nil {
		t.Errorf("nothing was done to the message, and its context has ended: %v", err)
	}
	f.Must(m.Resume(ctx))
	f.Must(queuetest.Failure(m.SetLimits(ctx, Limits{})))
	for what, call := range map[string]func() error{
		"Cancel":            func() error { return queuetest.Failure(m.Cancel(ctx, id)) },
		"BulkDelete":        bulk(m.BulkDelete),
		"DeleteQueue force": func() error { return m.DeleteQueue(ctx, true) },
	} {
		begin()
		f.Must(call())
		err := queuetest.Receive(t, what+" ends its context", ended)
		if !errors.Is(err, delayqueue.ErrCanceled) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := m.Get(ctx, id); !errors.Is(err, delayqueue.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
