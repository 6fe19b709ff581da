package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/shift"
	"github.com/go-delayqueue/delayqueue/ops"
)

// notTwice asks before a shift that would shift messages again, because the same command was cut off.
func (a *app) notTwice(ctx context.Context, m *ops.Queue, work *bulkWork, b *ops.Bulk) error {
	if work.twice == "" || b.Cursor != "" {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := shift.CutOff(soon, m, b, work.by)
	if err != nil { // of a user that may not read it, say
		fmt.Fprintln(os.Stderr, "the journal cannot be read, so nobody knows whether this was done in part before")
	}
	if e == nil {
		return nil
	}
	how := map[string]string{journal.Failed: "failed", journal.Stopped: "was stopped", journal.Running: "was running"}
	if e.Bulk.Interrupted() {
		how[journal.Running] = "was interrupted"
	}
	said := fmt.Sprintf("the same command %s %s ago, after %s: these would be shifted again. If that command "+
		"printed a --cursor, it goes on there. It began with %s of each state", how[e.Bulk.Phase], brief(e.Bulk.Silent),
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
