package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue/internal/health"
)

func (a *app) topCommand() *cobra.Command {
	var once bool
	every := durationFlag(2 * time.Second)
	c := &cobra.Command{
		Use:   "top [QUEUE...]",
		Short: "Show all queues live, the worst first",
		Long: `top is the board: for each queue (all queues of the prefix if none is named, as they are found at the start) a verdict in
words, how many messages wait to be delivered, how many come in and go out a second, how many of a hundred deliveries of
the last hour failed, how many of all workers are busy, and how long the oldest message that is due has waited. The worst is
the first. Three calls of Redis for each queue, every --interval.

With --once, with --json or where the output is no terminal it looks twice, a second apart, so that there are rates, and
prints that. A queue that cannot be read has a row that says why, the others are shown, and the exit code is not 0.`,
		Example:           "  delayqueue top\n  delayqueue top --json | jq 'select(.level == \"critical\")'",
		ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, names []string) error {
			if every <= 0 {
				return fail(exitUsage, "--interval must be above 0")
			}
			monitors, missing, err := a.monitors(c.Context(), names)
			if err != nil {
				return err
			}
			b := &board{app: a, monitors: monitors, missing: missing, print: a.printTop, every: time.Duration(every), watcher: newWatcher()}
			if !once && !a.json && onTerminal(os.Stdout) {
				return b.watch(c.Context())
			}
			b.watcher.Read(c.Context(), monitors)
			rest(c.Context(), time.Second) // rates are of that at least
			return b.once(c.Context())
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print it once")
	c.Flags().VarP(&every, "interval", "n", "how often it looks")
	return c
}

type topJSON struct {
	Queue   string     `json:"queue"`
	Waits   int64      `json:"waits"`
	In      *float64   `json:"in_per_second"` // null: not known yet
	Out     *float64   `json:"out_per_second"`
	Failing *float64   `json:"failing_percent"` // null: nothing ended in the last hour
	Busy    int        `json:"busy"`
	Workers int        `json:"workers"`
	Behind  float64    `json:"behind_seconds"`
	Garbage int64      `json:"garbage_last_hour"`
	NextDue *time.Time `json:"next_due,omitempty"`
	verdictJSON
}

// printTop draws the board.
func (a *app) printTop(out io.Writer, all []*health.Look, columns, most int) error {
	t := newGrid("queue", "verdict", "waits", "in/s", "out/s", "fails", "busy", "oldest").numbers(3, 4, 5, 6, 7, 8).cutLast(2)
	all, hidden := withRoom(health.WorstFirst(all), most)
	for _, one := range all {
		busy, workers := one.Workers()
		in, gone := one.Rates()
		failing := health.Failing(one.LastHour())
		switch {
		case a.json:
			err := a.printLook(one, topJSON{
				one.Name, one.Waits(), known(in.PerSecond, in.Known), known(gone.PerSecond, gone.Known),
				known(float64(failing), failing >= 0), busy, workers,
				one.Counts.Behind.Seconds(), one.LastHour().Garbage, instant(one.Counts.NextDue), a.verdictJSON(one),
			})
			if err != nil {
				return err
			}
		case one.Err != nil:
			t.add(one.Name, a.verdict(one), "?", "?", "?", "?", "?", "")
		default:
			oldest := painted("")
			if one.Counts.Behind > 0 {
				oldest = paint(warn, brief(one.Counts.Behind.Round(time.Second)))
			}
			t.add(one.Name, a.verdict(one), one.Waits(), in, gone, failing, fmt.Sprintf("%d/%d", busy, workers), oldest)
		}
	}
	if a.json {
		return nil
	}
	return printWhole(out, t, columns, hidden)
}

func known(n float64, is bool) *float64 {
	if !is {
		return nil
	}
	return &n
}

// printLook prints what is known of a queue, or why that is nothing.
func (a *app) printLook(one *health.Look, out any) error {
	if one.Err != nil {
		_, text := a.explain(one.Err)
		out = statsErrorJSON{one.Name, text}
	}
	return printJSON(out)
}

// verdictJSON is what to think of a queue; the level and the verdict are those of the page.
type verdictJSON struct {
	Level   string      `json:"level"`
	Code    health.Code `json:"code"`
	Verdict string      `json:"verdict"`
}

func (a *app) verdictJSON(one *health.Look) verdictJSON {
	v := one.Judge()
	return verdictJSON{v.Level.String(), v.Code, a.words(v.Text)}
}

// colours are those of levels: green only for a queue that somebody serves.
var colours = [...]text.Colors{health.Quiet: faint, health.Fine: good, health.Notice: noted, health.Warning: warn, health.Critical: bad}

func (a *app) verdict(one *health.Look) painted {
	v := one.Judge()
	return paint(colours[v.Level], a.words(v.Text))
}

// words writes what internal/health says.
func (a *app) words(t health.Text) string {
	return t.In(func(english string) string { return english }, func(arg any) string {
		switch arg := arg.(type) {
		case time.Duration:
			return brief(arg.Round(time.Second))
		case time.Time:
			return at(arg)
		case int64:
			return humanize.Comma(arg)
		case error:
			return a.trouble(arg)
		}
		return oneLine(fmt.Sprint(arg))
	})
}
