package typed

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-delayqueue/delayqueue"
)

// ErrGarbage: the message of a Call was given up on, and is in garbage. The error around it has its last error.
var ErrGarbage = errors.New("the message was given up on")

// A CallError is why there is no result of a message that was sent.
type CallError struct {
	ID string // of the message, for an Await later
	// ErrGarbage, ErrCodec, delayqueue.ErrNoResult, delayqueue.ErrSuperseded, ctx's error, or what Redis answered
	Err error
}

// Error is that of Err.
func (e *CallError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// A CallKindOf is a kind of messages that carry a T, and whose handler answers with an R. CallKind makes it.
type CallKindOf[T, R any] struct{ KindOf[T] }

// CallKind makes the kind of this name, of messages that carry a T and are answered with an R, both as JSON. It
// panics if the name is empty.
func CallKind[T, R any](name string) CallKindOf[T, R] { return CallKindOf[T, R]{Kind[T](name)} }

// WithCodec returns the kind with another codec, for values and for results. See KindOf.WithCodec.
func (k CallKindOf[T, R]) WithCodec(marshal func(v any) ([]byte, error),
	unmarshal func(data []byte, v any) error) CallKindOf[T, R] {
	return CallKindOf[T, R]{k.KindOf.WithCodec(marshal, unmarshal)}
}

// Call sends v and waits for what its handler returns, as delayqueue's Call does. Its error is a
// *delayqueue.SendError, as of Send, or a *CallError if the message was sent: then it is handled whether anybody
// waits or not.
func (k CallKindOf[T, R]) Call(ctx context.Context, queue Queue, v T, opts ...delayqueue.MsgOption) (R, error) {
	var none R
	out, err := k.Outgoing(v, opts...)
	if err != nil {
		return none, notSent(queue, err)
	}
	result, err := queue.Call(ctx, out.Payload, out.Options...)
	if result == nil {
		return none, err
	}
	return k.answer(result.ID, result, err)
}

// Await waits for what the handler of a message of this kind returns, on any machine, as Await of delayqueue does;
// queue is a *delayqueue.DelayQueue, *delayqueue.Publisher or *delayqueue.Monitor. The message was sent by Call, or
// by Send with WithRetention. The error is a *CallError.
func (k CallKindOf[T, R]) Await(ctx context.Context, queue interface {
	Await(ctx context.Context, id string) (*delayqueue.Result, error)
}, id string) (R, error) {
	result, err := queue.Await(ctx, id)
	return k.answer(id, result, err)
}

// answer is what a Result says.
func (k CallKindOf[T, R]) answer(id string, result *delayqueue.Result, err error) (answer R, _ error) {
	switch {
	case err != nil:
	case result.State == delayqueue.StateGarbage:
		err = fmt.Errorf("typed: kind %q: message %s: %w: %s", k.String(), id, ErrGarbage, result.Err)
	default:
		answer, err = decode[R](k.codec, k.String(), "the result of message "+id, result.Value)
	}
	if err != nil {
		return answer, &CallError{ID: id, Err: err}
	}
	return answer, nil
}
