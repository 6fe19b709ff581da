package main

import (
	"time"

	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/guptarohit/asciigraph"
	"github.com/spf13/cobra"
)

func (a *app) historyCommand() *cobra.Command {
	var (
		days bool
		last int
	)
	c := &cobra.Command{
		Use:   "history QUEUE",
		Short: "Draw how many messages were sent, handled and failed by hour or day",
		Long: `history draws the counts of the last 24 hours (--last, at most 48) in local time, or with --days of days of UTC (at most 30). The
last hour or day is not over yet. LATE is the average time from due to handed out for the first time, and AT MOST is the longest.`,
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
			if err != nil {
				return err
			}
			if a.json {
				printTallies(tallies)
			} else {
				drawTallies(tallies, days)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&days, "days", false, "by day, not by hour")
	c.Flags().IntVarP(&last, "last", "n", 24, "how many hours or days")
	return c
}

func printTallies(tallies []ops.Tally) {
	for _, t := range tallies {
		printJSON(map[string]any{
			"start": t.Start, "sent": t.Sent, "delivered": t.Delivered, "acked": t.Acked, "failed": t.Failed, "lost": t.Lost, "garbage": t.Garbage,
			"superseded": t.Superseded,
			"started":    t.Started, "lateness_seconds": t.Lateness.Seconds(), "max_lateness_seconds": t.MaxLateness.Seconds(),
		})
	}
}

const chartHeight = 8 // lines

// drawTallies draws a chart, and below it the numbers of each span in which something happened.
func drawTallies(tallies []ops.Tally, days bool) {
	var sent, acked, failed []float64
	layout, axis, since, local := "2006-01-02 15:04", "15:04", "since", time.Time.Local
	if days {
		layout, axis, since, local = "2006-01-02", "01-02", "day (UTC)", time.Time.UTC
	}
	t := newGrid(since, "sent", "delivered", "acked", "failed", "lost", "garbage", "late", "at most").numbers(2, 3, 4, 5, 6, 7, 8, 9)
	rows := 0
	for _, n := range tallies {
		sent, acked, failed = append(sent, float64(n.Sent)), append(acked, float64(n.Acked)), append(failed, float64(n.Failed+n.Lost))
		if n.Sent+n.Delivered+n.Acked+n.Failed+n.Lost+n.Garbage+n.Superseded == 0 {
			continue
		}
		rows++
		t.add(local(n.Start).Format(layout), n.Sent, n.Delivered, number(n.Acked, good), number(n.Failed, warn), number(n.Lost, warn),
			number(n.Garbage, bad), brief(n.Lateness), brief(n.MaxLateness))
	}
	if rows == 0 {
		say("nothing happened from %s on", local(tallies[0].Start).Format(layout))
		return
	}
	if len(tallies) > 1 {
		columns := 60
		if w := width(); w > 0 {
			columns = max(20, min(w-15, 100))
		}
		options := []asciigraph.Option{
			asciigraph.Height(chartHeight), asciigraph.Width(columns), asciigraph.Precision(0), asciigraph.LowerBound(0),
			asciigraph.XAxisRange(0, float64(len(tallies)-1)), asciigraph.XAxisTickCount(min(len(tallies), 5)),
			asciigraph.XAxisValueFormatter(func(x float64) string { return local(tallies[int(x+0.5)].Start).Format(axis) }),
		}
		if coloured {
			options = append(options,
				asciigraph.SeriesColors(asciigraph.Blue, asciigraph.Green, asciigraph.Red),
				asciigraph.SeriesLegends("sent", "acked", "failed or lost"))
			say("%s\n", painted(asciigraph.PlotMany([][]float64{sent, acked, failed}, options...)))
		} else { // without colours, lines in one chart could not be told apart
			for _, one := range []struct {
				name   string
				values []float64
			}{{"sent", sent}, {"acked", acked}, {"failed or lost", failed}} {
				say("%s\n", painted(asciigraph.Plot(one.values, append(options, asciigraph.Caption(one.name), asciigraph.Height(chartHeight/2))...)))
			}
		}
	}
	t.print()
}
