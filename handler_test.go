package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestHandlerLongerThanTwoLeases(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const lease = 9 * time.Second // a pause of the machine is shorter than what is left after a third of it
	var runs atomic.Int64
	finished := make(chan error, 1)
	handler := func(ctx context.Context, _ *Message) error {
		runs.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(2*lease + lease/4):
		}
		finished <- ctx.Err()
		return nil
	}
	for range 2 { // the second one is there to take what is not renewed
		f.queueOn(f.client(), nil).WithLease(lease).WithHandler(handler).StartConsume()
	}
	f.send(f.queue(nil), "work", WithRetryCount(0))
	if err := receive(t, "the handler finishes", finished); err != nil {
		t.Errorf("its context ended: %v", err)
	}
	eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 })
	if n := runs.Load(); n != 1 {
		t.Errorf("ran %d times, want once", n)
	}
}

func TestSlowHandlersByDefault(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var got tally
	handled := make(chan struct{}, 500)
	q := f.queue(nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *Message) error {
		got.add(msg.Payload)
		if msg.Failures != 0 {
			t.Errorf("message %s: %d failures", msg.Payload, msg.Failures)
		}
		time.Sleep(100 * time.Millisecond)
		handled <- struct{}{}
		return nil
	})
	batch := make([]Outgoing, 500)
	for i := range batch {
		batch[i].Payload = strconv.Itoa(i)
	}
	if _, err := q.SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	q.StartConsume()
	for range batch {
		receive(t, "the next one of 500 messages of 100 ms on 4 workers", handled)
	}
	f.drained()
	if _, total := got.counts(); total != 500 {
		t.Errorf("handled %d times, want 500", total)
	}
}

func TestPanicsUseUpNoWorker(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handled := make(chan string, 9)
	q := f.queue(nil).WithConcurrent(4).WithNackRedeliveryDelay(time.Hour).WithHandler(func(_ context.Context, msg *Message) error {
		handled <- msg.Payload
		if msg.Payload == "bad" {
			panic(errBoom)
		}
		return nil
	})
	for range 8 {
		f.send(q, "bad")
	}
	q.StartConsume()
	for range 8 {
		receive(t, "each panics", handled)
	}
	f.send(q, "good")
	if p := receive(t, "the next message is handled", handled); p != "good" {
		t.Errorf("handled %q", p)
	}
	eventually(t, "8 failures wait for their retry", func() bool { return len(f.check().Retry) == 8 })
	f.log.says(t, 8, "delayqueue: handler panicked")
}

// TestPanicNil: where GODEBUG makes recover return nil for it, it is a failure all the same.
func TestPanicNil(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	for name, handler := range map[string]Handler{"handler": func(context.Context, *Message) error { panic(nil) }, "callback": nil} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			deaths := make(chan error, 1)
			q := f.queue(func(string) bool { panic(nil) }).
				WithGarbageHandler(func(_ context.Context, _ *Message, err error) { deaths <- err })
			if handler != nil {
				q.WithHandler(handler)
			}
			info := f.send(q, "x", WithRetryCount(0))
			q.StartConsume()
			eventually(t, "it is settled", func() bool { return f.where(info.ID) != "pending" && f.where(info.ID) != "unack" })
			if where := f.where(info.ID); where != "garbage" {
				t.Fatalf("the message is %s", where)
			}
			if err := receive(t, "its death is told", deaths); !errors.Is(err, ErrPanicked) {
				t.Errorf("it died of %v", err)
			}
		})
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

type panickyError struct{}

func (panickyError) Error() string { panic("in Error") }

func (panickyError) Is(error) bool { panic("in Is") }

// TestErrorsThatPanic: what a handler returns is the user's code as well.
func TestErrorsThatPanic(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deaths := make(chan string, 2)
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Payload == "typed nil" {
			var e *nilError
			return e
		}
		return panickyError{}
	}).WithGarbageHandler(func(_ context.Context, msg *Message, _ error) { deaths <- msg.Payload })
	q.StartConsume()
	for _, payload := range []string{"typed nil", "panics"} {
		f.send(q, payload, WithRetryCount(0))
		if p := receive(t, "it dies of a failure", deaths); p != payload {
			t.Errorf("%q died", p)
		}
	}
	q.StopConsume()
	settledDown(t, q.current())
}

// TestHooksThatEndTheirGoroutine: every function of the user's may be a t.Fatal.
func TestHooksThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handled, deaths := make(chan string, 4), make(chan string, 4)
	q := f.queue(func(payload string) bool { handled <- payload; return payload == "good" }).
		WithErrorHandler(func(context.Context, *Message, error) { runtime.Goexit() }).
		WithRetryDelayFunc(func(int, error, *Message) time.Duration { runtime.Goexit(); return 0 }).
		WithGarbageHandler(func(_ context.Context, msg *Message, _ error) { deaths <- msg.Payload; runtime.Goexit() })
	q.StartConsume()
	for _, payload := range []string{"bad", "worse"} {
		f.send(q, payload, WithRetryCount(0))
		receive(t, "it is handled", handled)
		receive(t, "its death is told", deaths)
	}
	retried := f.send(q, "retried", WithRetryCount(1))
	receive(t, "it is handled", handled)
	eventually(t, "it waits for the default delay", func() bool { return f.where(retried.ID) == "retry" })
	f.send(q, "good")
	if p := receive(t, "consuming goes on", handled); p != "good" {
		t.Errorf("handled %q", p)
	}
	q.StopConsume()
	settledDown(t, q.current())
}

