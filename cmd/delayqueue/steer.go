package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) cancelCommand() *cobra.Command {
	var which target
	c := &cobra.Command{
		Use:   "cancel QUEUE (ID... | --all)",
		Short: "Cancel messages, in any state",
		Long: `cancel takes messages out, in any state: they are never delivered again. If a
message is being handled, its handler's context ends within a third of a lease;
what the handler has done is not undone. --all cancels all messages in pending,
ready, retry and waiting, or in the states of --state; the books call them
deleted. The command asks first.`,
		Example: "  delayqueue cancel orders order-42 --key\n" +
			"  delayqueue cancel orders --all --from 18:00 --to 20:00 --header tenant=acme\n" +
			"  delayqueue cancel orders --all --state unack,ready --dry-run",
		Args: cobra.MinimumNArgs(1),
		RunE: a.onTarget(&which, delayqueue.StatePending, func(c *cobra.Command, m *ops.Queue, ids []string) error {
			ctx := c.Context()
			if which.all {
				return a.bulk(ctx, m, &which, bulkWork{
					question: "Cancel", doing: "canceling", did: "canceled", destructive: true, usual: live, start: m.BulkDelete,
					can: append(live[:4:4], delayqueue.StateUnack, delayqueue.StateGarbage, delayqueue.StateDone),
				})
			}
			find := a.finder(m, which.byKey, false)
			what := plural(len(ids), "message")
			if err := a.askAbout(ctx, m, ids, find, "Cancel %s of queue %q?", what, m.Name()); err != nil {
				return err
			}
			return a.each(ctx, m, ids, find, "canceled", func(ctx context.Context, id string) (string, error) {
				r, err := m.Cancel(ctx, id)
				if err != nil {
					return "", err
				}
				if !r.Intercepted {
					return "", &delayqueue.StateError{ID: id, State: r.State}
				}
				return r.State.String(), nil
			})
		}),
	}
	which.flags(c, "pending, ready, retry and waiting", "due", "pending, ready, waiting, unack, retry, garbage, done",
		false)
	return c
}

func (a *app) rescheduleCommand() *cobra.Command {
	var (
		which target
		to    whenFlag
		by    durationFlag
	)
	c := &cobra.Command{
		Use:   "reschedule QUEUE (ID... | --all) (--at TIME | --by SPAN)",
		Short: "Make messages due at another time",
		Long: `reschedule makes messages due at another time. They keep their ids, keys and
failures. A message that waits for a retry is delivered at that time. A message
that is being handled or lies in garbage is refused, and so is a message that is
past its deadline by then, unless --anew lifts the deadline. --by counts from
when each message was due. --all takes all messages in pending, ready, retry and
waiting, or in the states of --state, and asks if they may be more than 100. If
the journal says that the same --by was cut off within the last day, it asks
too, and refuses with --yes: it would shift messages again. --cursor goes on.`,
		Example: "  delayqueue reschedule orders --all --to 2h --by 6h\n" +
			"  delayqueue reschedule orders --all --state ready --at now --spread 1h",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, byDuration := c.Context(), c.Flags().Changed("by")
			if err := which.check(args[1:], delayqueue.StatePending); err != nil {
				return err
			}
			if which.before.IsZero() { // with --before, the rest of an earlier command is done: its instant may have passed
				if err := to.ahead("at", "--at now", justNow); err != nil {
					return err
				}
			}
			m, err := a.monitor(ctx, args[0])
			if err != nil {
				return err
			}
			if which.anew {
				m.Anew()
			}
			if which.all {
				return a.bulk(ctx, m, &which, bulkWork{
					question: "Reschedule", doing: "rescheduling", did: "rescheduled", usual: live, can: live,
					twice: shiftedFirst(by), by: time.Duration(by),
					start: func(ctx context.Context, b ops.Bulk) (*ops.BulkResult, error) {
						if byDuration {
							return m.BulkRescheduleBy(ctx, b, time.Duration(by))
						}
						return m.BulkReschedule(ctx, b, to.Time)
					},
				})
			}
			return a.each(ctx, m, args[1:], a.finder(m, which.byKey, false), "rescheduled",
				plainly(func(ctx context.Context, id string) error {
					if byDuration {
						return m.RescheduleBy(ctx, id, time.Duration(by))
					}
					return m.Reschedule(ctx, id, to.Time)
				}))
		},
	}
	which.flags(c, "pending, ready, retry and waiting", "due", "pending, ready, retry, waiting", true)
	c.Flags().Var(&to, "at", "due then")
	c.Flags().Var(&by, "by", "due later by this time, or earlier (-10m), counted from when each was due")
	c.MarkFlagsOneRequired("at", "by")
	c.MarkFlagsMutuallyExclusive("at", "by")
	c.Flags().StringVar(&which.cursor, "cursor", "",
		"with --all --by: go on where the same command was cut off, which says so")
	for _, name := range []string{"at", "before", "dry-run"} {
		c.MarkFlagsMutuallyExclusive("cursor", name)
	}
	return c
}

// shiftedFirst says with which messages a shift begins; "" if nothing is shifted.
func shiftedFirst(by durationFlag) string {
	switch {
	case by > 0:
		return "the latest"
	case by < 0:
		return "the earliest"
	}
	return ""
}

