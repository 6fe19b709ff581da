package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

type matchJSON struct {
	Queue  string `json:"queue"`
	In     string `json:"in"`
	Header string `json:"header,omitempty"`
	messageJSON
}

func (a *app) findCommand() *cobra.Command {
	var (
		states []string
		limit  int
		cursor string
	)
	c := &cobra.Command{
		Use:   "find [QUEUE] TEXT",
		Short: "Look for a text in all messages",
		Long: `find looks for an id, or a text in keys, headers, payloads (of groups the first part) and last errors of all messages,
the dead first, until --limit are found. It reads the queue in small pages and rests between them as long as they took.
Ctrl-C ends it with what it has found, and how to go on.

Without QUEUE it looks in all queues of the prefix, at 10,000 messages of each, and says where there are more.`,
		Example:           "  delayqueue find orders order-42\n  delayqueue find order-42",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 1 {
				return fail(exitUsage, "--limit must be above 0")
			}
			how := delayqueue.Find{}
			for _, name := range states {
				state, err := parseState(name)
				if err != nil {
					return err
				}
				how.States = append(how.States, state)
			}
			if len(args) == 1 {
				if cursor != "" {
					return fail(exitUsage, "--cursor goes on in one queue: which?")
				}
				return a.findEverywhere(c, args[0], how, limit)
			}
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.find(c, m, args[1], how, limit, cursor)
		},
	}
	c.Flags().StringSliceVar(&states, "state", nil, "only in these states (pending, ready, unack, retry, garbage, done)")
	c.Flags().IntVarP(&limit, "limit", "l", 20, "show at most so many")
	c.Flags().StringVar(&cursor, "cursor", "", "go on where a search before this one ended")
	return c
}

// find prints what is found, and how to go on if there is more, also if it was interrupted or a call failed.
func (a *app) find(c *cobra.Command, m *delayqueue.Monitor, text string, how delayqueue.Find, limit int, cursor string) error {
	t := newGrid(matchColumns[1:]...).cutLast(len(matchColumns) - 1)
	found, err := a.findIn(c.Context(), m, text, how, limit, cursor, 0)
	if err := a.addMatches(t, "", m.Name(), found); err != nil {
		return err
	}
	if !a.json && len(found.Matches) > 0 {
		t.print()
	}
	if !a.json || found.Next != "" {
		fmt.Fprintf(os.Stderr, "%s; looked at %d of %d\n", plural(len(found.Matches), "message"), found.Looked, found.Total)
	}
	if found.Next != "" {
		fmt.Fprintf(os.Stderr, "to go on from there: %s\n", again(c, "cursor", found.Next))
	}
	return err
}

// findIn goes on until so many are found, and, if most is not 0, until it has looked at so many.
func (a *app) findIn(ctx context.Context, m *delayqueue.Monitor, text string, how delayqueue.Find, limit int, cursor string, most int64,
) (*delayqueue.Found, error) {
	all := &delayqueue.Found{}
	for {
		begun := time.Now()
		how.Limit = limit - len(all.Matches)
		found, err := m.Find(ctx, text, how, cursor)
		found.Matches = append(all.Matches, found.Matches...)
		found.Matches = found.Matches[:min(len(found.Matches), limit)]
		all, cursor = found, found.Next
		if err != nil || cursor == "" || len(all.Matches) >= limit || most > 0 && all.Looked >= most {
			return all, err
		}
		rest(ctx, time.Since(begun)/10) // the call has rested between its pages
	}
}

// matchColumns are those of a table of what was found; the first one is for many queues.
var matchColumns = []any{"queue", "id", "key", "state", "in", "payload", "last error"}

// addMatches adds what was found to a table, or prints it as JSON.
func (a *app) addMatches(t *grid, shownAs, queue string, found *delayqueue.Found) error {
	for _, one := range found.Matches {
		if a.json {
			if err := printJSON(matchJSON{queue, one.In, one.Header, jsonOf(one.MessageStatus)}); err != nil {
				return err
			}
			continue
		}
		in := one.In
		if one.Header != "" {
			in += " " + one.Header
		}
		cells := []any{one.ID, one.Key, one.State, in, payloadOf(one.MessageStatus, 40), paint(bad, cut(one.LastError, 40))}
		if shownAs != "" {
			cells = append([]any{shownAs}, cells...)
		}
		t.add(cells...)
	}
	return nil
}

// manyQueues is how many messages of each queue are looked at where all queues are.
const manyQueues = 10_000

// findEverywhere looks in each queue of the prefix. One that cannot be read hides no other.
func (a *app) findEverywhere(c *cobra.Command, text string, how delayqueue.Find, limit int) error {
	t := newGrid(matchColumns...).cutLast(len(matchColumns))
	count := 0
	err := a.eachQueue(c, func(ctx context.Context, m *delayqueue.Monitor) (looked, total int64, more string, err error) {
		if count >= limit {
			return 0, 0, "", nil
		}
		found, err := a.findIn(ctx, m, text, how, limit-count, "", manyQueues)
		count += len(found.Matches)
		if found.Next != "" {
			more = "find " + shellQuote(m.Name()) + " " + shellQuote(text) + " --cursor " + shellQuote(found.Next)
		}
		if err := a.addMatches(t, m.Name(), m.Name(), found); err != nil {
			return 0, 0, "", err
		}
		return found.Looked, found.Total, more, err
	}, func() error {
		if !a.json && count > 0 {
			t.print()
		}
		return nil
	})
	if count >= limit {
		fmt.Fprintf(os.Stderr, "these are the first %d; --limit shows more\n", limit)
	}
	return err
}

