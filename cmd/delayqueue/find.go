package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

type matchJSON struct {
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
		Use:   "find QUEUE TEXT",
		Short: "Look for a text in all messages of a queue",
		Long: `find looks for an id, a key, or a text in headers, payloads (of groups the first part) and last errors of all messages,
the dead first, until --limit are found. It reads the queue in small pages and rests between them as long as they took. Ctrl-C ends it with what it has
found, and how to go on.`,
		Example:           "  delayqueue find orders order-42",
		Args:              cobra.ExactArgs(2),
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
	t := newGrid("id", "key", "state", "in", "payload", "last error")
	count := 0
	for {
		begun := time.Now()
		how.Limit = limit - count
		found, err := m.Find(c.Context(), text, how, cursor)
		for _, one := range found.Matches[:min(len(found.Matches), limit-count)] {
			count++
			if a.json {
				if err := printJSON(matchJSON{one.In, one.Header, jsonOf(one.MessageStatus)}); err != nil {
					return err
				}
				continue
			}
			in := one.In
			if one.Header != "" {
				in += " " + one.Header
			}
			t.add(one.ID, one.Key, one.State, in, payloadOf(one.MessageStatus, 40), paint(bad, cut(one.LastError, 40)))
		}
		cursor = found.Next
		if err == nil && cursor != "" && count < limit {
			rest(c.Context(), time.Since(begun)/10) // the call has rested between its pages
			continue
		}
		if !a.json && count > 0 {
			t.print()
		}
		if !a.json || cursor != "" {
			fmt.Fprintf(os.Stderr, "%s; looked at %d of %d\n", plural(count, "message"), found.Looked, found.Total)
		}
		if cursor != "" {
			fmt.Fprintf(os.Stderr, "to go on from there: %s\n", again(c, "cursor", cursor))
		}
		return err
	}
}

type errorGroupJSON struct {
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
	)
	c := &cobra.Command{
		Use:   "errors QUEUE [garbage | retry]",
		Short: "Group what is dead, or waits for a retry, by its error",
		Long: `errors counts what is in garbage, or waits for a retry, by the last error, in which numbers and ids are # and what
stands in quotes is left out: how many, since when, and the last one of them. --error-like takes what stands under ERROR and selects just that
group, here and in requeue, purge, cancel, run and reschedule. Ctrl-C ends it with what it has counted.`,
		Example:           "  delayqueue errors orders\n  delayqueue requeue orders --all --error-like 'dial tcp #: refused'",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeQueue("garbage", "retry"),
		RunE: func(c *cobra.Command, args []string) error {
			state := delayqueue.StateGarbage
			if len(args) > 1 {
				var err error
				if state, err = parseState(args[1]); err != nil {
					return err
				}
			}
			if err := which.check(state); err != nil {
				return err
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
			if perr := a.printErrors(all, limit); perr != nil {
				return perr
			}
			return err
		},
	}
	which.flags(c, "whose time is")
	c.Flags().IntVarP(&limit, "limit", "l", 20, "show at most so many groups; --json shows all")
	return c
}

func (a *app) printErrors(all *delayqueue.ErrorGroups, limit int) error {
	t := newGrid("count", "first", "last", "error", "last one").numbers(1)
	for i, g := range all.Groups {
		if a.json {
			if err := printJSON(errorGroupJSON{g.Pattern, g.Count, utc(g.First), utc(g.Last), g.ID, g.Error}); err != nil {
				return err
			}
		} else if i < limit {
			t.add(g.Count, at(g.First), at(g.Last), paint(bad, g.Pattern), g.ID)
		}
	}
	if a.json {
		return nil
	}
	if len(all.Groups) > 0 {
		t.print()
	}
	hidden := all.Others
	for _, g := range all.Groups[min(len(all.Groups), limit):] {
		hidden += g.Count
	}
	if hidden > 0 {
		say("… and %s in other groups", plural(int(hidden), "message"))
	}
	fmt.Fprintf(os.Stderr, "looked at %d of %d\n", all.Looked, all.Total)
	return nil
}