func (a *app) runCommand() *cobra.Command {
	var which target
	c := &cobra.Command{
		Use:   "run QUEUE (ID... | --all)",
		Short: "Make messages due now",
		Long: `run makes messages due now. A message that is past its deadline is refused,
unless --anew lifts the deadline. --all takes all messages in pending, retry and
waiting, or in the states of --state, and asks if they may be more than 100.`,
		Example: "  delayqueue run orders --all --state retry --error-contains EOF --spread 10m",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.onTarget(&which, delayqueue.StatePending, func(c *cobra.Command, m *ops.Queue, ids []string) error {
			ctx := c.Context()
			if which.all {
				waiting := []delayqueue.State{delayqueue.StatePending, delayqueue.StateRetry, delayqueue.StateWaiting}
				return a.bulk(ctx, m, &which, bulkWork{
					question: "Run now", doing: "making due now", did: "made due now", usual: waiting, can: waiting,
					start: m.BulkRunNow,
				})
			}
			return a.each(ctx, m, ids, a.finder(m, which.byKey, false), "made due now", plainly(m.RunNow))
		}),
	}
	which.flags(c, "pending, retry and waiting", "due", "pending, retry, waiting", true)
	return c
}

var dead = []delayqueue.State{delayqueue.StateGarbage}

func (a *app) requeueCommand() *cobra.Command {
	var which target
	c := &cobra.Command{
		Use:   "requeue QUEUE (ID... | --all)",
		Short: "Bring messages back from garbage, with all their retries",
		Long: `requeue brings messages back from garbage: they are due now, with all their
retries. A message whose key belongs to another message now is refused, and so
is a message past its deadline, unless --anew lifts the deadline. --all passes
these over, says so, and has exit code 5. --key takes the message with that key
that died last. --all asks if the messages may be more than 100.`,
		Example: "  delayqueue requeue orders --all --error-contains 'no route' --from -2h",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.onTarget(&which, delayqueue.StateGarbage, func(c *cobra.Command, m *ops.Queue, ids []string) error {
			ctx := c.Context()
			if !which.all {
				return a.each(ctx, m, ids, a.finder(m, which.byKey, true), "requeued", plainly(m.Requeue))
			}
			return a.bulk(ctx, m, &which, bulkWork{
				question: "Requeue", doing: "requeuing", did: "requeued", usual: dead, can: dead, start: m.BulkRequeue,
			})
		}),
	}
	which.flags(c, "garbage", "that died", "", true)
	return c
}

func (a *app) deleteCommand() *cobra.Command {
	var (
		which         target
		whole, forced bool
	)
	c := &cobra.Command{
		Use:   "delete QUEUE (ID... | --all | --whole-queue)",
		Short: "Delete garbage, or a whole queue",
		Long: `delete deletes garbage for good: by its ids, all of it, or what matches. With
--whole-queue it deletes the queue with everything in it, which is refused while
consumers are alive, unless --force is given. The command asks first.`,
		Example: "  delayqueue delete orders --all --to -3d --yes",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			if whole && len(args) > 1 {
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
				find := a.finder(m, which.byKey, true)
				if err := a.askAbout(ctx, m, args[1:], find, "Delete %s of queue %q?", plural(len(args)-1, "dead message"),
					m.Name()); err != nil {
					return err
				}
				return a.each(ctx, m, args[1:], find, "deleted", a.deleteGarbage(m))
			}
			if !whole {
				return a.bulk(ctx, m, &which, bulkWork{
					question: "Delete", doing: "deleting", did: "deleted", destructive: true, usual: dead, can: dead,
					start: m.BulkDelete,
				})
			}
			return a.deleteQueue(ctx, m, forced)
		},
	}
	which.flags(c, "garbage", "that died", "", false)
	var ofMessages []string
	c.Flags().VisitAll(func(f *pflag.Flag) { ofMessages = append(ofMessages, f.Name) })
	c.Flags().BoolVar(&whole, "whole-queue", false, "delete the queue with everything in it")
	c.Flags().BoolVar(&forced, "force", false, "with --whole-queue: even if consumers are alive")
	for _, name := range ofMessages {
		c.MarkFlagsMutuallyExclusive("whole-queue", name)
	}
	return c
}

func (a *app) deleteQueue(ctx context.Context, m *ops.Queue, forced bool) error {
	n, err := m.Counts(ctx)
	if err != nil { // also if some shards do not answer: a queue is deleted as a whole
		return err
	}
	total := n.Pending + n.Ready + n.Waiting + n.Unack + n.Retry + n.Garbage
	if !a.yes && onTerminal(os.Stdin) {
		everywhere := append(live[:4:4], delayqueue.StateUnack, delayqueue.StateGarbage, delayqueue.StateDone)
		some, err := m.BulkDelete(ctx, ops.Bulk{States: everywhere, DryRun: true, Most: sampled})
		if err != nil {
			return err
		}
		saySample(some.Sample)
	}
	if err := a.ask("Delete the queue %q with all of its %s?", m.Name(), plural(int(total), "message")); err != nil {
		return err
	}
	if all, err := m.Consumers(ctx); !forced && (err != nil || len(all) > 0) {
		return cmp.Or(err, fmt.Errorf("%w: %d: stop them, or --force", ops.ErrConsumersAlive, len(all)))
	}
	if err := m.DeleteQueue(ctx, true); err != nil { // its messages were asked about
		return err
	}
	a.say(map[string]any{"queue": m.Name(), "deleted": true}, "queue %s deleted", m.Name())
	return nil
}

// deleteGarbage deletes a message only if it lies in garbage.
func (a *app) deleteGarbage(m *ops.Queue) func(context.Context, string) (string, error) {
	return func(ctx context.Context, id string) (string, error) {
		msg, err := get(ctx, m, id)
		switch {
		case err != nil:
			return "", err
		case msg == nil:
			return "", &delayqueue.StateError{ID: id, State: delayqueue.StateGone}
		case msg.State != delayqueue.StateGarbage:
			return "", &delayqueue.StateError{ID: id, State: msg.State}
		}
		return msg.State.String(), m.Delete(ctx, id)
	}
}
