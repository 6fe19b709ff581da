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
is delivered then. A message that is being handled or lies in garbage is refused. --all is for pending messages.`,
		Example:           "  delayqueue reschedule orders --all --to 2h --by 6h",
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
				n, err := m.GetPendingCount(ctx)
				if err != nil {
					return err
				}
				return a.bulk(ctx, "rescheduling", "rescheduled", n, &which.selection, func(ctx context.Context, b delayqueue.Bulk) (*delayqueue.BulkResult, error) {
					if byDuration {
						return m.BulkRescheduleBy(ctx, b, time.Duration(by))
					}
					return m.BulkReschedule(ctx, b, to.Time)
				}, delayqueue.StatePending)
			}
			return a.each(ctx, m, args[1:], which.byKey, "rescheduled", plainly(func(ctx context.Context, id string) error {
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
	which.flags(c, "pending", "due")
	which.keyFlag(c)
	return c
}

func (a *app) runCommand() *cobra.Command {
	var which target
	c := &cobra.Command{
		Use:               "run QUEUE ID...",
		Short:             "Make messages due now",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.each(c.Context(), m, args[1:], which.byKey, "due now", plainly(m.RunNow))
		},
	}
	which.keyFlag(c)
	return c
}
