package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// SetLimits sets limits of the queue, and returns the limits that were set before. They go before those of its
// consumers until they are set again. The rate and the concurrency are set separately: if one of them is 0, that of
// the consumers holds. So Limits{} takes back all that was set. The limits hold from the next delivery on. Messages
// that consumers already have are finished.
//
// If the queue has several shards, each gets an equal part of the limits. Burst and Concurrency are rounded up, so
// that each shard has at least 1, and before may be larger than what was set. SetLimits returns ErrBadOption if the
// rate of a shard would be too slow: one in 365 days is the slowest.
func (m *Queue) SetLimits(ctx context.Context, l Limits) (before Limits, err error) {
	switch {
	case script.RateLimits(l).Rated() && !script.RateLimits(l).ValidRate():
		return before,
			m.failed(fmt.Errorf("%w: %v: %s%s", delayqueue.ErrBadOption, l, script.RateRule, message.UnitHint(l.Per)),
				"set limits")
	case l.Concurrency != 0 && !script.ValidConcurrency(l.Concurrency):
		return before, m.failed(fmt.Errorf("%w: %v: %s", delayqueue.ErrBadOption, l, script.ConcurrencyRule), "set limits")
	}
	l.Per = script.RatePer(l.Per)
	was, err := m.store.SetLimits(ctx, &m.calls, script.RateLimits(l))
	if before = Limits(was); err == nil || partly(err) != "" {
		r := journalRecord{Act: journal.SetLimits, Detail: fmt.Sprintf("%v; before: %v", l, before)}
		m.done(ctx, r.partly(err))
	}
	if err != nil {
		return before, m.failed(err, "set limits")
	}
	return before, nil
}

// Unthrottle ends a Throttle of a handler, and reports whether there was one. Messages that were put off may go at
// once, as far as limits allow. The message of that handler stays due when Throttle said: RunNow brings it sooner.
func (m *Queue) Unthrottle(ctx context.Context) (lifted bool, err error) {
	lifted, err = m.store.LiftThrottle(ctx, &m.calls)
	if lifted {
		r := journalRecord{Act: journal.Unthrottle}
		m.done(ctx, r.partly(err))
	}
	if err != nil {
		return lifted, m.failed(err, "unthrottle")
	}
	return lifted, nil
}

// QueueLimits are the limits of a queue, by where they come from.
type QueueLimits struct {
	Asked Limits // the least that its consumers ask for, as far as is known
	Set   Limits // by SetLimits
	// "only in 5 of 6 shards" if the others have other limits, or none, because they did not answer when Set was set or
	// the limits before were taken back: the same call once more completes it. "": all have Set
	SetIn string
}

// InForce returns the limits that hold.
func (l QueueLimits) InForce() Limits {
	all := l.Asked
	if script.RateLimits(l.Set).Rated() {
		all.Rate, all.Per, all.Burst = l.Set.Rate, l.Set.Per, l.Set.Burst
	}
	if l.Set.Concurrency != 0 {
		all.Concurrency = l.Set.Concurrency
	}
	return all
}

// Limits returns the limits of the queue. Counts says whether messages wait for them now.
func (m *Queue) Limits(ctx context.Context) (QueueLimits, error) {
	c, err := m.store.ReadCounts(ctx)
	if err != nil {
		err = m.failed(err, "limits")
	}
	return QueueLimits{Asked: Limits(c.Asked), Set: Limits(c.Set), SetIn: c.SetIn}, err
}

// Limits bound a whole queue, over all its consumers. 0: this limit is not set. For SetLimits that means that the
// limit of the consumers holds; to lift that limit, set a high one.
type Limits struct {
	// Rate is the number of deliveries in each Per, evenly spaced. After a time with fewer deliveries, up to Burst go at
	// once: no time t has more than Burst + Rate*t/Per.
	Rate  int
	Per   time.Duration
	Burst int

	Concurrency int // handlers that run at a time, with deliveries that wait for a handler
}

// String says the limits in words.
func (l Limits) String() string { return script.RateLimits(l).String() }
