package delayqueue

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/go-delayqueue/delayqueue/internal/consume"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/produce"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// Why a delivery failed, as an error handler, a garbage handler and the kept errors of a message see it.
var (
	// ErrNacked stands for a CallbackFunc that returned false.
	ErrNacked = consume.ErrNacked
	// ErrPanicked is wrapped by the error that stands for a panic in a handler.
	ErrPanicked = consume.ErrPanicked
	// ErrConsumeTimeout is the failure of a handler that ran past WithMaxConsumeDuration
	// or its message's WithTimeout, and the cause with which its context ended.
	ErrConsumeTimeout = consume.ErrConsumeTimeout
	// ErrExpired is the reason of a message that was not handed out within its WithMsgTTL, or whose WithDeadline came.
	// At a deadline, the reason has the last error, too, and the context of a running handler ends with ErrExpired as
	// the cause. Reschedule, and Requeue and RunNow of ops, return it if the message would have expired when it is due.
	ErrExpired = consume.ErrExpired
	// ErrPoison is the reason of a message that was lost as many times in a row as WithMaxLosses allows: its consumers
	// died or were cut off, or it was too large for the way to them.
	ErrPoison = consume.ErrPoison
)

// Causes (context.Cause) with which the context of a handler can end early.
var (
	// ErrDeliveryLost: the lease ran out, and the message went to another consumer. The result of the handler has no
	// effect. Or Redis could not be asked for as long as the lease, and the message may have gone. If it has not gone,
	// the result of the handler counts, except a failure that is only this error or the context's.
	ErrDeliveryLost = consume.ErrDeliveryLost
	// ErrCanceled: the message was taken out while it was being handled (Cancel), or its queue was deleted.
	// The result of the handler has no effect.
	ErrCanceled = consume.ErrCanceled
	// ErrShutdown: the context given to Shutdown ended. The message has been released and will be delivered again. Drain
	// returns ErrShutdown if StopConsume or Shutdown comes before its work is done.
	ErrShutdown = consume.ErrShutdown
)

// Errors of sends, besides those of Redis, of the network and of the context.
var (
	// ErrDuplicateKey: another live message of the queue has this key, or an acked message holds it (WithKeyHold). The
	// error is a *DuplicateKeyError, which names the message.
	ErrDuplicateKey = errors.New("a live message already has this key")
	// ErrNotReplicated: the message was stored, but fewer replicas than WithReplicaAck asks for confirmed it in time. It
	// will be delivered unless a failover loses it. Beside ErrDuplicateKey or ErrSequence, the message that was there
	// before is meant.
	ErrNotReplicated = link.ErrNotReplicated
	// ErrBadOption: an option or an argument was nil, out of range or used where it has no meaning. SetResult and Then
	// return ErrBadOption if their context is not that of a handler that runs.
	ErrBadOption = message.ErrBadOption
	// ErrPayloadTooLarge: the message, headers included, is over 511 MB, a part of a group (Append) or a result
	// (SetResult) is over 1 MB, or too much follows one message (Then).
	ErrPayloadTooLarge = consume.ErrPayloadTooLarge
	// ErrTooManyWaiting: Redis is away or too slow, and 100,000 calls, or calls with 256 MB, already wait to send with
	// this DelayQueue or Publisher. The message was not stored.
	ErrTooManyWaiting = produce.ErrTooManyWaiting
	// ErrWrongType: a key of the queue holds another type of value, so another
	// program is writing under the queue's prefix and name.
	ErrWrongType = script.ErrWrongType
	// ErrClusterNode: the client is a plain *redis.Client, and its Redis is a node of a Cluster that does not hold the
	// slot of this queue. Queues whose slots the node holds work until a slot is moved. For a Cluster use a
	// *redis.ClusterClient. redis.NewUniversalClient makes one if it is given more than one address, or IsClusterMode.
	ErrClusterNode = link.ErrClusterNode
)

// A DuplicateKeyError says which message has the key. errors.Is finds ErrDuplicateKey in it.
type DuplicateKeyError struct {
	Key  string // the key of the refused message
	ID   string // of the live message that has the key, or of the acked one that holds it (WithKeyHold)
	Held bool   // the message with this ID was acked, and holds the key
}

func (e *DuplicateKeyError) Error() string {
	if e.Held {
		return fmt.Sprintf("key %q is held by message %s, which was acked and keeps it for a while (WithKeyHold): "+
			"wait, release the key (ops.Queue.ReleaseKey), or use another key", e.Key, e.ID)
	}
	return fmt.Sprintf("key %q is taken by message %s, which is live: intercept that message first, or use another key",
		e.Key, e.ID)
}

