// Package shift finds in the journal of a queue a call that shifted messages and was cut off, because the same call
// would shift them again. The command and the page ask before that.
package shift

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

const (
	looked = 200            // entries of the journal
	within = 24 * time.Hour // since such a call began
	near   = 5 * time.Minute
)

// CutOff is the last of the calls that have shifted by as much some of the messages that b selects, if it did not come
// to its end; nil if it did, or if there is none. Of the answer Bulk.Silent says how long ago it was heard of.
func CutOff(ctx context.Context, m *ops.Queue, b *ops.Bulk, by time.Duration) (*ops.JournalEntry, error) {
	page, err := m.Journal(ctx, looked, "")
	if err != nil {
		return nil, err
	}
	return find(page, b, by), nil
}

func find(page *ops.JournalPage, b *ops.Bulk, by time.Duration) *ops.JournalEntry {
	for i := range page.Entries {
		e := &page.Entries[i]
		ago := page.Now.Sub(e.At)
		if ago > within {
			break
		}
		if e.Bulk == nil || e.Bulk.Task == nil || e.Bulk.Task.By != by || !sameFilter(e.Bulk.Task.Filter, b.Filter, ago) {
			continue
		}
		shared := 0
		for _, s := range b.States {
			if slices.Contains(e.Bulk.Task.States, s) {
				shared++
			}
		}
		if e.Bulk.Phase == journal.Finished && shared == len(b.States) {
			break
		}
		if e.Bulk.Phase != journal.Finished && shared > 0 && e.Messages > 0 {
			return e
		}
	}
	return nil
}

// sameFilter says whether two filters were given by the same words. A duration as an end was another instant then.
func sameFilter(then, now ops.Filter, ago time.Duration) bool {
	same := func(x, y time.Time) bool {
		d := y.Sub(x)
		return x.IsZero() == y.IsZero() && (d == 0 || (d-ago).Abs() <= near)
	}
	alike := same(then.From, now.From) && same(then.To, now.To)
	then.From, then.To, now.From, now.To = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return alike && fmt.Sprint(then) == fmt.Sprint(now) // no header or none given reads alike
}
