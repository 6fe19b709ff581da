package delayqueue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/consume"
	"github.com/redis/go-redis/v9"
)

// A CallbackFunc handles a message and reports whether the message is consumed. After false, and after a panic, the
// message is delivered again if a retry is left.
type CallbackFunc = func(payload string) bool

// A Handler handles a message. It returns nil to acknowledge the message. Else it returns ErrSkipRetry, RetryAfter,
// Snooze, Again, Throttle, or any other error, which is a failure.
//
// The context has a Deadline if the time of the handler is bounded (WithMaxConsumeDuration, WithTimeout,
// WithDeadline), and ends there with context.DeadlineExceeded. It is canceled earlier if the delivery is lost or
// canceled (Cancel), and when the context of Shutdown or that of WithBaseContext ends. context.Cause says which.
type Handler = func(ctx context.Context, msg *Message) error

// A DelayQueue sends messages, and hands each to its callback when its time has come. All methods are safe for
// concurrent use, but With… belongs before the first send and before StartConsume. A With… panics if its value is out
// of bounds, and while the queue consumes.
type DelayQueue struct {
	producer

	mu      sync.Mutex // guards the fields below, but for workers
	config  config
	pool    *Pool               // the pool that has the queue; nil: none
	run     *consume.Run        // the last one that was started, nil before the first
	ending  []*consume.Consumer // of earlier ones, those that may not have ended yet
	workers consume.Workers     // of consumers that do not run in a pool
}

// NewQueue makes a queue on the Redis of cli, a *redis.Client (Sentinel's too) or a *redis.ClusterClient. Queues of
// one name and prefix are one queue, in any number of processes. callback may be nil if the queue only sends, or if
// WithHandler follows. The caller closes the client, after the queue has stopped.
//
// The queue makes connections of its own with the client's options, so hooks that were added to the client do not see
// them. This holds for hooks that dial, too: an SSH tunnel or a proxy belongs into Options.Dialer. Events are
// published over the client itself.
//
// A client of another type, such as one that embeds a redis.UniversalClient, is used by its own commands. Then:
//   - consumers get no wake-ups, so a message of another process is up to a second late (WithFetchInterval);
//   - WithReplicaAck and ops.Queues fail;
//   - a call may wait for as long as the client does.
//
// NewQueue panics if the name is empty, is no UTF-8, holds {, } or control characters, begins or ends with a blank,
// or ends in a slash and digits, which are kept for the parts of a queue over several slots. It panics if cli is nil,
// and for two kinds of clients:
//   - A *redis.Ring, or a type that embeds one. While one of its servers is away, a ring sends the queue's messages
//     to another server, where nobody looks for them afterwards.
//   - A client whose hooks answer in place of a server, such as redismock's. For tests there is the package
//     delayqueuetest.
func NewQueue(name string, cli redis.UniversalClient, callback CallbackFunc, opts ...QueueOption) *DelayQueue {
	q := &DelayQueue{producer: newProducer("NewQueue", name, cli, opts), config: defaultConfig(callback)}
	q.sender.OnStored, q.config.OnStored = q.hint, q.hint
	q.events.log.Store(q.config.Log)
	return q
}

// StartConsume begins to consume, and returns a channel that closes when consuming has ended, after StopConsume or
// Shutdown. While the queue consumes, a further call returns the same channel. A stopped queue starts anew.
// StartConsume panics without a callback or handler, if the queue is in a Pool, and while Drain is at work.
func (q *DelayQueue) StartConsume() (done <-chan struct{}) { return q.start().Done }

func (q *DelayQueue) start() *consume.Run {
	q.made()
	q.leavePool()
	q.mu.Lock()
	r, pool := q.run, q.pool
	q.mu.Unlock()
	if pool != nil {
		panic(pooled(q.store.Queue))
	}
	if r != nil && !r.Stopping() && !r.Drains() {
		return r
	}
	settings := q.composed("StartConsume")
	if r = q.startWith(settings, nil, consume.Portion{}); r.Drains() {
		panic(fmt.Sprintf(
			"delayqueue: queue %q: StartConsume while Drain is at work: wait until it has returned, or stop the queue first",
			q.store.Queue))
	}
	return r
}

// pooled says why a queue does not start by itself.
func pooled(queue string) string {
	return fmt.Sprintf("delayqueue: queue %q is in a Pool: start that", queue)
}

// composed makes the settings of a consumer, with more middleware around all other. call is what a panic names. It
// calls the user's code.
func (q *DelayQueue) composed(call string, around ...func(Handler) Handler) consume.Settings {
	q.mu.Lock()
	c := q.config
	q.mu.Unlock()
	if c.Callback == nil && c.handler == nil {
		panic(fmt.Sprintf("delayqueue: queue %q: %s without a callback: give one to NewQueue, WithCallback or WithHandler",
			q.store.Queue, call))
	}
	c.middleware = append(around, c.middleware...)
	settings := c.compose(q.store.Queue) // not under mu: the user's code may call this queue
	settings.Base = context.WithValue(context.WithValue(settings.Base, servedBy{q}, true), serving{}, q)
	return settings
}

