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
	producer *producer // of what follows
	retained bool      // the message has a retention: its result is kept

	mu          sync.Mutex // guards the fields below
	ended       bool
	result      string
	follows     []*sendMessage // what is sent if the delivery is acked
	followBytes int            // of their envelopes
}

type handlingKey struct{}

// Value finds the handling itself, also from contexts that are made of it.
func (h *handling) Value(key any) any {
	if key == (handlingKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// handlingOf is the handling that a context is of, nil if it is of none.
func handlingOf(ctx context.Context) *handling {
	h, _ := ctx.Value(handlingKey{}).(*handling)
	return h
}

// say calls f, which notes what a handler says, if the handler is running. h may be nil.
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

// pastLimit: the context has ended by its deadline. The delivery is over then, a moment before the worker notes it.
func (h *handling) pastLimit() bool {
	cause := context.Cause(h.Context)
	return cause == ErrConsumeTimeout || cause == ErrExpired
}

// end ends it: what the handler says from now on is refused. It returns what was said, which it keeps no longer, for
// what one fetch brought stays in memory together. It may be nil.
func (h *handling) end() (result string, follows []*sendMessage) {
	if h == nil {
		return "", nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	result, follows = h.result, h.follows
	h.ended, h.result, h.follows = true, "", nil
	return result, follows
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
	h := handlingOf(ctx)
	err := h.say(func() error {
		if h.retained {
			h.result = value
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delayqueue: SetResult: %w", err)
	}
	return nil
}

// What a handler may say with Then.
const (
	maxFollows     = 100
	maxFollowBytes = 1 << 20
)

// ErrTooMuchFollows: more than 100 messages, or 1 MB of them, would follow one message.
var ErrTooMuchFollows = errors.New("too much follows one message: at most 100 messages, and 1 MB of them")

// Then sends a message to the handler's own queue if and only if the delivery that the handler, or a middleware, has in
// hand is acked, in the same atomic step: a handler that ran twice has one successor, and one that failed, snoozed, said
// Again, or came too late has none. ctx is the handler's, or made of it. A handler may name up to 100 messages, of 1 MB
// together; they are stored in that order. What a middleware's earlier try has named follows too. It is safe for
// concurrent use.
//
// Options are those of Send, but for WithSequence and WithKey with another policy than Refuse. A delay counts from the ack,
// which frees the key of the acked message for a successor; one that stays taken (WithKeyHold) goes to its own successor, too.
// If the successor's key is taken at that instant by another message, the ack stands and the successor is not stored: the log has it
// as an error, with its key and the message that has it, and listeners get a RefusedEvent.
//
// The error, of which errors.Is finds ErrBadOption, ErrPayloadTooLarge, ErrTooMuchFollows, or ErrNotHandling with another
// context and after the handler has returned, says that this message will not be sent; what was named before still
// is. A successor does not wait for WithReplicaAck, and a full Redis takes it, as it takes the ack.
func Then(ctx context.Context, payload string, opts ...MsgOption) error {
	h := handlingOf(ctx)
	if err := h.say(func() error { return nil }); err != nil {
		return fmt.Errorf("delayqueue: Then: %w", err)
	}
	p := h.producer
	var m batchItem
	d := new(draft)
	if err := p.makeMessage(&m, payload, d, opts); err != nil {
		return err
	}
	if m.put != nil {
		what := "WithSequence"
		if m.put.sequence == "" {
			what = fmt.Sprintf("WithKey with %v", m.put.on)
		}
		return p.notMade(d, fmt.Errorf("%w: Then: %s is for sends", ErrBadOption, what))
	}
	err := h.say(func() error {
		if len(h.follows) == maxFollows || h.followBytes+len(m.text) > maxFollowBytes {
			return ErrTooMuchFollows
		}
		h.follows, h.followBytes = append(h.follows, &m.sendMessage), h.followBytes+len(m.text)
		return nil
	})
	if err != nil {
		return p.notMade(d, fmt.Errorf("Then: %w", err))
	}
	return nil
}
