package features

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

func TestHandlerLongerThanTwoLeases(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprint("while it stops ", stops), func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			const lease = 9 * time.Second // a pause of the machine is shorter than what is left after a third of it
			started, finished := make(chan struct{}, 2), make(chan error, 2)
			handler := func(ctx context.Context, _ *delayqueue.Message) error {
				started <- struct{}{}
				select {
				case <-ctx.Done():
				case <-time.After(2*lease + lease/4):
				}
				finished <- ctx.Err()
				return nil
			}
			q := f.QueueOn(f.Client(), nil).WithLease(lease).WithHandler(handler)
			q.StartConsume()
			f.Send(f.Queue(nil), "work", delayqueue.WithRetryCount(0))
			queuetest.Receive(t, "it starts", started)
			f.QueueOn(f.Client(), nil).WithLease(lease).WithHandler(handler).StartConsume() // to take what is not renewed
			if stops {
				q.StopConsume()
			}
			if err := queuetest.Receive(t, "the handler finishes", finished); err != nil {
				t.Errorf("its context ended: %v", err)
			}
			queuetest.Eventually(t, "it is acked", func() bool { return len(f.Check().Messages) == 0 })
			if len(started) > 0 || f.Log.Count("gave up settling") != 0 {
				t.Error("it was handed out again")
			}
		})
	}
}

// TestPanicNil: where GODEBUG makes recover return nil for it, it is a failure all the same.
func TestPanicNil(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	f := face.New(t)
	deaths := make(chan error, 1)
	q := f.Queue(func(string) bool { panic(nil) }).
		WithGarbageHandler(func(_ context.Context, _ *delayqueue.Message, err error) { deaths <- err })
	f.Send(q, "x", delayqueue.WithRetryCount(0))
	q.StartConsume()
	if err := queuetest.Receive(t, "its death is told", deaths); !errors.Is(err, delayqueue.ErrPanicked) {
		t.Errorf("it died of %v", err)
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
	f := face.New(t)
	deaths := make(chan string, 2)
	q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		if msg.Payload == "typed nil" {
			var e *nilError
			return e
		}
		return panickyError{}
	}).WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, _ error) { deaths <- msg.Payload })
	q.StartConsume()
	for _, payload := range []string{"typed nil", "panics"} {
		f.Send(q, payload, delayqueue.WithRetryCount(0))
		if p := queuetest.Receive(t, "it dies of a failure", deaths); p != payload {
			t.Errorf("%q died", p)
		}
	}
}

// TestHooksThatEndTheirGoroutine: every function of the user's may be a t.Fatal.
func TestHooksThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	handled, deaths := make(chan string, 4), make(chan string, 4)
	q := f.Queue(func(payload string) bool { handled <- payload; return payload == "good" }).
		WithErrorHandler(func(context.Context, *delayqueue.Message, error) { runtime.Goexit() }).
		WithRetryDelayFunc(func(int, error, *delayqueue.Message) time.Duration { runtime.Goexit(); return 0 }).
		WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, _ error) {
			deaths <- msg.Payload
			runtime.Goexit()
		})
	q.StartConsume()
	for _, payload := range []string{"bad", "worse"} {
		f.Send(q, payload, delayqueue.WithRetryCount(0))
		queuetest.Receive(t, "it is handled", handled)
		queuetest.Receive(t, "its death is told", deaths)
	}
	f.Send(q, "retried", delayqueue.WithRetryCount(1))
	queuetest.Receive(t, "it is handled", handled)
	queuetest.Receive(t, "it comes again after the default delay", handled)
	queuetest.Receive(t, "its death is told", deaths)
	f.Send(q, "good")
	if p := queuetest.Receive(t, "consuming goes on", handled); p != "good" {
		t.Errorf("handled %q", p)
	}
}

