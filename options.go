package delayqueue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/consume"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/userlog"
)

// ---- At creation ----

// A QueueOption is fixed when a queue is made. All programs that share the queue must use the same options.
type QueueOption func(*identity)

type identity struct {
	prefix string
	shards int // 0: as many as the queue has
}

// UseCustomPrefix puts the queue's keys under {p:name} instead of {dq:name}. Queues of different prefixes share
// nothing. It panics if p is empty, is no UTF-8, holds {, }, a colon or control characters, or begins or ends with a
// blank. A name may hold colons, because the first colon ends the prefix.
func UseCustomPrefix(p string) QueueOption {
	must(fmt.Sprintf("UseCustomPrefix(%q)", p), p != "" && !strings.ContainsAny(p, "{}:") && script.Legible(p),
		"a prefix is UTF-8, needs at least one character, none of { } : and no control characters, and begins and ends "+
			"with no blank")
	return func(id *identity) { id.prefix = p }
}

// WithShards spreads the queue over n slots of a Redis Cluster (1 to 64), for a queue that outgrows one node. All
// else stays as it is, with these exceptions:
//   - Messages without a name go round the shards. A key, a lane or a sequence is a name, and lies in the shard of
//     its hash. All names of one message must lie together: as in Redis, only what stands between { and } counts, so
//     WithLane("customer-42") goes with WithKey("{customer-42}order-17"). What follows by Then may have names only if
//     the key or the lane of the acked message lies with them.
//   - Nothing is atomic over shards. Limits are divided by n, rounded up, and Throttle holds up one shard. Counts and
//     the like are sums of numbers that were read at about the same time.
//   - While a node is away, sends without a name go on over the other shards.
//
// The number belongs to the queue, and does not change: the first call of the first process settles it, so choose the
// largest number of nodes that the queue will ever need. A process with another number gets ErrShardCount from its
// sends, and its consumers wait and say so in the log. For another number take a new name, and drain the old queue. A
// process without the option uses the number that the queue has, and makes a new queue with one shard. A Monitor
// takes no note of the option. Shards on a single server work, and gain nothing. WithShards panics if n is out of
// bounds.
func WithShards(n int) QueueOption {
	must(fmt.Sprintf("WithShards(%d)", n), n >= 1 && n <= script.MaxShards, fmt.Sprintf("from 1 to %d", script.MaxShards))
	return func(id *identity) { id.shards = n }
}

// ---- Settings of a consumer ----

// A config is what the With… methods of a DelayQueue set. compose makes the settings of a consumer of it.
type config struct {
	consume.Settings
	handler     Handler // nil: callback
	middleware  []func(Handler) Handler
	nackDelay   *time.Duration
	retryDelays []time.Duration
	retryDelay  func(failures int, err error, msg *Message) time.Duration
}

func defaultConfig(callback CallbackFunc) config {
	return config{Settings: consume.Settings{
		Callback:      callback,
		Base:          context.Background(),
		Workers:       1,
		MaxBytes:      64 << 20,
		FetchSettings: script.FetchSettings{Lease: 10 * time.Second, MaxLosses: 3, GarbageAge: 7 * 24 * time.Hour},
		DoneMax:       100_000,
		Log:           userlog.Contain(slog.Default()),
	}}
}

// compose makes the settings of a consumer. They refer to c, which must not change any more. It calls the user's code.
func (c *config) compose(queue string) consume.Settings {
	handler := c.handler
	if callback := c.Callback; handler == nil && (len(c.middleware) > 0 || c.Limit > 0) {
		handler = func(ctx context.Context, msg *Message) error {
			if !consume.CallEach(callback, (*message.Delivered)(msg), func() bool { return ctx.Err() != nil }) {
				return ErrNacked
			}
			return nil
		}
	}
	for i := len(c.middleware) - 1; i >= 0; i-- {
		if handler = c.middleware[i](handler); handler == nil {
			panic(fmt.Sprintf("delayqueue: queue %q: middleware %d returned a nil Handler", queue, i+1))
		}
	}
	s := c.Settings
	if handler != nil {
		s.Handle = func(ctx context.Context, msg *message.Delivered) consume.Verdict {
			return judge(handler(ctx, (*Message)(msg)))
		}
	}
	s.Log = s.Log.With(slog.String("queue", queue))
	if c.retryDelay != nil || len(c.retryDelays) > 0 || c.nackDelay != nil {
		s.DelayAfter = func(n int, err error, msg *message.Delivered) time.Duration {
			return c.delayFor(n, err, (*Message)(msg))
		}
	}
	return s
}

