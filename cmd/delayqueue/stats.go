package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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
messages are where, how long the oldest ready one has been waiting (BEHIND), and when the next is due. One call
of Redis for each queue, of O(log n) work whatever the backlog.`,
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
			monitors, err := a.monitors(ctx, names)
			if err != nil {
				return err
			}
			if !watch {
				return a.printStats(ctx, os.Stdout, monitors)
			}
			return a.watchStats(ctx, monitors, time.Duration(every))
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "go on until interrupted, in place on a terminal")
	c.Flags().VarP(&every, "interval", "n", "how often --watch looks")
	return c
}

func (a *app) monitors(ctx context.Context, names []string) ([]*delayqueue.Monitor, error) {
	for _, name := range names {
		if err := a.queue(ctx, name); err != nil {
			return nil, err
		}
	}
	if err := a.connect(ctx, false); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		for name, err := range delayqueue.Queues(ctx, a.cli, delayqueue.UseCustomPrefix(a.prefix)) {
			if err != nil {
				return nil, err
			}
			names = append(names, name)
		}
		if len(names) == 0 {
			return nil, fail(exitNotFound, "there are no queues under the prefix %q", a.prefix)
		}
		slices.Sort(names)
	}
	var monitors []*delayqueue.Monitor
	for _, name := range names {
		monitors = append(monitors, a.newMonitor(name))
	}
	return monitors, nil
}

type statsJSON struct {
	Queue       string     `json:"queue"`
	Pending     int64      `json:"pending"`
	Ready       int64      `json:"ready"`
	Unack       int64      `json:"unack"`
	Retry       int64      `json:"retry"`
	Garbage     int64      `json:"garbage"`
	Behind      float64    `json:"behind_seconds"`
	NextDue     *time.Time `json:"next_due,omitempty"`
	Paused      bool       `json:"paused"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
}

func (a *app) printStats(ctx context.Context, out io.Writer, monitors []*delayqueue.Monitor) error {
	t := grid("queue", "pending", "ready", "unack", "retry", "garbage", "behind", "next due", "state")
	right(t, 2, 3, 4, 5, 6, 7)
	for _, m := range monitors {
		n, err := m.Counts(ctx)
		if err != nil {
			return err
		}
		if a.json {
			err := printJSON(statsJSON{
				m.Name(), n.Pending, n.Ready, n.Unack, n.Retry, n.Garbage, n.Behind.Seconds(), instant(n.NextDue), n.Paused, instant(n.PausedUntil),
			})
			if err != nil {
				return err
			}
			continue
		}
		state := paint(good, "running")
		if n.Paused {
			state = paint(warn, "paused")
			if !n.PausedUntil.IsZero() {
				state = paint(warn, "paused until "+at(n.PausedUntil))
			}
		}
		next, behind := "", painted("")
		if !n.NextDue.IsZero() {
			next = "in " + brief(max(time.Until(n.NextDue), 0))
		}
		if n.Behind > 0 {
			behind = paint(warn, brief(n.Behind))
		}
		addRow(t, m.Name(), n.Pending, number(n.Ready, warn), number(n.Unack, good), number(n.Retry, warn), number(n.Garbage, bad),
			behind, next, state)
	}
	if a.json {
		return nil
	}
	_, err := fmt.Fprintln(out, t.Render())
	return err
}

// Sequences that every terminal knows.
const (
	altScreen   = "\x1b[?1049h\x1b[?25l" // and no cursor
	mainScreen  = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearToLine = "\x1b[K"
	clearToEnd  = "\x1b[J"
)

// watchStats redraws in place. An outage does not end it. What was seen last stays on the screen.
func (a *app) watchStats(ctx context.Context, monitors []*delayqueue.Monitor, every time.Duration) error {
	inPlace := onTerminal(os.Stdout) && !a.json
	var last bytes.Buffer
	if inPlace {
		fmt.Print(altScreen)
		defer func() { fmt.Print(mainScreen + last.String()) }()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var frame bytes.Buffer
		soon, cancel := context.WithTimeout(ctx, patience)
		err := a.printStats(soon, &frame, monitors)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil // it was told to end
		case err != nil:
			_, text := a.explain(err)
			frame.Reset()
			frame.WriteString(bad.Sprint(printable(text)) + "\n")
		}
		last = frame
		if inPlace {
			fmt.Fprintf(&frame, "\n%s\n", faint.Sprintf("%s, every %s; Ctrl-C ends", time.Now().Format("15:04:05"), brief(every)))
			fmt.Print(home + strings.ReplaceAll(frame.String(), "\n", clearToLine+"\n") + clearToEnd)
		} else if frame.Len() > 0 {
			fmt.Print(frame.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
