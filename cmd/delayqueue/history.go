package main

import (
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

func (a *app) historyCommand() *cobra.Command {
	var (
		days bool
		last int
	)
	c := &cobra.Command{
		Use:   "history QUEUE",
		Short: "Show how many messages were sent, acked and failed by hour or day",
		Long: `history shows the counts of the last 24 hours (--last, at most 48) in local
time, or with --days of days of UTC (at most 30). The last hour or day is not
over yet. On a terminal the first ones are left out if nothing happened in them.
LATE is the average time from due to handed out for the first time, and AT MOST
is the longest.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			by, most := ops.Hourly, 48
			if days {
				by, most = ops.Daily, 30
			}
			if last < 1 || last > most {
				return fail(exitUsage, "--last %d: from 1 to %d", last, most)
			}
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			tallies, err := m.History(c.Context(), by, last)
			if !inPart(err) { // what the other shards say is shown
				return err
			}
			if onTerminal(os.Stdout) && !a.json { // of a young queue the first numbers would stand below the window
				for len(tallies) > 1 && tallies[0] == (ops.Tally{Start: tallies[0].Start}) {
					tallies = tallies[1:]
				}
			}
			a.tallyTable(tallies, days).print()
			return err
		},
	}
	c.Flags().BoolVar(&days, "days", false, "by day, not by hour")
	c.Flags().IntVarP(&last, "last", "l", 24, "how many hours or days")
	return c
}

// tallyTable has the numbers of each span, also if nothing happened: a silent hour is to be seen.
func (a *app) tallyTable(tallies []ops.Tally, days bool) *grid {
	layout, since, local := "2006-01-02 15:04", "since", time.Time.Local
	if days {
		layout, since, local = "2006-01-02", "day (UTC)", time.Time.UTC
	}
	t := a.grid(since, "sent", "delivered", "acked", "failed", "lost", "garbage", "late", "at most").numbers(2, 3, 4, 5, 6,
		7, 8, 9)
	for _, n := range tallies {
		t.row(map[string]any{
			"start": n.Start, "sent": n.Sent, "delivered": n.Delivered, "acked": n.Acked, "failed": n.Failed, "lost": n.Lost,
			"garbage":    n.Garbage,
			"superseded": n.Superseded, "started": n.Started,
			"lateness_seconds": n.Lateness.Seconds(), "max_lateness_seconds": n.MaxLateness.Seconds(),
		}, local(n.Start).Format(layout), n.Sent, n.Delivered, number(n.Acked, good), number(n.Failed, warn),
			number(n.Lost, warn),
			number(n.Garbage, bad), brief(n.Lateness), brief(n.MaxLateness))
	}
	return t
}
