package delayqueue

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrSkipRetry, returned or wrapped by a handler, sends the message straight to garbage, however many retries it has
// left. See also RetryAfter, Snooze, Again and Throttle.
var ErrSkipRetry = errors.New("skip retry")

// Why a delivery failed, as an error handler, a garbage handler and the record of
// a message's last error see it.
var (
	// ErrNacked stands for a CallbackFunc that returned false.
	ErrNacked = errors.New("callback returned false")
	// ErrPanicked is wrapped by the error that stands for a panic in a handler.
	ErrPanicked = errors.New("handler panicked")
	// ErrConsumeTimeout is the failure of a handler that ran past WithMaxConsumeDuration
	// or its message's WithTimeout, and the cause with which its context ended.
	ErrConsumeTimeout = errors.New("handler ran past its limit")
	// ErrExpired is the reason of a message that could not be handed out within its
	// WithMsgTTL, or whose WithDeadline came; then it wraps the last error. It is also the
	// cause with which the context of a handler ends at the deadline.
	ErrExpired = errors.New("message expired")
	// ErrPoison is the reason of a message that was lost with its consumer as many
	// times in a row as WithMaxLosses allows.
	ErrPoison = errors.New("message was lost with its consumer too many times in a row")
)

// Causes (context.Cause) with which the context of a handler can end early.
var (
	// ErrDeliveryLost: the lease ran out and the message went to another consumer, and what the handler returns
	// has no effect. Or Redis could not be asked for as long as the lease, and the message may have gone: then what
	// the handler returns counts if it has not, and a failure that is only this error, or the context's, counts for nothing.
	ErrDeliveryLost = errors.New("delivery was lost: its lease ran out")
	// ErrCanceled: the message was taken out while it was being handled (Cancel), or its queue deleted.
	// What the handler returns has no effect.
	ErrCanceled = errors.New("message was canceled")
	// ErrShutdown: the context given to Shutdown ended. The message has been
	// released and will be delivered again.
	ErrShutdown = errors.New("consumer is shutting down")
)

// What sending can run into, besides the errors of Redis, of the network and of the context.
var (
	// ErrDuplicateKey: another live message of the queue has this key. The error is
	// a *DuplicateKeyError, which names the message.
	ErrDuplicateKey = errors.New("a live message already has this key")
	// ErrNotReplicated: the message was stored, but fewer replicas than WithReplicaAck
	// asks for confirmed it in time. It will be delivered unless a failover loses it. Beside ErrDuplicateKey or
	// ErrSequence it is about the message that this one was refused for.
	ErrNotReplicated = errors.New("message was stored but not confirmed by enough replicas")
	// ErrBadOption: a message option was nil, out of range or used where it has no meaning.
	ErrBadOption = errors.New("bad message option")
	// ErrPayloadTooLarge: the message, headers included, is over 511 MB: it does not fit one Redis string.
	ErrPayloadTooLarge = errors.New("payload too large")
	// ErrTooManyWaiting: Redis is away or too slow, and 100,000 calls, or calls with 256 MB, wait to send with this
	// DelayQueue or Publisher already. The message was not stored.
	ErrTooManyWaiting = errors.New("too many sends are waiting")
	// ErrBadReply: a script answered something that this version does not know.
	ErrBadReply = errors.New("unexpected reply")
	// ErrWrongType: a key of the queue holds another type of value, so another
	// program is writing under the queue's prefix and name.
	ErrWrongType = errors.New("a key of the queue belongs to another program")
	// ErrClusterNode: the client is a plain *redis.Client, and the Redis that it talks to is a node of a
	// Cluster, which does not hold the slot of this queue. Queues whose slots it holds work, until a slot is moved. A
	// Cluster takes a *redis.ClusterClient; redis.NewUniversalClient makes one if it is given more than
	// one address, or IsClusterMode.
	ErrClusterNode = errors.New("this Redis is a node of a Cluster: use redis.NewClusterClient")
)

// errNewerVersion: the message was written by a newer version of the library.
var errNewerVersion = errors.New("message was written by a newer version")

// A DuplicateKeyError says which message has the key. errors.Is finds ErrDuplicateKey in it.
type DuplicateKeyError struct {
	Queue string // its name
	Key   string // that the message was sent with
	ID    string // the live message that has the key, or the acked one that keeps it (WithKeyHold)
	Held  bool   // that one was acked, and keeps the key
}

func (e *DuplicateKeyError) Error() string {
	if e.Held {
		return fmt.Sprintf("key %q is held by message %s, which was acked and keeps it for a while (WithKeyHold): "+
			"wait, release the key (Monitor.ReleaseKey), or use another one", e.Key, e.ID)
	}
	return fmt.Sprintf("key %q is held by message %s, which is live: intercept that one first, or use another key", e.Key, e.ID)
}

// Is makes errors.Is(err, ErrDuplicateKey) true.
func (e *DuplicateKeyError) Is(target error) bool { return target == ErrDuplicateKey }

// A KeyHeldError says that no live message has a key, because one that was acked keeps it taken (WithKeyHold). errors.Is finds
// ErrNotFound in it.
type KeyHeldError struct {
	Queue string    // its name
	Key   string    // that was looked for
	ID    string    // of the acked message
	Until time.Time // the key stays taken, by the server's clock
}

func (e *KeyHeldError) Error() string {
	return fmt.Sprintf("no live message has key %q: it is held until %s by message %s, which was acked (WithKeyHold)", e.Key,
		e.Until.UTC().Format(time.RFC3339), e.ID)
}

