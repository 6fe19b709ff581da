package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
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
		part   pager
	)
	c := &cobra.Command{
		Use:   "find [QUEUE] TEXT",
		Short: "Look for a text in all messages",
		Long: `find looks for an id, or for a text in keys, headers, payloads (of a group: the first part) and last errors. It looks at all
messages, garbage first, until --limit are found. It reads the queue in small pages and rests after each as long as the page
took. Ctrl-C ends it: it prints what it has found, and how to go on.

Without QUEUE it looks in all queues of the prefix, at 10,000 messages of each, and says which queues have more.`,
		Example: "  delayqueue find orders order-42\n  delayqueue find order-42",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := part.check(); err != nil {
				return err
			}
			how := ops.Find{}
			for _, name := range states {
				state, err := parseState(name)
				if err != nil {
					return err
				}
				how.States = append(how.States, state)
			}
			if len(args) == 1 {
				if part.cursor != "" {
					return fail(exitUsage, "--cursor goes on in one queue: name it")
				}
				return a.findEverywhere(c, args[0], how, part.limit)
			}
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.find(c, m, args[1], how, part.limit, part.cursor)
		},
	}
	c.Flags().StringSliceVar(&states, "state", nil, "only in these states (pending, ready, unack, retry, garbage, done)")
	part.flags(c, 20, "messages to show at most", "search")
	return c
}

// find prints what is found. If there is more, if it is interrupted, or if a call fails, it also prints how to go on.
func (a *app) find(c *cobra.Command, m *ops.Queue, text string, how ops.Find, limit int, cursor string) error {
	t := a.grid(matchColumns[1:]...).cutLast(len(matchColumns) - 1)
	found, err := a.findIn(c.Context(), m, text, how, limit, cursor, 0)
	addMatches(t, m.Name(), found, 1)
	t.print()
	if !a.json || found.Next != "" {
		fmt.Fprintf(os.Stderr, "%s; looked at %d of %d\n", plural(len(found.Matches), "message"), found.Looked, found.Total)
	}
	if found.Next != "" {
		fmt.Fprintf(os.Stderr, "to go on from there: %s\n", again(c, "cursor", found.Next))
	}
	return err
}

// findIn goes on until it has found limit messages or, if most is not 0, has looked at most messages.
func (a *app) findIn(ctx context.Context, m *ops.Queue, text string, how ops.Find, limit int, cursor string, most int64,
) (*ops.Found, error) {
	all := &ops.Found{}
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
		rest(ctx, time.Since(begun)/10) // the call itself rests between its pages
	}
}

// matchColumns are the columns of found messages; the first is for searches in many queues.
var matchColumns = []any{"queue", "id", "key", "state", "in", "payload", "last error"}

// addMatches adds what was found to a table, from this one of matchColumns on.
func addMatches(t *grid, queue string, found *ops.Found, from int) {
	for _, one := range found.Matches {
		in := strings.TrimSpace(one.In + " " + one.Header)
		cells := []any{queue, one.ID, one.Key, one.State, in, payloadOf(one.MessageStatus), errorOf(one.MessageStatus)}
		t.row(matchJSON{queue, one.In, one.Header, jsonOf(one.MessageStatus)}, cells[from:]...)
	}
}

// manyQueues is how many messages of each queue a command about all queues looks at.
const manyQueues = 10_000

// findEverywhere looks in each queue of the prefix. A queue that cannot be read hides no other.
func (a *app) findEverywhere(c *cobra.Command, text string, how ops.Find, limit int) error {
	t := a.grid(matchColumns...).cutLast(len(matchColumns))
	count := 0
	err := a.eachQueue(c, func(ctx context.Context, m *ops.Queue) (looked, total int64, more string, err error) {
		if count >= limit {
			return 0, 0, "", nil
		}
		found, err := a.findIn(ctx, m, text, how, limit-count, "", manyQueues)
		count += len(found.Matches)
		if found.Next != "" {
			more = "find " + shellQuote(m.Name()) + " " + shellQuote(text) + " --cursor " + shellQuote(found.Next)
		}
		addMatches(t, m.Name(), found, 0)
		return found.Looked, found.Total, more, err
	}, t.print)
	if count >= limit {
		fmt.Fprintf(os.Stderr, "these are the first %d; --limit shows more\n", limit)
	}
	return err
}