// TestHooksOwnTheirMessage: what they do to it is their own affair.
func TestHooksOwnTheirMessage(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	spoil := func(msg *delayqueue.Message) {
		if msg.Key != "k" || msg.MaxRetries != 5 || msg.Headers["mine"] != "" {
			t.Errorf("it has what another made of its own: %+v", msg)
		}
		msg.ID, msg.Key, msg.MaxRetries, msg.Headers["mine"] = "mine", "mine", 0, "mine"
	}
	q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		spoil(msg)
		return queuetest.ErrBoom
	}).
		WithErrorHandler(func(_ context.Context, msg *delayqueue.Message, _ error) { spoil(msg) }).
		WithRetryDelayFunc(func(_ int, _ error, msg *delayqueue.Message) time.Duration { spoil(msg); return time.Hour })
	info := f.Send(q, "x", delayqueue.WithRetryCount(5), delayqueue.WithKey("k"), delayqueue.WithHeader("h", "v"))
	q.StartConsume()
	queuetest.Eventually(t, "it waits for its retry", func() bool { return f.Where(info.ID) == "retry" })
}

func TestMiddlewareBaseContextAndMessage(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	type contextKey struct{}
	base := context.WithValue(context.Background(), contextKey{}, "from the base")
	calls := make(chan string, 10)
	wrap := func(name string) func(delayqueue.Handler) delayqueue.Handler {
		return func(next delayqueue.Handler) delayqueue.Handler {
			return func(ctx context.Context, msg *delayqueue.Message) error {
				calls <- name + " in"
				err := next(ctx, msg)
				calls <- name + " out: " + fmt.Sprint(err)
				return err
			}
		}
	}
	got := make(chan *delayqueue.Message, 1)
	q := f.Queue(nil).WithBaseContext(base).WithMiddleware(wrap("outer")).WithMiddleware(wrap("inner")).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			calls <- fmt.Sprint(ctx.Value(contextKey{}))
			got <- msg
			return nil
		})
	info := f.Send(q, "payload", delayqueue.WithKey("k"), delayqueue.WithHeader("trace", "1"),
		delayqueue.WithHeader("other", ""),
		delayqueue.WithRetryCount(5), delayqueue.WithDelay(time.Millisecond))
	q.StartConsume()
	msg := queuetest.Receive(t, "it arrives", got)
	if msg.ID != info.ID || msg.Key != "k" || msg.Payload != "payload" || msg.MaxRetries != 5 || msg.Delivery != 1 ||
		msg.Failures != 0 ||
		!msg.Due.Equal(info.Due) || len(msg.Headers) != 2 || msg.Headers["trace"] != "1" {
		t.Errorf("message %+v, sent as %+v", msg, info)
	}
	for _, want := range []string{"outer in", "inner in", "from the base", "inner out: <nil>", "outer out: <nil>"} {
		if call := queuetest.Receive(t, want, calls); call != want {
			t.Errorf("%q, want %q", call, want)
		}
	}
	// Around a callback too.
	q.StopConsume()
	f.Send(q.WithCallback(func(string) bool { return false }).WithNackRedeliveryDelay(time.Hour), "again")
	q.StartConsume()
	for _, want := range []string{"outer in", "inner in", "inner out: " + delayqueue.ErrNacked.Error(), "outer out: " +
		delayqueue.ErrNacked.Error()} {
		if call := queuetest.Receive(t, want, calls); call != want {
			t.Errorf("%q, want %q", call, want)
		}
	}
}

// TestMiddlewareThatCallsItsQueue: constructors are the user's code, and may call anything.
func TestMiddlewareThatCallsItsQueue(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started := make(chan string, 1)
	q := f.Queue(func(payload string) bool { started <- payload; return true })
	q.WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
		q.StopConsume()
		q.WithConcurrent(2)
		if err := q.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		return next
	})
	result := make(chan struct{})
	go func() { q.StartConsume(); close(result) }()
	queuetest.Receive(t, "StartConsume returns", result)
	f.Send(q, "x")
	queuetest.Receive(t, "it consumes", started)
}