// delayFor is how long a message waits for its next delivery after its nth failure.
func (c *config) delayFor(n int, err error, msg *Message) time.Duration {
	switch {
	case c.retryDelay != nil:
		return min(max(c.retryDelay(n, err, msg), 0), message.MaxDelay)
	case len(c.retryDelays) > 0:
		return c.retryDelays[min(n, len(c.retryDelays))-1]
	}
	return *c.nackDelay
}

// hook makes a function of the user's one that a consumer can call.
func hook(f func(context.Context, *Message, error)) func(context.Context, *message.Delivered, error) {
	return func(ctx context.Context, msg *message.Delivered, err error) { f(ctx, (*Message)(msg), err) }
}

// must panics with the rule of a call if ok is false.
func must(call string, ok bool, rule string) {
	if !ok {
		panic("delayqueue: " + call + ": " + rule)
	}
}

// set changes a setting. It panics with the rule if ok is false, and while the queue consumes.
func (q *DelayQueue) set(call string, ok bool, rule string, change func(*config)) *DelayQueue {
	q.made()
	must(call, ok, rule)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consuming() {
		panic("delayqueue: " + call + " while consuming: call it before StartConsume, or stop the queue first")
	}
	change(&q.config)
	return q
}

// WithCallback sets the callback, in place of that of NewQueue and of any handler.
func (q *DelayQueue) WithCallback(callback CallbackFunc) *DelayQueue {
	return q.set("WithCallback", callback != nil, "the callback must not be nil", func(c *config) {
		c.Callback, c.handler = callback, nil
	})
}

// WithHandler sets a handler, which gets a context and the whole message, in place of any callback.
func (q *DelayQueue) WithHandler(handler Handler) *DelayQueue {
	return q.set("WithHandler", handler != nil, "the handler must not be nil", func(c *config) {
		c.Callback, c.handler = nil, handler
	})
}

// WithMiddleware wraps the handler, or the callback, of every delivery. Each call adds one more. The first one is the
// outermost.
func (q *DelayQueue) WithMiddleware(mw func(Handler) Handler) *DelayQueue {
	return q.set("WithMiddleware", mw != nil, "the middleware must not be nil", func(c *config) {
		c.middleware = append(c.middleware[:len(c.middleware):len(c.middleware)], mw)
	})
}

// WithBaseContext sets the parent of every handler's context, for values and tracing. When the parent ends, the
// contexts of handlers end, and nothing more is fetched. Messages that no handler started go to other consumers. So
// do messages whose handlers return an error because their contexts ended, which is no failure. Stop the queue then.
// Default: context.Background.
func (q *DelayQueue) WithBaseContext(ctx context.Context) *DelayQueue {
	return q.set("WithBaseContext", ctx != nil, "the context must not be nil", func(c *config) { c.Base = ctx })
}

// WithErrorHandler sets a function that is told of every failure before the failure is settled. The worker of the
// message calls it. At the limit of WithMaxConsumeDuration another goroutine does, with a context that has ended. The
// function must return, because the worker and a stop wait for it. It may be called from several goroutines at once.
//
// It is told of a delivery that was lost with its consumer (ErrDeliveryLost) right before the next one, by the
// consumer that has that: msg.Delivery is the next one's. If the next one is cut off too, it is told once more. The
// third loss is told to WithGarbageHandler.
func (q *DelayQueue) WithErrorHandler(f func(ctx context.Context, msg *Message, err error)) *DelayQueue {
	return q.set("WithErrorHandler", f != nil, "the function must not be nil", func(c *config) { c.OnError = hook(f) })
}

// WithGarbageHandler sets a function that is told of every message that this consumer gave up on, after the message
// is in garbage. It is called for one message after the other. Up to 1,000 messages wait for it. It is not told of
// more, and the log says of how many. A stop waits until the function was told of those that wait, at most until
// Shutdown's context ends. It is not told if the process ends in between, or if the reply of Redis is lost.
func (q *DelayQueue) WithGarbageHandler(f func(ctx context.Context, msg *Message, err error)) *DelayQueue {
	return q.set("WithGarbageHandler", f != nil, "the function must not be nil", func(c *config) { c.OnGarbage = hook(f) })
}

// WithConcurrent sets how many deliveries this DelayQueue handles at a time, in this process, including those that go
// on after StopConsume. Default 1; at least 1. A Pool does not use it, because it has workers of its own.
func (q *DelayQueue) WithConcurrent(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithConcurrent(%d)", n), n > 0, "needs at least 1 worker; to send only, use NewPublisher",
		func(c *config) { c.Workers = n })
}

