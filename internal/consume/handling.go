package consume

import (
	"context"
	"sync"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A handling is one call of a handler. It is the context that the handler gets, so that SetResult and Then find it.
type handling struct {
	context.Context
	cancel   context.CancelCauseFunc // ends it
	retained bool                    // the message is kept once it is acked, with its result

	id, key, lane string // of the message

	mu          sync.Mutex // guards the fields below
	ended       bool
	result      string
	follows     []*script.SendMessage // what is sent if the delivery is acked
	followBytes int                   // of their envelopes
}

type handlingKey struct{}

// Value finds the handling itself, also from contexts that are made of it.
func (h *handling) Value(key any) any {
	if key == (handlingKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// HandlingOf is the handling of a handler's context, and nil of any other context.
func HandlingOf(ctx context.Context) *handling {
	h, _ := ctx.Value(handlingKey{}).(*handling)
	return h
}

// say calls f, which notes what a handler says, if the handler runs. h may be nil.
func (h *handling) say(f func() error) error {
	if h == nil {
		return ErrNotHandling
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.pastLimit() {
		return ErrNotHandling
	}
	return f()
}

// Ended is ErrNotHandling if the handler does not run. h may be nil.
func (h *handling) Ended() error { return h.say(func() error { return nil }) }

// Of returns the names of the message that is handled.
func (h *handling) Of() (id, key, lane string) { return h.id, h.key, h.lane }

// SetResult notes a result, if the message is kept. h may be nil.
func (h *handling) SetResult(value string) error {
	return h.say(func() error {
		if h.retained {
			h.result = value
		}
		return nil
	})
}

// What may follow one message.
const (
	maxFollows     = 100
	maxFollowBytes = 1 << 20
)

// Follow notes a message that is sent if the delivery is acked. h may be nil.
func (h *handling) Follow(m *script.SendMessage) error {
	return h.say(func() error {
		if len(h.follows) == maxFollows || h.followBytes+len(m.Text) > maxFollowBytes {
			return errTooMuchFollows
		}
		h.follows, h.followBytes = append(h.follows, m), h.followBytes+len(m.Text)
		return nil
	})
}

// pastLimit reports whether the context has ended by its deadline. The delivery is over then, a moment before the worker notes it.
func (h *handling) pastLimit() bool {
	cause := context.Cause(h.Context)
	return cause == ErrConsumeTimeout || cause == ErrExpired
}

// end refuses what the handler says from now on, and returns what it said. The handling does not keep that, because the
// user's code may keep the context. h may be nil.
func (h *handling) end() (result string, follows []*script.SendMessage) {
	if h == nil {
		return "", nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	result, follows = h.result, h.follows
	h.ended, h.result, h.follows = true, "", nil
	return result, follows
}
