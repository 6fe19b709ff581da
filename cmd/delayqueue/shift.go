package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

// notTwice asks before a shift that would shift messages again, because the same command was cut off.
func (a *app) notTwice(ctx context.Context, m *ops.Queue, work *bulkWork, b *ops.Bulk) error {
	if work.twice == "" || b.Cursor != "" {
		return nil
	}
	e, ago := lastShift(ctx, m, work, b)
	if e == nil {
		return nil
	}
	how := map[string]string{journal.Failed: "failed", journal.Stopped: "was stopped", journal.Running: "was running"}
	if e.Bulk.Interrupted() {
		how[journal.Running] = "was interrupted"
	}
	said := fmt.Sprintf("the same command %s %s ago, after %s: these would be shifted again. --cursor with what that "+
		"command printed goes on. It began with %s of each state", how[e.Bulk.Phase], brief(ago),
		plural(int(e.Messages), "message"), work.twice)
	switch {
	case b.DryRun:
		fmt.Fprintln(os.Stderr, said)
		return nil
	case a.yes || !onTerminal(os.Stdin):
		return fail(exitUnconfirmed, "%s. On a terminal, the command without --yes asks whether to begin all the same", said)
	}
	return a.ask("%s. Begin all the same?", said)
}

// lastShift is the last act of the journal of a day that shifted the same messages by as much, if it was cut off, and
// how long ago that was; nil if it has finished, or if there is none.
func lastShift(ctx context.Context, m *ops.Queue, work *bulkWork, b *ops.Bulk) (*ops.JournalEntry, time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	page, err := m.Journal(ctx, 200, "")
	if err != nil { // of a user that may not read it, say
		return nil, 0
	}
	for i := range page.Entries {
		e := &page.Entries[i]
		ago := page.Now.Sub(e.At)
		if ago > 24*time.Hour {
			break
		}
		if e.Bulk == nil || e.Bulk.Task == nil || e.Bulk.Task.By != work.by || !sameMessages(e.Bulk.Task, b, ago) {
			continue
		}
		if e.Bulk.Phase == journal.Finished {
			break
		}
		if e.Messages > 0 {
			return e, e.Bulk.Silent
		}
	}
	return nil, 0
}

// sameMessages says whether a task is about messages that b selects, too. A duration as --to was another instant then.
func sameMessages(t *ops.BulkTask, b *ops.Bulk, ago time.Duration) bool {
	near := func(x, y time.Time) bool {
		return x.IsZero() == y.IsZero() && x.Sub(y).Abs() <= ago+5*time.Minute
	}
	one, other := t.Filter, b.Filter
	alike := near(one.From, other.From) && near(one.To, other.To) &&
		slices.ContainsFunc(t.States, func(s delayqueue.State) bool { return slices.Contains(b.States, s) })
	one.From, one.To, other.From, other.To = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return alike && fmt.Sprint(one) == fmt.Sprint(other) // no header or none given reads alike
}
