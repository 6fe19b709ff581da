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
	"github.com/go-delayqueue/delayqueue/internal/health"
)

func (a *app) doctorCommand() *cobra.Command {
	var (
		mend     bool
		examples int
	)
	c := &cobra.Command{
		Use:   "doctor QUEUE",
		Short: "Check a queue against its invariants, and repair what can be",
		Long: `doctor reads a whole queue, page by page and of messages the heads alone, and holds it against the invariants of the
library: what is wrong, what it means, and what to do. It writes nothing, no call holds Redis for more than some
milliseconds, and it rests between calls as long as they took, so it may be asked while the queue is in use; what looks
wrong it looks at once more. It finds too what breaks no invariant and still stands still: due messages and leases
long over with nobody consuming, and a server in trouble, where it tells.

--repair says what it would do, asks, and then does it in small steps, each of which looks again before it writes, so
consumers may go on meanwhile. It mends only what is safe: entries that name no message are dropped, messages that
are in no structure are brought back, records and keys without a message are deleted, and the alarm is set right. It
refuses a queue that a newer version of the library writes.

The exit code is 7 if something is wrong, after a repair if something that it could mend still is.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
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
			return a.examine(ctx, q, mend, examples, size)
		},
	}
	c.Flags().BoolVar(&mend, "repair", false, "mend what can be mended safely: first says what, then asks")
	c.Flags().IntVar(&examples, "examples", 3, "findings to show of each kind; --json shows all")
	return c
}

// diagnosis is what --json prints.
type diagnosis struct {
	Queue    string    `json:"queue"`
	At       time.Time `json:"at"` // by the server's clock
	Messages int       `json:"messages"`
	verdictJSON
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

// inspect shows how it goes on: each message is met in msg, in its place, and perhaps in fail and key.
func (a *app) inspect(ctx context.Context, q check.Queue, size int64) (*check.State, []check.Finding, error) {
	bar := a.progress("reading", 2*size)
	defer finish(bar)
	s, found, err := check.Inspect(ctx, a.cli, q.Prefix, q.Name, func(done int) {
		_ = bar.Set64(min(int64(done), max(2*size, 1))) // a bar that cannot be drawn stops nothing
	})
	if err != nil {
		return nil, nil, err
	}
	return s, found, nil
}

func (a *app) examine(ctx context.Context, q check.Queue, mend bool, examples int, size int64) error {
	s, broken, err := a.inspect(ctx, q, size)
	if err != nil {
		return err
	}
	l := health.Read(ctx, a.newMonitor(q.Name))
	found := append(broken, a.standstill(ctx, q, s, l)...)
	d := diagnosis{Queue: q.Name, At: time.UnixMicro(s.Now).UTC(), Messages: len(s.Messages),
		verdictJSON: a.verdictJSON(l), Findings: []findingJSON{}}
	for _, f := range found {
		advice := advices[f.Kind]
		d.Findings = append(d.Findings, findingJSON{f.Kind, f.Structure, f.Item, f.Text, advice.means, advice.do, advice.repair})
	}
	if !a.json {
		say("verdict: %s", a.verdict(l))
		describe(q, found, examples)
	}
	left := len(found)
	if mend && slices.ContainsFunc(broken, func(f check.Finding) bool { return f.Kind == check.UnknownLayout }) {
		if a.json {
			_ = printJSON(d) // the error says the rest
		}
		return unknownLayout(q)
	}
	if mend && len(broken) > 0 {
		if d.Repairs = plan(s, found); !a.json {
			describePlan(d.Repairs, examples)
		}
		if len(d.Repairs) > 0 {
			if left, err = a.treat(ctx, q, d.Repairs, size); err != nil {
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
func (a *app) treat(ctx context.Context, q check.Queue, plan []repair, size int64) (left int, err error) {
	if err := a.ask("Repair %s of queue %q?", plural(len(plan), "thing"), q.Name); err != nil {
		return 0, err
	}
	if err := a.repair(ctx, q, plan); err != nil {
		return 0, err
	}
	_, found, err := a.inspect(ctx, q, size)
	if err != nil {
		return 0, err
	}
	left = len(found)
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
