package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

// A bulkWork is what --all does.
type bulkWork struct {
	question    string // Cancel
	doing, did  string // canceling, canceled
	destructive bool   // asked about, however little it is
	can         []delayqueue.State
	usual       []delayqueue.State // without --state
	twice       string             // if it is done twice when it is done again: which messages it begins with
	by          time.Duration      // by which it shifts then
	start       bulkCall
}

type bulkCall = func(context.Context, ops.Bulk) (*ops.BulkResult, error)

var live = []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry,
	delayqueue.StateWaiting}

// bulkFlags are those of commands that have --all, besides what it selects by.
type bulkFlags struct {
	states []string
	spread durationFlag
	before whenFlag
	most   int64
	rate   int
	dryRun bool
	anew   bool
	cursor string // of a command that was cut off
}

func (b *bulkFlags) flags(c *cobra.Command, states string, spread bool) {
	if states != "" {
		c.Flags().StringSliceVar(&b.states, "state", nil, "with --all: those in these states ("+states+")")
	}
	if spread {
		c.Flags().BoolVar(&b.anew, "anew", false, "lift the deadline of messages that are past it, else they are refused")
		c.Flags().Var(&b.spread, "spread", "with --all: due evenly over this time, not all at once")
	}
	c.Flags().Var(&b.before, "before",
		"with --all: only those that were there then, as when a dry run or a command that was cut off began")
	c.Flags().Int64Var(&b.most, "most", 0, "with --all: at most so many messages; 0: any number")
	c.Flags().IntVar(&b.rate, "rate", 0, "with --all: at most so many messages a second; 0: as fast as it goes")
	c.Flags().BoolVar(&b.dryRun, "dry-run", false,
		"with --all: say how many it would be, with some of them, and change nothing")
}

// many is from how many messages on bulk work is asked about that destroys nothing.
const many = 100

// stuck is how long a step of bulk work may take before it is given up on: the library goes on trying
// for as long as its context lives.
const stuck = 30 * time.Second

// bulk does something to all messages that match, after it has asked.
func (a *app) bulk(ctx context.Context, m *ops.Queue, which *target, work bulkWork) error {
	states, err := which.statesOf(&work)
	if err != nil {
		return err
	}
	n, err := m.Counts(ctx)
	if !inPart(err) {
		return err
	}
	total := sizeOf(n, states)
	b := ops.Bulk{States: states, Filter: which.filter(), Spread: time.Duration(which.spread), Before: which.before.Time,
		Rate: which.rate, Most: which.most, DryRun: which.dryRun, Anew: which.anew, Cursor: which.cursor}
	if err := a.notTwice(ctx, m, &work, &b); err != nil {
		return err
	}
	did, missing := work.did, error(nil)
	switch {
	case which.dryRun:
		did = "would have " + work.did
	case !work.destructive && total <= many:
	case a.yes || !onTerminal(os.Stdin) || which.cursor != "":
		if err := a.ask("%s %s of queue %q? (--dry-run counts first.)", work.question,
			which.which(total, namesOf(states)), m.Name()); err != nil {
			return err
		}
	default:
		b.DryRun = true
		counted, err := a.runBulk(ctx, "", total, b, work.start)
		if inPart(err) {
			missing = err
			err = ctx.Err()
		}
		if err != nil {
			if ctx.Err() != nil || !counted.At.IsZero() {
				fmt.Fprintf(os.Stderr, "nothing was %s: it was still being counted\n", work.did)
			}
			return err
		}
		if counted.Done == 0 {
			return cmp.Or(a.sayBulk(did, counted, nil), missing)
		}
		if missing != nil {
			_, text := a.explain(missing)
			fmt.Fprintln(os.Stderr, text)
		}
		saySample(counted.Sample)
		if err := a.ask("%s %s%s of queue %q?", work.question, plural(int(counted.Done), "message"),
			byState(counted.ByState), m.Name()); err != nil {
			return err
		}
		b.DryRun, b.Before, b.Most = false, counted.At, counted.Done
	}
	r, err := a.runBulk(ctx, work.doing, total, b, work.start)
	if err != nil && r.At.IsZero() { // it did not begin
		return cmp.Or(ctx.Err(), err)
	}
	rest := restOf(&work, &b, r)
	if err := a.sayBulk(did, r, rest); err != nil {
		return err
	}
	switch again := work.twice != "" && !b.DryRun && !r.Finished && rest == nil; {
	case again && errors.Is(err, delayqueue.ErrMissingShards):
		fmt.Fprintf(os.Stderr, "what the missing shards hold was not %s, or not all of it if they fell silent meanwhile. "+
			"The same command would shift the messages of the others again. It begins with %s of each state; delayqueue ls "+
			"shows where it stopped\n", work.did, work.twice)
	case again:
		fmt.Fprintf(os.Stderr, "it was cut off while Redis did not answer: whether up to 100 more messages were %s is "+
			"not known. The same command would shift messages twice. It begins with %s of each state; delayqueue ls "+
			"shows where it stopped\n", work.did, work.twice)
	}
	switch {
	case ctx.Err() != nil && !r.Finished:
		return ctx.Err()
	case err == nil && r.Passed[ops.PassedKey]+r.Passed[ops.PassedExpired] > 0:
		return &failure{code: exitRefused} // it was said
	}
	return err
}