// Is makes errors.Is(err, ErrNotFound) true.
func (e *KeyHeldError) Is(target error) bool { return target == ErrNotFound }

// Stored says what is known of a message whose send failed.
type Stored int

// What is known.
const (
	StoredUnknown Stored = iota // it may be in Redis or not: sent again, it may be there twice
	StoredNo                    // it is not in Redis and never will be
	StoredYes                   // it is in Redis and will be delivered
)

var storedTexts = [...]string{"may or may not have been stored", "not stored", "stored"}

// String says it in words, as in "not stored".
func (s Stored) String() string { return nameOf("Stored", int(s), storedTexts[:]) }

// A SendError is the error of every send. It wraps why the send failed.
type SendError struct {
	Queue  string // its name
	ID     string // of the message; "" if it was not made, because of a bad option for one
	Key    string // its key; "" if it has none
	Stored Stored // what is known of the message
	Err    error  // why the send failed
}

// Error names the queue, the message and what is known of it.
func (e *SendError) Error() string { return fmt.Sprintf("delayqueue: queue %q: %s", e.Queue, e.text()) }

func (e *SendError) text() string {
	if e.ID == "" {
		return fmt.Sprintf("send: %v: %v", e.Stored, e.Err)
	}
	return fmt.Sprintf("send message %s: %v: %v", e.ID, e.Stored, e.Err)
}

// Unwrap returns Err.
func (e *SendError) Unwrap() error { return e.Err }

// A batchError is the error of a SendBatch.
type batchError struct {
	queue  string
	of     int
	failed []error // each a *SendError
}

func (e *batchError) Error() string {
	const shown = 3
	var b strings.Builder
	fmt.Fprintf(&b, "delayqueue: queue %q: %d of %d messages failed", e.queue, len(e.failed), e.of)
	for i, err := range e.failed {
		if i == shown {
			fmt.Fprintf(&b, "; and %d more", len(e.failed)-shown)
			break
		}
		b.WriteString("; ")
		b.WriteString(err.(*SendError).text())
	}
	return b.String()
}

func (e *batchError) Unwrap() []error { return e.failed }

type retryAfterError struct {
	delay time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return fmt.Sprintf("%v (retry after %v)", e.err, e.delay) }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter makes an error for a handler to return: a failure like any other, but
// the next delivery, if a retry is left, comes after d instead of the queue's own
// delay. A negative d counts as zero; a nil err is allowed. Less than 1ms is a number without its unit: the failure
// says so, and the delay is the queue's own.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("retry asked for")
	}
	if slip := unitless("RetryAfter", d); d > 0 && slip != nil {
		return fmt.Errorf("%w: %w", slip, err)
	}
	return &retryAfterError{delay: max(d, 0), err: err}
}

type snoozeError struct {
	delay    time.Duration
	fresh    bool  // failures count anew
	throttle bool  // the whole queue waits
	why      error // of a throttle; nil: none
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

// ErrSnoozed is what errors.Is finds in the values of Snooze, Again and Throttle, for a Middleware to tell it from a failure.
var ErrSnoozed = errors.New("snoozed")

// Unwrap makes errors.Is(err, ErrSnoozed) true, and finds what a throttle was for.
func (e *snoozeError) Unwrap() []error {
	if e.why == nil {
		return []error{ErrSnoozed}
	}
	return []error{ErrSnoozed, e.why}
}

// Snooze makes a value for a handler to return when the message is simply not for
// now: it is delivered again after d, which is no failure and uses up no retry. The failures that it
// had stay counted, however many snoozes lie between: for work that is done and comes again, there
// is Again. A negative d counts as zero, more than 150 years as that. Less than 1ms is a number without its unit,
// with which the message would come again and again without a pause: it makes a failure that says so (ErrBadOption).
// If another send took its key while it was handled (Replace, Reschedule), the message ends: see Conflict.
func Snooze(d time.Duration) error { return snooze("Snooze", d, false) }

// Again makes a value for a handler to return when it has handled the message well and wants it
// again, as who polls does: it is delivered again after d, which uses up no retry, and its failures
// count from 0. For d the same holds as in Snooze. If another send took its key while it was handled
// (Replace, Reschedule), that message goes on in its place, and this one ends: see Conflict.
func Again(d time.Duration) error { return snooze("Again", d, true) }

// maxThrottle is the longest that a queue is throttled at once.
const maxThrottle = time.Hour

// Throttle makes a value for a handler to return when nobody should go on for a while, as after a 429: the message is
// delivered again after d, which is no failure and uses up no retry, and until then nothing of the queue is handed out, by
// any consumer. What consumers have by then, their handlers finish. err says why; it may be nil. More than an hour is cut
// to that: the next handler may say it again. A negative d counts as zero; less than 1ms is a number without its unit, and makes
// a failure that says so (ErrBadOption). Of several handlers that say it, the longest holds. A message whose deadline comes
// before is garbage, and throttles nothing. Monitor.Unthrottle lifts it.
func Throttle(d time.Duration, err error) error {
	d = min(max(d, 0), maxThrottle)
	if slip := unitless("Throttle", d); slip != nil {
		return errors.Join(slip, err)
	}
	return &snoozeError{delay: d, throttle: true, why: err}
}

func snooze(what string, d time.Duration, fresh bool) error {
	d = max(d, 0)
	if err := unitless(what, d); err != nil {
		return err
	}
	return &snoozeError{delay: d, fresh: fresh}
}
