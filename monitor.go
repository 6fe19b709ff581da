package delayqueue

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/redis/go-redis/v9"
)

// A Monitor counts the messages of a queue without taking part in it, listens to its events, and takes back or
// reschedules one message. It is safe for concurrent use. Each call does bounded work, however many messages there
// are. ops.Of(monitor) does more.
//
// While Redis cannot be reached, a call that only looks is tried until the deadline of its context, or for 2 s if
// there is none. Await goes on until its context ends, and ListenEvent makes one attempt. A call that changes
// something is tried until its context ends, and has the effect of one. Errors name the queue.
type Monitor struct {
	steerer
}

// NewMonitor makes a Monitor for the queue of this name. It panics as NewQueue does.
func NewMonitor(name string, cli redis.UniversalClient, opts ...QueueOption) *Monitor {
	s := newProducer("NewMonitor", name, cli, opts)
	m := &Monitor{steerer: steerer{store: shard.New(s.store.Store, 0), events: s.events}}
	m.report = func(e Event) { _ = publish(m.store, reportTime, []Event{e}) }
	return m
}

// Calls that look at a queue return these errors, wrapped.
var (
	// ErrNotFound: there is no such message, key, sequence or journal entry.
	ErrNotFound = script.ErrNotFound
	// ErrNoQueue: the queue has no key in Redis. Nothing was ever sent to it and it has had no consumer, or it was
	// deleted, or its name, its prefix or the address of Redis is misspelt. Calls that change something return
	// ErrNoQueue, too, and make no key: Intercept, Cancel and Reschedule, and those of ops.Queue except PassSequence and
	// Note. It wraps ErrNotFound.
	ErrNoQueue = script.ErrNoQueue
	// ErrMissingShards: some shards of the queue (WithShards) did not answer, or did not do what the call says. The text
	// says how many did. Counts and other results beside this error are those of the shards that answered.
	ErrMissingShards = shard.ErrMissing
	// ErrShardCount: the queue has another number of shards than this process asks for (WithShards). The text has both
	// numbers. The call did nothing. Give all processes the number that the queue has. For another number take a new
	// name, and drain this queue.
	ErrShardCount = script.ErrShardCount
)

func (s *steerer) failed(err error, format string, args ...any) error {
	return s.store.Failed(err, format, args...)
}

// Counts says how many messages of a queue are in which state. A message that is due counts as ready wherever it
// waits, so Pending and Retry count only messages that are not yet due.
type Counts struct {
	Pending int64 // not due yet
	Ready   int64 // due, wherever they wait
	Unack   int64 // being handled
	Retry   int64 // failed, snoozed or lost, and not due yet
	Waiting int64 // behind others of their lanes (WithLane), due or not
	Garbage int64 // given up on
	Done    int64 // acked, and kept to be looked at (WithRetention)

	LaneSince time.Time // when the message was due that has waited longest for its lane; zero: none that is due waits

	Behind  time.Duration // how long the oldest ready message has been waiting; 0: none is
	NextDue time.Time     // when the next message that is pending or waits for a retry is due; zero: there is none

	Paused      bool      // nothing is handed out (ops.Queue.Pause)
	PausedUntil time.Time // zero: until Resume
	PausedSince time.Time // zero: not known
	PausedBy    string    // the operator of the pause (ops.Queue.WithOperator); "" if not known
	PauseReason string    // its reason (ops.Queue.WithReason); "" if none was given. It begins with "only in 4 of 6 shards" if others are not paused

	Limited      bool      // ready messages wait for a limit of the queue or the end of a Throttle, and not for a consumer
	LimitedSince time.Time // as far as is known
	LimitedUntil time.Time // when the next message may go; zero: when the next handler returns (WithQueueConcurrency)

	Unaccounted int64 // as in Balance: messages that have vanished without a word; less than 0: that have appeared

	ThrottledUntil time.Time // nothing is handed out before this instant, because a handler returned Throttle; zero: none has
}

// Counts counts the messages with one script call of O(log n). It returns ErrNoQueue for a queue that has no key, and
// so do GetPendingCount, GetReadyCount and GetProcessingCount.
func (m *Monitor) Counts(ctx context.Context) (Counts, error) {
	c, err := m.store.ReadCounts(ctx)
	return Counts(c.QueueCounts), m.failed(err, "counts")
}

// A Balance is the books of a queue: how many messages ever entered it, how many left it, and how many are here. Each
// script of this library that stores or deletes a message counts it in the same step. So Entered = Left + Here +
// Unaccounted at any instant while they are open, and Unaccounted is 0 unless something else has deleted or made
// messages.
type Balance struct {
	Since time.Time // when the books were opened: at the first send or fetch. Zero: they are not open, and Here alone is known

	Entered   int64 // the sum of the next five
	Sent      int64 // messages that were sent
	Followed  int64 // sent by an ack (Then)
	Scheduled int64 // sent by schedules (module schedule/)
	Imported  int64 // imported by the command delayqueue
	Found     int64 // in the queue when the books were opened; too many, and accepted (delayqueue doctor --repair)

	Left        int64 // the sum of the next nine
	Acked       int64 // acknowledged, and not kept
	Over        int64 // kept after their acks (WithRetention), until that time was over
	Superseded  int64 // ended with a delivery that was superseded
	Intercepted int64 // Intercept
	Canceled    int64 // Cancel
	Deleted     int64 // by ops.Queue
	Aged        int64 // garbage that was too old (WithGarbageRetention)
	Trimmed     int64 // garbage or done messages that were too many (WithGarbageRetention, WithDoneLimit)
	WrittenOff  int64 // missing, and accepted (delayqueue doctor --repair)

	Here int64 // in any state, StateGarbage and StateDone among them

	// Unaccounted is how many messages have vanished without a word: evicted, deleted by another program, or lost by the
	// server. Less than 0: so many have appeared. A failover or a restart that forgets the last writes forgets their
	// counts, too: see RolledBackEvent.
	Unaccounted int64
}

// Balance reads the books at one instant, by one script call of O(1). It returns ErrNoQueue for a queue that has no
// key.
func (m *Monitor) Balance(ctx context.Context) (Balance, error) {
	b, err := m.store.Balance(ctx)
	return Balance(b), m.failed(err, "balance")
}

// GetPendingCount returns how many messages are not yet due. Those that wait for a retry do not count.
func (m *Monitor) GetPendingCount(ctx context.Context) (int64, error) {
	c, err := m.Counts(ctx)
	return c.Pending, err
}

// GetReadyCount returns how many messages are due and not yet handed out.
func (m *Monitor) GetReadyCount(ctx context.Context) (int64, error) {
	c, err := m.Counts(ctx)
	return c.Ready, err
}

// GetProcessingCount returns how many messages are being handled.
func (m *Monitor) GetProcessingCount(ctx context.Context) (int64, error) {
	c, err := m.Counts(ctx)
	return c.Unack, err
}