// WithFetchInterval sets the longest time between two polls of the queue. Messages do not wait for a poll: it finds
// those whose wake-up was lost. At least 10 ms. A consumer polls at least every third of a lease in any case.
//
// The default is 1 s. If a process consumes more than three queues over one client, its idle queues are polled about
// three times a second together, and each at least every third of a lease and every 10 s. A message whose
// wake-up is lost, with a consumer that is killed or a connection that breaks, may be that late.
func (q *DelayQueue) WithFetchInterval(d time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithFetchInterval(%v)", d), d >= 10*time.Millisecond, "must be at least 10ms"+
		message.UnitHint(d),
		func(c *config) { c.FetchInterval = d })
}

// WithFetchLimit bounds how many deliveries the consumer holds. Settled ones do not count.
// Default 0: one for each free worker, and as many as the workers handle in two round trips.
//
// If many consumers drain a backlog at once, other users of the server wait for a script of each of them. At the
// start of a backlog, and while the server is slow, a fetch asks for 64 deliveries or little more. A smaller limit
// makes these waits shorter, and the drain slower.
func (q *DelayQueue) WithFetchLimit(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithFetchLimit(%d)", n), n >= 0, "must not be negative; 0 means as many as the workers need",
		func(c *config) { c.FetchLimit = n })
}

// WithMaxInFlightBytes bounds how many bytes of messages the consumer holds. Settled messages do not count, nor those
// that wait for WithGarbageHandler, and one message may be larger. Results and followers (SetResult, Then) count
// until they are settled. At the bound nothing more is fetched, and fetched messages are handled. Default 64 MB; 0:
// no bound.
func (q *DelayQueue) WithMaxInFlightBytes(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithMaxInFlightBytes(%d)", n), n >= 0, "must not be negative; 0 means no bound",
		func(c *config) { c.MaxBytes = n })
}

// WithMaxConsumeDuration sets how long a handler may run. Then its context ends (context.DeadlineExceeded, with the
// cause ErrConsumeTimeout), and the delivery counts as a failure. Default 0: no limit; else at least 1 ms.
//
// A handler that does not return then, or a callback, which cannot see the context, goes on beside the next message,
// also beside the retry of its own, and its result has no effect. Another worker takes its place. As many handlers may
// run on like that as WithConcurrent says (in a Pool: as many as the queue may have workers). Beyond that a worker that
// runs on gets no replacement until it returns, and the log says so.
func (q *DelayQueue) WithMaxConsumeDuration(d time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithMaxConsumeDuration(%v)", d), d == 0 || d >= message.MinDuration,
		"must be at least 1ms; 0 means no limit"+message.UnitHint(d), func(c *config) { c.Limit = d })
}

// WithLease sets how long a dead consumer keeps its deliveries. A live consumer renews its leases every third of that
// time, however long its handlers run. Default 10 s; at least 100 ms, at most 150 years.
//
// All consumers of a queue should set the same value. If they differ, the longest lease applies to all of them.
func (q *DelayQueue) WithLease(d time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithLease(%v)", d), d >= 100*time.Millisecond && d <= message.MaxDelay,
		"must be at least 100ms, and at most 150 years"+message.UnitHint(d), func(c *config) { c.Lease = d })
}

// WithMaxLosses sets how many times in a row a message may be lost with its consumer. Then it is poison, and goes to
// garbage. A DelayQueue, or a Pool, handles a message on its last chance alone: it fetches nothing until its handlers
// have returned, then that message, and the next ones when that has been settled. So a message that kills its
// consumers dies alone, and none beside it is taken for poison. It waits for a handler once, and for a lease at most:
// one that runs for longer is beside such messages. In between it fetches for as long as it waited. If the process
// ends while it waits, that message comes two leases later. Where the places or the rate of a queue are used up, it
// may come some leases late. Other queues of the process may be beside such a message, if they are in no Pool with
// this one.
//
// A message of more than 64 KB whose reply is lost twice although nothing else is in it counts a loss: the line is too
// slow for it, or a limit of the server cuts it off.
//
// Default 3; at least 1. With 2, the delivery after the first loss is the last chance. With 1 there is no last chance:
// all messages that a dead consumer had go to garbage. If consumers of a queue differ, the consumer that notices
// the loss applies its own value.
func (q *DelayQueue) WithMaxLosses(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithMaxLosses(%d)", n), n > 0, "must be at least 1", func(c *config) { c.MaxLosses = n })
}

