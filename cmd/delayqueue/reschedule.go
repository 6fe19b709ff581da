package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

func (a *app) rescheduleCommand() *cobra.Command {
	var (
		which target
		to    whenFlag
		by    durationFlag
	)
	c := &cobra.Command{
		Use:   "reschedule QUEUE (ID... | --all) (--at TIME | --by DURATION)",
		Short: "Make messages due at another time",
		Long: `reschedule makes messages due at another time. They keep their ids, keys and failures; one that waits for a retry
is delivered then. A message that is being handled or lies in garbage is refused. --all is for what is pending, ready or
waits for a retry, or for what is in the states that --state names; it asks if that may be more than 100 messages.`,
		Example: "  delayqueue reschedule orders --all --to 2h --by 6h\n  delayqueue reschedule orders --all --state ready --at now " +
			"--spread 1h",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, byDuration := c.Context(), c.Flags().Changed("by")
			if err := which.check(args[1:], delayqueue.StatePending); err != nil {
				return err
			}
			if err := to.ahead("at", "--at now", justNow); err != nil {
				return err
			}
			m, err := a.monitor(ctx, args[0])
			if err != nil {
				return err
			}
			if which.all {
				return a.bulk(ctx, m, &which, bulkWork{
					question: "Reschedule", doing: "rescheduling", did: "rescheduled", usual: live, can: live,
					start: func(ctx context.Context, b delayqueue.Bulk) (*delayqueue.BulkResult, error) {
						if byDuration {
							return m.BulkRescheduleBy(ctx, b, time.Duration(by))
						}
						return m.BulkReschedule(ctx, b, to.Time)
					},
				})
			}
			return a.each(ctx, m, args[1:], a.finder(m, which.byKey, false), "rescheduled", plainly(func(ctx context.Context, id string) error {
				if byDuration {
					return m.RescheduleBy(ctx, id, time.Duration(by))
				}
				return m.Reschedule(ctx, id, to.Time)
			}))
		},
	}
	c.Flags().Var(&to, "at", "due then")
	c.Flags().Var(&by, "by", "due so much later, or earlier (-10m)")
	c.MarkFlagsOneRequired("at", "by")
	c.MarkFlagsMutuallyExclusive("at", "by")
	which.flags(c, "pending, ready and retry", "due")
	which.keyFlag(c)
	which.bulkFlags.flags(c, true, true)
	return c
}

func (a *app) runCommand() *cobra.Command {
	var which target
	c := &cobra.Command{
		Use:   "run QUEUE (ID... | --all)",
		Short: "Make messages due now",
		Long: `run makes messages due now. --all is for what is pending or waits for a retry, or for what is in the states that
--state names; it asks if that may be more than 100 messages.`,
		Example:           "  delayqueue run orders --all --state retry --error timeout --spread 10m",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			if err := which.check(args[1:], delayqueue.StatePending); err != nil {
				return err
			}
			m, err := a.monitor(ctx, args[0])
			if err != nil {
				return err
			}
			if which.all {
				waiting := []delayqueue.State{delayqueue.StatePending, delayqueue.StateRetry}
				return a.bulk(ctx, m, &which, bulkWork{
					question: "Make due now", doing: "making due", did: "made due", usual: waiting, can: waiting, start: m.BulkRunNow,
				})
			}
			return a.each(ctx, m, args[1:], a.finder(m, which.byKey, false), "due now", plainly(m.RunNow))
		},
	}
	which.flags(c, "pending and retry", "due")
	which.keyFlag(c)
	which.bulkFlags.flags(c, true, true)
	return c
}
