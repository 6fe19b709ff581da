package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrNotHandling: the context is not that of a handler, or the handler has returned or ran past its limit.
var ErrNotHandling = errors.New("this is not the context of a running handler")

// ErrResultTooLarge: a result is over 1 MB.
var ErrResultTooLarge = errors.New("result too large")

// A handling is one call of a handler. It is the context that the handler gets, so that what a handler says of its
// delivery's settlement finds its way there.
type handling struct {
	context.Context
	mu     sync.Mutex // guards the fields below
	ended  bool
	result string
}

type handlingKey struct{}

// Value finds the handling itself, also from contexts that are made of it.
func (h *handling) Value(key any) any {
	if key == (handlingKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// say calls f, which notes what a handler says, if ctx is of a handler that is running.
func say(ctx context.Context, f func(h *handling)) error {
	h, _ := ctx.Value(handlingKey{}).(*handling)
	if h == nil {
		return ErrNotHandling
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return ErrNotHandling
	}
	f(h)
	return nil
}

// end ends it: what the handler says from now on is refused. It may be nil.
func (h *handling) end() {
	if h != nil {
		h.mu.Lock()
		h.ended = true
		h.mu.Unlock()
	}
}

// maxResult is how long a result may be.
const maxResult = 1 << 20

// SetResult says the result of the delivery that a handler, or a middleware, has in hand; ctx is the handler's, or made
// of it. Of several the last one wins. It is kept, for Await and Monitor.Get, if and only if this delivery is acked, in
// the same atomic step, and the sender has asked for it (WithRetention, Call); else it is dropped, which is no error.
//
// A result is any bytes, at most 1 MB (ErrResultTooLarge: what was said before holds). With another context, and once
// the handler has returned or was given up on at its limit, it returns ErrNotHandling. It is safe for concurrent use.
func SetResult(ctx context.Context, value string) error {
	if len(value) > maxResult {
		return fmt.Errorf("delayqueue: SetResult: %w: %d bytes, at most %d", ErrResultTooLarge, len(value), maxResult)
	}
	if err := say(ctx, func(h *handling) { h.result = value }); err != nil {
		return fmt.Errorf("delayqueue: SetResult: %w", err)
	}
	return nil
}
