package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

func (a *app) cancelCommand() *cobra.Command {
	var which target
	c := &cobra.Command{
		Use:   "cancel QUEUE (ID... | --all)",
		Short: "Take messages out, wherever they are",
		Long: `cancel takes messages out, wherever they are: they are never delivered again. If one is being handled, its handler's
context ends within a third of a lease; what the handler has done until then it has done. --all is for what is pending,
ready or waits for a retry, or for what is in the states that --state names. It asks first.`,
		Example: "  delayqueue cancel orders order-42 --key\n  delayqueue cancel orders --all --from 18:00 --to 20:00 --header tenant=acme\n" +
			"  delayqueue cancel orders --all --state unack,ready --dry-run",
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
				return a.bulk(ctx, m, &which, bulkWork{
					question: "Delete", doing: "deleting", did: "deleted", destructive: true, usual: live, start: m.BulkDelete,
					can: append(live[:3:3], delayqueue.StateUnack, delayqueue.StateGarbage, delayqueue.StateDone),
				})
			}
			if err := a.ask("Take %s out of queue %q for good?", plural(len(args)-1, "message"), m.Name()); err != nil {
				return err
			}
			return a.each(ctx, m, args[1:], a.finder(m, which.byKey, false), "taken out", func(ctx context.Context, id string) (string, error) {
				r, err := m.Cancel(ctx, id)
				if err != nil {
					return "", err
				}
				if !r.Intercepted {
					return "", &delayqueue.StateError{Queue: m.Name(), ID: id, State: r.State}
				}
				return r.State.String(), nil
			})
		},
	}
	which.flags(c, "pending, ready and retry", "due")
	which.keyFlag(c)
	which.bulkFlags.flags(c, true, false)
	return c
}
