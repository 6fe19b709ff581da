package ops

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// Counts is what a Monitor counts, and what holds the queue up.
type Counts struct {
	delayqueue.Counts

	LaneSince time.Time // when the message was due that has waited longest for its lane; zero: none that is due waits

	Paused      bool      // nothing is handed out (Pause)
	PausedUntil time.Time // zero: until Resume
	PausedSince time.Time // zero: not known
	PausedBy    string    // the operator of the pause (WithOperator); "" if not known
	// its reason (WithReason); "" if none was given. It begins with "only in 4 of 6 shards" if others are not paused
	PauseReason string

	Limited      bool      // ready messages wait for a limit of the queue or the end of a Throttle, and not for a consumer
	LimitedSince time.Time // as far as is known
	// when the next message may go; zero: when the next handler returns (delayqueue.DelayQueue.WithQueueConcurrency)
	LimitedUntil time.Time

	Unaccounted int64     // as in Balance: messages that have vanished without a word; less than 0: that have appeared
	BooksSince  time.Time // Balance.Since: from when on that is known; zero: not known

	// Consumers have noticed that messages are gone which nobody took out: after a flush, an eviction, a failover or
	// restart that lost writes, or a DeleteQueue that was forced while they ran. LossSince is when one of them last saw
	// the queue whole. Zero: there was no such loss since the last AcceptBalance.
	LossSince time.Time
	// how many, at most: of a queue that is gone, how many more sends than acks it had counted; of one that went back, how
	// many fewer sends it counts; and messages of which the contents are gone
	LossMessages int64

	// nothing is handed out before this instant, because a handler returned Throttle; zero: none has
	ThrottledUntil time.Time
}

// Counts counts the messages with one script call of O(log n). It returns ErrNoQueue for a queue that has no key.
func (m *Queue) Counts(ctx context.Context) (Counts, error) {
	c, err := m.store.ReadCounts(ctx)
	return Counts{
		Counts: delayqueue.Counts(c.Counts), LaneSince: c.LaneSince,
		Paused: c.Paused, PausedUntil: c.PausedUntil, PausedSince: c.PausedSince, PausedBy: c.PausedBy,
		PauseReason: c.PauseReason,
		Limited:     c.Limited, LimitedSince: c.LimitedSince, LimitedUntil: c.LimitedUntil,
		Unaccounted: c.Unaccounted, BooksSince: c.BooksSince, LossSince: c.LossSince, LossMessages: c.LossMessages,
		ThrottledUntil: c.ThrottledUntil,
	}, m.failed(err, "counts")
}
