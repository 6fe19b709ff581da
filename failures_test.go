package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var errBoom = errors.New("boom")

// TestFailures covers a callback that returns false, a handler that returns an error,
// panics, ends its goroutine, or runs past its limit.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(q *DelayQueue, handled func() int)
		want error
		text string
	}{
		"callback returns false": {func(q *DelayQueue, handled func() int) {
			q.WithCallback(func(string) bool { handled(); return false })
		}, ErrNacked, "callback returned false"},
		"handler returns an error": {func(q *DelayQueue, handled func() int) {
			q.WithHandler(func(context.Context, *Message) error { return fmt.Errorf("try %d: %w", handled(), errBoom) })
		}, errBoom, "try 3: boom"},
		"handler panics": {func(q *DelayQueue, handled func() int) {
			q.WithHandler(func(context.Context, *Message) error { handled(); panic("oh no") })
		}, ErrPanicked, "panicked: oh no"},
		"callback panics": {func(q *DelayQueue, handled func() int) {
			q.WithCallback(func(string) bool { handled(); panic("oh no") })
		}, ErrPanicked, "panicked: oh no"},
		"handler ends its goroutine": {func(q *DelayQueue, handled func() int) {
			q.WithHandler(func(context.Context, *Message) error { handled(); runtime.Goexit(); return nil })
		}, ErrPanicked, "Goexit"},
		"handler runs past its limit": {func(q *DelayQueue, handled func() int) {
			q.WithMaxConsumeDuration(30 * time.Millisecond).WithHandler(func(ctx context.Context, _ *Message) error {
				handled()
				<-ctx.Done()
				return nil // too late to say so
			})
		}, ErrConsumeTimeout, "past its limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var n atomic.Int64
			failures, deaths := make(chan error, 3), make(chan error, 1)
			q := f.queue(nil).WithNackRedeliveryDelay(10 * time.Millisecond).
				WithErrorHandler(func(_ context.Context, _ *Message, err error) { failures <- err }).
				WithGarbageHandler(func(_ context.Context, _ *Message, err error) { deaths <- err })
			c.set(q, func() int { return int(n.Add(1)) })
			info := f.send(q, "work", WithRetryCount(2))
			q.StartConsume()
			for range 3 {
				if err := receive(t, "each failure is told", failures); !errors.Is(err, c.want) {
					t.Errorf("failure %v, want %v", err, c.want)
				}
			}
			if err := receive(t, "the death is told", deaths); !errors.Is(err, c.want) {
				t.Errorf("death by %v, want %v", err, c.want)
			}
			// One that runs past its limit may be told of before it has counted itself.
			eventually(t, "three have begun", func() bool { return n.Load() >= 3 })
			if n.Load() != 3 {
				t.Errorf("delivered %d times, want 3: 1 + 2 retries", n.Load())
			}
			record := f.check().Fail[info.ID]
			if f.where(info.ID) != "garbage" || record.Failures != 3 || !strings.Contains(record.Error, c.text) {
				t.Errorf("%s with record %+v, want garbage with %q", f.where(info.ID), record, c.text)
			}
			// The worker lives on.
			f.send(q, "work", WithRetryCount(0))
			receive(t, "the next message is handled", failures)
			receive(t, "its death is told", deaths)
		})
	}
}

func TestRetryDelays(t *testing.T) {
	q := NewQueue("settings", newFixture(t).cli, nil)
	after := func(failures int) time.Duration { return q.settings.delayAfter(failures, errBoom, &Message{}) }
	for n, most := 1, 2*time.Second; n < 40; n, most = n+1, min(2*most, 10*time.Minute) {
		for range 20 {
			if d := after(n); d < most/2 || d > most {
				t.Fatalf("default delay after failure %d is %v, want %v to %v", n, d, most/2, most)
			}
		}
	}
	q.WithNackRedeliveryDelay(7 * time.Second)
	if d := after(3); d != 7*time.Second {
		t.Errorf("WithNackRedeliveryDelay: %v", d)
	}
	q.WithRetryDelays(30*time.Second, time.Minute, 10*time.Minute)
	for n, want := range map[int]time.Duration{1: 30 * time.Second, 2: time.Minute, 3: 10 * time.Minute, 9: 10 * time.Minute} {
		if d := after(n); d != want {
			t.Errorf("WithRetryDelays, failure %d: %v, want %v", n, d, want)
		}
	}
	q.WithRetryDelayFunc(func(failures int, err error, _ *Message) time.Duration {
		if !errors.Is(err, errBoom) {
			t.Errorf("the function got %v", err)
		}
		return time.Duration(failures) * time.Hour
	})
	if d := after(2); d != 2*time.Hour {
		t.Errorf("WithRetryDelayFunc: %v", d)
	}
}

