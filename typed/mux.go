package typed

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/clock"
)

// A Mux hands messages to the handlers of their kinds. Its zero value has none. It is safe for concurrent use.
type Mux struct {
	mu       sync.RWMutex // guards the fields below
	handlers map[string]delayqueue.Handler
	untyped  delayqueue.Handler
	log      *slog.Logger // nil: slog.Default
	met      meetings

	hour, away time.Duration // of tests: in place of unknownFor and comeBack
}

// NewMux makes a Mux.
func NewMux() *Mux { return &Mux{} }

// WithLogger sets the log, which hears of kinds that have no handler. Default: slog.Default.
func (m *Mux) WithLogger(log *slog.Logger) *Mux {
	if log == nil {
		panic("typed: WithLogger: the logger must not be nil; for silence use slog.DiscardHandler")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = log
	return m
}

// HandleUntyped sets the handler of messages without a kind, as who sends without this package makes them. It panics if
// the handler is nil, or if there is one.
func (m *Mux) HandleUntyped(handler delayqueue.Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if handler == nil {
		panic("typed: HandleUntyped: the handler must not be nil")
	}
	if m.untyped != nil {
		panic("typed: messages without a kind have a handler already")
	}
	m.untyped = handler
}

// Handle sets the handler of a kind: one, whatever comes. It panics if the handler is nil, or the kind has one.
//
// Of a group (Append) the handler gets each part in turn, all of them in one delivery, whose msg is the same; when it
// returns an error for one, all of them come again.
func Handle[T any](mux *Mux, kind KindOf[T], handler func(ctx context.Context, v T, msg *delayqueue.Message) error) {
	mux.handle(kind.String(), handler == nil, func(ctx context.Context, msg *delayqueue.Message) error {
		all, err := parts(kind, msg)
		for i := 0; err == nil && i < len(all); i++ {
			if err = context.Cause(ctx); err == nil {
				err = handler(ctx, all[i], msg)
			}
		}
		return err
	})
}

// HandleGroup sets the handler of a kind whose messages are groups (Append): it gets every part, in the order of the
// sends; of a message that is no group its one value. One part that does not decode sends the group to garbage, where
// all of it is kept. It panics as Handle does.
func HandleGroup[T any](mux *Mux, kind KindOf[T],
	handler func(ctx context.Context, all []T, msg *delayqueue.Message) error) {
	mux.handle(kind.String(), handler == nil, func(ctx context.Context, msg *delayqueue.Message) error {
		all, err := parts(kind, msg)
		if err != nil {
			return err
		}
		return handler(ctx, all, msg)
	})
}

// HandleCall sets the handler of a kind that answers: with a nil error, what it returns is the message's result. A
// result that does not encode, or is over 1 MB, sends the message to garbage, for its work was done; so does a group
// (Append), which has no one result. It panics as Handle does.
func HandleCall[T, R any](mux *Mux, kind CallKindOf[T, R],
	handler func(ctx context.Context, v T, msg *delayqueue.Message) (R, error)) {
	mux.handle(kind.String(), handler == nil, func(ctx context.Context, msg *delayqueue.Message) error {
		if msg.Parts != nil {
			return hopeless(fmt.Errorf("typed: kind %q: %w: a group of %d parts, where a call has one value", kind.name,
				ErrCodec, len(msg.Parts)))
		}
		v, err := kind.decode("a payload", msg.Payload)
		if err != nil {
			return hopeless(err)
		}
		answer, err := handler(ctx, v, msg)
		if err != nil {
			return err
		}
		result, err := kind.codec.encode(kind.name, answer)
		if err != nil {
			return hopeless(err)
		}
		if err := delayqueue.SetResult(ctx, result); err != nil {
			return hopeless(fmt.Errorf("typed: kind %q: %w", kind.name, err))
		}
		return nil
	})
}

// parts decodes all that a message has.
func parts[T any](kind KindOf[T], msg *delayqueue.Message) ([]T, error) {
	texts, what := msg.Parts, "a payload"
	if texts == nil {
		texts = []string{msg.Payload}
	}
	all := make([]T, len(texts))
	for i, text := range texts {
		if msg.Parts != nil {
			what = fmt.Sprintf("part %d of %d,", i+1, len(texts))
		}
		v, err := kind.decode(what, text)
		if err != nil {
			return nil, hopeless(err)
		}
		all[i] = v
	}
	return all, nil
}

// hopeless is an error that no retry mends.
func hopeless(err error) error { return fmt.Errorf("%w: %w", delayqueue.ErrSkipRetry, err) }

func (m *Mux) handle(kind string, isNil bool, handler delayqueue.Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if isNil {
		panic(fmt.Sprintf("typed: the handler of kind %q must not be nil", kind))
	}
	if m.handlers[kind] != nil {
		panic(fmt.Sprintf("typed: kind %q has a handler already: a Mux has one for each kind", kind))
	}
	if m.handlers == nil {
		m.handlers = make(map[string]delayqueue.Handler)
	}
	m.handlers[kind] = handler
}

// Handler is a delayqueue.Handler, for WithHandler. Any number of queues may share it.
func (m *Mux) Handler(ctx context.Context, msg *delayqueue.Message) error {
	kind := msg.Headers[Header]
	m.mu.RLock()
	handler := m.handlers[kind]
	if kind == "" {
		handler = m.untyped
	}
	m.mu.RUnlock()
	if handler == nil {
		return m.unknown(kind, msg, clock.Now(ctx))
	}
	return handler(ctx, msg)
}
