package features

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
)

// TestFailures covers a callback that returns false, a handler that returns an error,
// panics, ends its goroutine, or runs past its limit. None of them costs the queue its worker.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(q *delayqueue.DelayQueue, handled func() int)
		want error
		text string
	}{
		"callback returns false": {func(q *delayqueue.DelayQueue, handled func() int) {
			q.WithCallback(func(string) bool { handled(); return false })
		}, delayqueue.ErrNacked, "callback returned false"},
		"handler returns an error": {func(q *delayqueue.DelayQueue, handled func() int) {
			q.WithHandler(func(context.Context, *delayqueue.Message) error {
				return fmt.Errorf("try %d: %w", handled(), queuetest.ErrBoom)
			})
		}, queuetest.ErrBoom, "try 3: boom"},
		"handler panics": {func(q *delayqueue.DelayQueue, handled func() int) {
			q.WithHandler(func(context.Context, *delayqueue.Message) error { handled(); panic("oh no") })
		}, delayqueue.ErrPanicked, "panicked: oh no (features/failures_test.go:"},
		"callback panics": {func(q *delayqueue.DelayQueue, handled func() int) {
			q.WithCallback(func(string) bool { handled(); panic("oh no") })
		}, delayqueue.ErrPanicked, "panicked: oh no (features/failures_test.go:"},
		"handler ends its goroutine": {func(q *delayqueue.DelayQueue, handled func() int) {
			q.WithHandler(func(context.Context, *delayqueue.Message) error { handled(); runtime.Goexit(); return nil })
		}, delayqueue.ErrPanicked, "Goexit"},
		"handler runs past its limit": {func(q *delayqueue.DelayQueue, handled func() int) {
			q.WithMaxConsumeDuration(30 * time.Millisecond).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
				handled()
				<-ctx.Done()
				return nil // too late to say so
			})
		}, delayqueue.ErrConsumeTimeout, "past its limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			var n atomic.Int64
			failures, deaths := make(chan error, 3), make(chan error, 1)
			q := f.Queue(nil).WithNackRedeliveryDelay(10 * time.Millisecond).
				WithErrorHandler(func(_ context.Context, _ *delayqueue.Message, err error) { failures <- err }).
				WithGarbageHandler(func(_ context.Context, _ *delayqueue.Message, err error) { deaths <- err })
			c.set(q, func() int { return int(n.Add(1)) })
			info := f.Send(q, "work", delayqueue.WithRetryCount(2))
			q.StartConsume()
			for range 3 {
				if err := queuetest.Receive(t, "each failure is told", failures); !errors.Is(err, c.want) {
					t.Errorf("failure %v, want %v", err, c.want)
				}
			}
			if err := queuetest.Receive(t, "the death is told", deaths); !errors.Is(err, c.want) {
				t.Errorf("death by %v, want %v", err, c.want)
			}
			// One that runs past its limit may be told of before it has counted itself.
			queuetest.Eventually(t, "three have begun", func() bool { return n.Load() >= 3 })
			if n.Load() != 3 {
				t.Errorf("delivered %d times, want 3: 1 + 2 retries", n.Load())
			}
			record := f.Check().Fail[info.ID]
			if f.Where(info.ID) != "garbage" || record.Failures != 3 || !strings.Contains(record.Error, c.text) {
				t.Errorf("%s with record %+v, want garbage with %q", f.Where(info.ID), record, c.text)
			}
			if strings.HasSuffix(name, "panics") {
				f.Log.Says(t, 3, "delayqueue: handler panicked")
			}
			// The worker lives on.
			f.Send(q, "work", delayqueue.WithRetryCount(0))
			queuetest.Receive(t, "the next message is handled", failures)
			queuetest.Receive(t, "its death is told", deaths)
		})
	}
}

// TestLastErrors: the last five of seven failures, whatever is in their texts, wherever one looks.
func TestLastErrors(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	long := strings.Repeat("x", 3*message.MaxErrorText)
	texts := []string{"gone", "gone, too", "with\nlines\tand blanks  ", "not UTF-8: \xff", "1 2 \x1e3 4 of another",
		long + "6", long + "7"}
	deliveries := make(chan int, len(texts)) // that failed: what no worker took in time is released and has another number
	q := f.Queue(nil).WithLease(time.Hour).WithNackRedeliveryDelay(0).WithHandler(
		func(_ context.Context, m *delayqueue.Message) error {
			deliveries <- m.Delivery
			return errors.New(texts[m.Failures])
		})
	begun := f.Cli.Time(queuetest.CtxB).Val()
	info := f.Send(q, "work", delayqueue.WithKey("k"), delayqueue.WithRetryCount(6))
	q.StartConsume()
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	queuetest.Eventually(t, "it has died", func() bool {
		return statusInQueue(f, m, info.ID).State == delayqueue.StateGarbage
	})
	close(deliveries)
	var failed []int
	for n := range deliveries {
		failed = append(failed, n)
	}
	wants := []string{long[:message.MaxErrorText], long[:200], "1 2  3 4 of another", "not UTF-8: \uFFFD",
		"with\nlines\tand blanks  "}
	page, err := m.List(queuetest.CtxB, delayqueue.StateGarbage, ops.Filter{ErrorContains: "xx"}, "")
	if err != nil || len(page.Messages) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	for _, got := range []*ops.MessageStatus{statusInQueue(f, m, info.ID), page.Messages[0]} {
		if len(got.LastErrors) != len(wants) || got.LastError != wants[0] {
			t.Fatalf("%+v", got)
		}
		last := f.Cli.Time(queuetest.CtxB).Val()
		for i, e := range got.LastErrors {
			if e.Text != wants[i] || e.Delivery != failed[6-i] || e.At.After(last) || e.At.Before(begun) {
				t.Errorf("error %d: %+v", i, e)
			}
			last = e.At
		}
	}
	page, err = m.List(queuetest.CtxB, delayqueue.StateGarbage, ops.Filter{ErrorContains: "another"}, "")
	if err != nil || len(page.Messages) != 0 { // not the last one
		t.Errorf("%+v, %v", page, err)
	}
}