// Is makes errors.Is(err, ErrDuplicateKey) true.
func (e *DuplicateKeyError) Is(target error) bool { return target == ErrDuplicateKey }

// Stored says whether a message whose send failed is in Redis.
type Stored int

// The values of Stored.
const (
	StoredUnknown Stored = Stored(produce.StoredUnknown) // it may be in Redis: after a second send it may be there twice
	StoredNo      Stored = Stored(produce.StoredNo)      // the message is not in Redis and never will be
	StoredYes     Stored = Stored(produce.StoredYes)     // the message is in Redis and will be delivered
)

var storedTexts = [...]string{"may or may not have been stored", "not stored", "stored"}

// String is the value in words, as in "not stored".
func (s Stored) String() string { return nameOf("Stored", int(s), storedTexts[:]) }

// ErrSequence: the sequence has reached this number, or a higher one, before. The error is a *SequenceError, which
// has the last number. The message was not stored.
var ErrSequence = errors.New("the sequence has passed this number")

// ErrSequenceStopped: an earlier message of the same SendBatch, with a lower number of the same sequence, was not
// stored. So this message was not stored either, because the lower number could never be sent after it. The error is
// a *SequenceError.
var ErrSequenceStopped = errors.New("a lower number of the sequence in the same batch was not stored")

// A SequenceError says how far a sequence has come. errors.Is finds ErrSequence in it, or ErrSequenceStopped.
type SequenceError struct {
	// the last number of the sequence; of ErrSequenceStopped, the first in the batch that was not stored, whose own
	// error says why
	Last int64

	name    string // of the sequence
	n       int64  // the number of the refused message
	stopped bool   // it is ErrSequenceStopped
}

func (e *SequenceError) Error() string {
	if e.stopped {
		return fmt.Sprintf("sequence %q: %d stands before %d in the same batch, and was not stored", e.name, e.Last, e.n)
	}
	return fmt.Sprintf("sequence %q is at %d, and this is %d", e.name, e.Last, e.n)
}

// Is makes errors.Is(err, ErrSequence) true, or errors.Is(err, ErrSequenceStopped).
func (e *SequenceError) Is(target error) bool {
	return target == ErrSequence && !e.stopped || target == ErrSequenceStopped && e.stopped
}

// A SendError is the error of every send. It wraps why the send failed.
type SendError struct {
	Queue  string // the name of the queue
	ID     string // the id of the message; "" if none was made, because of a bad option for example
	Stored Stored // whether the message is in Redis
	Err    error  // why the send failed
}

// Error names the queue and the message, and says whether the message was stored.
func (e *SendError) Error() string { return fmt.Sprintf("delayqueue: queue %q: %s", e.Queue, e.text()) }

func (e *SendError) text() string {
	if e.ID == "" {
		return fmt.Sprintf("send: %v: %v", e.Stored, e.Err)
	}
	return fmt.Sprintf("send message %s: %v: %v", e.ID, e.Stored, e.Err)
}

// Unwrap returns Err.
func (e *SendError) Unwrap() error { return e.Err }

type batchError struct {
	queue  string
	of     int
	failed []error // each a *SendError
}

func (e *batchError) Error() string {
	const shown = 3
	text := fmt.Sprintf("delayqueue: queue %q: %d of %d messages failed", e.queue, len(e.failed), e.of)
	for _, err := range e.failed[:min(len(e.failed), shown)] {
		text += "; " + err.(*SendError).text()
	}
	if more := len(e.failed) - shown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

func (e *batchError) Unwrap() []error { return e.failed }

// ErrWrongState: the state does not allow the call. From a call for a message the error is a *StateError, which has
// the state. Drain returns ErrWrongState while its queue consumes. So does ops: StopBulk of a call that has ended,
// and SkipToEnd of a message that none waits for.
var ErrWrongState = errors.New("wrong state")

// A StateError says in which state a message is. errors.Is finds ErrWrongState in it, and ErrNotFound if the message
// is gone.
type StateError struct {
	ID    string // the id of the call; "" if the call had a key
	Key   string // the key of the call; "" if the call had an id
	State State  // the state of the message
}

func (e *StateError) Error() string {
	by, what := "id", e.ID
	if e.Key != "" {
		by, what = "key", e.Key
	}
	if e.State == StateGone {
		return fmt.Sprintf("message with %s %s: %v", by, what, cmp.Or(script.NoID(by, what), ErrNotFound))
	}
	return fmt.Sprintf("message with %s %s is %s, in which state this cannot be done", by, what, e.State)
}

// Is makes errors.Is find ErrWrongState, and ErrNotFound.
func (e *StateError) Is(target error) bool {
	return target == ErrWrongState || target == ErrNotFound && e.State == StateGone
}
