package delayqueue

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/userlog"
)

// ---- At creation ----

// A QueueOption is fixed when a queue is made: everybody who shares the queue must use the same.
type QueueOption func(*identity)

type identity struct{ prefix string }

// UseCustomPrefix puts the queue's keys under {p:name} instead of {dq:name}. Queues of
// different prefixes share nothing. It panics if p is empty or holds {, } or a colon, which ends
// a prefix (names may hold colons), and if it is no UTF-8, holds control characters, or begins or ends with a blank.
func UseCustomPrefix(p string) QueueOption {
	if p == "" || strings.ContainsAny(p, "{}:") || !legible(p) {
		panic(fmt.Sprintf("delayqueue: UseCustomPrefix(%q): a prefix is UTF-8, needs at least one character, none of { } : and no "+
			"control characters, and begins and ends with no blank", p))
	}
	return func(id *identity) { id.prefix = p }
}

// ---- Settings of a consumer ----

// settings are what the With… methods of a DelayQueue set. A consumer takes a copy.
type settings struct {
	callback      CallbackFunc
	handler       Handler
	middleware    []func(Handler) Handler
	base          context.Context
	onError       func(context.Context, *Message, error)
	onGarbage     func(context.Context, *Message, error)
	concurrency   int
	fetchInterval time.Duration // 0: tickInterval, or idleInterval
	fetchLimit    int           // 0: as many as the workers need
	maxBytes      int           // 0: any number
	limit         time.Duration // 0: none
	fetchSettings
	limits       Limits // of the whole queue
	nackDelay    *time.Duration
	retryDelays  []time.Duration
	retryDelay   func(failures int, err error, msg *Message) time.Duration
	log          *slog.Logger
	failureLevel slog.Level // of a failure with retries left
	drain        *drain     // of a consumer that ends when nothing is due; nil of all others

	handle Handler // middleware around handler or callback, made when a consumer starts; nil for a bare callback
}

func defaultSettings(callback CallbackFunc) settings {
	return settings{
		callback:      callback,
		base:          context.Background(),
		concurrency:   1,
		maxBytes:      64 << 20,
		fetchSettings: fetchSettings{lease: 10 * time.Second, maxLosses: 3, garbageAge: 7 * 24 * time.Hour, doneMax: 100_000},
		log:           userlog.Contain(slog.Default()),
	}
}

// compose makes handle. It calls the user's code.
func (s *settings) compose(queue string) {
	s.handle = s.handler
	if callback := s.callback; s.handle == nil && (len(s.middleware) > 0 || s.limit > 0) {
		s.handle = func(ctx context.Context, msg *Message) error {
			if !callEach(callback, msg, func() bool { return ctx.Err() != nil }) {
				return ErrNacked
			}
			return nil
		}
	}
	for i := len(s.middleware) - 1; i >= 0; i-- {
		if s.handle = s.middleware[i](s.handle); s.handle == nil {
			panic(fmt.Sprintf("delayqueue: queue %q: middleware %d returned a nil Handler", queue, i+1))
		}
	}
}

// delayAfter is how long a message waits for its next delivery after its nth failure.
func (s *settings) delayAfter(n int, err error, msg *Message) time.Duration {
	switch {
	case s.retryDelay != nil:
		d := min(max(s.retryDelay(n, err, msg), 0), maxDelay)
		if err := unitless("WithRetryDelayFunc: its result", d); err != nil {
			s.log.Error("delayqueue: a retry delay is a number without its unit: the default delay is used", slog.Any("error", err))
			return defaultDelay(n)
		}
		return d
	case len(s.retryDelays) > 0:
		return s.retryDelays[min(n, len(s.retryDelays))-1]
	case s.nackDelay != nil:
		return *s.nackDelay
	}
	return defaultDelay(n)
}

// defaultDelay is exponential backoff with equal jitter, half fixed and half at random.
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
func defaultDelay(n int) time.Duration {
	d := longestDelay(n)
	return d/2 + rand.N(d/2+1)
}

func longestDelay(n int) time.Duration { return min(time.Second<<min(max(n, 0), 30), 10*time.Minute) }

