package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

// large is from how many messages on doctor asks before it reads them.
const large = 100_000

func (a *app) doctorCommand() *cobra.Command {
	var (
		mend     bool
		examples int
	)
	c := &cobra.Command{
		Use:   "doctor QUEUE",
		Short: "Check a queue against its invariants, and repair what can be",
		Long: `doctor reads a whole queue at one instant, by a script that writes nothing, and holds it against the invariants of
the library: what is wrong, what it means, and what to do. While that script reads, Redis serves nobody else, so doctor
asks before it reads more than 100,000 messages.

--repair says what it would do, asks, and then does it in small steps, each of which looks again before it writes, so
consumers may go on meanwhile. It mends only what is safe: entries without a message are dropped, messages that are
in no structure are brought back, records and keys without a message are deleted, and the alarm is set right.

The exit code is 7 if something is wrong, and still is after a repair.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			a.bulky = true
			if err := a.queue(ctx, args[0]); err != nil {
				return err
			}
			q := check.Queue{Prefix: a.prefix, Name: args[0]}
			size, err := a.cli.HLen(ctx, q.Key("msg")).Result()
			if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // of that the checker has more to say
				return err
			}
			if !a.json {
				say("queue %s holds %s", q.Name, plural(int(size), "message"))
			}
			if size > large {
				err := a.ask("doctor reads all %s at once, and Redis serves nobody else meanwhile. Go on?", plural(int(size), "message"))
				if err != nil {
					return err
				}
			}
			return a.examine(ctx, q, mend, examples)
		},
	}
	c.Flags().BoolVar(&mend, "repair", false, "mend what can be mended safely: first says what, then asks")
	c.Flags().IntVar(&examples, "examples", 3, "findings to show of each kind; --json shows all")
	return c
}

// diagnosis is what --json prints.
type diagnosis struct {
	Queue    string        `json:"queue"`
	At       time.Time     `json:"at"` // by the server's clock
	Messages int           `json:"messages"`
	Findings []findingJSON `json:"findings"`
	Repairs  []repair      `json:"repairs,omitempty"` // planned, or done if there is a result
	Left     *int          `json:"left,omitempty"`    // findings after the repair
}

type findingJSON struct {
	Kind      check.Kind `json:"kind"`
	Structure string     `json:"structure"`
	Item      string     `json:"item"`
	Text      string     `json:"text"`
	Means     string     `json:"means"`
	Do        string     `json:"do"`
	Repair    bool       `json:"repair"`
}

func (a *app) examine(ctx context.Context, q check.Queue, mend bool, examples int) error {
	s, err := check.Read(ctx, a.cli, q.Prefix, q.Name)
	if err != nil {
		return err
	}
	found := s.Findings()
	d := diagnosis{Queue: q.Name, At: time.UnixMicro(s.Now).UTC(), Messages: len(s.Messages), Findings: []findingJSON{}}
	for _, f := range found {
		advice := advices[f.Kind]
		d.Findings = append(d.Findings, findingJSON{f.Kind, f.Structure, f.Item, f.Text, advice.means, advice.do, advice.repair})
	}
	if !a.json {
		describe(q, found, examples)
	}
	left := len(found)
	if mend && left > 0 {
		if d.Repairs = plan(s, found); !a.json {
			describePlan(d.Repairs, examples)
		}
		if len(d.Repairs) > 0 {
			if left, err = a.treat(ctx, q, d.Repairs); err != nil {
				if a.json {
					_ = printJSON(d) // the plan, as far as it went; the error says the rest
				}
				return err
			}
			d.Left = &left
		}
	}
	if a.json {
		if err := printJSON(d); err != nil {
			return err
		}
	}
	if left > 0 {
		return &failure{code: exitUnsound} // all was said
	}
	return nil
}

// treat repairs what was planned, and says how many findings are left.
func (a *app) treat(ctx context.Context, q check.Queue, plan []repair) (left int, err error) {
	if err := a.ask("Repair %s of queue %q?", plural(len(plan), "thing"), q.Name); err != nil {
		return 0, err
	}
	if err := a.repair(ctx, q, plan); err != nil {
		return 0, err
	}
	s, err := check.Read(ctx, a.cli, q.Prefix, q.Name)
	if err != nil {
		return 0, err
	}
	left = len(s.Findings())
	if !a.json {
		describeResults(plan)
		if left > 0 {
			say("%s", paint(bad, plural(left, "finding")+" left: delayqueue doctor "+q.Name+" names them"))
		} else {
			say("%s", paint(good, "the queue is sound now"))
		}
	}
	return left, nil
}

// describe says what was found, kind by kind.
func describe(q check.Queue, found []check.Finding, examples int) {
	if len(found) == 0 {
		say("%s", paint(good, "nothing is wrong with it"))
		return
	}
	var kinds []check.Kind // in the order of the checker
	byKind := map[check.Kind][]check.Finding{}
	for _, f := range found {
		if !slices.Contains(kinds, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
		byKind[f.Kind] = append(byKind[f.Kind], f)
	}
	for _, kind := range kinds {
		some := byKind[kind]
		say("\n%s", paint(bad, fmt.Sprintf("%s (%d)", kind, len(some))))
		for _, f := range some[:min(len(some), max(examples, 1))] {
			say("  %s", strings.TrimPrefix(f.Text, "queue "+q.Prefix+":"+q.Name+": "))
		}
		if more := len(some) - examples; more > 0 {
			say("  … and %s", plural(more, "other"))
		}
		paragraph("what it means", advices[kind].means)
		paragraph("what to do", advices[kind].do)
	}
	say("\n%s", plural(len(found), "finding"))
}

func paragraph(head, words string) {
	columns := 100
	if w := width(); w > 0 {
		columns = min(w, columns)
	}
	lines := strings.Split(text.WrapSoft(words, max(columns-17, 30)), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	say("  %s  %s", paint(faint, fmt.Sprintf("%-13s", head)), painted(strings.Join(lines, "\n"+strings.Repeat(" ", 17))))
}
