package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

var stateNames = []string{"pending", "ready", "unack", "retry", "garbage", "done"}

func parseState(name string) (delayqueue.State, error) {
	if name == "processing" { // as GetProcessingCount calls it
		name = "unack"
	}
	i := slices.Index(stateNames, name)
	if i < 0 {
		hint := didYouMean(nearest(name, stateNames), "")
		return 0, fail(exitUsage, "%q is no state%s (%s)", name, hint, strings.Join(stateNames, ", "))
	}
	return delayqueue.StatePending + delayqueue.State(i), nil
}

func (a *app) listCommand() *cobra.Command {
	var (
		which  selection
		limit  int
		cursor string
	)
	c := &cobra.Command{
		Use:   "ls QUEUE STATE",
		Short: "List the messages in a state, in order of their time",
		Long: `ls lists the messages in a state (pending, ready, unack, retry, garbage or done) in order of their time, until --limit
of them match. It looks at up to 100 messages in each call of Redis, and rests between them. Ctrl-C ends it with what it has
found, and how to go on.`,
		Example:           "  delayqueue ls orders garbage --error timeout --from -24h",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeQueue(stateNames...),
		RunE: func(c *cobra.Command, args []string) error {
			state, err := parseState(args[1])
			if err != nil {
				return err
			}
			if limit < 1 {
				return fail(exitUsage, "--limit must be above 0")
			}
			if err := which.check(state); err != nil {
				return err
			}
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.list(c, m, state, &which, limit, cursor)
		},
	}
	which.flags(c, "whose time is")
	c.Flags().IntVarP(&limit, "limit", "l", 20, "show at most so many")
	c.Flags().StringVar(&cursor, "cursor", "", "go on where a list before this one ended")
	return c
}

// listPage is how many messages are looked at in one call.
const listPage = 100

// list prints what matches, and how to go on if there is more, also if it was interrupted or a call failed.
func (a *app) list(c *cobra.Command, m *delayqueue.Monitor, state delayqueue.State, which *selection, limit int, cursor string) error {
	f := which.filter()
	f.Limit = listPage
	t := newGrid("id", "key", map[delayqueue.State]string{
		delayqueue.StatePending: "due", delayqueue.StateReady: "due", delayqueue.StateUnack: "lease end",
		delayqueue.StateRetry: "next delivery", delayqueue.StateGarbage: "died",
		delayqueue.StateDone: "kept until",
	}[state], "delivery", "failures", "payload", "last error").numbers(4, 5).cutLast(7)
	count := 0
	var err error
	for {
		if !which.any() {
			f.Limit = min(listPage, limit-count)
		}
		var page *delayqueue.Page
		begun := time.Now()
		if page, err = m.List(c.Context(), state, f, cursor); err != nil {
			break
		}
		if left := limit - count; len(page.Messages) > left {
			f.Limit = max(page.Looked/2, left) // so that the cursor is that of the last one shown
			continue
		}
		for _, msg := range page.Messages {
			count++
			if a.json {
				if err := printJSON(jsonOf(msg)); err != nil {
					return err
				}
				continue
			}
			when := msg.At
			if state == delayqueue.StateReady {
				when = msg.Due
			}
			t.add(msg.ID, msg.Key, moment{when}, msg.Delivery, msg.Failures, payloadOf(msg, 40), paint(bad, cut(msg.LastError, 40)))
		}
		if cursor = page.Next; cursor == "" || count == limit {
			break
		}
		rest(c.Context(), time.Since(begun)) // others get their share of the server
	}
	if !a.json && count > 0 {
		t.print()
	}
	switch {
	case cursor != "":
		fmt.Fprintf(os.Stderr, "%s; to go on from there: %s\n", plural(count, "message"), again(c, "cursor", cursor))
	case err == nil && !a.json:
		fmt.Fprintln(os.Stderr, plural(count, "message"))
	}
	return err
}

// rest waits, at most until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(min(d, time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func payloadOf(m *delayqueue.MessageStatus, most int) any {
	if m.Broken != nil {
		return paint(bad, cut(m.Broken.Error(), most))
	}
	return cut(m.Payload, most)
}

// cut shortens a text to so many characters.
func cut(s string, most int) string {
	runes := []rune(s[:min(len(s), 4*most)])
	if len(runes) <= most && len(s) <= 4*most {
		return s
	}
	return string(runes[:min(len(runes), most-1)]) + "…"
}
