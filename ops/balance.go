package ops

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Balance is the books of a queue: how many messages ever entered it, how many left it, and how many are here. Each
// script of this library that stores or deletes a message counts it in the same step. So Entered = Left + Here +
// Unaccounted at any instant while they are open, and Unaccounted is 0 unless something else has deleted or made
// messages.
type Balance struct {
	// when the books were opened: at the first send or fetch. Zero: they are not open, and Here alone is known
	Since time.Time

	Entered   int64 // the sum of the next five
	Sent      int64 // messages that were sent
	Followed  int64 // sent by an ack (Then)
	Scheduled int64 // sent by schedules (module schedule/)
	Imported  int64 // imported by the command delayqueue
	Found     int64 // in the queue when the books were opened; too many, and accepted (delayqueue doctor --repair)

	Left        int64 // the sum of the next nine
	Acked       int64 // acknowledged, and not kept
	Over        int64 // kept after their acks (WithRetention), until that time was over
	Superseded  int64 // ended with a delivery that was superseded
	Intercepted int64 // Intercept
	Canceled    int64 // Cancel
	Deleted     int64 // by a Queue
	Aged        int64 // garbage that was too old (WithGarbageRetention)
	Trimmed     int64 // garbage or done messages that were too many (WithGarbageRetention, WithDoneLimit)
	WrittenOff  int64 // missing, and accepted (delayqueue doctor --repair)

	Here int64 // in any state, StateGarbage and StateDone among them

	// Unaccounted is how many messages have vanished without a word: evicted, deleted by another program, or lost by the
	// server. Less than 0: so many have appeared. A failover or a restart that forgets the last writes forgets their
	// counts, too, and so does a flush: see Counts.LossSince.
	Unaccounted int64
}

// Balance reads the books at one instant, by one script call of O(1). It returns ErrNoQueue for a queue that has no
// key.
func (m *Queue) Balance(ctx context.Context) (Balance, error) {
	b, err := m.store.Balance(ctx)
	return Balance(b), m.failed(err, "balance")
}

// AcceptBalance makes the books of the queue balance (see Balance), whatever is there, and returns how many
// messages were missing; less than 0: how many were too many. It accepts losses, too, which Counts.LossSince tells of.
// Find out why first: afterwards only the journal and Balance.WrittenOff, or Balance.Found, tell of them. It changes
// no message.
func (m *Queue) AcceptBalance(ctx context.Context) (missing int64, err error) {
	got, err := m.store.AcceptBalance(ctx, &m.calls)
	for _, r := range acceptedRecords(got) {
		if err == nil || partly(err) != "" {
			m.done(ctx, r.partly(err))
		}
	}
	if err != nil {
		return got.Missing, m.failed(err, "accept the balance")
	}
	return got.Missing, nil
}

// acceptedRecords are the entries of the journal about what was accepted.
func acceptedRecords(a script.Accepted) (all []journalRecord) {
	add := func(n int64, detail string) {
		all = append(all, journalRecord{Act: journal.AcceptBalance, Detail: detail, N: n})
	}
	if a.Missing > 0 {
		add(a.Missing, "missing")
	} else if a.Missing < 0 {
		add(-a.Missing, "too many")
	}
	if !a.LossSince.IsZero() {
		add(a.LossMessages, "lost since "+a.LossSince.UTC().Format(time.RFC3339))
	}
	return all
}
