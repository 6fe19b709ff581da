package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/consume"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/produce"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file has what a handler may return, and what it may say of its delivery.

// ErrSkipRetry, returned or wrapped by a handler, sends the message to garbage at once, however many retries are
// left. See also RetryAfter, Snooze, Again and Throttle.
var ErrSkipRetry = errors.New("skip retry")

type retryAfterError struct {
	delay time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return fmt.Sprintf("%v (retry after %v)", e.err, e.delay) }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter makes an error for a handler to return. It is a failure like any other, but the next delivery, if a
// retry is left, comes after d instead of the queue's own delay. A negative d counts as zero, and err may be nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("retry asked for")
	}
	return &retryAfterError{delay: max(d, 0), err: err}
}

type snoozeError struct {
	delay    time.Duration
	fresh    bool  // failures count anew
	throttle bool  // the whole queue waits
	why      error // the reason of a throttle; nil: none
}

func (e *snoozeError) Error() string {
	switch {
	case e.why != nil:
		return fmt.Sprintf("%v (throttle for %v)", e.why, e.delay)
	case e.throttle:
		return fmt.Sprintf("throttle for %v", e.delay)
	}
	return fmt.Sprintf("snooze for %v", e.delay)
}

// ErrSnoozed: errors.Is finds it in the values of Snooze, Again and Throttle, so that a middleware can tell them from
// a failure.
var ErrSnoozed = errors.New("snoozed")

// Unwrap makes errors.Is find ErrSnoozed, and the reason of a throttle.
func (e *snoozeError) Unwrap() []error {
	if e.why == nil {
		return []error{ErrSnoozed}
	}
	return []error{ErrSnoozed, e.why}
}

// Snooze makes a value for a handler to return if it is too early for the message. The message is delivered again
// after d. That is no failure and uses no retry, and earlier failures stay counted. For work that is done and comes
// again, there is Again.
//
// An error around this value says why: fmt.Errorf("no rates yet: %w", Snooze(time.Minute)) makes "no rates yet" the
// last error. A negative d counts as zero, and more than 150 years as 150 years. If d is below 1ms, the log asks
// whether its unit is missing. If another send took the key of the message while it was handled (Replace,
// Reschedule), the message ends: see Conflict.
func Snooze(d time.Duration) error { return &snoozeError{delay: max(d, 0)} }

// Again makes a value for a handler to return if it has handled the message well and wants it again, as a handler
// that polls does. The message is delivered again after d, which uses no retry, and its failures count from 0. The
// bounds of d are those of Snooze. If another send took the key of the message while it was handled (Replace,
// Reschedule), the message of that send goes on, and this one ends: see Conflict.
func Again(d time.Duration) error { return &snoozeError{delay: max(d, 0), fresh: true} }

// maxThrottle is the longest that a queue is throttled at once.
const maxThrottle = time.Hour

// Throttle makes a value for a handler to return if the whole queue must wait for a while, as after a 429. The
// message is delivered again after d, which is no failure and uses no retry. Until then no consumer is handed a
// message of the queue. Handlers that have started go on. A fetched message that waits for a worker is handled, or
// goes back after 100 ms. err is the reason, and may be nil.
//
// A negative d counts as zero, and more than an hour as an hour: the next handler may return Throttle again. If
// several handlers return Throttle, the longest time holds. A message whose deadline comes earlier goes to garbage,
// and throttles nothing. ops.Queue.Unthrottle ends a throttle.
func Throttle(d time.Duration, err error) error {
	return &snoozeError{delay: min(max(d, 0), maxThrottle), throttle: true, why: err}
}

func judge(err error) (v consume.Verdict) {
	if err == nil {
		return v
	}
	v.Err, v.Text, v.SkipRetry = err, message.ErrorText(err), errors.Is(err, ErrSkipRetry)
	var snooze *snoozeError
	var after *retryAfterError
	switch {
	case v.SkipRetry:
	case errors.As(err, &snooze):
		v = consume.Verdict{Snooze: true, ResetFailures: snooze.fresh, Throttle: snooze.throttle, Delay: &snooze.delay}
		if snooze.why != nil {
			v.Text = message.ErrorText(snooze.why)
		} else if text := message.ErrorText(err); text != snooze.Error() {
			v.Text = strings.TrimSuffix(text, ": "+snooze.Error()) // the time may change, and the reason stays
		}
	case errors.As(err, &after):
		v.Delay = &after.delay
	}
	return v
}