// eachQueue looks in all queues, shows what was found, and says how far it looked, which queues have more, and which could not be
// read. It returns the first error.
func (a *app) eachQueue(c *cobra.Command,
	look func(context.Context, *ops.Queue) (looked, total int64, more string, err error), show func(),
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
				wrong = &failure{code: code} // the text was printed
			}
		}
	}
	show()
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
		Use:   "errors [QUEUE]",
		Short: "Group garbage, or messages that wait for a retry, by error",
		Long: `errors counts the messages in garbage, or in retry, by their last error. In the error, numbers and ids are #, and text in
quotes is left out. Each group shows how many, since when, and the last message. --error-like takes a text of the column ERROR
and selects that group, here and in requeue, purge, cancel, run and reschedule. Ctrl-C ends it with what it has counted.

Without QUEUE it looks in all queues of the prefix, at 10,000 messages of each, and says which queues have more.`,
		Example: "  delayqueue errors orders\n  delayqueue requeue orders --all --error-like 'dial tcp #: refused'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
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
				var more *ops.ErrorGroups
				more, err = m.ErrorGroups(c.Context(), state, which.filter(), 0, all.Next)
				all.Merge(more)
			}
			a.printErrors(groupsOf(m, all), all.Others, limit, false)
			if !a.json {
				fmt.Fprintf(os.Stderr, "looked at %d of %d\n", all.Looked, all.Total)
			}
			return err
		},
	}
	which.flags(c, "whose time is")
	c.Flags().IntVarP(&limit, "limit", "l", 20, "groups to show at most; --json shows all")
	c.Flags().StringVar(&where, "state", "garbage", "garbage or retry")
	return c
}

// A queueGroup is a group of errors of a queue.
type queueGroup struct {
	queue string
	ops.ErrorGroup
}

// errorsEverywhere prints the largest groups of all queues.
func (a *app) errorsEverywhere(c *cobra.Command, state delayqueue.State, which ops.Filter, limit int) error {
	var groups []queueGroup
	others := int64(0)
	return a.eachQueue(c, func(ctx context.Context, m *ops.Queue) (looked, total int64, more string, err error) {
		all, err := m.ErrorGroups(ctx, state, which, manyQueues, "")
		if all == nil {
			return 0, 0, "", err
		}
		groups = append(groups, groupsOf(m, all)...)
		others += all.Others
		if all.Next != "" {
			more = "errors " + shellQuote(m.Name()) + " --state " + state.String()
		}
		return all.Looked, all.Total, more, err
	}, func() {
		slices.SortStableFunc(groups, func(a, b queueGroup) int { return cmp.Compare(b.Count, a.Count) })
		a.printErrors(groups, others, limit, true)
	})
}

func groupsOf(m *ops.Queue, all *ops.ErrorGroups) (groups []queueGroup) {
	for _, g := range all.Groups {
		groups = append(groups, queueGroup{m.Name(), g})
	}
	return groups
}

// printErrors prints groups, the largest first. others counts the messages that are in no group.
func (a *app) printErrors(all []queueGroup, others int64, limit int, queues bool) {
	header := []any{"count", "first", "last", "error", "last one", "queue"}
	if !queues {
		header = header[:5]
	}
	t := a.grid(header...).numbers(1).cutLast(4)
	for i, g := range all {
		if i >= limit && !a.json {
			others += g.Count
			continue
		}
		t.row(errorGroupJSON{g.queue, g.Pattern, g.Count, utc(g.First), utc(g.Last), g.ID, g.Error},
			[]any{g.Count, moment{g.First}, moment{g.Last}, paint(bad, g.Pattern), g.ID, g.queue}[:len(header)]...)
	}
	t.print()
	if others > 0 && !a.json {
		say("… and %s in other groups", plural(int(others), "message"))
	}
}