// guard calls a function of the user's whose panic must not end the process.
func (s *settings) guard(what string, message slog.Attr, f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("delayqueue: "+what+" panicked", message, slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	f()
}

// set changes a setting, or says why it cannot.
func (q *DelayQueue) set(call string, ok bool, rule string, change func(*settings)) *DelayQueue {
	q.made()
	if !ok {
		panic("delayqueue: " + call + ": " + rule)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consuming() {
		panic("delayqueue: " + call + " while consuming: call it before StartConsume, or stop the queue first")
	}
	change(&q.settings)
	return q
}

// WithCallback sets the callback, in place of the one given to NewQueue and of a handler.
func (q *DelayQueue) WithCallback(callback CallbackFunc) *DelayQueue {
	return q.set("WithCallback", callback != nil, "the callback must not be nil", func(s *settings) { s.callback, s.handler = callback, nil })
}

// WithHandler sets a handler, which sees the context and the whole message, in place of any callback.
func (q *DelayQueue) WithHandler(handler Handler) *DelayQueue {
	return q.set("WithHandler", handler != nil, "the handler must not be nil", func(s *settings) { s.callback, s.handler = nil, handler })
}

// WithMiddleware wraps the handler, or the callback, of every delivery. Each call adds
// one more; the one added first is the outermost.
func (q *DelayQueue) WithMiddleware(mw func(Handler) Handler) *DelayQueue {
	return q.set("WithMiddleware", mw != nil, "the middleware must not be nil", func(s *settings) {
		s.middleware = append(s.middleware[:len(s.middleware):len(s.middleware)], mw)
	})
}

// WithBaseContext sets the parent of every handler's context, for values and tracing.
// When it ends, handlers' contexts end, and nothing more is fetched: what no handler started goes to other
// consumers, and so does what a handler fails with because its context ended, which is no failure.
// Stop the queue then. Default: context.Background.
func (q *DelayQueue) WithBaseContext(ctx context.Context) *DelayQueue {
	return q.set("WithBaseContext", ctx != nil, "the context must not be nil", func(s *settings) { s.base = ctx })
}

// WithErrorHandler sets a function that is told of every failure before it is settled: in
// the worker that had it or, at the limit of WithMaxConsumeDuration, in a goroutine of its
// own with a context that has ended. It must return: the worker and a stop wait for it. It
// may be called from several goroutines at once.
func (q *DelayQueue) WithErrorHandler(f func(ctx context.Context, msg *Message, err error)) *DelayQueue {
	return q.set("WithErrorHandler", f != nil, "the function must not be nil", func(s *settings) { s.onError = f })
}

// WithGarbageHandler sets a function that is told of every message that this consumer gave
// up on, after it is in garbage, for one message after the other. Up to 1,000 messages wait for
// it; of more it is not told, and the log says of how many. A stop waits until it has been told of
// those, at most until Shutdown's context ends. Nobody is told if the process ends in between, or
// if the reply that says so is lost.
func (q *DelayQueue) WithGarbageHandler(f func(ctx context.Context, msg *Message, err error)) *DelayQueue {
	return q.set("WithGarbageHandler", f != nil, "the function must not be nil", func(s *settings) { s.onGarbage = f })
}

// WithConcurrent is how many deliveries this value handles at a time, those included that go on
// after StopConsume. Default 1; at least 1. In a Pool it does not count: the pool's workers do.
func (q *DelayQueue) WithConcurrent(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithConcurrent(%d)", n), n > 0, "needs at least 1 worker; to send only, use NewPublisher",
		func(s *settings) { s.concurrency = min(n, maxWorkers) })
}

// maxWorkers is as good as no bound, and what is reckoned with it fits into an int everywhere.
const maxWorkers = 1 << 28

// WithFetchInterval is the longest time between two polls of the queue. Messages do not
// wait for it: it is the safety net under the wake-ups. At least 10 ms. A consumer
// polls at least every third of a lease in any case.
//
// By default it is 1 s. Where a process consumes more than three queues over one client, those that have nothing to do are
// polled some three times a second together, and each at least every third of a lease and every 10 s: a message whose
// wake-up is lost, with a consumer that is killed or a connection that breaks, may be that late.
func (q *DelayQueue) WithFetchInterval(d time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithFetchInterval(%v)", d), d >= 10*time.Millisecond, "must be at least 10ms"+unitHint(d),
		func(s *settings) { s.fetchInterval = d })
}

// WithFetchLimit bounds how many deliveries the consumer holds, settled ones not counted.
// Default 0: one for each free worker, and what they get through in a round trip.
//
// If many consumers drain a backlog at once, other users of the server wait for a script of each of them. Fetches are small when a
// backlog begins and while the server is slow, but never below 64 deliveries: a smaller limit makes these waits shorter, and the
// drain slower.
func (q *DelayQueue) WithFetchLimit(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithFetchLimit(%d)", n), n >= 0, "must not be negative; 0 means as many as the workers need",
		func(s *settings) { s.fetchLimit = n })
}

