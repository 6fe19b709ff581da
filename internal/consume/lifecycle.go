package consume

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A lifecycle says whether a consumer consumes, stops or has ended. It bounds how long the consumer's goroutines wait
// for Redis and for the user's code. It is safe for concurrent use.
type lifecycle struct {
	lease    time.Duration
	handling func() bool // whether a delivery waits for a handler or is in one
	log      *slog.Logger
	outage   *link.Outage
	shard    string // in which the consumer is; "": the queue has no other

	settled chan struct{}          // closed by consumer.run when all has ended but for handlers that were given up
	done    chan struct{}          // closed when these have returned, too
	phase   atomic.Pointer[string] // what the end waits for; written by consumer.run, read by Shutdown

	// redisCtx is the context of all calls to Redis. After a stop it ends when no handler runs and Redis has not
	// answered for a lease: by then the leases of this consumer have run out.
	redisCtx      context.Context
	endRedis      context.CancelFunc
	redisDeadline conc.AtomicTime // written by extendDrain, read by drainTimer
	drainTimer    *time.Timer     // started by stop; calls endRedis

	// pollCtx ends when a stop begins, because then nobody wants what a poll would bring.
	pollCtx  context.Context
	endPolls context.CancelFunc

	// forceCtx ends when Shutdown's context has ended: then nobody waits for the user's code any longer.
	forceCtx context.Context
	force    context.CancelFunc
}

func newLifecycle(lease time.Duration, log *slog.Logger, handling func() bool) *lifecycle {
	l := &lifecycle{lease: lease, handling: handling, log: log, outage: &link.Outage{Log: log},
		settled: make(chan struct{}), done: make(chan struct{})}
	l.redisCtx, l.endRedis = context.WithCancel(context.Background())
	l.pollCtx, l.endPolls = context.WithCancel(l.redisCtx)
	l.forceCtx, l.force = context.WithCancel(context.Background())
	l.drainTimer = time.AfterFunc(time.Hour, l.drained)
	l.drainTimer.Stop()
	l.enterPhase("a fetch to be answered")
	return l
}

// drained ends redisCtx, or sets drainTimer again if that is too early.
func (l *lifecycle) drained() {
	if l.handling() {
		l.drainTimer.Reset(l.lease) // as long as handlers run, there is no hurry
	} else if left := -l.redisDeadline.Age(time.Now()); left > 0 {
		l.drainTimer.Reset(left)
	} else {
		l.endRedis()
	}
}

// stop begins the end. When all handlers have finished, Redis has one lease to take their outcomes, and another one
// after each answer.
func (l *lifecycle) stop() {
	if !l.stopping() {
		l.extendDrain()
		l.drainTimer.Reset(l.lease)
		l.endPolls()
	}
}

// extendDrain gives Redis another lease.
func (l *lifecycle) extendDrain() { l.redisDeadline.Set(time.Now().Add(l.lease)) }

func (l *lifecycle) stopping() bool { return l.pollCtx.Err() != nil }

// enterPhase notes what the end waits for from now on.
func (l *lifecycle) enterPhase(what string) { l.phase.Store(&what) }

// retry calls attempt, which makes the present call of c, until it succeeds, redisCtx ends, or again returns false.
// When a stop begins, the next attempt is made at once.
func (l *lifecycle) retry(call string, c *script.Caller, attempt func() error,
	again func(n int, err error) bool) error {
	hurry := l.pollCtx.Done()
	if l.stopping() {
		hurry = nil
	}
	return link.Retry(l.redisCtx, hurry, func() error {
		begun := time.Now()
		err := attempt()
		if l.report(call, begun, err); err == nil {
			l.extendDrain()
		} else {
			c.ReplaceIfStale(err, l.log)
		}
		return err
	}, again)
}

// report notes the result of an attempt at a call to Redis, unless the end of redisCtx or pollCtx ended the attempt, or
// other consumers take the place of this one.
func (l *lifecycle) report(call string, begun time.Time, err error) {
	if err == nil || l.redisCtx.Err() == nil && !errors.Is(err, context.Canceled) && !errors.Is(err, shard.ErrLearned) {
		l.outage.Report(call, l.shard, begun, err)
	}
}

// cause is why calls of the consumer fail, and nil while all work.
func (l *lifecycle) cause() error { return l.outage.Cause(l.shard) }
