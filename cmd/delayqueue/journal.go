package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

func (a *app) journalCommand() *cobra.Command {
	var (
		most     int
		from, to whenFlag
	)
	c := &cobra.Command{
		Use:   "journal QUEUE",
		Short: "Show who did what to a queue, when and why, the newest first",
		Long: `journal lists the acts of this command, the page and programs on a queue: who
(--operator), why (--reason), what, and how many messages. Redis keeps the last
1,000 acts. Sends, deliveries, and messages that services take back are not in
the journal.

An act of --all is a job. Its line says how far it is. A job that is not heard
of for a minute was interrupted with its process: the command that began it does
the rest, with the --before (and --most) that is shown. journal stop stops a job
of any process.`,
		Example: "  delayqueue journal orders --from '2026-11-21 14:00' --to '2026-11-21 15:00'",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if most < 1 {
				return fail(exitUsage, "--limit must be above 0")
			}
			if !to.IsZero() && from.After(to.Time) {
				return fail(exitUsage, "--from %s is after --to %s", clock(from.Time), clock(to.Time))
			}
			// A queue that was deleted still has a journal.
			if err := validName(args[0]); err != nil {
				return err
			}
			if err := a.connect(c.Context()); err != nil {
				return err
			}
			return a.journal(c.Context(), a.newMonitor(args[0]), from.Time, to.Time, most)
		},
	}
	c.AddCommand(a.journalStopCommand())
	c.Flags().Var(&from, "from", "only acts then or later")
	c.Flags().Var(&to, "to", "only acts then or earlier")
	c.Flags().IntVarP(&most, "limit", "l", 50, "acts to show at most")
	return c
}

type journalJSON struct {
	ID       string     `json:"id"`
	At       time.Time  `json:"at"`
	By       string     `json:"by,omitempty"`
	Act      string     `json:"act"`
	Target   string     `json:"target,omitempty"`
	Detail   string     `json:"detail,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Messages int64      `json:"messages"`
	Job      string     `json:"job,omitempty"`
	Looked   int64      `json:"looked,omitempty"`
	Total    int64      `json:"total,omitempty"`
	Updated  *time.Time `json:"updated,omitempty"`
	Before   *time.Time `json:"before,omitempty"` // of an unfinished job: the same command with --before does the rest
	Most     int64      `json:"most,omitempty"`   // and with --most, if it is not 0
	Error    string     `json:"error,omitempty"`
}

// journal prints up to so many entries between two instants; zero: no bound.
func (a *app) journal(ctx context.Context, m *ops.Queue, from, to time.Time, most int) error {
	t := a.grid("at", "by", "act", "on", "messages", "reason").numbers(5).sentences(3, 4, 6)
	for cursor, more := "", true; more && most > 0; {
		limit := 200
		if to.IsZero() {
			limit = min(most, limit)
		}
		soon, cancel := context.WithTimeout(ctx, link.ReadFor)
		page, err := m.Journal(soon, limit, cursor)
		cancel()
		if errors.Is(err, delayqueue.ErrNoQueue) {
			return a.noQueue(ctx, m.Name(), "")
		}
		if err != nil {
			return err
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			if !to.IsZero() && e.At.After(to) || e.At.Before(from) || most == 0 {
				continue
			}
			most--
			t.row(journalOf(e), moment{e.At}, e.By, actOf(e), onWhat(e), e.Messages, e.Reason)
		}
		last := len(page.Entries) - 1 // the oldest
		cursor = page.Next
		more = cursor != "" && (last < 0 || !page.Entries[last].At.Before(from))
	}
	t.print()
	return nil
}

func journalOf(e *ops.JournalEntry) journalJSON {
	out := journalJSON{ID: e.ID, At: e.At, By: e.By, Act: string(e.Act), Target: e.Target, Detail: e.Detail,
		Reason: e.Reason, Messages: e.Messages}
	if b := e.Bulk; b != nil {
		out.Job, out.Looked, out.Total, out.Updated, out.Error = string(b.Phase), b.Looked, b.Total, instant(b.Updated),
			b.Error
		if rest, ok := e.Rest(); ok {
			out.Before, out.Most = instant(rest.Before), rest.Most
		}
	}
	return out
}

// actOf is the act in words, and of a job how it stands.
func actOf(e *ops.JournalEntry) string {
	b := e.Bulk
	if b == nil {
		return string(e.Act)
	}
	n, of := journal.InShards(b.Error)
	switch {
	case of != "" && (b.Phase == journal.Finished || b.Phase == journal.Failed && b.Looked >= b.Total):
		return fmt.Sprintf("%s, done in %s of %s shards: %s", e.Act, n, of, b.Error)
	case b.Interrupted():
		return fmt.Sprintf("%s, interrupted after %d of %d", e.Act, b.Looked, b.Total)
	case b.Phase == journal.Failed:
		return string(e.Act) + ", failed: " + b.Error
	case b.StopAsked:
		return string(e.Act) + ", asked to stop"
	}
	return string(e.Act) + ", " + string(b.Phase)
}

// onWhat is the target of an act; of a job that runs it is the ID that journal stop takes.
func onWhat(e *ops.JournalEntry) string {
	text := e.Target
	if e.Bulk != nil && e.Bulk.Phase == journal.Running {
		text = "job " + e.ID
	}
	if text != "" && e.Detail != "" {
		text += "; "
	}
	text += e.Detail
	if rest, ok := e.Rest(); ok {
		text += "; the rest: --before " + rest.Before.UTC().Format(time.RFC3339Nano)
		if rest.Most > 0 {
			text += fmt.Sprint(" --most ", rest.Most)
		}
	}
	return text
}

func (a *app) journalStopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop QUEUE JOB",
		Short: "Stop a job of any process",
		Long: "stop asks the process that runs a job to stop before its next step. The journal\n" +
			"names the JOB.",
		Args: cobra.ExactArgs(2),
		RunE: a.onQueue(func(ctx context.Context, m *ops.Queue, args []string) error {
			err := m.StopBulk(ctx, args[1])
			if err == nil {
				a.say(map[string]any{"queue": m.Name(), "id": args[1], "stop_asked": true}, "job %s was asked to stop", args[1])
			}
			return err
		}),
	}
}
