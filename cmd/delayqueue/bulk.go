package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

// A bulkWork is what --all does.
type bulkWork struct {
	question    string // Delete
	doing, did  string // deleting, deleted
	destructive bool   // asked about, however little it is
	can         []delayqueue.State
	usual       []delayqueue.State // without --state
	start       func(context.Context, delayqueue.Bulk) (*delayqueue.BulkResult, error)
}

var live = []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry}

// bulkFlags are those of commands that have --all, besides what it selects by.
type bulkFlags struct {
	states []string
	spread durationFlag
	rate   int
	dryRun bool
}

func (b *bulkFlags) flags(c *cobra.Command, states, spread bool) {
	if states {
		c.Flags().StringSliceVar(&b.states, "state", nil, "with --all: those in these states (pending, ready, unack, retry, garbage, done)")
	}
	if spread {
		c.Flags().Var(&b.spread, "spread", "with --all: due evenly over this time, not all at once")
	}
	c.Flags().IntVar(&b.rate, "rate", 0, "with --all: at most so many messages a second; 0: as fast as it goes")
	c.Flags().BoolVar(&b.dryRun, "dry-run", false, "with --all: say how many it would be, with some of them, and change nothing")
}

// many is from how many messages on bulk work is asked about that destroys nothing.
const many = 100

// stuck is how long a step of bulk work may take before it is given up on: the library goes on trying
// for as long as its context lives.
const stuck = 30 * time.Second

// bulk does something to all messages that match, after it has asked.
func (a *app) bulk(ctx context.Context, m *delayqueue.Monitor, which *target, work bulkWork) error {
	states, err := which.statesOf(&work)
	if err != nil {
		return err
	}
	n, err := m.Counts(ctx)
	if err != nil {
		return err
	}
	total := sizeOf(n, states)
	b := delayqueue.Bulk{States: states, Filter: which.filter(), Spread: time.Duration(which.spread), Rate: which.rate, DryRun: which.dryRun}
	start := func(ctx context.Context, progress func(*delayqueue.BulkResult) bool) (*delayqueue.BulkResult, error) {
		b.Progress = progress
		return work.start(ctx, b)
	}
	did := work.did
	switch {
	case which.dryRun:
		did = "would have " + work.did
	case !work.destructive && total <= many:
	case a.yes || !onTerminal(os.Stdin):
		if err := a.ask("%s %s of queue %q? (--dry-run counts first.)", work.question,
			which.which(total, namesOf(states)), m.Name()); err != nil {
			return err
		}
	default:
		b.DryRun = true
		counted, err := a.runBulk(ctx, "counting", total, start)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "nothing was %s: it was still being counted\n", work.did)
			return err
		}
		if counted.Done == 0 {
			return a.sayBulk(m, did, counted)
		}
		if counted.Plan == "" {
			return fail(exitUnconfirmed, "more than 1,000 match, and some may be in a handler: what was counted cannot be held to. "+
				"Do that part by itself (--state unack), or all of it uncounted (--yes)")
		}
		saySample(counted)
		if err := a.ask("%s %s of queue %q?", work.question, plural(int(counted.Done), "message"), m.Name()); err != nil {
			return err
		}
		total = counted.Done
		start = func(ctx context.Context, progress func(*delayqueue.BulkResult) bool) (*delayqueue.BulkResult, error) {
			return m.BulkCommit(ctx, counted.Plan, progress)
		}
	}
	return a.watchBulk(ctx, m, work.doing, did, total, start)
}

// statesOf are the states that --all means.
func (t *target) statesOf(work *bulkWork) ([]delayqueue.State, error) {
	if len(t.states) == 0 {
		return work.usual, nil
	}
	var states []delayqueue.State
	for _, name := range t.states {
		state, err := parseState(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(work.can, state) {
			return nil, fail(exitUsage, "--state %s: what is there cannot be %s, but what is %s", state, work.did, namesOf(work.can))
		}
		if !slices.Contains(states, state) {
			states = append(states, state)
		}
	}
	return states, nil
}

func sizeOf(n delayqueue.Counts, states []delayqueue.State) (total int64) {
	for _, state := range states {
		total += map[delayqueue.State]int64{
			delayqueue.StatePending: n.Pending, delayqueue.StateReady: n.Ready, delayqueue.StateUnack: n.Unack,
			delayqueue.StateRetry: n.Retry, delayqueue.StateGarbage: n.Garbage, delayqueue.StateDone: n.Done,
		}[state]
	}
	return total
}

func namesOf(states []delayqueue.State) string {
	var names []string
	for _, state := range states {
		names = append(names, state.String())
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return strings.Join(names, "")
}

// bulkCall is bulk work with a progress function.
type bulkCall = func(context.Context, func(*delayqueue.BulkResult) bool) (*delayqueue.BulkResult, error)

// runBulk shows how bulk work goes on. An interrupt stops it between two steps.
func (a *app) runBulk(ctx context.Context, doing string, total int64, work bulkCall) (*delayqueue.BulkResult, error) {
	steps, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	watchdog := time.AfterFunc(stuck, func() { cancel(context.DeadlineExceeded) })
	defer watchdog.Stop()
	defer context.AfterFunc(ctx, func() { watchdog.Reset(time.Second) })()
	bar := a.progress(doing, total)
	r, err := work(steps, func(r *delayqueue.BulkResult) bool {
		_ = bar.Set64(min(r.Looked, max(total, 1))) // a bar that cannot be drawn stops nothing
		watchdog.Reset(stuck)
		return ctx.Err() == nil
	})
	finish(bar)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(steps), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer for %s: %w", brief(stuck), context.DeadlineExceeded)
	}
	return r, err
}

// watchBulk runs bulk work, and says what it did, and how to continue what was cut off.
func (a *app) watchBulk(ctx context.Context, m *delayqueue.Monitor, doing, did string, total int64, work bulkCall) error {
	r, err := a.runBulk(ctx, doing, total, work)
	if err := a.sayBulk(m, did, r); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil && r.Next != "":
		return ctx.Err()
	case err == nil && r.Passed[delayqueue.PassedKey] > 0:
		return &failure{code: exitRefused} // it was said
	}
	return err
}