// eachQueue looks in all queues, shows what was found, and says how far it looked: in which there is more, and which could not be
// read. The first error is its own.
func (a *app) eachQueue(c *cobra.Command,
	look func(context.Context, *delayqueue.Monitor) (looked, total int64, more string, err error), show func() error,
) error {
	monitors, wrong, err := a.monitors(c.Context(), nil)
	if err != nil {
		return err
	}
	var looked, total int64
	var rests []string
	for _, m := range monitors {
		if c.Context().Err() != nil {
			break
		}
		one, all, more, err := look(c.Context(), m)
		looked, total = looked+one, total+all
		if more != "" {
			rests = append(rests, a.connected(more))
		}
		if err != nil && c.Context().Err() == nil {
			_, text := a.explain(err)
			fmt.Fprintln(os.Stderr, "delayqueue: "+printable(text))
			if wrong == nil {
				code, _ := a.explain(err)
				wrong = &failure{code: code} // it was said
			}
		}
	}
	if err := show(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "looked at %d of %d in %s\n", looked, total, plural(len(monitors), "queue"))
	if len(rests) > 0 {
		fmt.Fprintf(os.Stderr, "there is more in %s; to go on there:\n%s\n", plural(len(rests), "queue"), strings.Join(rests, "\n"))
	}
	return cmp.Or(c.Context().Err(), wrong)
}

// connected is a command line that reaches the same queues.
func (a *app) connected(command string) string {
	words := []string{"delayqueue " + command}
	a.command.Flags().Visit(connectionFlags(&words))
	return strings.Join(words, " ")
}

type errorGroupJSON struct {
	Queue   string    `json:"queue"`
	Pattern string    `json:"pattern"`
	Count   int64     `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	ID      string    `json:"id"`
	Error   string    `json:"error"`
}

func (a *app) errorsCommand() *cobra.Command {
	var (
		which selection
		limit int
		where string
	)
	c := &cobra.Command{
		Use:   "errors [QUEUE [garbage | retry]]",
		Short: "Group what is dead, or waits for a retry, by its error",
		Long: `errors counts what is in garbage, or waits for a retry, by the last error, in which numbers and ids are # and what
stands in quotes is left out: how many, since when, and the last one of them. --error-like takes what stands under ERROR and selects just that
group, here and in requeue, purge, cancel, run and reschedule. Ctrl-C ends it with what it has counted.

Without QUEUE it looks in all queues of the prefix, at 10,000 messages of each, and says where there are more.`,
		Example:           "  delayqueue errors orders\n  delayqueue requeue orders --all --error-like 'dial tcp #: refused'",
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: a.completeQueue("garbage", "retry"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				where = args[1]
			}
			state, err := parseState(where)
			if err != nil {
				return err
			}
			if err := which.check(state); err != nil {
				return err
			}
			if len(args) == 0 {
				return a.errorsEverywhere(c, state, which.filter(), limit)
			}
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := m.ErrorGroups(c.Context(), state, which.filter(), 0, "")
			for err == nil && all.Next != "" {
				var more *delayqueue.ErrorGroups
				more, err = m.ErrorGroups(c.Context(), state, which.filter(), 0, all.Next)
				all.Merge(more)
			}
			groups := []queueGroup{}
			for _, g := range all.Groups {
				groups = append(groups, queueGroup{m.Name(), g})
			}
			if err := a.printErrors(groups, all.Others, limit, false); err != nil {
				return err
			}
			if !a.json {
				fmt.Fprintf(os.Stderr, "looked at %d of %d\n", all.Looked, all.Total)
			}
			return err
		},
	}
	which.flags(c, "whose time is")
	c.Flags().IntVarP(&limit, "limit", "l", 20, "show at most so many groups; --json shows all")
	c.Flags().StringVar(&where, "state", "garbage", "or retry")
	return c
}

// A queueGroup is a group of errors of a queue.
type queueGroup struct {
	queue string
	delayqueue.ErrorGroup
}

// errorsEverywhere has the largest groups of all queues.
func (a *app) errorsEverywhere(c *cobra.Command, state delayqueue.State, which delayqueue.Filter, limit int) error {
	var groups []queueGroup
	others := int64(0)
	return a.eachQueue(c, func(ctx context.Context, m *delayqueue.Monitor) (looked, total int64, more string, err error) {
		all, err := m.ErrorGroups(ctx, state, which, manyQueues, "")
		if all == nil {
			return 0, 0, "", err
		}
		for _, g := range all.Groups {
			groups = append(groups, queueGroup{m.Name(), g})
		}
		others += all.Others
		if all.Next != "" {
			more = "errors " + shellQuote(m.Name()) + " " + state.String()
		}
		return all.Looked, all.Total, more, err
	}, func() error {
		slices.SortStableFunc(groups, func(a, b queueGroup) int { return cmp.Compare(b.Count, a.Count) })
		return a.printErrors(groups, others, limit, true)
	})
}

// printErrors prints groups, the largest first; others are in none of them.
func (a *app) printErrors(all []queueGroup, others int64, limit int, queues bool) error {
	header := []any{"count", "first", "last", "error", "last one", "queue"}
	if !queues {
		header = header[:5]
	}
	t := newGrid(header...).numbers(1).cutLast(4)
	for i, g := range all {
		if a.json {
			if err := printJSON(errorGroupJSON{g.queue, g.Pattern, g.Count, utc(g.First), utc(g.Last), g.ID, g.Error}); err != nil {
				return err
			}
		} else if i < limit {
			t.add([]any{g.Count, moment{g.First}, moment{g.Last}, paint(bad, g.Pattern), g.ID, g.queue}[:len(header)]...)
		}
	}
	if a.json {
		return nil
	}
	if len(all) > 0 {
		t.print()
	}
	for _, g := range all[min(len(all), limit):] {
		others += g.Count
	}
	if others > 0 {
		say("… and %s in other groups", plural(int(others), "message"))
	}
	return nil
}