// WithDefaultRetryCount sets the retry count of messages that this DelayQueue sends without WithRetryCount. Default
// 3; 0 means one delivery. The count travels with the message, so this setting does nothing for messages of other
// senders. A Publisher has a setting of its own.
func (q *DelayQueue) WithDefaultRetryCount(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithDefaultRetryCount(%d)", n), n >= 0, notNegative, func(*config) { q.defaultRetries = n })
}

// WithReplicaAck makes every send wait (Redis WAIT) until n replicas have the message, at most for timeout. If fewer
// replicas confirm in time, the send returns ErrNotReplicated. Default 0: off.
//
// A replica counts when it has loaded its copy of the data and applied the message. WAIT alone says less: while a
// primary's first replica loads its first copy, servers count it for messages that were sent before it came (seen
// from Redis 6.2 to 8.0, in Redict 7.3 and in Valkey 8.0 to 9.1). So a send during which the first replica came is
// carried out once more, under the same id, and waits again.
//
// If n is below the number of replicas, a failover, also a planned one, may promote a replica that had not confirmed.
// If Redis may forget no accepted message, let n be the number of all replicas; sends fail then while one replica is
// away. A replica that has confirmed, and restarts without persistence or with an older copy, has forgotten the
// message. If it is promoted before it has synced, the message is gone.
func (q *DelayQueue) WithReplicaAck(n int, timeout time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithReplicaAck(%d, %v)", n, timeout), validReplicaAck(n, timeout), replicaAckRule,
		func(*config) { q.sender.Replicas, q.sender.ReplicaTimeout = n, timeout })
}

const (
	notNegative    = "must not be negative"
	loggerRule     = "the logger must not be nil; for silence use slog.DiscardHandler"
	replicaAckRule = "n must not be negative, and the timeout at least 1ms and at most 150 years"
	waitRule       = "must be 0, or at least 1ms and at most 150 years"
)

func validReplicaAck(n int, timeout time.Duration) bool {
	return n == 0 || n > 0 && timeout >= message.MinDuration && timeout <= message.MaxDelay
}

// validWait reports whether a setting may be the time that something waits.
func validWait(d time.Duration) bool {
	return d == 0 || d >= message.MinDuration && d <= message.MaxDelay
}

// WithNackRedeliveryDelay sets how long a failed message waits for its next delivery: 0, or 1 ms to 150 years.
// Default: exponential with jitter, 1 to 2 s after the first failure, doubling to 10 minutes. WithRetryDelays
// overrides this setting, WithRetryDelayFunc overrides both, and RetryAfter overrides all three.
func (q *DelayQueue) WithNackRedeliveryDelay(d time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithNackRedeliveryDelay(%v)", d), validWait(d), waitRule+message.UnitHint(d),
		func(c *config) { c.nackDelay = &d })
}

// WithRetryDelays lists the delays after the first, second, … failure. The last delay serves for all later failures.
// Each is 0, or 1 ms to 150 years. It does not set how many retries there are: WithRetryCount does.
func (q *DelayQueue) WithRetryDelays(delays ...time.Duration) *DelayQueue {
	ok, hint := len(delays) > 0, ""
	for _, d := range delays {
		if ok && !validWait(d) {
			ok, hint = false, message.UnitHint(d)
		}
	}
	return q.set(fmt.Sprintf("WithRetryDelays(%v)", delays), ok, "needs at least one delay, and each "+waitRule+hint,
		func(c *config) { c.retryDelays = slices.Clone(delays) })
}

// WithRetryDelayFunc sets a function that computes the delay after a failure. failures includes this failure, so it
// is at least 1. A negative result counts as 0, and more than 150 years as 150 years. The function may be called from
// several workers at once.
func (q *DelayQueue) WithRetryDelayFunc(f func(failures int, err error, msg *Message) time.Duration) *DelayQueue {
	return q.set("WithRetryDelayFunc", f != nil, "the function must not be nil", func(c *config) { c.retryDelay = f })
}

// WithGarbageRetention bounds garbage. Messages that are garbage for longer than age are deleted (0: no bound). If
// there are more than max, the oldest are deleted, and the log says how many (0: any number). Default 7 days, any
// number. A consumer sees to that once a second while messages are live, and else every half minute at least. All
// consumers of a queue should have the same bounds: if they differ, those of one act, and then of another.
func (q *DelayQueue) WithGarbageRetention(age time.Duration, max int) *DelayQueue {
	return q.set(fmt.Sprintf("WithGarbageRetention(%v, %d)", age, max), validWait(age) && max >= 0,
		"neither may be negative, an age is at least 1ms and at most 150 years; 0 means no bound"+message.UnitHint(age),
		func(c *config) { c.GarbageAge, c.GarbageMax = age, max })
}

