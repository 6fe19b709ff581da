package delayqueue

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/go-delayqueue/delayqueue/internal/clock"
	"github.com/go-delayqueue/delayqueue/internal/consume"
	"github.com/go-delayqueue/delayqueue/internal/link"
)

var errStopped = fmt.Errorf("the queue was stopped: %w", ErrShutdown)

// Drain handles all messages that are due, with the queue's workers and settings, and returns when none is due and
// none is in its hands. It is for a program that starts, works and ends, such as a cron job. handled is how many
// deliveries a handler got: a message that fails and is due again at once counts as often as it was handled. A nil
// error means that nothing was due any more.
//
// Messages that become due meanwhile are handled, too, those that its handlers send among them. A message is due if a
// consumer would get it at once. So Drain does not wait for:
//   - a message or a retry that is due later;
//   - a queue that is paused;
//   - messages that a limit or a Throttle puts off (ops.Counts.Limited, ops.Counts.LimitedUntil);
//   - messages that other consumers hold. After the death of a consumer, two runs may notice that its lease is over,
//     and the next one handles the message;
//   - messages of a newer version of this library.
//
// A message on its last chance is handled alone, so of several all but one may be left for the next run. A message
// that a garbage handler sends may be left, too. A handler that asks for the same message at once, again and again,
// keeps Drain at work.
//
// If ctx ends, Drain stops as StopConsume does, waits for the running handlers, and returns an error that wraps
// ctx's. A Shutdown meanwhile bounds that wait. Without Redis it tries until ctx ends. It returns:
//   - an answer of Redis that no repeat mends (ErrWrongType, a missing right, a read-only disk);
//   - ErrWrongState while the queue consumes or another Drain of it is under way, and if it is in a Pool;
//   - an error at once if ctx is that of one of the queue's own handlers;
//   - ErrShutdown if StopConsume or Shutdown is called before the work is done.
//
// Messages that were not handled are in the queue as before. Drain leaves no goroutine but those of callbacks that
// run on past their limit, or past the end of Shutdown's context. It panics without a callback or handler.
// StartConsume and Run panic while Drain is at work.
func (q *DelayQueue) Drain(ctx context.Context) (handled int, err error) {
	q.made()
	failed := func(err error) error { return fmt.Errorf("delayqueue: queue %q: Drain: %w", q.store.Queue, err) }
	if err := q.ownHandler(ctx, "Drain"); err != nil {
		return 0, err
	}
	if err := link.Ended(ctx); err != nil {
		return 0, failed(err)
	}
	var n atomic.Int64
	settings := q.composed("Drain", func(next Handler) Handler {
		return func(ctx context.Context, msg *Message) error {
			n.Add(1)
			return next(ctx, msg)
		}
	})
	if settings.Drains = true; clock.Of(ctx) != nil {
		settings.Step(clock.Of(ctx))
	}
	r := q.startDrain(settings)
	if r == nil {
		return 0, failed(fmt.Errorf("%w: the queue is consumed already (StartConsume, a Pool or another Drain)",
			ErrWrongState))
	}
	defer r.Drained()
	set, err := r.Find(ctx)
	if err != nil && r.Stopping() && ctx.Err() == nil {
		err = errStopped
	}
	if err != nil {
		return 0, failed(err)
	}
	for {
		before := n.Load()
		done, err := r.Drain(ctx, set)
		if err == nil && !done {
			err = errStopped
		}
		if err != nil {
			return int(n.Load()), failed(err)
		}
		if len(set.All) == 1 || n.Load() == before { // else a handler may have sent to a shard that was done
			return int(n.Load()), nil
		}
	}
}

// startDrain makes a run, or returns nil if something else consumes the queue.
func (q *DelayQueue) startDrain(settings consume.Settings) *consume.Run {
	q.leavePool()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pool != nil || q.consuming() {
		return nil
	}
	return q.runLocked(settings, nil, consume.Portion{})
}
