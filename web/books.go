package web

import (
	"context"
	"errors"
	"net/url"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

// Was anything lost? The books of a queue, its losses, and what was accepted of both.

// books are what the page of a queue says of that.
type books struct {
	ops.Balance
	Accepted []ops.JournalEntry // the newest first, of the newest entries of the journal
}

const lossEntries = 200 // of the journal, which are looked through for what was accepted

func booksKey(queue string) string { return "books " + queue }

// books reads them; nil if they are not open, or this user of Redis may not read them.
func (r *request) books(ctx context.Context) (*books, error) {
	return shared(ctx, r.h, booksKey(r.Queue), r.h.bounds.interval, func(ctx context.Context) (*books, error) {
		m := r.h.newMonitor(r.Queue)
		b, err := m.Balance(ctx)
		if err != nil || b.Since.IsZero() {
			return nil, err
		}
		all := &books{Balance: b}
		page, err := m.Journal(ctx, lossEntries, "")
		if errors.Is(err, delayqueue.ErrNoQueue) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		for _, e := range page.Entries {
			if e.Act == journal.AcceptBalance {
				all.Accepted = append(all.Accepted, e)
			}
		}
		return all, nil
	})
}

// postBooks accepts losses and what the books do not explain.
func (h *Handler) postBooks(ctx context.Context, r *request) (string, error) {
	_, err := r.steering().AcceptBalance(ctx)
	h.cache.forget(booksKey(r.Queue))
	return link("queue", url.Values{"q": {r.Queue}, "done": {"accepted"}}), err
}