// restOf is what the same command is to be told so that it does what was counted, or the rest of what was cut off;
// nil if there is nothing left, or if it may not be given again.
func restOf(work *bulkWork, b *ops.Bulk, r *ops.BulkResult) *bulkRest {
	most := b.Most
	switch {
	case r.At.IsZero() || b.DryRun && (!r.Finished || r.Done == 0) || !b.DryRun && r.Finished:
		return nil
	case !b.DryRun && most > 0 && r.Done >= most: // --most 0 would be any number
		return nil
	case work.twice != "" && !b.DryRun && r.Next == "":
		return nil
	case work.twice != "" && !b.DryRun: // it is told the same, and where it stood
		return &bulkRest{most: most, cursor: r.Next}
	case b.DryRun:
		most = r.Done
	case most > 0:
		most -= r.Done
	}
	return &bulkRest{before: r.At, most: most, counted: b.DryRun}
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
			return nil, fail(exitUsage, "--state %s: what is there cannot be %s, but what is %s", state, work.did,
				namesOf(work.can))
		}
		if !slices.Contains(states, state) {
			states = append(states, state)
		}
	}
	return states, nil
}

func sizeOf(n ops.Counts, states []delayqueue.State) (total int64) {
	for _, state := range states {
		total += map[delayqueue.State]int64{
			delayqueue.StatePending: n.Pending, delayqueue.StateReady: n.Ready, delayqueue.StateUnack: n.Unack,
			delayqueue.StateRetry: n.Retry, delayqueue.StateGarbage: n.Garbage, delayqueue.StateDone: n.Done,
			delayqueue.StateWaiting: n.Waiting,
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

// runBulk shows how bulk work goes on. An interrupt stops it between two steps.
func (a *app) runBulk(ctx context.Context, doing string, total int64, b ops.Bulk,
	work bulkCall) (*ops.BulkResult, error) {
	steps, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	watchdog := time.AfterFunc(stuck, func() { cancel(context.DeadlineExceeded) })
	defer watchdog.Stop()
	defer context.AfterFunc(ctx, func() { watchdog.Reset(time.Second) })()
	if b.DryRun {
		doing = "counting"
	}
	bar := a.progress(doing, total)
	b.Progress = func(r *ops.BulkResult) bool {
		_ = bar.Set64(min(r.Looked, max(total, 1))) // a bar that cannot be drawn stops nothing
		watchdog.Reset(stuck)
		return ctx.Err() == nil
	}
	r, err := work(steps, b)
	finish(bar)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(steps), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer for %s: %w: %w", brief(stuck), context.DeadlineExceeded, err)
	}
	return r, err
}

// A bulkRest is what a command is to be told: --before or --cursor, and --most.
type bulkRest struct {
	before  time.Time
	most    int64
	counted bool // by a dry run
	cursor  string
}

type bulkJSON struct {
	Done   int64 `json:"done"` // with --cursor: with those of the command that was cut off
	Looked int64 `json:"looked"`
	// done, by the state in which the messages were
	ByState map[delayqueue.State]int64 `json:"by_state,omitempty"`
	Passed  map[ops.Reason]int64       `json:"passed_over,omitempty"`
	// the same command with --before or --cursor, and with --most, does what was counted, or the rest
	Before *time.Time    `json:"before,omitempty"`
	Most   int64         `json:"most,omitempty"` // 0: any number
	Cursor string        `json:"cursor,omitempty"`
	Sample []messageJSON `json:"sample,omitempty"`
}

// inSentence says why messages were passed over.
var inSentence = map[ops.Reason]string{
	ops.PassedMoved: "left before its turn came", ops.PassedNew: "came in later, or was handled meanwhile and came back",
	ops.PassedKey:     "another message has its key now",
	ops.PassedExpired: "past its deadline by then; --anew lifts it",
}

// sayBulk says what was done, and how to do the rest, if there is one.
func (a *app) sayBulk(did string, r *ops.BulkResult, rest *bulkRest) error {
	if r.Done == 0 && len(r.Passed) == 0 {
		a.sayNone()
	}
	if a.json {
		out := bulkJSON{Done: r.Done, Looked: r.Looked, Passed: r.Passed, ByState: r.ByState}
		if rest != nil {
			out.Before, out.Most, out.Cursor = instant(rest.before), rest.most, rest.cursor
		}
		for _, msg := range r.Sample {
			out.Sample = append(out.Sample, jsonOf(msg))
		}
		printJSON(out)
		return nil
	}
	say("%s %s%s", did, plural(int(r.Done), "message"), byState(r.ByState))
	if a.command.Flags().Changed("cursor") {
		say("that is with those of the command that was cut off")
	}
	for _, reason := range []ops.Reason{ops.PassedKey, ops.PassedExpired, ops.PassedMoved, ops.PassedNew} {
		if n := r.Passed[reason]; n > 0 {
			say("passed over %s: %s", plural(int(n), "message"), inSentence[reason])
		}
	}
	saySample(r.Sample)
	if rest != nil {
		why := "it was cut off; this does the rest"
		if rest.counted {
			why = "this does it"
		}
		before, most := "", ""
		if rest.cursor == "" {
			before = rest.before.Format(time.RFC3339Nano)
		}
		if rest.most > 0 {
			most = fmt.Sprint(rest.most)
		}
		fmt.Fprintf(os.Stderr, "%s, and leaves alone what came later:\n%s\n", why,
			again(a.command, "dry-run", "", "before", before, "most", most, "cursor", rest.cursor))
	}
	return nil
}

// sayNone says why perhaps nothing matches.
func (a *app) sayNone() {
	for flag, hint := range map[string]string{
		"error-like": "no message has an error like that: take the text from delayqueue errors --json, because a terminal " +
			"may cut it",
		"error":  "--error is the whole text of the last error; --error-contains is a part of it",
		"lane":   "--lane is the whole name of the lane, without a width",
		"header": "--header is the whole value of the header; --header-contains is a part of it",
	} {
		if a.command.Flags().Changed(flag) {
			fmt.Fprintln(os.Stderr, hint)
		}
	}
}

// sampled is how many messages are shown before something is done to all.
const sampled = 10

// saySample shows some of the messages that something is done to.
func saySample(some []*ops.MessageStatus) {
	if len(some) == 0 {
		return
	}
	t := newGrid("id", "key", "state", "headers", "payload", "last error").cuts(4, 5, 6)
	for _, msg := range some {
		t.add(msg.ID, msg.Key, msg.State, cut(headersFlag(msg.Headers).String(), inTable), payloadOf(msg), errorOf(msg))
	}
	t.print()
}

// askAbout asks, and on a terminal it shows the first of the messages before. What follows the answer says which were
// not found.
func (a *app) askAbout(ctx context.Context, m *ops.Queue, names []string, find finder, format string,
	args ...any) error {
	if !a.yes && onTerminal(os.Stdin) {
		ctx, cancel := context.WithTimeout(ctx, oneCall)
		defer cancel()
		var some []*ops.MessageStatus
		for _, name := range names[:min(len(names), sampled)] {
			if id, err := find(ctx, name); err == nil {
				if msg, err := m.Get(ctx, id); err == nil {
					some = append(some, msg)
				}
			}
		}
		saySample(some)
	}
	return a.ask(format, args...)
}
