package delayqueue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/consume"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/redis/go-redis/v9"
)

// A CallbackFunc handles a message and reports whether the message is consumed. After false, and after a panic, the
// message is delivered again if a retry is left.
type CallbackFunc = func(payload string) bool

// A Handler handles a message. It returns nil to acknowledge the message. Else it returns ErrSkipRetry, RetryAfter, Snooze, Again,
// Throttle, or any other error, which is a failure.
//
// The context has a Deadline if the time of the handler is bounded (WithMaxConsumeDuration, WithTimeout, WithDeadline), and
// ends there with context.DeadlineExceeded. It is canceled earlier if the delivery is lost or canceled (Cancel), and when the context of
// Shutdown or that of WithBaseContext ends. context.Cause says which.
type Handler = func(ctx context.Context, msg *Message) error

// A DelayQueue sends messages, and hands each to its callback when its time has come. All methods are safe for
// concurrent use, but With… belongs before the first send and before StartConsume. A With… panics if its value is out of bounds, and
// while the queue consumes.
type DelayQueue struct {
	producer

	mu      sync.Mutex // guards the fields below, but for workers
	config  config
	pool    *Pool               // the pool that has the queue; nil: none
	run     *run                // the last one that was started, nil before the first
	ending  []*consume.Consumer // of earlier ones, those that may not have ended yet
	workers consume.Workers     // of consumers that do not run in a pool
}

// NewQueue makes a queue on the Redis of cli, a *redis.Client (Sentinel's too) or a *redis.ClusterClient. Queues of one
// name and prefix are one queue, in any number of processes. callback may be nil if the queue only sends, or if WithHandler
// follows. The caller closes the client, after the queue has stopped.
//
// The queue makes connections of its own with the client's options, so hooks that were added to the client do not see
// them. This holds for hooks that dial, too: an SSH tunnel or a proxy belongs into Options.Dialer. Events are published over the client itself.
//
// A client of another type, such as one that embeds a redis.UniversalClient, is used by its own commands. Then:
//   - consumers get no wake-ups, so a message of another process is up to a second late (WithFetchInterval);
//   - WithReplicaAck and ops.Queues fail;
//   - a call may wait for as long as the client does.
//
// NewQueue panics if the name is empty, is no UTF-8, holds {, } or control characters, begins or ends with a blank, or ends in a
// slash and digits, which are kept for the parts of a queue over several slots. It panics if cli is nil, and for two kinds of clients:
//   - A *redis.Ring, or a type that embeds one. While one of its servers is away, a ring sends the queue's messages to another
//     server, where nobody looks for them afterwards.
//   - A client whose hooks answer in place of a server, such as redismock's. For tests there is the package delayqueuetest.
func NewQueue(name string, cli redis.UniversalClient, callback CallbackFunc, opts ...QueueOption) *DelayQueue {
	q := &DelayQueue{producer: newProducer("NewQueue", name, cli, opts), config: defaultConfig(callback)}
	q.sender.OnStored, q.config.OnStored = q.hint, q.hint
	q.events.log.Store(q.config.Log)
	return q
}

// StartConsume begins to consume, and returns a channel that closes when consuming has
// ended, after StopConsume or Shutdown. While the queue consumes, a further call returns the same
// channel. A stopped queue starts anew. StartConsume panics without a callback or handler, if the queue is in a Pool, and while
// Drain is at work.
func (q *DelayQueue) StartConsume() (done <-chan struct{}) { return q.start().done }

func (q *DelayQueue) start() *run {
	q.made()
	q.mu.Lock()
	r, pool := q.run, q.pool
	q.mu.Unlock()
	if pool != nil {
		panic(pooled(q.store.Queue))
	}
	if r != nil && !r.stopping() && !r.drains {
		return r
	}
	settings := q.composed("StartConsume")
	if r = q.startWith(settings, nil, consume.Portion{}); r.drains {
		panic(fmt.Sprintf("delayqueue: queue %q: StartConsume while Drain is at work: wait until it has returned, or stop the queue first",
			q.store.Queue))
	}
	return r
}

// pooled says why a queue does not start by itself.
func pooled(queue string) string {
	return fmt.Sprintf("delayqueue: queue %q is in a Pool: start that", queue)
}

