package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

func (a *app) forecastCommand() *cobra.Command {
	var from, to whenFlag
	c := &cobra.Command{
		Use:   "forecast QUEUE",
		Short: "Show how many messages come due, and when",
		Long: `forecast counts the messages that come due from --from to --to (now, and a day
later), in up to 25 spans of time, as the queue is now: what is sent, moved or
fails later changes it. DUE are messages that come due for the first time, or
wait for others of their lanes; RETRIES are those that come due again. The last
line has the sum, and how many are due before and after.`,
		Example: "  delayqueue forecast orders --from 18:00 --to 'tomorrow 00:00'",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if from.IsZero() {
				from.Time = time.Now()
			}
			if to.IsZero() {
				to.Time = from.Add(24 * time.Hour)
			}
			if !from.Before(to.Time) {
				return fail(exitUsage, "--from %s is not before --to %s", clock(from.Time), clock(to.Time))
			}
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.forecast(c.Context(), m, from.Time, to.Time)
		},
	}
	c.Flags().Var(&from, "from", "messages that come due then or later; without it: now")
	c.Flags().Var(&to, "to", "messages that come due before then; without it: a day after --from")
	return c
}

type dueJSON struct {
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Pending int64     `json:"pending"`
	Retry   int64     `json:"retry"`
}

// forecast prints spans that begin at full minutes, hours or days of local time, but for the first; after a change from
// or to summer time they begin by the clock before. So it makes up to three calls:
// for the time until then, for the full spans, and for what is left.
func (a *app) forecast(ctx context.Context, m *ops.Queue, from, to time.Time) error {
	t := a.grid("from", "due", "retries").numbers(2, 3)
	var sum, before, after int64
	var partly error // why the counts are those of some shards
	step := stepOf(to.Sub(from))
	_, ahead := from.Local().Zone() // of UTC, in seconds
	for start := from; start.Before(to); {
		span, n := step, int(to.Sub(start)/step)
		if full := beginOf(start, step, time.Duration(ahead)*time.Second); n == 0 || !full.Equal(start) {
			span, n = min(full.Add(step).Sub(start), to.Sub(start)), 1
		}
		f, err := m.Forecast(ctx, start, span, n)
		if err != nil && !errors.Is(err, delayqueue.ErrMissingShards) {
			return err
		}
		partly = cmp.Or(partly, err)
		if start.Equal(from) {
			before = f.Before.Pending + f.Before.Retry
		}
		after = f.After.Pending + f.After.Retry
		for i, due := range f.Buckets {
			due.Start = start.Add(time.Duration(i) * span)
			sum += due.Pending + due.Retry
			t.row(dueJSON{utc(due.Start), utc(due.Start.Add(span)), due.Pending, due.Retry},
				due.Start.Local().Format(time.DateTime), due.Pending, due.Retry)
		}
		start = start.Add(time.Duration(n) * span)
	}
	t.print()
	if !a.json {
		fmt.Fprintf(os.Stderr, "due from %s to %s: %s; before: %s; after: %s\n", from.Local().Format(time.DateTime),
			to.Local().Format(time.DateTime), plural(int(sum), "message"), humanize.Comma(before), humanize.Comma(after))
	}
	return partly
}

// beginOf is when the step begins in which an instant lies, by a clock that is so far ahead of UTC.
func beginOf(t time.Time, step, ahead time.Duration) time.Time {
	return t.Add(ahead).Truncate(step).Add(-ahead)
}

// stepOf is a length of time of which at most 24 make the whole.
func stepOf(whole time.Duration) time.Duration {
	steps := []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
		6 * time.Hour, 12 * time.Hour}
	if i := slices.IndexFunc(steps, func(step time.Duration) bool { return whole <= 24*step }); i >= 0 {
		return steps[i]
	}
	const day = 24 * time.Hour
	return (whole/(24*day) + 1) * day
}
