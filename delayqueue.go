package delayqueue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A CallbackFunc handles a message and reports whether it is consumed; false means: deliver
// it again. A panic is a failure too.
type CallbackFunc = func(payload string) bool

// A Handler handles a message. Its context has a Deadline if the handler may not run for any time
// (WithMaxConsumeDuration, WithTimeout, WithDeadline), and ends there with context.DeadlineExceeded. It is canceled
// before that if the delivery is lost or canceled (Cancel), or when the context of Shutdown ends. context.Cause says which. It returns nil to acknowledge the message, or an error: any of its own
// (a failure), ErrSkipRetry, RetryAfter, Snooze, Again or Throttle.
type Handler = func(ctx context.Context, msg *Message) error

// A DelayQueue sends messages and hands each to its callback when its time has come. All methods are safe for
// concurrent use, but With… belongs before the first send and before StartConsume.
type DelayQueue struct {
	producer

	mu       sync.Mutex // guards the fields below, but for workers
	settings settings
	pool     *Pool       // which it belongs to; nil: none
	consumer *consumer   // the last one that was started, nil before the first
	ending   []*consumer // those before it that may not have ended yet
	workers  workers     // of consumers that do not run in a pool
}

// NewQueue makes a queue on the Redis that cli talks to: a *redis.Client (Sentinel's
// too) or a *redis.ClusterClient. Queues of one name and prefix, in any number
// of processes, are one queue. The queue makes connections of its own, with the client's options; hooks that were added
// to the client do not see them. Events go over the client itself. The client stays the caller's to close, after the
// queue has stopped. callback may be nil if the queue only sends, or if WithHandler follows.
//
// What dials in place of the client (an SSH tunnel, a proxy) belongs into Options.Dialer: a hook that dials is passed over
// as well. A client of another type, such as one that embeds a redis.UniversalClient, is used as it is, by the commands
// that it has. Then consumers get no wake-ups, so what other processes send is up to a second late (WithFetchInterval);
// WithReplicaAck and Queues fail, and a call may wait for as long as the client does.
//
// It panics if the name is empty, is no UTF-8, holds {, } or control characters, begins or ends with a blank, or ends in a
// slash and digits (kept for the parts of a queue over several slots). It panics if cli is nil, and for two kinds of clients:
//   - a *redis.Ring, or what embeds one: while one of its servers is away a ring sends the queue's messages to another,
//     where nobody looks for them afterwards;
//   - one whose hooks answer in place of a server, as redismock's do: for tests there is the package delayqueuetest.
func NewQueue(name string, cli redis.UniversalClient, callback CallbackFunc, opts ...QueueOption) *DelayQueue {
	q := &DelayQueue{producer: newProducer("NewQueue", name, cli, opts), settings: defaultSettings(callback)}
	q.batcher.onStored = q.hint
	return q
}

// StartConsume begins to consume and returns a channel that closes when consuming has
// ended, after StopConsume or Shutdown. While the queue consumes it returns the same
// channel again; a stopped queue starts anew. It panics without a callback or handler.
func (q *DelayQueue) StartConsume() (done <-chan struct{}) { return q.start().lifecycle.done }

func (q *DelayQueue) start() *consumer {
	q.made()
	q.mu.Lock()
	c, pool := q.consumer, q.pool
	q.mu.Unlock()
	if pool != nil {
		panic(fmt.Sprintf("delayqueue: queue %q is in a Pool: start that", q.store.queue))
	}
	if c != nil && !c.lifecycle.stopping() && c.settings.drain == nil {
		return c
	}
	settings := q.composed("StartConsume")
	if c = q.startWith(settings, q.joinAlone(settings)); c.settings.drain != nil {
		panic(fmt.Sprintf("delayqueue: queue %q: StartConsume while Drain is at work: wait until it has returned, or stop the queue first",
			q.store.queue))
	}
	return c
}

// joinAlone makes a consumer one of those that share the queue's own workers.
func (q *DelayQueue) joinAlone(settings settings) func(freed signal) *member {
	return func(freed signal) *member {
		q.workers.resize(settings.concurrency)
		return q.workers.join(freed, 1, 0, 0)
	}
}