// composed makes the settings of a consumer, with more middleware around all other. call is what a panic names. It calls the user's code.
func (q *DelayQueue) composed(call string, around ...func(Handler) Handler) consume.Settings {
	q.mu.Lock()
	c := q.config
	q.mu.Unlock()
	if c.Callback == nil && c.handler == nil {
		panic(fmt.Sprintf("delayqueue: queue %q: %s without a callback: give one to NewQueue, WithCallback or WithHandler", q.store.Queue, call))
	}
	c.middleware = append(around, c.middleware...)
	settings := c.compose(q.store.Queue) // not under mu: the user's code may call this queue
	settings.Base = context.WithValue(settings.Base, servedBy{q}, true)
	return settings
}

// startWith starts a run, unless one is under way. ws are the workers that it shares; nil: all workers of the queue itself.
func (q *DelayQueue) startWith(settings consume.Settings, ws *consume.Workers, at consume.Portion) *run {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ws == nil && q.pool != nil { // since start has looked
		panic(pooled(q.store.Queue))
	}
	if q.consuming() {
		return q.run
	}
	r := q.runLocked(settings, ws, at)
	set := q.store.Known()
	if set == nil && q.store.Asked <= 1 {
		set = q.store.First()
	}
	if r.set = set; set != nil {
		r.start(set)
	}
	go r.follow()
	return r
}

// runLocked makes a run, with mu held, while none is under way.
func (q *DelayQueue) runLocked(settings consume.Settings, ws *consume.Workers, at consume.Portion) *run {
	if ws == nil {
		ws, at = &q.workers, consume.Portion{Weight: 1}
		ws.Resize(settings.Workers)
	}
	q.ending = slices.DeleteFunc(q.consumers(), (*consume.Consumer).Ended)
	q.run = newRun(q, settings, ws, at)
	return q.run
}

// consuming reports whether the queue consumes, and does not stop, with mu held.
func (q *DelayQueue) consuming() bool { return q.run != nil && !q.run.stopping() }

// servedBy is the key of a value in each handler's context, and names the queue of the handler.
type servedBy struct{ queue *DelayQueue }

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
// The channel of StartConsume closes when the running handlers have finished, their results are settled, and the garbage
// handler was told of all that is garbage. If Redis stays away for a lease after the last handler, the channel closes all the
// same, and the log names what was not settled. Before the first start, and after a stop, StopConsume does nothing.
func (q *DelayQueue) StopConsume() { q.stopAll() }

// stopAll stops, and returns the consumers that may not have ended.
func (q *DelayQueue) stopAll() []*consume.Consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.run != nil {
		q.run.stop() // earlier ones were stopped before this one began
	}
	return q.consumers()
}

// Shutdown calls StopConsume, and waits until consuming has ended. If ctx ends first, the contexts of the running handlers
// end (ErrShutdown), and their messages are released, which takes at most a second. Then the error wraps that of ctx, and says
// what Shutdown was still waiting for. A queue that holds no message, or has no Redis, is not waited for beyond ctx.
// To stop many queues, call StopConsume of all of them first.
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
	return append(slices.Clone(q.ending), q.run.all()...)
}

// Run consumes until ctx ends. Then it stops as StopConsume does, and waits for the running handlers, however long they
// take; Shutdown bounds that wait. Run returns nil, or an error at once if ctx belongs to one of the queue's own handlers. If the
// queue consumes already, that goes on as the consuming of this Run: the first Run whose context ends, or a stop, ends it for all.
func (q *DelayQueue) Run(ctx context.Context) error {
	if err := q.ownHandler(ctx, "Run"); err != nil {
		return err
	}
	r := q.start()
	select {
	case <-ctx.Done():
		r.stop()
	case <-r.done:
	}
	<-r.done
	return nil
}

func (q *DelayQueue) current() *run {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.run
}

// hint tells consumers how soon a message is due that this DelayQueue has just sent.
func (q *DelayQueue) hint(in time.Duration) {
	if r := q.current(); r != nil {
		for _, c := range r.all() {
			c.Hint(in)
		}
	}
}

// A run is one stretch of consuming a queue: a consumer for each shard, with one set of workers. It is safe for concurrent use.
type run struct {
	queue    *DelayQueue
	settings consume.Settings
	workers  *consume.Workers
	at       consume.Portion
	drains   bool          // it ends by itself (Drain)
	done     chan struct{} // closed when consuming has ended
	outages  link.Outages  // of all consumers

	ctx  context.Context // ends with stop
	end  context.CancelFunc
	look sync.WaitGroup // for the call of follow that is under way

	// Used by the call of follow that is under way.
	set    *shard.Set  // whose shards are consumed; nil: none are known
	tries  int         // while none are known
	outage link.Outage // while none are known
	told   bool        // that this process asks for another number

	mu        sync.Mutex          // guards the fields below
	consumers []*consume.Consumer // those of fewer shards are among them until they have ended
}