// WithDoneLimit bounds how many messages that are done the queue keeps (WithRetention). If there are more, the
// messages that would expire first are deleted, and the log says how many. Default 100,000; 0: any number. It bounds
// a number, not bytes: 100,000 results of 1 MB are 100 GB. If consumers of a queue differ, the smallest bound acts.
//
// Messages that were acked within the last 5 s are deleted last, because a Call may not have read its result yet. If
// all messages were acked within 5 s, roughly the oldest acks are deleted, and a Call may miss its result. A Call
// reads at most a second after the ack, so n must be larger than the number of acks in some seconds.
func (q *DelayQueue) WithDoneLimit(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithDoneLimit(%d)", n), n >= 0, "must not be negative; 0 means no bound", func(c *config) {
		c.DoneMax = n
	})
}

// WithKindHeader names the header that says of which kind a message is. Consumers count the messages of each kind:
// how many were handled, how many failed, and how long their handlers took, in this hour and the hour before. They
// report this to Redis with their sign of life, and ops.Queue.Consumers returns it. Each consumer counts 50 kinds by
// their names, and all others together. All consumers of a queue should name the same header; kinds of package typed
// are in typed.Header. Default "": nothing is counted.
func (q *DelayQueue) WithKindHeader(name string) *DelayQueue {
	return q.set("WithKindHeader", true, "", func(c *config) { c.KindHeader = name })
}

// KindHeader returns the name that WithKindHeader has set, and "" if there is none.
func (q *DelayQueue) KindHeader() string {
	q.made()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.config.KindHeader
}

// WithLogger sets the log. If its handler panics, hangs or calls this queue, records are lost, and nothing else. Up to
// 1,000 records wait for a handler that hangs. Default: slog.Default, as it is when the queue is made.
func (q *DelayQueue) WithLogger(log *slog.Logger) *DelayQueue {
	return q.set("WithLogger", log != nil, loggerRule, func(c *config) {
		c.Log = userlog.Contain(log)
		q.events.log.Store(c.Log)
	})
}

// WithRateLimit bounds how many messages of the queue are handed out in a time, over all its consumers: n deliveries
// per unit of time, evenly spaced, and up to burst at once if fewer went before. By the clock of the server, at most
// burst + n*t/per deliveries are handed out in any time t, so at most n + burst in a time of per. Messages that must
// wait stay in the queue, and one consumer wakes when the next may go. n is at least 1, and the rate at most a
// million a second; per is 1ms to 365 days; burst is 1 to a million.
//
// Each delivery that leaves the queue counts, also a retry, and a delivery that comes back unhandled. A message that
// is past its TTL or deadline comes to no handler, and does not count.
//
// All consumers of a queue should set the same rate. If they differ, the slowest rate applies to all of them, until
// no consumer has asked for it for a lease, and the others log a warning. A limit of ops.Queue.SetLimits overrides
// this setting.
func (q *DelayQueue) WithRateLimit(n int, per time.Duration, burst int) *DelayQueue {
	l := script.RateLimits{Rate: n, Per: per, Burst: burst}
	return q.set(fmt.Sprintf("WithRateLimit(%d, %v, %d)", n, per, burst), l.ValidRate(),
		script.RateRule+message.UnitHint(per), func(c *config) {
			c.Limits.Rate, c.Limits.Per, c.Limits.Burst = n, script.RatePer(per), burst
		})
}

// WithQueueConcurrency bounds the places of the queue, which are how many handlers run at a time over all its
// consumers: 1 to 2,147,483,647. A message that is fetched and waits for a worker has a place, too. WithConcurrent
// bounds the workers of one DelayQueue in one process. The place of a handler is free when its delivery ends: at its
// time limit, when its message is canceled, or when Shutdown gives up. Then a handler that does not return when its
// context ends runs beside others. A bare callback sees no context. The places of a dead process are free when its
// leases have run out. If consumers of a queue differ, the smallest number applies to all of them: see WithRateLimit.
func (q *DelayQueue) WithQueueConcurrency(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithQueueConcurrency(%d)", n), script.ValidConcurrency(n), script.ConcurrencyRule,
		func(c *config) { c.Limits.Concurrency = n })
}