// composed is the settings of a consumer, for call, with more middleware around all other. It calls the user's code.
func (q *DelayQueue) composed(call string, around ...func(Handler) Handler) settings {
	q.mu.Lock()
	settings := q.settings
	q.mu.Unlock()
	if settings.callback == nil && settings.handler == nil {
		panic(fmt.Sprintf("delayqueue: queue %q: %s without a callback: give one to NewQueue, WithCallback or WithHandler", q.store.queue, call))
	}
	settings.middleware = append(around, settings.middleware...)
	settings.compose(q.store.queue) // not under mu: the user's code may call this queue
	settings.base = context.WithValue(settings.base, servedBy{q}, true)
	return settings
}

// startWith starts a consumer, unless one consumes. join makes it one of those that share workers.
func (q *DelayQueue) startWith(settings settings, join func(freed signal) *member) *consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consuming() {
		return q.consumer
	}
	return q.startLocked(settings, join)
}

// startLocked starts a consumer, with mu held, while none consumes.
func (q *DelayQueue) startLocked(settings settings, join func(freed signal) *member) *consumer {
	q.ending = slices.DeleteFunc(q.consumers(), (*consumer).ended)
	q.consumer = startConsumer(&q.producer, settings, join)
	return q.consumer
}

// consuming reports whether the queue consumes, and does not stop, with mu held.
func (q *DelayQueue) consuming() bool { return q.consumer != nil && !q.consumer.lifecycle.stopping() }

// servedBy is the key of a value in each handler's context. It names the queue whose handler that is.
type servedBy struct{ queue *DelayQueue }

// ownHandler returns an error if ctx is of a handler of this queue, which would wait for itself.
func (q *DelayQueue) ownHandler(ctx context.Context, call string) error {
	if ctx.Value(servedBy{q}) == nil {
		return nil
	}
	return fmt.Errorf("delayqueue: queue %q: %[2]s: called by one of its own handlers, for which it would wait: "+
		"call StopConsume, or %[2]s elsewhere", q.store.queue, call)
}

// StopConsume stops consuming and returns at once: nothing more is fetched, no further
// handler starts, and messages that none had started are released for others. When the
// running handlers have finished and are settled, and the garbage handler has been told what it was
// to be told, the channel of StartConsume closes; if Redis stays away for a lease after the last
// handler it closes all the same, and the log names what was not settled.
// Before the first start, and again, it does nothing.
func (q *DelayQueue) StopConsume() { q.stopAll() }

// stopAll stops, and returns the consumers that may not have ended.
func (q *DelayQueue) stopAll() []*consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer != nil {
		q.consumer.stop() // those before it were stopped before it began
	}
	return q.consumers()
}

// Shutdown is StopConsume that waits until consuming has ended. When ctx ends first, the
// running handlers' contexts end (ErrShutdown), their messages are released, which takes a
// second at most, and the error, which wraps ctx's, says what it was still waiting for. A queue that
// holds no message, or has no Redis, is not waited for beyond ctx. To stop many queues, call
// StopConsume of all of them first.
//
// A handler cannot wait for itself: with a handler's own context, or one made of it, Shutdown
// stops the queue and returns an error at once. With any other context it must not be called
// by a handler.
func (q *DelayQueue) Shutdown(ctx context.Context) error {
	consumers := q.stopAll()
	if err := q.ownHandler(ctx, "Shutdown"); err != nil {
		return err
	}
	return shutdown(ctx, consumers)
}

// consumers are those that may not have ended, with mu held.
func (q *DelayQueue) consumers() []*consumer {
	if q.consumer == nil {
		return nil
	}
	return append(slices.Clone(q.ending), q.consumer)
}

// Run consumes until ctx ends, then stops as StopConsume does and waits for the running
// handlers, however long they take; to bound that, use Shutdown. It returns nil, or an error at
// once if ctx is that of one of the queue's own handlers.
func (q *DelayQueue) Run(ctx context.Context) error {
	if err := q.ownHandler(ctx, "Run"); err != nil {
		return err
	}
	c := q.start()
	select {
	case <-ctx.Done():
		c.stop()
	case <-c.lifecycle.done:
	}
	<-c.lifecycle.done
	return nil
}

func (q *DelayQueue) current() *consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.consumer
}

// hint tells the poller how soon a message is due that this DelayQueue has just sent. The poller needs it only
// without wake-ups.
func (q *DelayQueue) hint(in time.Duration) {
	if c := q.current(); c != nil && c.poller.wakeUpsOff.Load() {
		c.poller.hints.put(time.Now().Add(in))
	}
}
