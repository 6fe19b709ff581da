package observe

import (
	"context"
	"errors"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// An Outcome is what a handler's result means.
type Outcome string

// The outcomes.
const (
	Ack    Outcome = "ack"
	Nack   Outcome = "nack" // an error, a panic, or false
	Snooze Outcome = "snooze"
	// what it returned had no effect: the message was canceled, its lease lost, or Shutdown impatient
	Void Outcome = "void"
)

// Outcomes are all of them.
var Outcomes = []Outcome{Ack, Nack, Snooze, Void}

// OutcomeOf reads a handler's error, and why its context ended, as the queue does.
func OutcomeOf(ctx context.Context, err error) Outcome {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, delayqueue.ErrCanceled), errors.Is(cause, delayqueue.ErrDeliveryLost),
		errors.Is(cause, delayqueue.ErrShutdown):
		return Void
	case err == nil:
		return Ack
	case !errors.Is(err, delayqueue.ErrSkipRetry) && errors.Is(err, delayqueue.ErrSnoozed):
		return Snooze
	}
	return Nack
}

// A Handled is one call of a handler.
type Handled struct {
	Took time.Duration
	Err  error // ErrPanicked if it did not return

	// First says that it was the first delivery, which began Lateness after its due instant. That is
	// by the server's clock and the start by this machine's; it is never negative, though.
	First    bool
	Lateness time.Duration
}

// Handlers is a middleware that tells of each call of the handler, one that panics or
// ends its goroutine included.
func Handlers(seen func(context.Context, Handled)) func(delayqueue.Handler) delayqueue.Handler {
	return func(next delayqueue.Handler) delayqueue.Handler {
		return func(ctx context.Context, msg *delayqueue.Message) error {
			start := time.Now()
			h := Handled{Err: delayqueue.ErrPanicked, First: msg.Delivery == 1, Lateness: max(start.Sub(msg.Due), 0)}
			defer func() {
				h.Took = time.Since(start)
				seen(ctx, h)
			}()
			h.Err = next(ctx, msg)
			return h.Err
		}
	}
}
