package typed

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-delayqueue/delayqueue"
)

// Header is the header that says a message's kind.
const Header = "kind"

// A Queue is what values are sent to: a *delayqueue.DelayQueue or a *delayqueue.Publisher.
type Queue interface {
	Name() string
	Send(ctx context.Context, payload string, opts ...delayqueue.MsgOption) (*delayqueue.MessageInfo, error)
	Call(ctx context.Context, payload string, opts ...delayqueue.MsgOption) (*delayqueue.Result, error)
}

// A KindOf is a kind of messages that carry a T. Kind makes it.
type KindOf[T any] struct {
	name  string
	codec codec
}

// Kind makes the kind of this name, of messages that carry a T, as JSON. A payload of no bytes is the zero T, or a
// pointer to one. It panics if the name is empty or has blanks only.
func Kind[T any](name string) KindOf[T] {
	if strings.TrimSpace(name) == "" {
		panic(fmt.Sprintf("typed: a kind needs a name, not %q", name))
	}
	return KindOf[T]{name, jsonCodec}
}

// WithCodec returns the kind with another codec in place of JSON: marshal gets a T, and unmarshal a pointer to one,
// or where T is a pointer itself a new one of its type. Senders and handlers must use the same. It panics if a
// function is nil.
func (k KindOf[T]) WithCodec(marshal func(v any) ([]byte, error), unmarshal func(data []byte, v any) error) KindOf[T] {
	if marshal == nil || unmarshal == nil {
		panic("typed: WithCodec: a function is nil: it takes one to encode and one to decode")
	}
	return KindOf[T]{k.String(), codec{marshal: marshal, unmarshal: unmarshal}}
}

// String is the name of the kind.
func (k KindOf[T]) String() string {
	if k.name == "" {
		panic("typed: this kind was not made by typed.Kind or typed.CallKind")
	}
	return k.name
}

// Send sends v as delayqueue's Send does. What does not encode is not stored: a *delayqueue.SendError around ErrCodec.
//
// The options are those of delayqueue. Two of them look at the payload alone, and so concern all kinds of a queue:
// values of two kinds that encode alike have one key (WithPayloadKey), and what is added to a group (Append) is of
// the kind of its first part.
func (k KindOf[T]) Send(ctx context.Context, queue Queue, v T,
	opts ...delayqueue.MsgOption) (*delayqueue.MessageInfo, error) {
	out, err := k.Outgoing(v, opts...)
	if err != nil {
		return nil, notSent(queue, err)
	}
	return queue.Send(ctx, out.Payload, out.Options...)
}

// Outgoing makes the message that Send sends, for SendBatch, and for whatever takes a payload and options, such as an
// entry of schedule/. It returns ErrCodec for what does not encode.
func (k KindOf[T]) Outgoing(v T, opts ...delayqueue.MsgOption) (delayqueue.Outgoing, error) {
	payload, err := k.codec.encode(k.String(), v)
	if err != nil {
		return delayqueue.Outgoing{}, err
	}
	return delayqueue.Outgoing{Payload: payload,
		Options: append(opts[:len(opts):len(opts)], delayqueue.WithHeader(Header, k.name))}, nil
}

// Then sends v if and only if the delivery that the handler has in hand is acked, as delayqueue's Then does. It returns
// ErrCodec for what does not encode.
func (k KindOf[T]) Then(ctx context.Context, v T, opts ...delayqueue.MsgOption) error {
	out, err := k.Outgoing(v, opts...)
	if err != nil {
		return err
	}
	return delayqueue.Then(ctx, out.Payload, out.Options...)
}

// decode reads a payload. One of no bytes, which JSON makes of no value, is the zero value: other libraries have such
// tasks.
func (k KindOf[T]) decode(what, text string) (v T, err error) {
	if text == "" && k.codec.isJSON {
		zero(&v)
		return v, nil
	}
	return decode[T](k.codec, k.name, what, text)
}

func notSent(queue Queue, err error) error {
	return &delayqueue.SendError{Queue: queue.Name(), Stored: delayqueue.StoredNo, Err: err}
}
