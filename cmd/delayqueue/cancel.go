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
		Long: `cancel takes messages out, wherever they are. If one is being handled, its handler's context ends, and it is not
delivered again. --all is for pending messages. It asks first.`,
		Example:           "  delayqueue cancel orders order-42 --key\n  delayqueue cancel orders --all --from 18:00 --to 20:00 --header tenant=acme",
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
				n, err := m.GetPendingCount(ctx)
				if err != nil {
					return err
				}
				if err := a.ask("Delete %s of queue %q?", which.which(n, "pending message"), m.Name()); err != nil {
					return err
				}
				return a.bulk(ctx, "deleting", "deleted", n, &which.selection, m.BulkDelete, delayqueue.StatePending)
			}
			if err := a.ask("Take %s out of queue %q for good?", plural(len(args)-1, "message"), m.Name()); err != nil {
				return err
			}
			return a.each(ctx, m, args[1:], which.byKey, "taken out", func(ctx context.Context, id string) (string, error) {
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
	which.flags(c, "pending", "due")
	which.keyFlag(c)
	return c
}
