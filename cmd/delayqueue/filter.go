package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

// selection is which messages of a state a command is about.
type selection struct {
	from, to  whenFlag
	olderThan ageFlag
	contains  string
	headers   map[string]string
	errorText string
}

// flags; about is what happened to the messages between --from and --to.
func (s *selection) flags(c *cobra.Command, about string) {
	f := c.Flags()
	f.Var(&s.from, "from", "only those "+about+" then or later")
	f.Var(&s.to, "to", "only those "+about+" then or earlier")
	f.StringVar(&s.contains, "contains", "", "only those with this text in the payload")
	f.StringToStringVar(&s.headers, "header", nil, "only those with this text in a header, name=text")
	f.StringVar(&s.errorText, "error", "", "only those with this text in the last error")
}

func (s *selection) ageFlag(c *cobra.Command) {
	c.Flags().Var(&s.olderThan, "older-than", "only those that died longer ago than this")
	c.MarkFlagsMutuallyExclusive("older-than", "to")
}

// any says whether it leaves something out.
func (s *selection) any() bool {
	return !s.from.IsZero() || !s.to.IsZero() || !s.olderThan.IsZero() || s.contains != "" || len(s.headers) > 0 || s.errorText != ""
}

func (s *selection) filter() delayqueue.Filter {
	to := s.to.Time
	if !s.olderThan.IsZero() {
		to = s.olderThan.Time
	}
	return delayqueue.Filter{From: s.from.Time, To: to, Contains: s.contains, Headers: s.headers, Error: s.errorText, Limit: 500}
}

// check refuses bounds that nothing can lie between.
func (s *selection) check(state delayqueue.State) error {
	if !s.from.IsZero() && !s.to.IsZero() && s.from.After(s.to.Time) {
		return fail(exitUsage, "--from %s is after --to %s", s.from.text, s.to.text)
	}
	if state != delayqueue.StateGarbage || !s.from.After(time.Now().Add(justNow)) {
		return nil
	}
	hint := ""
	if _, err := parseDuration(s.from.text); err == nil {
		hint = ": did you mean --from -" + s.from.text + "?"
	}
	return fail(exitUsage, "--from %s is in the future, and nothing has died then%s", s.from.text, hint)
}

// which is the selection in words.
func (s *selection) which(total int64, noun string) string {
	all := plural(int(total), noun)
	if s.any() {
		return "what matches of " + all
	}
	return "all of " + all
}

// stuck is how long a step of bulk work may take before it is given up on: the library goes on trying
// for as long as its context lives.
const stuck = 30 * time.Second

// bulk does something to all messages that match, and shows how it goes on. An interrupt stops it
// between two steps.
func (a *app) bulk(ctx context.Context, doing, did string, total int64, s *selection, work func(context.Context, delayqueue.Bulk) (*delayqueue.BulkResult, error), states ...delayqueue.State) error {
	steps, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	watchdog := time.AfterFunc(stuck, func() { cancel(context.DeadlineExceeded) })
	defer watchdog.Stop()
	defer context.AfterFunc(ctx, func() { watchdog.Reset(time.Second) })()
	bar := a.progress(doing, total)
	r, err := work(steps, delayqueue.Bulk{States: states, Filter: s.filter(), Progress: func(r *delayqueue.BulkResult) bool {
		_ = bar.Set64(min(r.Looked, max(total, 1))) // a bar that cannot be drawn stops nothing
		watchdog.Reset(stuck)
		return ctx.Err() == nil
	}})
	finish(bar)
	if a.json {
		if err := printJSON(map[string]int64{"done": r.Done}); err != nil {
			return err
		}
	} else {
		say("%s %s", did, plural(int(r.Done), "message"))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
