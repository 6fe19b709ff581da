package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/clock"
)

// ErrConsuming: the queue is consuming, or another Drain of it is under way, or it is in a Pool.
var ErrConsuming = errors.New("it is consumed already")

// ErrStopped: StopConsume or Shutdown was called before the work was done.
var ErrStopped = errors.New("the queue was stopped")

// A drain is what a consumer has that ends by itself, when nothing is due (Drain).
type drain struct {
	stepped bool // the clock stands still (delayqueuetest): no order, and no delay, is left to chance

	// These are written by the poller, and read when the consumer has ended.
	done bool  // nothing is due
	err  error // why it was given up
}

// Drain handles what is due now, with the queue's workers and settings, until nothing is due and nothing is in its hands; then
// it returns. It is for a program that starts, works and ends, such as a cron job. handled is how many deliveries a handler
// got: a message that fails, and is due again at once, counts as often as it was handled. A nil error means that nothing
// was due any more.
//
// What becomes due while it is at work is handled, too, also what its handlers send. Due is what a consumer would be given at
// once. So it does not wait for: a message or a retry that is due later; a queue that is paused; what a limit or a Throttle
// puts off (Monitor.Counts says Limited, and until when); what other consumers hold, also if they are dead: that comes back
// to whoever consumes after the lease, which after such a death may take one run to notice, and another one to handle; a
// message of a newer version. A message on its last chance is handled alone, so of several all but one may be left for the
// next run, and so may what a garbage handler sends. A handler that asks for the same message at once, again and
// again, keeps it at work.
//
// When ctx ends it stops as StopConsume does, waits for the handlers that run, and returns an error that wraps ctx's; to bound
// that wait, too, call Shutdown meanwhile. Without Redis it tries until ctx ends; an answer that no repeat mends is returned
// (ErrWrongType, a user without a right, a read-only disk). While the queue consumes, or if it is in a Pool, it returns ErrConsuming, and
// ErrStopped after StopConsume or Shutdown. What was not handled is in the queue as before. It leaves no goroutine but
// those of callbacks that run on past their limit. It panics without a callback or handler; StartConsume and Run panic
// while it is at work.
func (q *DelayQueue) Drain(ctx context.Context) (handled int, err error) {
	q.made()
	failed := func(err error) error { return fmt.Errorf("delayqueue: queue %q: Drain: %w", q.store.queue, err) }
	if err := q.ownHandler(ctx, "Drain"); err != nil {
		return 0, err
	}
	if err := ended(ctx); err != nil {
		return 0, failed(err)
	}
	var n atomic.Int64
	settings := q.composed("Drain", func(next Handler) Handler {
		return func(ctx context.Context, msg *Message) error {
			n.Add(1)
			return next(ctx, msg)
		}
	})
	d := new(drain)
	if settings.drain = d; clock.Of(ctx) != nil {
		settings.step(clock.Of(ctx))
	}
	c := q.startDrain(settings)
	if c == nil {
		return 0, failed(ErrConsuming)
	}
	select {
	case <-ctx.Done():
		c.stop()
	case <-c.lifecycle.done:
	}
	<-c.lifecycle.done
	switch {
	case d.done:
	case d.err != nil:
		err = failed(d.err)
	case ctx.Err() != nil:
		err = failed(withLast(ended(ctx), c.lifecycle.outage.cause()))
	default:
		err = failed(ErrStopped)
	}
	return int(n.Load()), err
}

// startDrain starts a consumer, or returns nil if the queue is consumed otherwise.
func (q *DelayQueue) startDrain(settings settings) *consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pool != nil || q.consuming() {
		return nil
	}
	return q.startLocked(settings, q.joinAlone(settings))
}

// step makes settings those of a rig: one message after the other, in order, the next delivery after the longest delay that
// might be. For handlers it is now by the rig's clock.
func (s *settings) step(now func() time.Time) {
	s.drain.stepped = true
	s.concurrency, s.fetchLimit = 1, 1
	s.base = clock.With(s.base, now)
	if s.retryDelay == nil && len(s.retryDelays) == 0 && s.nackDelay == nil {
		s.retryDelay = func(failures int, _ error, _ *Message) time.Duration { return longestDelay(failures) }
	}
}

// steppedSeed is what fetch chooses by at random where nothing is left to chance.
const steppedSeed = 1

// steppedAttempt is how long an attempt at a call may take where nothing is left to chance: a machine that is slow for a moment
// is no reason to give a message up.
const steppedAttempt = time.Minute

// seed is what the next fetch chooses by; 0: anything.
func (d *drain) seed() int32 {
	if d != nil && d.stepped {
		return steppedSeed
	}
	return 0
}

// gaveUp stops a drain because of a call that no repeat mends. It reports whether it did.
func (p *poller) gaveUp(n int, err error) bool {
	d := p.settings.drain
	if d == nil || p.lifecycle.stopping() || transient(err) || n < optionalAttempts {
		return false
	}
	d.err = err
	p.lifecycle.stop()
	return true
}

// drained polls if this is a drain that holds nothing, and stops it if nothing was due. It reports whether it did either.
func (p *poller) drained() bool {
	d := p.settings.drain
	if d == nil || p.leases.held.totals().deliveries > 0 {
		return false
	}
	if base := p.settings.base; base.Err() != nil {
		d.err = fmt.Errorf("the base context has ended: %w", ended(base))
		p.lifecycle.stop()
		return true
	}
	if p.member.room(p.limit(), true, 0) == 0 {
		return false // callbacks that run on past their limit have all workers
	}
	if brought := p.poll(false); brought == 0 && !p.state.moreDue && !p.lifecycle.stopping() {
		d.done = true
		p.lifecycle.stop()
	}
	return true
}
