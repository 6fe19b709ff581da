package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

func (a *app) limitsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "limits QUEUE",
		Short: "Show and set the limits of a queue",
		Long: `limits shows the limits of a whole queue, over all its consumers: the limits
that consumers ask for, the limits that were set here and go before them, and
how long a handler has throttled the queue (limits lift ends that).`,
		Args: cobra.ExactArgs(1),
		RunE: a.onQueue(func(ctx context.Context, m *ops.Queue, _ []string) error { return a.sayLimits(ctx, m) }),
	}
	c.AddCommand(a.setLimitsCommand(), a.clearLimitsCommand(), a.liftCommand())
	return c
}

func (a *app) setLimitsCommand() *cobra.Command {
	var rate string
	var l ops.Limits
	c := &cobra.Command{
		Use:   "set QUEUE",
		Short: "Set limits, in place of all that were set before",
		Long: `set sets limits that hold instead of the limits that consumers ask for, until
limits clear. A limit without a flag is left to the consumers. Consumers obey
with the next delivery.`,
		Example: "  delayqueue limits set orders --rate 100/1s --burst 10\n  delayqueue limits set orders --concurrency 5",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if err := readRate(rate, &l); err != nil {
				return err
			}
			if l == (ops.Limits{}) {
				return fail(exitUsage, "say --rate, --concurrency or both; to take limits back: delayqueue limits clear %s",
					args[0])
			}
			return nil
		},
		RunE: a.setLimits(&l),
	}
	c.Flags().StringVar(&rate, "rate", "", "deliveries in a time: 100/1s, 5000/24h")
	c.Flags().IntVar(&l.Burst, "burst", 0, "deliveries at once after a pause (default 1, with a rate)")
	c.Flags().IntVar(&l.Concurrency, "concurrency", 0, "messages that are handled at a time")
	return c
}

// readRate reads "100/1s".
func readRate(rate string, l *ops.Limits) error {
	if rate == "" {
		return nil
	}
	count, per, found := strings.Cut(rate, "/")
	n, err := strconv.Atoi(count)
	d, perr := time.ParseDuration(per)
	if !found && err == nil {
		return fail(exitUsage, "--rate %d: in which time? %d/1s is %d a second, %d/1h is %d an hour", n, n, n, n, n)
	}
	if !found || err != nil || perr != nil {
		return fail(exitUsage, "--rate %s: want a number, a slash and a time, as in 100/1s", rate)
	}
	l.Rate, l.Per, l.Burst = n, d, cmp.Or(l.Burst, 1)
	return nil
}

func (a *app) clearLimitsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clear QUEUE",
		Short: "Take back all limits that were set: those of the consumers hold",
		Args:  cobra.ExactArgs(1),
		RunE:  a.setLimits(&ops.Limits{}),
	}
}

func (a *app) liftCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lift QUEUE",
		Short: "End the throttle of a handler",
		Long: `lift ends a throttle: the queue goes on as far as its limits allow. The message
whose handler returned Throttle stays due when that handler said; delayqueue run
brings it sooner.`,
		Args: cobra.ExactArgs(1),
		RunE: a.onQueue(func(ctx context.Context, m *ops.Queue, _ []string) error {
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
		}),
	}
}

func (a *app) setLimits(l *ops.Limits) runE {
	return a.onQueue(func(ctx context.Context, m *ops.Queue, _ []string) error {
		before, err := m.SetLimits(ctx, *l)
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

func (a *app) sayLimits(ctx context.Context, m *ops.Queue) error {
	l, err := m.Limits(ctx)
	if !inPart(err) { // what the other shards say is shown
		return err
	}
	n, missing := m.Counts(ctx)
	if !inPart(missing) {
		return missing
	}
	err = cmp.Or(err, missing)
	in := func(l ops.Limits) limitsJSON {
		return limitsJSON{l.Rate, l.Per.Seconds(), l.Burst, l.Concurrency}
	}
	if a.json {
		printJSON(struct {
			Queue   string     `json:"queue"`
			Asked   limitsJSON `json:"asked"`
			Set     limitsJSON `json:"set"`
			SetIn   string     `json:"set_in,omitempty"` // "only in 5 of 6 shards"; "": in all
			InForce limitsJSON `json:"in_force"`
			Limited bool       `json:"limited"`
			Until   *time.Time `json:"throttled_until,omitempty"`
		}{m.Name(), in(l.Asked), in(l.Set), l.SetIn, in(l.InForce()), n.Limited, instant(n.ThrottledUntil)})
		return err
	}
	only := ""
	if l.SetIn != "" {
		only = fmt.Sprintf(" (%s: set or clear them once more)", l.SetIn)
	}
	say("consumers of %s ask for %v; set here: %v%s; in force: %v", m.Name(), l.Asked, l.Set, only, l.InForce())
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
	return err
}

func (a *app) pauseCommand() *cobra.Command {
	var until whenFlag
	c := &cobra.Command{
		Use:   "pause QUEUE",
		Short: "Hand out nothing until resume",
		Long: `pause makes all consumers of a queue hand out nothing, within a second. Running
handlers go on, and sends are accepted. stats shows who paused the queue and
why.`,
		Example: "  delayqueue pause orders --until 30m --reason 'card provider down'",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return until.ahead("until", "delayqueue resume ends a pause", 0) },
		RunE: a.onQueue(func(ctx context.Context, m *ops.Queue, _ []string) error {
			end, err := pause(ctx, m, &until)
			if err == nil {
				a.sayPaused(m.Name(), true, end)
			}
			return err
		}),
	}
	c.Flags().Var(&until, "until", "end of the pause, a time or a duration")
	return c
}

// pause pauses, for a duration by the server's clock. It returns the end of the pause, zero if only resume ends it.
func pause(ctx context.Context, m *ops.Queue, until *whenFlag) (end time.Time, err error) {
	if until.IsZero() {
		return end, m.Pause(ctx)
	}
	d, err := parseDuration(until.text)
	if err != nil {
		return until.Time, m.PauseUntil(ctx, until.Time)
	}
	if err := m.PauseFor(ctx, d); err != nil {
		return end, err
	}
	if c, err := m.Counts(ctx); err == nil && !c.PausedUntil.IsZero() {
		return c.PausedUntil, nil
	}
	return until.Time, nil // about then: the pause itself has succeeded
}

func (a *app) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume QUEUE",
		Short: "End a pause",
		Args:  cobra.ExactArgs(1),
		RunE: a.onQueue(func(ctx context.Context, m *ops.Queue, _ []string) error {
			err := m.Resume(ctx)
			if err == nil {
				a.sayPaused(m.Name(), false, time.Time{})
			}
			return err
		}),
	}
}

func (a *app) sayPaused(queue string, paused bool, until time.Time) {
	switch {
	case a.json:
		printJSON(struct {
			Queue  string     `json:"queue"`
			Paused bool       `json:"paused"`
			Until  *time.Time `json:"paused_until,omitempty"`
		}{queue, paused, instant(until)})
	case !paused:
		say("queue %s goes on", queue)
	case until.IsZero():
		say("queue %s is paused until delayqueue resume %s", queue, queue)
	default:
		say("queue %s is paused until %s", queue, at(until))
	}
}
