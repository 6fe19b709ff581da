package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

// selection is which messages of a state a command is about.
type selection struct {
	from, to  whenFlag
	olderThan ageFlag
	key       string
	contains  string
	headers   map[string]string
	errorText string
	errorLike string
}

// flags; about is what happened to the messages between --from and --to.
func (s *selection) flags(c *cobra.Command, about string) {
	f := c.Flags()
	f.Var(&s.from, "from", "only those "+about+" then or later")
	f.Var(&s.to, "to", "only those "+about+" then or earlier")
	f.StringVar(&s.key, "with-key", "", "only those with this key of the sender's, live or dead")
	f.StringVar(&s.contains, "contains", "", "only those with this text in the payload")
	f.StringToStringVar(&s.headers, "header", nil, "only those with this text in a header, name=text")
	f.StringVar(&s.errorText, "error", "", "only those with this text in the last error")
	f.StringVar(&s.errorLike, "error-like", "", "only the group of this error, as errors prints it")
}

func (s *selection) ageFlag(c *cobra.Command) {
	c.Flags().Var(&s.olderThan, "older-than", "only those that died longer ago than this")
	c.MarkFlagsMutuallyExclusive("older-than", "to")
}

// any says whether it leaves something out.
func (s *selection) any() bool {
	return !s.from.IsZero() || !s.to.IsZero() || !s.olderThan.IsZero() || s.key != "" || s.contains != "" || len(s.headers) > 0 ||
		s.errorText != "" || s.errorLike != ""
}

func (s *selection) filter() delayqueue.Filter {
	to := s.to.Time
	if !s.olderThan.IsZero() {
		to = s.olderThan.Time
	}
	return delayqueue.Filter{From: s.from.Time, To: to, Key: s.key, Contains: s.contains, Headers: s.headers,
		Error: s.errorText, ErrorLike: s.errorLike}
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

// which is the selection in words; states are where the messages are.
func (s *selection) which(total int64, states string) string {
	all := plural(int(total), "message") + " that are " + states
	if total == 1 {
		all = "1 message that is " + states
	}
	if s.any() {
		return "what matches of " + all
	}
	return "all of " + all
}