// TestHooksOwnTheirMessage: what they do to it is their own affair.
func TestHooksOwnTheirMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	spoil := func(msg *Message) {
		msg.ID, msg.Key, msg.MaxRetries = "mine", "mine", 0
		if msg.Headers != nil {
			msg.Headers["mine"] = "mine"
		}
	}
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error { spoil(msg); return errBoom }).
		WithErrorHandler(func(_ context.Context, msg *Message, _ error) { spoil(msg) }).
		WithRetryDelayFunc(func(_ int, _ error, msg *Message) time.Duration { spoil(msg); return time.Hour })
	info := f.send(q, "x", WithRetryCount(5), WithKey("k"), WithHeader("h", "v"))
	q.StartConsume()
	eventually(t, "it waits for its retry", func() bool { return f.where(info.ID) == "retry" })
}

func TestMiddlewareBaseContextAndMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	type contextKey struct{}
	base := context.WithValue(context.Background(), contextKey{}, "from the base")
	calls := make(chan string, 10)
	wrap := func(name string) func(Handler) Handler {
		return func(next Handler) Handler {
			return func(ctx context.Context, msg *Message) error {
				calls <- name + " in"
				err := next(ctx, msg)
				calls <- name + " out: " + fmt.Sprint(err)
				return err
			}
		}
	}
	got := make(chan *Message, 1)
	q := f.queue(nil).WithBaseContext(base).WithMiddleware(wrap("outer")).WithMiddleware(wrap("inner")).
		WithHandler(func(ctx context.Context, msg *Message) error {
			calls <- fmt.Sprint(ctx.Value(contextKey{}))
			got <- msg
			return nil
		})
	info := f.send(q, "payload", WithKey("k"), WithHeader("trace", "1"), WithHeader("other", ""),
		WithRetryCount(5), WithDelay(time.Millisecond))
	q.StartConsume()
	msg := receive(t, "it arrives", got)
	if msg.ID != info.ID || msg.Key != "k" || msg.Payload != "payload" || msg.MaxRetries != 5 || msg.Delivery != 1 || msg.Failures != 0 ||
		!msg.Due.Equal(info.Due) || len(msg.Headers) != 2 || msg.Headers["trace"] != "1" {
		t.Errorf("message %+v, sent as %+v", msg, info)
	}
	for _, want := range []string{"outer in", "inner in", "from the base", "inner out: <nil>", "outer out: <nil>"} {
		if call := receive(t, want, calls); call != want {
			t.Errorf("%q, want %q", call, want)
		}
	}
	// Around a callback too.
	q.StopConsume()
	f.send(q.WithCallback(func(string) bool { return false }).WithNackRedeliveryDelay(time.Hour), "again")
	q.StartConsume()
	for _, want := range []string{"outer in", "inner in", "inner out: " + ErrNacked.Error(), "outer out: " + ErrNacked.Error()} {
		if call := receive(t, want, calls); call != want {
			t.Errorf("%q, want %q", call, want)
		}
	}
}

func TestMiddlewareThatReturnsNil(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(func(string) bool { return true }).WithMiddleware(func(Handler) Handler { return nil })
	if text := panicText(func() { q.StartConsume() }); !strings.Contains(text, "middleware 1 returned a nil Handler") {
		t.Errorf("panicked with %q", text)
	}
}

// TestMiddlewareThatCallsItsQueue: constructors are the user's code, and may call anything.
func TestMiddlewareThatCallsItsQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started := make(chan string, 1)
	q := f.queue(func(payload string) bool { started <- payload; return true })
	q.WithMiddleware(func(next Handler) Handler {
		q.StopConsume()
		q.WithConcurrent(2)
		if err := q.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		return next
	})
	result := make(chan struct{})
	go func() { q.StartConsume(); close(result) }()
	receive(t, "StartConsume returns", result)
	f.send(q, "x")
	receive(t, "it consumes", started)
}

// TestSlowGarbageHandler: what it is too slow for is dropped and counted, and settling goes on.
func TestSlowGarbageHandler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	var told atomic.Int64
	q := f.queue(nil).WithConcurrent(4).WithFailureLevel(slog.LevelDebug).
		WithHandler(func(context.Context, *Message) error { return ErrSkipRetry }).
		WithGarbageHandler(func(context.Context, *Message, error) {
			told.Add(1)
			select {
			case entered <- struct{}{}:
			default:
			}
			<-release
		})
	done := q.StartConsume()
	f.send(q, "first")
	receive(t, "the garbage handler is at it", entered)
	const n = maxNotices + 100
	batch := make([]Outgoing, n)
	if _, err := q.SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	dropped := func() (total int) {
		for _, m := range regexp.MustCompile(`garbage handler is too slow.* messages=(\d+)`).FindAllStringSubmatch(f.log.String(), -1) {
			k, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			total += k
		}
		return total
	}
	eventually(t, "all are garbage", func() bool { return len(f.check().Garbage) == n+1 })
	eventually(t, "the consumer knows it", func() bool { return q.current().leases.held.totals().deliveries == 0 && dropped() >= 100 })
	q.StopConsume()
	close(release)
	receive(t, "the stop has waited for the rest", done)
	if told.Load() != maxNotices+1 || dropped() != 100 {
		t.Errorf("told of %d, %d are said to be dropped, want %d and 100", told.Load(), dropped(), maxNotices+1)
	}
}
