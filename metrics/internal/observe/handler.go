package observe

import (
	"context"
	"errors"
	"strings"
	"sync"
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
	Err  error  // ErrPanicked if it did not return
	Kind string // label of the kind of the message; "": the queue names no header of kinds

	// First says that it was the first delivery, which began Lateness after its due instant. That is
	// by the server's clock and the start by this machine's; it is never negative, though.
	First    bool
	Lateness time.Duration
}

// Handlers is a middleware that tells of each call of the handler, one that panics or
// ends its goroutine included. kindHeader is asked at each start of the queue.
func Handlers(kindHeader func() string,
	seen func(context.Context, Handled)) func(delayqueue.Handler) delayqueue.Handler {
	kinds := &kinds{labels: map[string]string{}}
	return func(next delayqueue.Handler) delayqueue.Handler {
		header := kindHeader()
		return func(ctx context.Context, msg *delayqueue.Message) error {
			start := time.Now()
			h := Handled{Err: delayqueue.ErrPanicked, First: msg.Delivery == 1, Lateness: max(start.Sub(msg.Due), 0)}
			if header != "" {
				h.Kind = kinds.label(msg.Headers[header])
			}
			defer func() {
				h.Took = time.Since(start)
				seen(ctx, h)
			}()
			h.Err = next(ctx, msg)
			return h.Err
		}
	}
}

// Labels of kinds that are no value of the header.
const (
	noKind    = "none"  // of messages without the header
	otherKind = "other" // of all that came when there were maxKinds
)

const (
	maxKinds     = 50
	maxKindBytes = 64
)

// kinds are the labels of one queue's kinds. There is a bound, because senders choose the values, and each is a series.
type kinds struct {
	mu     sync.Mutex
	labels map[string]string // by the value, which may be no UTF-8
}

func (k *kinds) label(value string) string {
	if value == "" {
		return noKind
	}
	value = value[:min(len(value), maxKindBytes)]
	k.mu.Lock()
	defer k.mu.Unlock()
	label, met := k.labels[value]
	switch {
	case met:
		return label
	case len(k.labels) == maxKinds:
		return otherKind
	}
	value = strings.Clone(value) // not the whole text that it was cut from
	label = strings.ToValidUTF8(value, "\uFFFD")
	k.labels[value] = label
	return label
}
