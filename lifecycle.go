package delayqueue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A lifecycle says whether a consumer consumes, stops or has ended, and how long its goroutines wait for Redis and for
// the user's code meanwhile. It is safe for concurrent use.
type lifecycle struct {
	lease    time.Duration
	handling func() bool // whether a delivery waits for a handler or is in one
	outage   outage

	stopOnce sync.Once
	stopped  chan struct{}          // closed by stop
	done     chan struct{}          // closed when everything has ended, by consumer.run
	phase    atomic.Pointer[string] // what the end waits for; written by consumer.run, read by Shutdown

	// redisCtx is the context of all calls to Redis. After a stop it ends when no handler runs and Redis has not
	// answered for a lease: by then the leases of this consumer have run out.
	redisCtx      context.Context
	endRedis      context.CancelFunc
	redisDeadline atomicTime  // written by extendDrain, read by drainTimer
	drainTimer    *time.Timer // started by stop; calls endRedis

	// pollCtx ends with redisCtx, or when a stop begins: then nobody wants what a poll would bring.
	pollCtx  context.Context
	endPolls context.CancelFunc

	// forceCtx ends when Shutdown's context has ended: then nobody waits for the user's code any longer.
	forceCtx context.Context
	force    context.CancelFunc
}

func newLifecycle(lease time.Duration, log *slog.Logger, handling func() bool) *lifecycle {
	l := &lifecycle{lease: lease, handling: handling, outage: outage{log: log}, stopped: make(chan struct{}), done: make(chan struct{})}
	l.redisCtx, l.endRedis = context.WithCancel(context.Background())
	l.pollCtx, l.endPolls = context.WithCancel(l.redisCtx)
	l.forceCtx, l.force = context.WithCancel(context.Background())
	l.drainTimer = time.AfterFunc(time.Hour, l.drained)
	l.drainTimer.Stop()
	l.enterPhase("a fetch to be answered")
	return l
}

// drained ends redisCtx, or sets drainTimer again if it is too early for that.
func (l *lifecycle) drained() {
	if l.handling() {
		l.drainTimer.Reset(l.lease) // as long as handlers run, there is no hurry
	} else if left := -l.redisDeadline.age(time.Now()); left > 0 {
		l.drainTimer.Reset(left)
	} else {
		l.endRedis()
	}
}

// stop begins the end. When all handlers have finished, Redis has one lease to take their outcomes, and another one
// after each answer.
func (l *lifecycle) stop() {
	l.stopOnce.Do(func() {
		l.extendDrain()
		l.drainTimer.Reset(l.lease)
		close(l.stopped)
		l.endPolls()
	})
}

// extendDrain gives Redis another lease.
func (l *lifecycle) extendDrain() { l.redisDeadline.set(time.Now().Add(l.lease)) }

// handed says that another outcome is to be settled.
func (l *lifecycle) handed() {
	if l.stopping() {
		l.extendDrain()
	}
}

func (l *lifecycle) stopping() bool { return closed(l.stopped) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// enterPhase notes what the end waits for from now on.
func (l *lifecycle) enterPhase(what string) { l.phase.Store(&what) }

// waitingFor is what the end waits for, as a part of an error.
func (l *lifecycle) waitingFor() string { return "was still waiting for " + *l.phase.Load() }

// retry calls attempt, which makes the caller's present call, until it succeeds, redisCtx ends, or again returns false.
// When a stop begins, it asks again at once.
func (l *lifecycle) retry(call string, c *caller, attempt func() error, again func(n int, err error) bool) error {
	hurry := l.stopped
	if l.stopping() {
		hurry = nil
	}
	return retry(l.redisCtx, hurry, func() error {
		begun := time.Now()
		err := attempt()
		if l.report(call, begun, err); err == nil {
			l.extendDrain()
		} else {
			c.replaceIfStale(err, l.outage.log)
		}
		return err
	}, again)
}

// report notes the result of an attempt at a call to Redis, unless the end of redisCtx or pollCtx ended that.
func (l *lifecycle) report(call string, begun time.Time, err error) {
	if err == nil || l.redisCtx.Err() == nil && !errors.Is(err, context.Canceled) {
		l.outage.report(call, begun, err)
	}
}

// silentAfter is when a server counts as silent that has not answered any consumer on a link.
const silentAfter = 750 * time.Millisecond

// A silenceCtx is of calls that are not waited for after its end, however short they are.
type silenceCtx struct{ context.Context }

// untilSilent is ctx until the server counts as silent: it has answered nothing since begun, nor to a call that is made now.
func (l *link) untilSilent(ctx context.Context, begun time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var look func()
	look = func() {
		last := begun
		if l != nil {
			l.mu.Lock()
			if l.answeredAt.After(last) {
				last = l.answeredAt
			}
			l.mu.Unlock()
		}
		if left := silentAfter - time.Since(last); left <= 0 {
			cancel()
		} else if ctx.Err() == nil {
			time.AfterFunc(left, look)
		}
	}
	time.AfterFunc(max(silentAfter-time.Since(begun), silentAfter/3), look)
	return silenceCtx{ctx}, cancel
}