// WithMaxInFlightBytes bounds how many bytes of messages the consumer holds, settled ones not counted, but for one that
// is larger. What handlers said (SetResult, Then) counts until it is settled: nothing is fetched meanwhile, but what was
// fetched is handled. Default 64 MB; 0: no bound.
func (q *DelayQueue) WithMaxInFlightBytes(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithMaxInFlightBytes(%d)", n), n >= 0, "must not be negative; 0 means no bound",
		func(s *settings) { s.maxBytes = n })
}

// WithMaxConsumeDuration is how long a handler may run. That is the Deadline of its context, which ends
// then (context.DeadlineExceeded, with the cause ErrConsumeTimeout), and the delivery counts as a failure. A callback that cannot see the
// context goes on running beside its successor, and its result is void. As many callbacks may run
// on like that as WithConcurrent says (in a Pool: as the queue may have workers); then there
// are no successors until some return, and the log says so. Default 0: no limit; else at least 1 ms.
func (q *DelayQueue) WithMaxConsumeDuration(d time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithMaxConsumeDuration(%v)", d), d == 0 || d >= minDuration,
		"must be at least 1ms; 0 means no limit"+unitHint(d), func(s *settings) { s.limit = d })
}

// WithLease is how long a dead consumer's deliveries stay its own. A live one renews every
// third of it, however long its handlers run. Default 10 s; at least 100 ms, at most 150 years.
//
// All consumers of a queue should ask for the same: the most that any of them asks for holds for all, and those that
// ask for less say so in the log.
func (q *DelayQueue) WithLease(d time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithLease(%v)", d), d >= 100*time.Millisecond && d <= maxDelay,
		"must be at least 100ms, and at most 150 years"+unitHint(d), func(s *settings) { s.lease = d })
}

// WithMaxLosses is how many times in a row a message may be lost with its consumer until it
// counts as poison and goes to garbage. A consumer handles one message on its last chance at a
// time, so that the one which kills its consumers does so alone. Default 3; at least 1; with 2 a single loss makes it the
// last chance.
// Consumers of a queue that ask for different ones: see WithLease.
func (q *DelayQueue) WithMaxLosses(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithMaxLosses(%d)", n), n > 0, "must be at least 1", func(s *settings) { s.maxLosses = n })
}

// WithDefaultRetryCount sets the retry count of messages that this value sends without
// WithRetryCount. Default 3; 0 means one delivery. It travels with the message, so it does
// nothing for what others send to this consumer: a Publisher has a setting of its own.
func (q *DelayQueue) WithDefaultRetryCount(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithDefaultRetryCount(%d)", n), n >= 0, "must not be negative", func(*settings) { q.defaultRetries = n })
}

// WithReplicaAck makes every send wait (Redis WAIT) until n replicas have it, at most for
// timeout; if fewer confirm in time the send returns ErrNotReplicated. Default 0: off.
//
// A replica counts once it has loaded its copy of the data and applied the message. WAIT alone says less: while
// a primary's first replica loads its first copy, servers (seen from Redis 6.2 to 8.0, in Redict 7.3 and in Valkey 8.0
// to 9.1) count it for what was sent before it came. So a send during which the first replica came is carried
// out once more, under the same id, and waits again.
//
// It is the replica that becomes the primary that counts: with n below the number of replicas, a failover, also
// one that was planned, may promote one that had not confirmed. Where no accepted message may be lost, let n be
// the number of all replicas; sends fail then while one of them is away. A replica that has confirmed and then restarts,
// without persistence or with an older copy, has forgotten: promoted before it has synced, it loses what it confirmed.
func (q *DelayQueue) WithReplicaAck(n int, timeout time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithReplicaAck(%d, %v)", n, timeout), validReplicaAck(n, timeout), replicaAckRule,
		func(*settings) { q.batcher.replicas, q.batcher.replicaTimeout = n, timeout })
}

const replicaAckRule = "n must not be negative, and the timeout at least 1ms and at most 150 years"

func validReplicaAck(n int, timeout time.Duration) bool {
	return n == 0 || n > 0 && timeout >= minDuration && timeout <= maxDelay
}

const waitRule = "must be 0, or at least 1ms and at most 150 years"

