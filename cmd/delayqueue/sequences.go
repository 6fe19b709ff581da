package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/spf13/cobra"
)

func (a *app) sequencesCommand() *cobra.Command {
	var drop bool
	c := &cobra.Command{
		Use:   "sequences QUEUE [NAME...]",
		Short: "Show how far sequences have come, or drop them",
		Long: `sequences lists the sequences of a queue (WithSequence, send --sequence) with
the last number of each, in no order, page by page. With names it shows only
these. --drop forgets the named sequences, after it has asked: any number may
come next, also one that was sent before.`,
		Example: "  delayqueue sequences orders\n  delayqueue sequences orders outbox --drop",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if drop && len(args) == 1 {
				return fail(exitUsage, "--drop needs the names of the sequences")
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
			return a.listSequences(c.Context(), m)
		},
	}
	c.Flags().BoolVar(&drop, "drop", false, "forget the named sequences")
	return c
}

func (a *app) sequenceTable() *grid { return a.grid("sequence", "last").numbers(2) }

type sequenceJSON struct {
	Name   *string `json:"name,omitempty"`
	Name64 []byte  `json:"name_base64,omitempty"` // of a name that is no text
	Last   int64   `json:"last"`
}

func (g *grid) sequence(s ops.Sequence) {
	out := sequenceJSON{Last: s.Last}
	if utf8.ValidString(s.Name) {
		out.Name = &s.Name
	} else {
		out.Name64 = []byte(s.Name)
	}
	g.row(out, s.Name, fmt.Sprint(s.Last)) // as --sequence takes it, without commas
}

// listSequences prints all pages, or what came before a call failed.
func (a *app) listSequences(ctx context.Context, m *ops.Queue) error {
	t, n := a.sequenceTable(), 0
	page, err := m.Sequences(ctx, "")
	for ; err == nil; page, err = m.Sequences(ctx, page.Next) {
		for _, s := range page.Sequences {
			t.sequence(s)
		}
		if n += len(page.Sequences); page.Next == "" {
			break
		}
	}
	t.print()
	if err == nil && !a.json {
		fmt.Fprintln(os.Stderr, plural(n, "sequence"))
	}
	return err
}

func (a *app) showSequences(ctx context.Context, m *ops.Queue, names []string) error {
	t := a.sequenceTable()
	var failed []error
	for _, name := range names {
		last, err := m.Sequence(ctx, name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		t.sequence(ops.Sequence{Name: name, Last: last})
	}
	t.print()
	return errors.Join(failed...)
}

// schedulesSequence is the beginning of the names of sequences that belong to schedules.
const schedulesSequence = "schedule/"

// anew are lines of lead and of the commands after which a schedule goes on whose sequence has come to its end.
func (a *app) anew(lead, queue, entry string) string {
	lead = wrapped(lead + " note what the first of these says, then give the others, the last with what was noted:")
	return strings.Join([]string{lead, "  " + a.toCopy("schedule", "show", queue, entry),
		"  " + a.toCopy("schedule", "rm", queue, entry),
		"  " + a.toCopy("sequences", queue, schedulesSequence+entry, "--drop"),
		"  " + a.toCopy("schedule", "set", queue, entry) + " …"}, "\n")
}

// dropSequences drops each sequence by a call of its own, so that an error does not keep the others from being dropped.
// That of a schedule keeps all: nothing is asked about that will not be done.
func (a *app) dropSequences(ctx context.Context, m *ops.Queue, names []string) error {
	for _, name := range names {
		if entry, ours := strings.CutPrefix(name, schedulesSequence); ours {
			if _, err := schedule.Get(ctx, m.Monitor(), entry); err == nil {
				return fail(exitRefused, "%s", a.anew(fmt.Sprintf("sequence %q keeps the schedule %q from sending its messages "+
					"again. If the schedule stands still:", name, entry), m.Name(), entry))
			}
		}
	}
	what := "sequence " + strconv.Quote(names[0])
	if len(names) > 1 {
		what = plural(len(names), "sequence")
	}
	if err := a.ask("Forget %s of queue %q, so that any number may come next?", what, m.Name()); err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		switch err := m.DropSequence(ctx, name); {
		case err != nil:
			failed = append(failed, err)
		default:
			a.say(map[string]any{"name": name, "dropped": true}, "%s dropped", name)
		}
	}
	return errors.Join(failed...)
}

// sequenceFlag is the flag NAME=N.
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

// conflictFlag is the flag of delayqueue.Conflict.
type conflictFlag struct{ delayqueue.Conflict }

var conflictNames = []string{"refuse", "keep", "replace", "reschedule", "append"}

func (f *conflictFlag) String() string { return conflictNames[f.Conflict] }
func (*conflictFlag) Type() string     { return "policy" }
func (f *conflictFlag) Set(text string) error {
	if i := slices.Index(conflictNames, text); i >= 0 {
		f.Conflict = delayqueue.Refuse + delayqueue.Conflict(i)
		return nil
	}
	return fmt.Errorf("%q is none of %s%s", text, strings.Join(conflictNames, ", "), didYouMean(text, conflictNames))
}
