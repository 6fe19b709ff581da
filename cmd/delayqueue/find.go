package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

type matchJSON struct {
	In     string `json:"in"`
	Header string `json:"header,omitempty"`
	messageJSON
}

func (a *app) findCommand() *cobra.Command {
	var (
		states []string
		which  selection
		part   pager
	)
	c := &cobra.Command{
		Use:   "find QUEUE [TEXT]",
		Short: "Look for a text, a header or a key in all messages of a queue",
		Long: `find looks for an id, for the key for which acks count, or for a text in keys,
headers (as name=value, too), payloads (of a group: the first part) and last
errors. A message with exactly this id or key is shown at once: a whole key is
faster than a part of it. --header, --with-key and the like leave out what does
not match as a whole, with a TEXT or without. Then it looks at the messages of
all states (garbage, retry, unack, ready, waiting, pending, done, in this order)
until --limit are found. It reads the queue in small pages and rests after each
as long as the page took. Ctrl-C ends it: it prints what it has found, and how
to go on. --dry-run of a command such as reschedule counts all that match.`,
		Example: "  delayqueue find orders order-42\n  delayqueue find orders --header customer=77",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(part.check(), which.check(delayqueue.StateGone)); err != nil {
				return err
			}
			text := strings.Join(args[1:], "")
			how := ops.Find{Filter: which.filter()}
			for _, name := range states {
				state, err := parseState(name)
				if err != nil {
					return err
				}
				how.States = append(how.States, state)
			}
			m, err := a.monitor(c.Context(), args[0]) // first, because it may be the queue that was left out
			if err != nil {
				return err
			}
			if text == "" && !which.any() {
				return fail(exitUsage, "find what in queue %q? Give a text, or --header, --with-key and the like", m.Name())
			}
			return a.find(c, m, text, how, &part)
		},
	}
	which.flags(c, "whose time is")
	c.Flags().StringSliceVar(&states, "state", nil, "only in these states ("+strings.Join(stateNames, ", ")+")")
	part.flags(c, 20, "messages to show at most", "search")
	a.csvFlag(c)
	return c
}

// find prints what is found. If there is more, if it is interrupted, or if a call fails, it also prints how to go on.
func (a *app) find(c *cobra.Command, m *ops.Queue, text string, how ops.Find, part *pager) error {
	table := func() *grid {
		return a.grid("id", "key", "state", "in", "payload", "last error").cuts(5, 6).ofKind(matchJSON{})
	}
	t, count, cursor, in := table(), 0, part.cursor, map[delayqueue.State]int64{}
	for {
		begun := time.Now()
		how.Limit = part.limit - count
		found, err := m.Find(c.Context(), text, how, cursor)
		for _, one := range found.Matches[:min(len(found.Matches), how.Limit)] {
			place := strings.TrimSpace(one.In + " " + one.Header)
			t.row(matchJSON{one.In, one.Header, jsonOf(one.MessageStatus)},
				one.ID, one.Key, one.State, place, payloadOf(one.MessageStatus), errorOf(one.MessageStatus))
			count++
			in[one.State]++
		}
		if cursor = found.Next; inPart(err) && cursor != "" && count < part.limit {
			if len(found.Matches) > 0 && found.Looked == 0 && !a.json { // by its id or key: nobody waits for the others
				t.print()
				t = table()
			}
			rest(c.Context(), time.Since(begun)/10) // the call itself rests between its pages
			continue
		}
		t.print()
		a.sayMore(c, plural(count, "message")+byState(in)+"; "+lookedAt(found.Looked, found.Total, cursor, err), cursor, err)
		return err
	}
}

// lookedAt is how much a search has looked at. At its end total says nothing, because messages came and left meanwhile.
func lookedAt(looked, total int64, next string, err error) string {
	if next == "" && err == nil {
		return "looked at all, " + plural(int(looked), "message")
	}
	return fmt.Sprintf("looked at %s of %s", humanize.Comma(looked), humanize.Comma(total))
}

