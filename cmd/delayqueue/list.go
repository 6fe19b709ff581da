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
	"github.com/go-delayqueue/delayqueue/internal/export"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

var stateNames = []string{"pending", "ready", "unack", "retry", "garbage", "done", "waiting"}

func parseState(name string) (delayqueue.State, error) {
	i := slices.Index(stateNames, name)
	if i < 0 {
		hint := didYouMean(name, stateNames)
		return 0, fail(exitUsage, "%q is no state%s (%s)", name, hint, strings.Join(stateNames, ", "))
	}
	return delayqueue.StatePending + delayqueue.State(i), nil
}

func (a *app) listCommand() *cobra.Command {
	var (
		which selection
		part  pager
	)
	c := &cobra.Command{
		Use:   "ls QUEUE STATE",
		Short: "List the messages in a state, in order of their time",
		Long: `ls lists the messages in a state (pending, ready, waiting, unack, retry, garbage
or done) in order of their time (unack: in an order that renewals of leases do
not change), until --limit messages match. It looks at up to 100 messages in
each call of Redis, and rests between calls. Ctrl-C ends it: it prints what it
has found, and how to go on.`,
		Example: "  delayqueue ls orders garbage --error-contains timeout --from -24h",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			state, err := parseState(args[1])
			if err != nil {
				return err
			}
			if err := cmp.Or(part.check(), which.check(state)); err != nil {
				return err
			}
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.list(c, m, state, &which, &part)
		},
	}
	which.flags(c, "whose time is")
	part.flags(c, 20, "messages to show at most", "list")
	a.csvFlag(c)
	return c
}

// A pager says how much is listed, and where the list goes on.
type pager struct {
	limit  int
	cursor string
}

func (p *pager) flags(c *cobra.Command, limit int, means, earlier string) {
	c.Flags().IntVarP(&p.limit, "limit", "l", limit, means)
	c.Flags().StringVar(&p.cursor, "cursor", "", "go on where an earlier "+earlier+" ended")
}

func (p *pager) check() error {
	if p.limit < 1 {
		return fail(exitUsage, "--limit must be above 0")
	}
	return nil
}

// csvFlag adds --csv.
func (a *app) csvFlag(c *cobra.Command) {
	c.Flags().BoolVar(&a.csv, "csv", false, "print CSV: the fields of --json, one row each; no cell becomes a formula")
}

// listPage is how many messages one call looks at.
const listPage = 100

// list prints the messages that match. If there are more, if it is interrupted, or if a call fails, it also prints
// how to go on.
func (a *app) list(c *cobra.Command, m *ops.Queue, state delayqueue.State, which *selection, part *pager) error {
	f, limit, cursor := which.filter(), part.limit, part.cursor
	f.Limit = listPage
	t := a.grid("id", "key", map[delayqueue.State]string{
		delayqueue.StatePending: "due", delayqueue.StateReady: "due", delayqueue.StateUnack: "lease end",
		delayqueue.StateRetry: "next delivery", delayqueue.StateGarbage: "died",
		delayqueue.StateDone: "kept until", delayqueue.StateWaiting: "due",
	}[state], "delivery", "failures", "payload", "last error").numbers(4, 5).cuts(6, 7).ofKind(export.Message{})
	count := 0
	var err error
	for {
		if !which.any() {
			f.Limit = min(listPage, limit-count)
		}
		var page *ops.Page
		begun := time.Now()
		if page, err = m.List(c.Context(), state, f, cursor); !inPart(err) {
			break
		}
		if left := limit - count; len(page.Messages) > left {
			f.Limit = max(page.Looked/2, left) // so that the cursor is that of the last message shown
			continue
		}
		for _, msg := range page.Messages {
			count++
			when := msg.At
			if state == delayqueue.StateReady {
				when = msg.Due
			}
			t.row(jsonOf(msg), msg.ID, msg.Key, moment{when}, msg.Delivery, msg.Failures, payloadOf(msg), errorOf(msg))
		}
		if cursor = page.Next; cursor == "" || count == limit {
			break
		}
		rest(c.Context(), time.Since(begun)) // others get their share of the server
	}
	t.print()
	if count == 0 && cursor == "" && err == nil {
		a.sayNone()
	}
	a.sayMore(c, plural(count, "message"), cursor, err)
	return err
}

// sayMore says how much was listed and, if there is more, how to go on.
func (a *app) sayMore(c *cobra.Command, listed, cursor string, err error) {
	switch {
	case cursor != "" && !errors.Is(err, ops.ErrBadCursor):
		fmt.Fprintf(os.Stderr, "%s; to go on from there: %s\n", listed, again(c, "cursor", cursor))
	case err == nil && !a.json:
		fmt.Fprintln(os.Stderr, listed)
	}
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

// inTable is how many characters of a payload or an error a table has room for.
const inTable = 40

func payloadOf(m *ops.MessageStatus) any {
	if m.Broken != nil {
		return paint(bad, cut(m.Broken.Error(), inTable))
	}
	return cut(m.Payload, inTable)
}

func errorOf(m *ops.MessageStatus) painted { return paint(bad, cut(m.LastError, inTable)) }

// cut shortens a text to so many characters.
func cut(s string, most int) string {
	runes := []rune(s[:min(len(s), 4*most)])
	if len(runes) <= most && len(s) <= 4*most {
		return s
	}
	return string(runes[:min(len(runes), most-1)]) + "…"
}