// TestRetryWaits sees the delays in Redis: the queue's own, and RetryAfter above it.
func TestRetryWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	failed := make(chan string, 2)
	q := f.queue(nil).WithRetryDelays(time.Hour).
		WithHandler(func(_ context.Context, msg *Message) error {
			defer func() { failed <- msg.ID }()
			if msg.Payload == "own" {
				return RetryAfter(2*time.Hour, errBoom)
			}
			return errBoom
		})
	plain, own := f.send(q, "plain"), f.send(q, "own")
	q.StartConsume()
	receive(t, "one fails", failed)
	receive(t, "the other fails", failed)
	eventually(t, "both wait for their retry", func() bool { return len(f.check().Retry) == 2 })
	state := f.check()
	for _, e := range state.Retry {
		want := map[string]int64{plain.ID: 1, own.ID: 2}[e.ID] * time.Hour.Microseconds()
		if in := e.Score - state.Fail[e.ID].When; in != want {
			t.Errorf("message %s waits %d us, want %d", e.ID, in, want)
		}
	}
	if text := state.Fail[own.ID].Error; !strings.Contains(text, "boom") {
		t.Errorf("last error %q", text)
	}
}

func TestErrSkipRetry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deaths := make(chan *Message, 1)
	q := f.queue(nil).WithHandler(func(context.Context, *Message) error { return fmt.Errorf("%w: no such account", ErrSkipRetry) }).
		WithGarbageHandler(func(_ context.Context, msg *Message, _ error) { deaths <- msg })
	info := f.send(q, "work", WithRetryCount(9))
	q.StartConsume()
	if msg := receive(t, "it dies", deaths); msg.ID != info.ID || msg.Delivery != 1 {
		t.Errorf("died as %+v", msg)
	}
	if record := f.check().Fail[info.ID]; record.Failures != 1 || !strings.Contains(record.Error, "no such account") {
		t.Errorf("record %+v", record)
	}
}

// TestErrorWithoutText leaves its type, not the error before it.
func TestErrorWithoutText(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Delivery == 1 {
			return errBoom
		}
		return errors.New("")
	})
	info := f.send(q, "x", WithRetryCount(1))
	q.StartConsume()
	eventually(t, "it dies", func() bool { return f.where(info.ID) == "garbage" })
	if text := f.check().Fail[info.ID].Error; text != "*errors.errorString" {
		t.Errorf("last error %q", text)
	}
}

// TestLastErrors: the last five of seven failures, whatever is in their texts, wherever one looks.
func TestLastErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	long := strings.Repeat("x", 3*maxErrorText)
	texts := []string{"gone", "gone, too", "with\nlines\tand blanks  ", "not UTF-8: \xff", "1 2 \x1e3 4 of another", long + "6", long + "7"}
	deliveries := make(chan int, len(texts)) // that failed: what no worker took in time is released and has another number
	q := f.queue(nil).WithLease(time.Hour).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, m *Message) error {
		deliveries <- m.Delivery
		return errors.New(texts[m.Failures])
	})
	begun := f.cli.Time(ctxB).Val()
	info := f.send(q, "work", WithKey("k"), WithRetryCount(6))
	q.StartConsume()
	m := NewMonitor(f.name, f.cli)
	eventually(t, "it has died", func() bool { return f.status(m, info.ID).State == StateGarbage })
	close(deliveries)
	var failed []int
	for n := range deliveries {
		failed = append(failed, n)
	}
	wants := []string{long[:maxErrorText], long[:maxOlderText], "1 2  3 4 of another", "not UTF-8: \uFFFD", "with\nlines\tand blanks  "}
	page, err := m.List(ctxB, StateGarbage, Filter{Error: "xx"}, "")
	if err != nil || len(page.Messages) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	for _, got := range []*MessageStatus{f.status(m, info.ID), page.Messages[0]} {
		if len(got.LastErrors) != len(wants) || got.LastError != wants[0] {
			t.Fatalf("%+v", got)
		}
		last := f.cli.Time(ctxB).Val()
		for i, e := range got.LastErrors {
			if e.Text != wants[i] || e.Delivery != failed[6-i] || e.At.After(last) || e.At.Before(begun) {
				t.Errorf("error %d: %+v", i, e)
			}
			last = e.At
		}
	}
	if page, err := m.List(ctxB, StateGarbage, Filter{Error: "another"}, ""); err != nil || len(page.Messages) != 0 { // not the last one
		t.Errorf("%+v, %v", page, err)
	}
}