// byState is how many messages are in each state, in words; "" if all are in one.
func byState(n map[delayqueue.State]int64) string {
	var words []string
	for _, state := range slices.Sorted(maps.Keys(n)) {
		words = append(words, fmt.Sprintf("%s %s", state, humanize.Comma(n[state])))
	}
	if len(words) < 2 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

type errorGroupJSON struct {
	Pattern  string    `json:"pattern"`
	Count    int64     `json:"count"`
	LastHour int64     `json:"last_hour"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	ID       string    `json:"id"`
	Error    string    `json:"error"`
}

func (a *app) errorsCommand() *cobra.Command {
	var (
		which selection
		limit int
		where string
	)
	c := &cobra.Command{
		Use:   "errors QUEUE",
		Short: "Group garbage, or messages that wait for a retry, by error",
		Long: `errors counts the messages in garbage, or in retry, by their last error. In the
error, numbers and ids are #, but for status codes (smtp 550), and text in
quotes is left out. Each group shows how many, how many of them in the last
hour, since when, and the last message with its error, as an example. On a
terminal each of the largest groups has one line, without the example; --limit
shows all of it. The standard error says what is not shown. --error-like takes a
text of the column ERROR and selects that group, here and in requeue, delete,
cancel, run and reschedule. Ctrl-C ends it with what it has counted.`,
		Example: "  delayqueue errors orders\n  delayqueue requeue orders --all --error-like 'dial tcp #: refused'",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			state, err := parseState(where)
			if err != nil {
				return err
			}
			if err := which.check(state); err != nil {
				return err
			}
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := m.ErrorGroups(c.Context(), state, which.filter(), 0, "")
			for inPart(err) && all.Next != "" {
				var more *ops.ErrorGroups
				more, err = m.ErrorGroups(c.Context(), state, which.filter(), 0, all.Next)
				all.Merge(more)
			}
			a.printErrors(all, limit, width() > 0 && !c.Flags().Changed("limit"))
			if !a.json {
				fmt.Fprintln(os.Stderr, lookedAt(all.Looked, all.Total, all.Next, err))
			}
			return err
		},
	}
	which.flags(c, "whose time is")
	c.Flags().IntVarP(&limit, "limit", "l", 10, "groups to show at most; --json and --csv show up to 1,000")
	c.Flags().StringVar(&where, "state", "garbage", "garbage or retry")
	a.csvFlag(c)
	return c
}

// printErrors prints groups, the largest first; brief: a line for each.
func (a *app) printErrors(all *ops.ErrorGroups, limit int, brief bool) {
	shown := all.Groups
	if !a.json && !a.csv {
		shown = shown[:min(len(shown), max(limit, 0))]
	}
	t := a.grid("count", "last hour", "first", "last", "error", "last one", "its error").numbers(1, 2).sentences(5).
		cuts(7).ofKind(errorGroupJSON{})
	if brief {
		t.header, t.long, t.cut = t.header[:5], nil, []int{5}
	}
	for _, g := range shown {
		example := g.Error
		if example == g.Pattern {
			example = ""
		}
		cells := []any{g.Count, g.LastHour, moment{g.First}, moment{g.Last}, paint(bad, g.Pattern), g.ID,
			cut(example, 2*inTable)}
		t.row(errorGroupJSON{g.Pattern, g.Count, g.LastHour, utc(g.First), utc(g.Last), g.ID, g.Error},
			cells[:len(t.header)]...)
	}
	t.print()
	others := all.Others // messages of groups that are not printed
	for _, g := range all.Groups[len(shown):] {
		others += g.Count
	}
	if others > 0 {
		groups := plural(len(all.Groups)-len(shown), "further group")
		if all.Others > 0 {
			groups = "further groups"
		}
		fmt.Fprintf(os.Stderr, "%s of %s: --limit %d\n", groups, plural(int(others), "message"), len(all.Groups))
	}
}
