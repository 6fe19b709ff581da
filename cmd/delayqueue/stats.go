package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

func (a *app) statsCommand() *cobra.Command {
	var watch bool
	every := durationFlag(time.Second)
	c := &cobra.Command{
		Use:   "stats [QUEUE...]",
		Short: "Say how many messages are where, and how far behind a queue is",
		Long: `stats says for each queue (all queues of the prefix if none is named, as they are found at the start) how many
messages are where, how long the oldest ready one has been waiting (BEHIND), when the next is due, and whether
anybody consumes (STATE). Two calls of Redis for each queue, of O(log n) work whatever the backlog. A queue that cannot be
read has a row that says why, the others are shown, and the exit code is not 0.`,
		Example: "  delayqueue stats orders --watch",
		ValidArgsFunction: func(c *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
			names, only := a.completeQueue()(c, nil, part)
			return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), only
		},
		RunE: func(c *cobra.Command, names []string) error {
			ctx := c.Context()
			if every <= 0 {
				return fail(exitUsage, "--interval must be above 0")
			}
			monitors, missing, err := a.monitors(ctx, names)
			if err != nil {
				return err
			}
			if watch {
				return a.watchStats(ctx, monitors, missing, time.Duration(every))
			}
			return a.stats(ctx, monitors, missing)
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on until interrupted, in place on a terminal")
	c.Flags().VarP(&every, "interval", "n", "how often --watch looks")
	return c
}

// stats prints the table once. The first error decides on the exit code; all were said.
func (a *app) stats(ctx context.Context, monitors []*delayqueue.Monitor, missing error) error {
	all := a.readStats(ctx, monitors)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := a.printStats(os.Stdout, all, width(), 0); err != nil {
		return err
	}
	if missing != nil {
		return missing
	}
	for _, one := range all {
		if one.err != nil {
			code, text := a.explain(one.err)
			if a.json {
				text = ""
			}
			return &failure{code, text}
		}
	}
	return nil
}

// monitors are for the queues of these names, or for all that can be found; missing says which servers could not be
// searched.
func (a *app) monitors(ctx context.Context, names []string) (all []*delayqueue.Monitor, missing, err error) {
	for _, name := range names {
		var known *failure
		if err := a.queue(ctx, name); errors.As(err, &known) || ctx.Err() != nil {
			return nil, nil, err // what else is wrong shows in its row
		}
	}
	if err := a.connect(ctx); err != nil {
		return nil, nil, err
	}
	if len(names) == 0 {
		_, missing = a.discover(ctx, 0, func(name string) { names = append(names, name) })
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

// queueStats is what is known of a queue.
type queueStats struct {
	name      string
	counts    delayqueue.Counts
	consumers int
	err       error
}

// atOnce is how many queues are asked at a time.
const atOnce = 32

// readStats asks each queue for itself, so one that does not answer holds up no other.
func (a *app) readStats(ctx context.Context, monitors []*delayqueue.Monitor) []queueStats {
	all := make([]queueStats, len(monitors))
	free := make(chan struct{}, atOnce)
	var asked sync.WaitGroup
	for i, m := range monitors {
		asked.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			soon, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			one := queueStats{name: m.Name()}
			if one.counts, one.err = m.Counts(soon); one.err == nil {
				var alive []delayqueue.Consumer
				alive, one.err = m.Consumers(soon)
				one.consumers = len(alive)
			}
			all[i] = one
		})
	}
	asked.Wait()
	return all
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
}

type statsErrorJSON struct {
	Queue string `json:"queue"`
	Error string `json:"error"`
}

// printStats draws the table. Of more rows than most (0: any number) it says how many are not shown.
func (a *app) printStats(out io.Writer, all []queueStats, columns, most int) error {
	t := newGrid("queue", "pending", "ready", "unack", "retry", "garbage", "done", "behind", "next due", "state").numbers(2, 3, 4, 5, 6, 7, 8)
	hidden := 0
	if most > 0 && len(all) > most {
		hidden = len(all) - most + 1
		all = all[:len(all)-hidden]
	}
	for _, one := range all {
		n := one.counts
		switch {
		case one.err != nil && a.json:
			_, text := a.explain(one.err)
			if err := printJSON(statsErrorJSON{one.name, text}); err != nil {
				return err
			}
		case one.err != nil:
			t.add(one.name, "?", "?", "?", "?", "?", "?", "", "", paint(bad, a.trouble(one.err)))
		case a.json:
			err := printJSON(statsJSON{
				one.name, n.Pending, n.Ready, n.Unack, n.Retry, n.Garbage, n.Done, n.Behind.Seconds(), instant(n.NextDue), n.Paused, instant(n.PausedUntil),
				instant(n.PausedSince), n.PausedBy, n.PauseReason,
				n.Limited, instant(n.LimitedSince), instant(n.LimitedUntil), instant(n.ThrottledUntil), one.consumers,
			})
			if err != nil {
				return err
			}
		default:
			next, behind := "", painted("")
			if !n.NextDue.IsZero() {
				next = "in " + brief(max(time.Until(n.NextDue), 0))
			}
			if n.Behind > 0 {
				behind = paint(warn, brief(n.Behind))
			}
			t.add(one.name, n.Pending, number(n.Ready, warn), number(n.Unack, good), number(n.Retry, warn), number(n.Garbage, bad), n.Done, behind, next, stateOf(&one))
		}
	}
	if a.json {
		return nil
	}
	text := t.render(columns)
	if hidden > 0 {
		text += "\n" + faint.Sprintf("… and %s for which there is no room: name some, or make the window higher", plural(hidden, "queue"))
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// stateOf is green only for a queue that somebody serves.
func stateOf(one *queueStats) painted {
	n := one.counts
	switch {
	case n.Paused:
		return paint(warn, pauseOf(&n))
	case one.consumers > 0 && !n.ThrottledUntil.IsZero():
		return paint(warn, "throttled until "+at(n.ThrottledUntil))
	case one.consumers > 0 && n.Limited:
		return paint(good, "limited")
	case one.consumers > 0:
		return paint(good, "running")
	case n.Ready+n.Unack > 0:
		return paint(bad, "no consumers")
	}
	return paint(warn, "no consumers")
}

// pauseOf is a pause in words.
func pauseOf(n *delayqueue.Counts) string {
	text := "paused"
	if !n.PausedUntil.IsZero() {
		text += " until " + at(n.PausedUntil)
	}
	if n.PausedBy != "" {
		text += " by " + n.PausedBy
	}
	if n.PauseReason != "" {
		text += ": " + n.PauseReason
	}
	return text
}

// trouble is an error in few words: the code that Redis answered, or what the program calls it.
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