// maxResult is how long a result may be.
const maxResult = 1 << 20

// SetResult sets the result of the delivery that a handler, or a middleware, has in hand. ctx is the handler's, or
// made of it. The last call wins. The result is kept for Await and ops.Queue.Get if the sender has asked for it
// (WithRetention, Call) and this delivery is acked, in one atomic step with the ack. Else it is dropped, which is no
// error.
//
// A result is any bytes, at most 1 MB. A longer one is ErrPayloadTooLarge, and the result that was set before stays.
// With another context, and after the handler has returned or ran past its limit, SetResult returns ErrBadOption.
// It is safe for concurrent use.
func SetResult(ctx context.Context, value string) error {
	if len(value) > maxResult {
		return fmt.Errorf("delayqueue: SetResult: %w: a result of %d bytes, at most %d", ErrPayloadTooLarge, len(value),
			maxResult)
	}
	if err := consume.HandlingOf(ctx).SetResult(value); err != nil {
		return fmt.Errorf("delayqueue: SetResult: %w", err)
	}
	return nil
}

// Then sends a message to the handler's own queue together with the ack of the delivery that the handler, or a
// middleware, has in hand: in one atomic step, and without that ack not at all. So a handler that ran twice has one
// follower, and a handler that failed, snoozed, returned Again, or came too late has none. ctx is the handler's, or
// made of it. A handler may name up to 100 messages, of 1 MB together, which are stored in that order. Messages that
// an earlier try of a middleware has named follow, too. Then is safe for concurrent use.
//
// Options are those of Send, except WithSequence. A delay counts from the ack. The ack frees the key of the acked
// message for a follower, also a key that stays taken for others (WithKeyHold). If another message has the follower's
// key at that instant, the follower's Conflict says what becomes of both. With Append, the results of many handlers
// come together in one message, each once. A follower that is refused is not stored, and the ack stands: the log has
// that as an error with the key and the id of the other message, and listeners get a RefusedEvent. If the messages
// that one handler changes (Replace, Reschedule, Append) have more than 4 MB together, nothing is changed, and the
// message is garbage with ErrPayloadTooLarge.
//
// An error says that this message will not be sent; messages that were named before still are. errors.Is finds
// ErrBadOption or ErrPayloadTooLarge in it. With another context, and after the handler has returned or ran past its
// limit, it is ErrBadOption. A follower does not wait for WithReplicaAck, and a full Redis takes it, as it takes
// the ack.
func Then(ctx context.Context, payload string, opts ...MsgOption) error {
	h := consume.HandlingOf(ctx)
	p, _ := ctx.Value(serving{}).(*DelayQueue)
	if err := h.Ended(); err != nil {
		return fmt.Errorf("delayqueue: Then: %w", err)
	}
	var m script.SendMessage
	d := new(draft)
	if err := p.makeMessage(&m, payload, d, opts); err != nil {
		return err
	}
	if m.Put != nil && m.Put.Sequence != "" {
		return p.notMade(fmt.Errorf("%w: Then: WithSequence is for sends", ErrBadOption))
	}
	if err := p.leads(&m, h.Of, d.route()); err != nil {
		return p.notMade(fmt.Errorf("Then: %w", err))
	}
	if err := h.Follow(&m); err != nil {
		return p.notMade(fmt.Errorf("Then: %w", err))
	}
	return nil
}

// leads makes the id of a follower say that it lies in the shard of the acked message, and refuses names that do not.
func (p *producer) leads(m *script.SendMessage, acked func() (id, key, lane string), r produce.Route) error {
	if set := p.store.Known(); set == nil || len(set.All) == 1 {
		return nil
	}
	id, key, lane := acked()
	m.ID = message.WithShard(m.ID, message.ShardIn(id))
	tag := script.HashTag(r.Name)
	if r.Err == nil && r.Name != "" && (key == "" || script.HashTag(key) != tag) &&
		(lane == "" || script.HashTag(lane) != tag) {
		return fmt.Errorf(
			"%w: %q may lie in another shard than the acked message (WithShards): that one needs a key or a lane with {%s}",
			ErrBadOption, r.Name, tag)
	}
	return r.Err
}
