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
// are. ops.Of(monitor) does more, and knows more of a queue: pauses, limits, lanes and the books.
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

	Behind  time.Duration // how long the oldest ready message has been waiting; 0: none is
	NextDue time.Time     // when the next message that is pending or waits for a retry is due; zero: there is none
}

// Counts counts the messages with one script call of O(log n). It returns ErrNoQueue for a queue that has no key, and
// so do GetPendingCount, GetReadyCount and GetProcessingCount.
func (m *Monitor) Counts(ctx context.Context) (Counts, error) {
	c, err := m.store.ReadCounts(ctx)
	return Counts(c.Counts), m.failed(err, "counts")
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
