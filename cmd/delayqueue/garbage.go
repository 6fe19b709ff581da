package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

var dead = []delayqueue.State{delayqueue.StateGarbage}

func (a *app) requeueCommand() *cobra.Command {
	var which target
	c := &cobra.Command{
		Use:   "requeue QUEUE (ID... | --all)",
		Short: "Bring messages back from garbage, with all their retries",
		Long: `requeue brings messages back from garbage: they are due now, with all their retries. A message whose key another
one has taken meanwhile is passed over by --all, which says so and has exit code 5, and refused by its id. With --key, the
one of that key that died last is meant. --all asks if it may be more than 100 messages.`,
		Example:           "  delayqueue requeue orders --all --error 'connection refused' --from -2h",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			if err := which.check(args[1:], delayqueue.StateGarbage); err != nil {
				return err
			}
			m, err := a.monitor(ctx, args[0])
			if err != nil {
				return err
			}
			if !which.all {
				return a.each(ctx, m, args[1:], a.finder(m, which.byKey, true), "brought back", plainly(m.Requeue))
			}
			return a.bulk(ctx, m, &which, bulkWork{
				question: "Bring back", doing: "bringing back", did: "brought back", usual: dead, can: dead, start: m.BulkRequeue,
			})
		},
	}
	which.flags(c, "garbage", "that died")
	which.ageFlag(c)
	which.keyFlag(c)
	which.bulkFlags.flags(c, false, true)
	return c
}

func (a *app) purgeCommand() *cobra.Command {
	var (
		which         target
		whole, forced bool
	)
	c := &cobra.Command{
		Use:   "purge QUEUE (ID... | --all | --whole-queue)",
		Short: "Delete garbage, or a whole queue",
		Long: `purge deletes messages for good: garbage by its ids, all of it or what matches, or with --whole-queue the queue
itself with everything in it, which is refused while consumers are alive, unless --force. It asks first.`,
		Example:           "  delayqueue purge orders --all --older-than 3d --yes",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			if whole && (which.all || which.any() || len(args) > 1) {
				return fail(exitUsage, "--whole-queue goes with nothing that names messages")
			}
			if !whole {
				if err := which.check(args[1:], delayqueue.StateGarbage); err != nil {
					return err
				}
			}
			m, err := a.monitor(ctx, args[0])
			if err != nil {
				return err
			}
			if len(args) > 1 {
				if err := a.ask("Delete %s of queue %q for good?", plural(len(args)-1, "dead message"), m.Name()); err != nil {
					return err
				}
				return a.each(ctx, m, args[1:], a.finder(m, which.byKey, true), "deleted", a.deleteGarbage(m))
			}
			if !whole {
				return a.bulk(ctx, m, &which, bulkWork{
					question: "Delete", doing: "deleting", did: "deleted", destructive: true, usual: dead, can: dead, start: m.BulkDelete,
				})
			}
			return a.deleteQueue(ctx, m, forced)
		},
	}
	which.flags(c, "garbage", "that died")
	which.ageFlag(c)
	which.keyFlag(c)
	which.bulkFlags.flags(c, false, false)
	c.Flags().BoolVar(&whole, "whole-queue", false, "the queue itself, with everything in it")
	c.Flags().BoolVar(&forced, "force", false, "with --whole-queue: although consumers are alive")
	return c
}

func (a *app) deleteQueue(ctx context.Context, m *delayqueue.Monitor, forced bool) error {
	n, err := m.Counts(ctx)
	if err != nil {
		return err
	}
	total := n.Pending + n.Ready + n.Unack + n.Retry + n.Garbage
	if err := a.ask("Delete the queue %q with all of its %s?", m.Name(), plural(int(total), "message")); err != nil {
		return err
	}
	if err := m.DeleteQueue(ctx, forced); err != nil {
		return err
	}
	if a.json {
		return printJSON(map[string]any{"queue": m.Name(), "deleted": true})
	}
	say("queue %s deleted", m.Name())
	return nil
}

// deleteGarbage deletes a message only if it lies in garbage.
func (a *app) deleteGarbage(m *delayqueue.Monitor) func(context.Context, string) (string, error) {
	return func(ctx context.Context, id string) (string, error) {
		msg, err := get(ctx, m, id)
		switch {
		case err != nil:
			return "", err
		case msg == nil:
			return "", &delayqueue.StateError{Queue: m.Name(), ID: id, State: delayqueue.StateGone}
		case msg.State != delayqueue.StateGarbage:
			return "", &delayqueue.StateError{Queue: m.Name(), ID: id, State: msg.State}
		}
		return msg.State.String(), m.Delete(ctx, id)
	}
}