// startWith starts a run, unless one is under way. ws are the workers that it shares; nil: all workers of the queue
// itself.
func (q *DelayQueue) startWith(settings consume.Settings, ws *consume.Workers, at consume.Portion) *consume.Run {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ws == nil && q.pool != nil { // since start has looked
		panic(pooled(q.store.Queue))
	}
	if q.consuming() {
		return q.run
	}
	r := q.runLocked(settings, ws, at)
	r.Begin()
	return r
}

// runLocked makes a run, with mu held, while none is under way.
func (q *DelayQueue) runLocked(settings consume.Settings, ws *consume.Workers, at consume.Portion) *consume.Run {
	if ws == nil {
		ws, at = &q.workers, consume.Portion{Weight: 1}
		ws.Resize(settings.Workers)
	}
	q.ending = slices.DeleteFunc(q.consumers(), (*consume.Consumer).Ended)
	q.run = consume.NewRun(q.store, q.events, settings, ws, at)
	return q.run
}

// consuming reports whether the queue consumes, and does not stop, with mu held.
func (q *DelayQueue) consuming() bool { return q.run != nil && !q.run.Stopping() }

// servedBy is the key of a value in each handler's context, and names the queue of the handler.
type servedBy struct{ queue *DelayQueue }

// serving is the key of the queue whose handler a context is of.
type serving struct{}

// ownHandler returns an error if ctx belongs to a handler of this queue, because that handler would wait for itself.
func (q *DelayQueue) ownHandler(ctx context.Context, call string) error {
	if ctx.Value(servedBy{q}) == nil {
		return nil
	}
	return fmt.Errorf("delayqueue: queue %q: %[2]s: called by one of its own handlers, which would wait for itself: "+
		"call StopConsume, or %[2]s elsewhere", q.store.Queue, call)
}

// StopConsume stops consuming and returns at once: nothing more is fetched, no further
// handler starts, and messages that no handler had started are released for other consumers.
//
// The channel of StartConsume closes when the running handlers have finished, also those that Shutdown has given up
// on, their results are settled, and the garbage handler was told of all that is garbage. If Redis stays away for a
// lease after the last handler, the channel closes all the same, and the log names what was not settled. Before the
// first start, and after a stop, StopConsume does nothing.
func (q *DelayQueue) StopConsume() { q.stopAll() }

// stopAll stops, and returns the consumers that may not have ended.
func (q *DelayQueue) stopAll() []*consume.Consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.run != nil {
		q.run.Stop() // earlier ones were stopped before this one began
	}
	return q.consumers()
}

// Shutdown calls StopConsume, and waits until consuming has ended. If ctx ends first, the contexts of the running
// handlers end (ErrShutdown), and their messages are released, which takes at most a second. Then the error wraps
// that of ctx, and says what Shutdown was still waiting for. A queue that holds no message, or has no Redis, is not
// waited for beyond ctx. Another Shutdown goes on waiting for these handlers. To stop many queues, call StopConsume
// of all of them first.
//
// A handler cannot wait for itself: with a handler's own context, or a context made of it, Shutdown
// stops the queue and returns an error at once. A handler must not call it with any other context.
func (q *DelayQueue) Shutdown(ctx context.Context) error {
	consumers := q.stopAll()
	if err := q.ownHandler(ctx, "Shutdown"); err != nil {
		return err
	}
	return consume.Shutdown(ctx, consumers)
}

// consumers are those that may not have ended, with mu held.
func (q *DelayQueue) consumers() []*consume.Consumer {
	if q.run == nil {
		return nil
	}
	return append(slices.Clone(q.ending), q.run.All()...)
}

// Run consumes until ctx ends. Then it stops as StopConsume does, and waits for the running handlers, however long
// they take; Shutdown bounds that wait. Run returns nil, an error that wraps ErrShutdown if handlers run on because
// Shutdown has given up on them, or an error at once if ctx belongs to one of the queue's own handlers. If the queue
// consumes already, that goes on as the consuming of this Run: the first Run whose context ends, or a stop, ends it
// for all.
func (q *DelayQueue) Run(ctx context.Context) error {
	if err := q.ownHandler(ctx, "Run"); err != nil {
		return err
	}
	r := q.start()
	select {
	case <-ctx.Done():
		r.Stop()
	case <-r.Settled:
	}
	return r.Wait()
}

// hint tells consumers how soon a message is due that this DelayQueue has just sent.
func (q *DelayQueue) hint(in time.Duration) {
	q.mu.Lock()
	r := q.run
	q.mu.Unlock()
	if r != nil {
		for _, c := range r.All() {
			c.Hint(in)
		}
	}
}