// validWait is true of a setting that says how long something waits.
func validWait(d time.Duration) bool { return d == 0 || d >= minDuration && d <= maxDelay }

// WithNackRedeliveryDelay is how long every failed message waits for its next delivery.
// Default: exponential with jitter, 1 to 2 s after the first failure, doubling to 10 minutes.
// WithRetryDelays, WithRetryDelayFunc and RetryAfter override it, in that rising order. 0, or 1 ms
// to 150 years.
func (q *DelayQueue) WithNackRedeliveryDelay(d time.Duration) *DelayQueue {
	return q.set(fmt.Sprintf("WithNackRedeliveryDelay(%v)", d), validWait(d), waitRule+unitHint(d), func(s *settings) { s.nackDelay = &d })
}

// WithRetryDelays lists the delays after the first, second, … failure; the last one
// serves for all that follow. How many retries there are is WithRetryCount's to say. Each is 0, or
// 1 ms to 150 years.
func (q *DelayQueue) WithRetryDelays(delays ...time.Duration) *DelayQueue {
	ok, hint := len(delays) > 0, ""
	for _, d := range delays {
		if ok && !validWait(d) {
			ok, hint = false, unitHint(d)
		}
	}
	return q.set(fmt.Sprintf("WithRetryDelays(%v)", delays), ok, "needs at least one delay, and each "+waitRule+hint,
		func(s *settings) { s.retryDelays = slices.Clone(delays) })
}

// WithRetryDelayFunc computes the delay after a failure: failures counts this one, from 1.
// A negative result counts as 0, and more than 150 years as that. Of less than 1ms, which is a number without its unit,
// the log says so, and the default delay is used. It may be called from several workers at once.
func (q *DelayQueue) WithRetryDelayFunc(f func(failures int, err error, msg *Message) time.Duration) *DelayQueue {
	return q.set("WithRetryDelayFunc", f != nil, "the function must not be nil", func(s *settings) { s.retryDelay = f })
}

// WithGarbageRetention bounds garbage: messages older than age are deleted (0: never for
// their age), and the oldest when there are more than max (0: any number); those are
// counted in the log. Default 7 days, any number.
// Consumers of a queue that ask for different ones: see WithLease.
func (q *DelayQueue) WithGarbageRetention(age time.Duration, max int) *DelayQueue {
	return q.set(fmt.Sprintf("WithGarbageRetention(%v, %d)", age, max), validWait(age) && max >= 0,
		"neither may be negative, an age is at least 1ms and at most 150 years; 0 means no bound"+unitHint(age),
		func(s *settings) { s.garbageAge, s.garbageMax = age, max })
}

// WithDoneLimit bounds how many messages the queue keeps that are done (WithRetention): when there are more, those are
// deleted that would be the next to go, and the log says how many. Default 100,000; 0: any number. What was acked within
// the last 5 s is deleted last, so that whoever waits for it (Call) finds it although messages that are kept for longer
// have filled the queue. Where all were acked since then, those that were acked first go, more or less, whether they were read or
// not: a result is there until n more messages are done. A caller looks a second after the ack at the latest, so n must be more
// than are acked in some seconds. It bounds a number: 100,000 results of 1 MB are 100 GB.
//
// All consumers of a queue should ask for the same: the most that any of them asks for holds for all, and those that
// ask for less say so in the log.
func (q *DelayQueue) WithDoneLimit(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithDoneLimit(%d)", n), n >= 0, "must not be negative; 0 means no bound", func(s *settings) { s.doneMax = n })
}

// WithFailureLevel sets the level at which a failure is logged that is followed by another delivery;
// one that is not is an error. Default slog.LevelInfo; a level that the log leaves out drops them.
func (q *DelayQueue) WithFailureLevel(level slog.Level) *DelayQueue {
	return q.set("WithFailureLevel", true, "", func(s *settings) { s.failureLevel = level })
}

// WithLogger sets the log. Its handler may panic, hang or call this queue: it loses what it was to write, and nothing
// else. What it hangs over is written when it goes on, up to 1,000 records. Default: slog.Default, as it is when the queue is made.
func (q *DelayQueue) WithLogger(log *slog.Logger) *DelayQueue {
	return q.set("WithLogger", log != nil, "the logger must not be nil; for silence use slog.DiscardHandler", func(s *settings) {
		s.log = userlog.Contain(log)
		q.events.log.Store(s.log)
	})
}
