package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/spf13/cobra"
)

func (a *app) limitsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "limits QUEUE",
		Short: "Show how fast a queue may go, and set it",
		Long: `limits shows the limits of a whole queue, over all its consumers: those that consumers ask for, and those that were set here,
which go before them; and until when a handler has throttled it, which lift ends.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onQueue(c, args[0], func(ctx context.Context, m *delayqueue.Monitor) error { return a.sayLimits(ctx, m) })
		},
	}
	c.AddCommand(a.setLimitsCommand(), a.clearLimitsCommand(), a.liftCommand())
	return c
}

// onQueue makes one call for a queue.
func (a *app) onQueue(c *cobra.Command, queue string, do func(ctx context.Context, m *delayqueue.Monitor) error) error {
	m, err := a.monitor(c.Context(), queue)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), oneCall)
	defer cancel()
	return do(ctx, m)
}

func (a *app) setLimitsCommand() *cobra.Command {
	var rate string
	var l delayqueue.Limits
	c := &cobra.Command{
		Use:   "set QUEUE",
		Short: "Set limits, in place of those that were set before",
		Long: `set makes limits hold in place of those that consumers ask for, until clear. What is not named is left to consumers.
Consumers obey with the next delivery.`,
		Example:           "  delayqueue limits set orders --rate 100/1s --burst 10\n  delayqueue limits set orders --concurrency 5",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			if err := readRate(rate, &l); err != nil {
				return err
			}
			if l == (delayqueue.Limits{}) {
				return fail(exitUsage, "say --rate, --concurrency or both; to take limits back: delayqueue limits clear %s", args[0])
			}
			return a.setLimits(c, args[0], l)
		},
	}
	c.Flags().StringVar(&rate, "rate", "", "how many in which time: 100/1s, 5000/24h")
	c.Flags().IntVar(&l.Burst, "burst", 0, "how many at once where fewer went before (default 1, with a rate)")
	c.Flags().IntVar(&l.Concurrency, "concurrency", 0, "how many at a time")
	return c
}

// readRate reads "100/1s".
func readRate(rate string, l *delayqueue.Limits) error {
	if rate == "" {
		return nil
	}
	count, per, found := strings.Cut(rate, "/")
	n, err := strconv.Atoi(count)
	d, perr := time.ParseDuration(per)
	if !found || err != nil || perr != nil {
		return fail(exitUsage, "--rate %s: want a number, a slash and a time, as in 100/1s", rate)
	}
	l.Rate, l.Per, l.Burst = n, d, max(l.Burst, 1)
	return nil
}

func (a *app) clearLimitsCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "clear QUEUE",
		Short:             "Leave limits to what consumers ask for",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE:              func(c *cobra.Command, args []string) error { return a.setLimits(c, args[0], delayqueue.Limits{}) },
	}
}

func (a *app) liftCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lift QUEUE",
		Short: "Lift what a handler has said with Throttle",
		Long: `lift makes a queue go on that a handler has throttled, as far as its limits allow. The message whose handler said it stays due
when that said; delayqueue reschedule brings it sooner.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onQueue(c, args[0], func(ctx context.Context, m *delayqueue.Monitor) error {
				lifted, err := m.Unthrottle(ctx)
				if err != nil {
					return err
				}
				switch {
				case a.json:
				case lifted:
					say("%s is throttled no more", m.Name())
				default:
					say("%s was not throttled", m.Name())
				}
				return a.sayLimits(ctx, m)
			})
		},
	}
}

func (a *app) setLimits(c *cobra.Command, queue string, l delayqueue.Limits) error {
	return a.onQueue(c, queue, func(ctx context.Context, m *delayqueue.Monitor) error {
		before, err := m.SetLimits(ctx, l)
		if err != nil {
			return err
		}
		if !a.json {
			say("set before: %v", before)
		}
		return a.sayLimits(ctx, m)
	})
}

type limitsJSON struct {
	Rate        int     `json:"rate,omitempty"`
	Per         float64 `json:"per_seconds,omitempty"`
	Burst       int     `json:"burst,omitempty"`
	Concurrency int     `json:"concurrency,omitempty"`
}

func (a *app) sayLimits(ctx context.Context, m *delayqueue.Monitor) error {
	l, err := m.Limits(ctx)
	if err != nil {
		return err
	}
	n, err := m.Counts(ctx)
	if err != nil {
		return err
	}
	in := func(l delayqueue.Limits) limitsJSON {
		return limitsJSON{l.Rate, l.Per.Seconds(), l.Burst, l.Concurrency}
	}
	if a.json {
		return printJSON(struct {
			Queue   string     `json:"queue"`
			Asked   limitsJSON `json:"asked"`
			Set     limitsJSON `json:"set"`
			InForce limitsJSON `json:"in_force"`
			Limited bool       `json:"limited"`
			Until   *time.Time `json:"throttled_until,omitempty"`
			Overrun int64      `json:"overruns"`
		}{m.Name(), in(l.Asked), in(l.Set), in(l.InForce()), n.Limited, instant(n.ThrottledUntil), n.Overruns})
	}
	say("consumers of %s ask for %v; set here: %v; in force: %v", m.Name(), l.Asked, l.Set, l.InForce())
	if !n.ThrottledUntil.IsZero() {
		say("a handler has throttled it until %s (delayqueue limits lift %s)", at(n.ThrottledUntil), m.Name())
	}
	if n.Limited {
		waiting := fmt.Sprintf("%s ready, limited since %s", plural(int(n.Ready), "message"), at(n.LimitedSince))
		if !n.LimitedUntil.IsZero() {
			waiting += ", the next may go at " + at(n.LimitedUntil)
		}
		say("%s", waiting)
	}
	if n.Overruns > 0 {
		say("%s kept by handlers that run on past their limit, or whose messages were canceled", plural(int(n.Overruns), "place"))
	}
	return nil
}
