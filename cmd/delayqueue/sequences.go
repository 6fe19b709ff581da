package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
)

func (a *app) sequencesCommand() *cobra.Command {
	var (
		limit  int
		cursor string
		drop   bool
	)
	c := &cobra.Command{
		Use:   "sequences QUEUE [NAME...]",
		Short: "Show how far sequences have come, or drop them",
		Long: `sequences lists the sequences of a queue (WithSequence, send --sequence) with the last number of each, in no order, until
--limit of them or some more were listed; or shows those that are named. With --drop it forgets these: any number may come
next, also one of which there was a message. It asks first.`,
		Example:           "  delayqueue sequences orders\n  delayqueue sequences orders outbox --drop",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			switch names := args[1:]; {
			case limit < 1:
				return fail(exitUsage, "--limit must be above 0")
			case drop && len(names) == 0:
				return fail(exitUsage, "which ones? Give the names that --drop is to forget")
			case len(names) > 0 && cursor != "":
				return fail(exitUsage, "--cursor is for a list of all, not for those that are named")
			}
			m, err := a.monitor(c.Context(), args[0])
			switch {
			case err != nil:
				return err
			case drop:
				return a.dropSequences(c.Context(), m, args[1:])
			case len(args) > 1:
				return a.showSequences(c.Context(), m, args[1:])
			}
			return a.listSequences(c, m, limit, cursor)
		},
	}
	c.Flags().IntVarP(&limit, "limit", "l", 1000, "go on until so many are listed")
	c.Flags().StringVar(&cursor, "cursor", "", "go on where a list before this one ended")
	c.Flags().BoolVar(&drop, "drop", false, "forget those that are named")
	return c
}

// A sequenceTable shows sequences.
type sequenceTable struct {
	grid *grid // nil: JSON
	n    int
}

func (a *app) sequenceTable() *sequenceTable {
	if a.json {
		return &sequenceTable{}
	}
	return &sequenceTable{grid: newGrid("sequence", "last").numbers(2)}
}

type sequenceJSON struct {
	Name   *string `json:"name,omitempty"`
	Name64 []byte  `json:"name_base64,omitempty"` // of a name that is no text
	Last   int64   `json:"last"`
}

func (t *sequenceTable) add(s delayqueue.Sequence) error {
	t.n++
	if t.grid != nil {
		t.grid.add(s.Name, fmt.Sprint(s.Last)) // as --sequence takes it, without commas
		return nil
	}
	out := sequenceJSON{Last: s.Last}
	if utf8.ValidString(s.Name) {
		out.Name = &s.Name
	} else {
		out.Name64 = []byte(s.Name)
	}
	return printJSON(out)
}

func (t *sequenceTable) print() {
	if t.grid != nil && t.n > 0 {
		t.grid.print()
	}
}

// listSequences prints whole pages, and how to go on if there is more, also if a call failed.
func (a *app) listSequences(c *cobra.Command, m *delayqueue.Monitor, limit int, cursor string) (err error) {
	t := a.sequenceTable()
	for {
		var page *delayqueue.SequencePage
		if page, err = m.Sequences(c.Context(), cursor); err != nil {
			break
		}
		for _, s := range page.Sequences {
			if err := t.add(s); err != nil {
				return err
			}
		}
		if cursor = page.Next; cursor == "" || t.n >= limit {
			break
		}
	}
	t.print()
	switch {
	case cursor != "":
		fmt.Fprintf(os.Stderr, "%s; to go on from there: %s\n", plural(t.n, "sequence"), again(c, "cursor", cursor))
	case err == nil && !a.json:
		fmt.Fprintln(os.Stderr, plural(t.n, "sequence"))
	}
	return err
}

func (a *app) showSequences(ctx context.Context, m *delayqueue.Monitor, names []string) error {
	t := a.sequenceTable()
	var failed []error
	for _, name := range names {
		last, err := m.Sequence(ctx, name)
		if err == nil {
			err = t.add(delayqueue.Sequence{Name: name, Last: last})
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	t.print()
	return errors.Join(failed...)
}

// dropSequences drops each in a call of its own: what fails keeps no other from being dropped.
func (a *app) dropSequences(ctx context.Context, m *delayqueue.Monitor, names []string) error {
	what := "sequence " + strconv.Quote(names[0])
	if len(names) > 1 {
		what = plural(len(names), "sequence")
	}
	if err := a.ask("Forget %s of queue %q, so that any number may come next?", what, m.Name()); err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		if entry, ours := strings.CutPrefix(name, "schedule/"); ours {
			if _, err := schedule.Get(ctx, m, entry); err == nil {
				failed = append(failed, fail(exitRefused, "sequence %q says what the schedule %q has sent: without it that is sent again; "+
					"remove the schedule first (delayqueue schedule rm %s %s)", name, entry, m.Name(), entry))
				continue
			}
		}
		switch err := m.DropSequence(ctx, name); {
		case err != nil:
			failed = append(failed, err)
		case a.json:
			if err := printJSON(map[string]any{"name": name, "dropped": true}); err != nil {
				return err
			}
		default:
			say("%s dropped", name)
		}
	}
	return errors.Join(failed...)
}

// sequenceFlag is a number of a sequence: NAME=N.
type sequenceFlag struct {
	name   string
	number int64
}

func (s *sequenceFlag) String() string {
	if s.name == "" {
		return ""
	}
	return fmt.Sprintf("%s=%d", s.name, s.number)
}
func (*sequenceFlag) Type() string { return "name=n" }
func (s *sequenceFlag) Set(text string) (err error) {
	i := strings.LastIndexByte(text, '=')
	if i < 1 {
		return fmt.Errorf("%q: write the name of the sequence and a number, as in outbox=42", text)
	}
	if s.number, err = strconv.ParseInt(text[i+1:], 10, 64); err != nil {
		return fmt.Errorf("%q is no whole number of at most 64 bits", text[i+1:])
	}
	s.name = text[:i]
	return nil
}

// conflictFlag is what becomes of a message whose key is taken.
type conflictFlag struct{ delayqueue.Conflict }

var conflictNames = []string{"refuse", "keep", "replace", "reschedule", "append"}

func (f *conflictFlag) String() string { return conflictNames[f.Conflict] }
func (*conflictFlag) Type() string     { return "policy" }
func (f *conflictFlag) Set(text string) error {
	for i, name := range conflictNames {
		if name == text {
			f.Conflict = delayqueue.Refuse + delayqueue.Conflict(i)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s%s", text, strings.Join(conflictNames, ", "), didYouMean(nearest(text, conflictNames), ""))
}

var (
	_ pflag.Value = (*sequenceFlag)(nil)
	_ pflag.Value = (*conflictFlag)(nil)
)
