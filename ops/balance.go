package ops

import (
	"context"
)

// AcceptBalance makes the books of the queue balance (Monitor.Balance), whatever is there, and returns how many
// messages were missing; less than 0: how many were too many. Find out why first: afterwards only the journal and
// Balance.WrittenOff, or Balance.Found, tell of them. It changes no message.
func (m *Queue) AcceptBalance(ctx context.Context) (missing int64, err error) {
	missing, err = m.store.AcceptBalance(ctx, &m.calls)
	r := journalRecord{Act: ActAcceptBalance, Detail: "missing", N: missing}
	if missing < 0 {
		r.Detail, r.N = "too many", -missing
	}
	if missing != 0 && (err == nil || partly(err) != "") {
		m.done(ctx, r.partly(err))
	}
	if err != nil {
		return missing, m.failed(err, "accept the balance")
	}
	return missing, nil
}