func newRun(q *DelayQueue, settings consume.Settings, ws *consume.Workers, at consume.Portion) *run {
	r := &run{queue: q, settings: settings, workers: ws, at: at, drains: settings.Drain != nil, done: make(chan struct{}),
		outages: link.Outages{Log: settings.Log}, outage: link.Outage{Log: settings.Log}}
	r.ctx, r.end = context.WithCancel(context.Background())
	return r
}

// start starts a consumer for each shard, unless the run stops. Those of fewer shards give way to them.
func (r *run) start(set *shard.Set) (started []*consume.Consumer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping() {
		return nil
	}
	for _, c := range r.consumers {
		c.Stop()
	}
	r.consumers = slices.DeleteFunc(r.consumers, (*consume.Consumer).Ended)
	id := script.NewCaller().ID
	for _, s := range set.All {
		settings, at := r.settings, r.at
		if n := len(set.All); n > 1 {
			settings.Sharded, settings.ID, settings.Outages, settings.Log = true, id, &r.outages, settings.Log.With(slog.String("shard", s.Shard))
			settings.Limits, _ = shard.Divide(settings.Limits, n) // a rate too slow to be set is one all the same
			for _, most := range []*int{&settings.FetchLimit, &settings.MaxBytes, &settings.GarbageMax, &settings.DoneMax} {
				*most = (*most + n - 1) / n // 0 stays: no bound
			}
			at.Weight, at.Grouped = at.Weight/float64(n), true
			r.workers.Share()
		}
		if d := settings.Drain; d != nil {
			settings.Drain = d.ForShard()
		}
		started = append(started, consume.StartConsumer(&r.queue.producer, s, r.queue.events, settings, r.workers, at))
	}
	r.consumers = append(r.consumers, started...)
	return started
}

const (
	// followEvery is how often a run looks how many shards the queue has.
	followEvery = 10 * time.Second
	// followTime bounds a look. If the first shard does not answer in time, others are asked.
	followTime = 2*link.AttemptTimeout + time.Second
)

// follow looks how many shards the queue has, starts consumers if there are more than before, and comes again. Between two calls it has no
// goroutine.
func (r *run) follow() {
	r.mu.Lock()
	if r.stopping() {
		r.mu.Unlock()
		return
	}
	r.look.Add(1)
	r.mu.Unlock()
	defer r.look.Done()
	ctx, cancel := context.WithTimeout(r.ctx, followTime)
	defer cancel()
	store, begun, wait := r.queue.store, time.Now(), followEvery
	now, err := store.Look(ctx)
	if r.stopping() {
		return
	}
	if r.set == nil { // else a consumer notes it
		r.outage.Report("shards", begun, err)
		r.tries++
		wait = link.Backoff(r.tries)
	}
	if err == nil {
		if wait = followEvery; r.set == nil || len(now.All) != len(r.set.All) {
			r.start(now)
		}
		r.set = now
	}
	if err == nil && store.Asked > 0 && len(now.All) != store.Asked && !r.told {
		r.told = true
		r.settings.Log.Warn("delayqueue: this process asks for another number of shards than the queue has, and uses that of the queue (WithShards)",
			slog.Int("asked", store.Asked), slog.Int("shards", len(now.All)))
	}
	again := time.AfterFunc(wait, r.follow)
	context.AfterFunc(r.ctx, func() { again.Stop() })
}

// stop begins the end of all consumers, and returns at once.
func (r *run) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.consumers {
		c.Stop()
	}
	if r.stopping() {
		return
	}
	r.end()
	if r.drains {
		return // Drain ends it
	}
	consumers := slices.Clone(r.consumers)
	go func() {
		r.look.Wait()
		for _, c := range consumers {
			<-c.Done()
		}
		close(r.done)
	}()
}

// stopping reports whether stop was called.
func (r *run) stopping() bool { return r.ctx.Err() != nil }

// all are the consumers that may not have ended.
func (r *run) all() []*consume.Consumer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.consumers)
}
