package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

func (a *app) statsCommand() *cobra.Command {
	var watch bool
	every := durationFlag(time.Second)
	c := &cobra.Command{
		Use:   "stats [QUEUE...]",
		Short: "Show how many messages are in each state, and how far behind a queue is",
		Long: `stats has a row for each named queue, or for all queues of the prefix that are found at the start: how many messages are in
each state, how long the oldest ready message has been waiting (BEHIND), when the next message is due, and a verdict
(STATE). A queue takes three calls of Redis, of O(log n) work whatever the backlog. If a queue cannot be read, its row says
why, the others are shown, and the exit code is not 0.`,
		Example: "  delayqueue stats orders --watch",
		RunE: func(c *cobra.Command, names []string) error {
			ctx := c.Context()
			if every <= 0 {
				return fail(exitUsage, "--interval must be above 0")
			}
			monitors, missing, err := a.monitors(ctx, names)
			if err != nil {
				return err
			}
			b := &board{app: a, monitors: monitors, missing: missing, print: a.printStats, every: time.Duration(every), watcher: newWatcher()}
			if watch {
				return b.watch(ctx)
			}
			return b.once(ctx)
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "repeat until interrupted, in place on a terminal")
	c.Flags().VarP(&every, "interval", "n", "interval of --watch")
	return c
}

// monitors returns the queues of these names, or all that are found. missing says which servers could not be searched.
func (a *app) monitors(ctx context.Context, names []string) (all []*ops.Queue, missing, err error) {
	for _, name := range names {
		var known *failure
		if err := a.queue(ctx, name); errors.As(err, &known) || ctx.Err() != nil {
			return nil, nil, err // the row of the queue shows any other error
		}
	}
	if err := a.connect(ctx); err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		missing = a.discover(ctx, func(name string) { names = append(names, name) })
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case len(names) == 0 && missing != nil:
			return nil, nil, missing
		case len(names) == 0:
			return nil, nil, fail(exitNotFound, "there are no queues under the prefix %q", a.prefix)
		}
		slices.Sort(names)
	}
	for _, name := range names {
		all = append(all, a.newMonitor(name))
	}
	return all, missing, nil
}

type statsJSON struct {
	Queue       string     `json:"queue"`
	Pending     int64      `json:"pending"`
	Ready       int64      `json:"ready"`
	Unack       int64      `json:"unack"`
	Retry       int64      `json:"retry"`
	Garbage     int64      `json:"garbage"`
	Done        int64      `json:"done"`
	Behind      float64    `json:"behind_seconds"`
	NextDue     *time.Time `json:"next_due,omitempty"`
	Paused      bool       `json:"paused"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	PausedSince *time.Time `json:"paused_since,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
	Limited     bool       `json:"limited"`
	Since       *time.Time `json:"limited_since,omitempty"`
	Until       *time.Time `json:"limited_until,omitempty"`
	Throttled   *time.Time `json:"throttled_until,omitempty"`
	Consumers   int        `json:"consumers"`
	verdictJSON
}

type statsErrorJSON struct {
	Queue string `json:"queue"`
	Error string `json:"error"`
}

// printStats draws the table, or prints JSON. If there are more rows than most (0: any number), it says how many are not shown.
func (a *app) printStats(all []*health.Look, columns, most int) string {
	t := a.grid("queue", "pending", "ready", "unack", "retry", "garbage", "done", "behind", "next due", "state").numbers(2, 3, 4, 5, 6, 7, 8).cutLast(10)
	all, hidden := withRoom(all, most)
	for _, one := range all {
		n := one.Counts
		switch {
		case a.json:
			a.printLook(one, statsJSON{
				one.Name, n.Pending, n.Ready, n.Unack, n.Retry, n.Garbage, n.Done, n.Behind.Seconds(), instant(n.NextDue),
				n.Paused, instant(n.PausedUntil),
				instant(n.PausedSince), n.PausedBy, n.PauseReason,
				n.Limited, instant(n.LimitedSince), instant(n.LimitedUntil), instant(n.ThrottledUntil), len(one.Consumers), a.verdictJSON(one),
			})
		case one.Err != nil:
			t.add(one.Name, "?", "?", "?", "?", "?", "?", "", "", a.verdict(one))
		default:
			next, behind := "", painted("")
			if !n.NextDue.IsZero() {
				next = "in " + brief(max(time.Until(n.NextDue), 0))
			}
			if n.Behind > 0 {
				behind = paint(warn, brief(n.Behind))
			}
			t.add(one.Name, n.Pending, number(n.Ready, warn), number(n.Unack, good), number(n.Retry, warn), number(n.Garbage, bad), n.Done,
				behind, next, a.verdict(one))
		}
	}
	return t.whole(columns, hidden)
}

// trouble is an error in a word or two: the code that Redis answered, "no answer" or "error".
func (a *app) trouble(err error) string {
	for _, code := range []string{"WRONGTYPE", "NOPERM", "CLUSTERDOWN", "TRYAGAIN", "LOADING", "OOM", "MISCONF", "READONLY", "MASTERDOWN"} {
		if strings.Contains(err.Error(), code+" ") {
			return code
		}
	}
	if code, _ := a.explain(err); code == exitNoRedis {
		return "no answer"
	}
	return "error"
}
