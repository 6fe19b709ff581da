package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

func (a *app) journalCommand() *cobra.Command {
	var most int
	c := &cobra.Command{
		Use:   "journal QUEUE",
		Short: "Who did what to a queue, when and why, the newest first",
		Long: `journal lists what was done to a queue by this command, the page and other Monitors: who (--operator), why (--reason),
what, and how many messages it touched. Redis keeps the last 1,000 acts. What --all does has one line, which says how far it
has come: a job that runs and was not heard of for a minute has probably died, and continue goes on with it. journal stop
asks one to stop that runs elsewhere. What services send, handle and take back themselves is not in it.`,
		Example:           "  delayqueue journal orders --limit 20",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			if most < 1 {
				return fail(exitUsage, "--limit must be above 0")
			}
			// A queue that was deleted has a journal still.
			if err := validName(args[0]); err != nil {
				return err
			}
			if err := a.connect(c.Context()); err != nil {
				return err
			}
			return a.journal(c.Context(), a.newMonitor(args[0]), most)
		},
	}
	c.AddCommand(a.journalStopCommand())
	c.Flags().IntVar(&most, "limit", 50, "how many acts")
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
	Next     string     `json:"continue,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// journal prints up to so many entries.
func (a *app) journal(ctx context.Context, m *delayqueue.Monitor, most int) error {
	t := newGrid("at", "by", "act", "on", "messages", "reason").numbers(5).cutLast(3)
	for cursor := ""; most > 0; {
		page, err := a.journalPage(ctx, m, min(most, 200), cursor)
		if errors.Is(err, delayqueue.ErrNoQueue) {
			return a.noQueue(ctx, m.Name(), "")
		}
		if err != nil {
			return err
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			if a.json {
				if err := printJSON(journalOf(e)); err != nil {
					return err
				}
				continue
			}
			t.add(moment{e.At}, e.By, actOf(e), onWhat(e), e.Messages, e.Reason)
		}
		if most, cursor = most-len(page.Entries), page.Next; cursor == "" {
			break
		}
	}
	if !a.json {
		t.print()
	}
	return nil
}

func (a *app) journalPage(ctx context.Context, m *delayqueue.Monitor, limit int, cursor string) (*delayqueue.JournalPage, error) {
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return m.Journal(soon, limit, cursor)
}

func journalOf(e *delayqueue.JournalEntry) journalJSON {
	out := journalJSON{ID: e.ID, At: e.At, By: e.By, Act: string(e.Act), Target: e.Target, Detail: e.Detail,
		Reason: e.Reason, Messages: e.Messages}
	if b := e.Bulk; b != nil {
		out.Job, out.Looked, out.Total, out.Updated, out.Next, out.Error = string(b.Phase), b.Looked, b.Total, instant(b.Updated), b.Next, b.Error
	}
	return out
}

// actOf is what was done, and of a job how it stands.
func actOf(e *delayqueue.JournalEntry) string {
	b := e.Bulk
	switch {
	case b == nil:
		return string(e.Act)
	case b.Interrupted():
		return string(e.Act) + ", not heard of for " + brief(b.Silent)
	case b.Phase == delayqueue.BulkFailed:
		return string(e.Act) + ", failed: " + b.Error
	case b.StopAsked:
		return string(e.Act) + ", asked to stop"
	}
	return string(e.Act) + ", " + string(b.Phase)
}

// onWhat is what it was done to; of a job its ID, with which journal stop stops it.
func onWhat(e *delayqueue.JournalEntry) string {
	text := e.Target
	if e.Bulk != nil && e.Bulk.Phase == delayqueue.BulkRunning {
		text = "job " + e.ID
	}
	if text != "" && e.Detail != "" {
		text += "; "
	}
	return text + e.Detail
}

func (a *app) journalStopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stop QUEUE JOB",
		Short: "Ask what works on many messages elsewhere to stop",
		Long: "stop asks the process that runs a job (JOB is its name in the journal) to stop before its next step. continue " +
			"goes on with it.",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onQueue(c, args[0], func(ctx context.Context, m *delayqueue.Monitor) error {
				if err := m.StopBulk(ctx, args[1]); err != nil {
					return err
				}
				say("job %s was asked to stop", args[1])
				return nil
			})
		},
	}
}
