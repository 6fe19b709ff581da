package features

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestSetResult: the last one wins; what is not acked has none; outside a handler, and after it, it is an error.
func TestSetResult(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var later context.Context
	var failed atomic.Bool
	q := f.Queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		switch msg.Payload {
		case "twice":
			f.Must(delayqueue.SetResult(ctx, "first"))
			f.Must(delayqueue.SetResult(ctx, "last"))
		case "none":
		case "empty":
			f.Must(delayqueue.SetResult(ctx, "old"))
			f.Must(delayqueue.SetResult(ctx, ""))
		case "largest":
			f.Must(delayqueue.SetResult(ctx, strings.Repeat("\x00", 1<<20)))
			if err := delayqueue.SetResult(ctx, strings.Repeat("x", 1<<20+1)); !errors.Is(err, delayqueue.ErrPayloadTooLarge) {
				t.Errorf("one byte too many: %v", err)
			}
		case "derived":
			inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
			cancel()
			f.Must(delayqueue.SetResult(inner, "yes"))
			later = ctx
		case "fails first":
			if !failed.Swap(true) {
				f.Must(delayqueue.SetResult(ctx, "of the failure"))
				return errors.New("no")
			}
		case "not kept":
			f.Must(delayqueue.SetResult(ctx, "nobody asked"))
		}
		return nil
	})
	q.StartConsume()
	ctx := queuetest.WithTimeout(t)
	for payload, want := range map[string]string{"twice": "last", "none": "", "empty": "",
		"largest": strings.Repeat("\x00", 1<<20),
		"derived": "yes", "fails first": ""} {
		if r, err := q.Call(ctx, payload); err != nil || r.State != delayqueue.StateDone || r.Value != want {
			t.Errorf("%s: %d bytes, %v", payload, len(r.Value), err)
		}
	}
	if err := delayqueue.SetResult(later, "late"); !errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("after the handler has returned: %v", err)
	}
	if err := delayqueue.SetResult(queuetest.CtxB, "x"); !errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("outside a handler: %v", err)
	}
	info := f.Send(q, "not kept")
	if r, err := q.Await(ctx, info.ID); r != nil || !errors.Is(err, delayqueue.ErrNoResult) {
		t.Errorf("not kept: %+v, %v", r, err)
	}
}

// TestSetResultOfMiddleware: a middleware sees what the handler is, and has the last word.
func TestSetResultOfMiddleware(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithHandler(face.Echo).WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
		return func(ctx context.Context, msg *delayqueue.Message) error {
			err := next(ctx, msg)
			return errors.Join(err, delayqueue.SetResult(ctx, "wrapped"))
		}
	})
	q.StartConsume()
	if r, err := q.Call(queuetest.WithTimeout(t), "x"); err != nil || r.Value != "wrapped" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestDoneLimitSparesCalls: where messages that are kept for long have filled the queue, a Call finds its result all
// the same, and so does who awaits one of those that came last.
func TestDoneLimitSparesCalls(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithHandler(face.Echo).WithDoneLimit(5)
	q.StartConsume()
	for i := range 6 {
		if _, err := q.Await(queuetest.CtxB,
			f.Send(q, fmt.Sprint("kept ", i), delayqueue.WithRetention(24*time.Hour)).ID); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	for i := range 5 {
		payload := fmt.Sprint("call ", i)
		if r, err := q.Call(queuetest.CtxB, payload); err != nil || r.Value != "to "+payload {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if n := len(f.Check().Done); n != 5 {
		t.Errorf("%d are kept", n)
	}
}
