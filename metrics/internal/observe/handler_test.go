package observe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func TestOutcomeOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want Outcome
	}{
		{nil, Ack},
		{errors.New("no"), Nack},
		{delayqueue.ErrNacked, Nack},
		{delayqueue.ErrSkipRetry, Nack},
		{delayqueue.RetryAfter(time.Second, nil), Nack},
		{delayqueue.Snooze(time.Second), Snooze},
		{fmt.Errorf("busy: %w", delayqueue.Snooze(time.Second)), Snooze},
		{fmt.Errorf("%w: %w", delayqueue.ErrSkipRetry, delayqueue.Snooze(time.Second)), Nack}, // garbage
	} {
		if got := OutcomeOf(t.Context(), tt.err); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, got, tt.want)
		}
	}
	for cause, want := range map[error]Outcome{
		delayqueue.ErrCanceled: Void, delayqueue.ErrDeliveryLost: Void, delayqueue.ErrShutdown: Void,
		delayqueue.ErrConsumeTimeout:    Nack, // that is a failure
		errors.New("the handler's own"): Nack,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if got := OutcomeOf(ctx, ctx.Err()); got != want {
			t.Errorf("ended by %v: %s, want %s", cause, got, want)
		}
	}
}

func TestHandlers(t *testing.T) {
	no := errors.New("no")
	for name, tt := range map[string]struct {
		handler  delayqueue.Handler
		msg      delayqueue.Message
		err      error
		first    bool
		lateness time.Duration // at least
	}{
		"an error, late": {func(context.Context, *delayqueue.Message) error { return no },
			delayqueue.Message{Delivery: 1, Due: time.Now().Add(-time.Hour)}, no, true, time.Hour},
		"a clock behind": {func(context.Context, *delayqueue.Message) error { return nil },
			delayqueue.Message{Delivery: 1, Due: time.Now().Add(time.Hour)}, nil, true, 0},
		"a retry": {func(context.Context, *delayqueue.Message) error { return nil }, delayqueue.Message{Delivery: 2}, nil,
			false, 0},
		"a panic": {func(context.Context, *delayqueue.Message) error { panic("no") }, delayqueue.Message{Delivery: 1},
			delayqueue.ErrPanicked, true, 0},
		"Goexit": {func(context.Context, *delayqueue.Message) error {
			runtime.Goexit()
			return nil
		}, delayqueue.Message{Delivery: 1},
			delayqueue.ErrPanicked, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan Handled, 1)
			panicked := make(chan any, 1)
			go func() {
				defer func() { panicked <- recover() }()
				_ = Handlers(func() string { return "" }, func(_ context.Context, h Handled) { seen <- h })(tt.handler)(
					t.Context(), &tt.msg)
			}()
			if p := <-panicked; (p != nil) != (name == "a panic") {
				t.Errorf("panic %v", p)
			}
			h := <-seen
			if !errors.Is(h.Err, tt.err) || h.First != tt.first || h.Took < 0 || h.Lateness < tt.lateness {
				t.Errorf("%+v", h)
			}
		})
	}
}

// TestKindsAreBounded: senders choose kinds, and each is a series.
func TestKindsAreBounded(t *testing.T) {
	seen := map[string]int{}
	handlers := Handlers(func() string { return "type" }, func(_ context.Context, h Handled) { seen[h.Kind]++ })
	handle := handlers(func(context.Context, *delayqueue.Message) error { return nil })
	call := func(value string) {
		_ = handle(t.Context(), &delayqueue.Message{Headers: map[string]string{"type": value, "kind": "x"}})
	}
	call("")
	call("ship\xff")
	call(strings.Repeat("\u4e16", 1000)) // 21 characters and the start of one
	for i := range 2 * 60 {
		call(fmt.Sprint(i % 60))
	}
	if len(seen) != 52 || seen["none"] != 1 || seen["ship\uFFFD"] != 1 || seen["47"] != 2 || seen["other"] != 2*12 ||
		seen[strings.Repeat("\u4e16", 21)+"\uFFFD"] != 1 {
		t.Errorf("%d: %v", len(seen), seen)
	}
}