type bulkJSON struct {
	Done   int64                       `json:"done"`
	Looked int64                       `json:"looked"`
	Passed map[delayqueue.Reason]int64 `json:"passed_over,omitempty"`
	Next   string                      `json:"continue,omitempty"` // for delayqueue continue
	Sample []string                    `json:"sample,omitempty"`   // ids
	Plan   string                      `json:"plan,omitempty"`     // for delayqueue continue: to do just that
}

// inSentence says why messages were passed over.
var inSentence = map[delayqueue.Reason]string{
	delayqueue.PassedMoved: "left before its turn came", delayqueue.PassedNew: "came in after this had begun",
	delayqueue.PassedKey:     "another message has its key now",
	delayqueue.PassedUnknown: "was in the step that was cut off; whether it was done is forgotten after an hour",
}

func (a *app) sayBulk(m *delayqueue.Monitor, did string, r *delayqueue.BulkResult) error {
	if a.json {
		out := bulkJSON{Done: r.Done, Looked: r.Looked, Passed: r.Passed, Next: r.Next, Plan: r.Plan}
		for _, msg := range r.Sample {
			out.Sample = append(out.Sample, msg.ID)
		}
		return printJSON(out)
	}
	say("%s %s", did, plural(int(r.Done), "message"))
	for _, reason := range []delayqueue.Reason{delayqueue.PassedKey, delayqueue.PassedMoved, delayqueue.PassedNew, delayqueue.PassedUnknown} {
		if n := r.Passed[reason]; n > 0 {
			say("passed over %s: %s", plural(int(n), "message"), inSentence[reason])
		}
	}
	saySample(r)
	if r.Next != "" {
		fmt.Fprintf(os.Stderr, "it was cut off; this goes on where it stopped, and does nothing twice:\n%s\n", a.continuation(m, r.Next))
	}
	if r.Plan != "" && len(r.Plan) <= longPlan {
		fmt.Fprintf(os.Stderr, "within 55 minutes, this does just that, once:\n%s\n", a.continuation(m, r.Plan))
	}
	return nil
}

// saySample shows some of what a dry run counted.
func saySample(r *delayqueue.BulkResult) {
	if len(r.Sample) == 0 {
		return
	}
	t := newGrid("id", "key", "state", "payload", "last error").cutLast(5)
	for _, msg := range r.Sample {
		t.add(msg.ID, msg.Key, msg.State, payloadOf(msg, 40), paint(bad, cut(msg.LastError, 40)))
	}
	t.print()
}

// longPlan is how long a plan may be that is printed without --json: it names each of up to 1,000 messages.
const longPlan = 2000

// continuation is the command line that goes on with something.
func (a *app) continuation(m *delayqueue.Monitor, token string) string {
	return a.connected("continue " + shellQuote(m.Name()) + " " + shellQuote(token))
}

func (a *app) continueCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "continue QUEUE TOKEN",
		Short: "Go on with bulk work that was cut off, or do what a dry run counted",
		Long: `continue goes on with what --all was doing when it was interrupted or failed, exactly where it stopped: no message is
steered twice, and what came in meanwhile is passed over. TOKEN is what was printed then. It holds the whole task. That
of a reschedule --by from which it was continued already is refused: take the one that was printed last.

If TOKEN is the plan that --dry-run printed, it does to the messages that were counted, and to no others, what was counted:
within 55 minutes, and once. It asks as that command would.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			task, err := m.BulkTask(args[1])
			if err != nil {
				return err
			}
			if task.Planned {
				if task.Action == "delete" || task.Counted > many {
					err = a.ask("%s %s of queue %q, as counted at %s?", strings.ToUpper(task.Action[:1])+task.Action[1:],
						plural(int(task.Counted), "message"), m.Name(), at(task.At))
				}
				if err != nil {
					return err
				}
				return a.watchBulk(c.Context(), m, "going on", "done to", task.Total,
					func(ctx context.Context, progress func(*delayqueue.BulkResult) bool) (*delayqueue.BulkResult, error) {
						return m.BulkCommit(ctx, args[1], progress)
					})
			}
			did := "altogether, done to"
			if task.DryRun {
				did = "altogether, would be done to"
			}
			return a.watchBulk(c.Context(), m, "going on", did, 0,
				func(ctx context.Context, progress func(*delayqueue.BulkResult) bool) (*delayqueue.BulkResult, error) {
					return m.BulkContinue(ctx, args[1], progress)
				})
		},
	}
}
