package ops

import (
	"context"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// AcceptBalance makes the books of the queue balance (Monitor.Balance), whatever is there, and returns how many messages were missing; less
// than 0: how many were too many. Find out why first: afterwards only the journal and Balance.WrittenOff, or Balance.Found, tell of them. It
// changes no message.
func (m *Queue) AcceptBalance(ctx context.Context) (missing int64, err error) {
	missing, err = script.Once(ctx, &m.calls, func(c *script.Caller) (int64, error) { return m.store.AcceptBalance(ctx, c) })
	if err != nil {
		return 0, m.failed(err, "accept the balance")
	}
	if missing > 0 {
		m.done(ctx, journalRecord{Act: ActAcceptBalance, Detail: "missing", N: missing})
	} else if missing < 0 {
		m.done(ctx, journalRecord{Act: ActAcceptBalance, Detail: "too many", N: -missing})
	}
	return missing, nil
}
