package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func (a *app) doctorCommand() *cobra.Command {
	var mend bool
	c := &cobra.Command{
		Use:   "doctor QUEUE",
		Short: "Check a queue against its invariants, and repair what can be",
		Long: `doctor reads a whole queue, page by page, of messages only the heads. It checks
the invariants of the library and says what is wrong, what that means, and what
to do. It also finds a standstill: due messages or old leases and no consumer,
schedules that are not sent, and a server in trouble, if the server tells.

A queue over several shards is checked shard by shard, and for what may not be
in two of them. Shards that cannot be read are named.

doctor writes nothing and may run while the queue is in use. A call holds Redis
for some milliseconds at most, and doctor rests after each call as long as the
call took. It checks each finding twice.

--repair prints its plan, asks, and then works in small steps. Each step checks
again before it writes, so consumers may go on. It repairs only what is safe: it
drops entries that name no message, brings back messages that are in no
structure, deletes records and keys without a message, puts messages into their
lanes, sets the alarm, and accepts losses and what the books do not explain. It
refuses a queue that a newer version of the library writes.

The exit code is 7 if something is wrong, or after a repair if a finding of the
library's invariants is left. If a shard cannot be read, it is that of the
error.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			if err := a.queue(ctx, args[0]); err != nil {
				return err
			}
			p, err := a.toExamine(ctx, args[0])
			if err != nil {
				return err
			}
			if !a.json {
				p.introduce()
			}
			return a.examine(ctx, p, mend)
		},
	}
	c.Flags().BoolVar(&mend, "repair", false, "repair what is safe to repair, after the plan was printed and confirmed")
	a.verdictFlags(c)
	return c
}

// examples is how many findings, and repairs, of each kind are shown; --json shows all.
const examples = 3

// diagnosis is what --json prints.
type diagnosis struct {
	Queue    string    `json:"queue"`
	At       time.Time `json:"at"` // by the server's clock
	Messages int       `json:"messages"`
	verdictJSON
	Shards   int           `json:"shards,omitempty"`  // none: one
	Missing  []missingJSON `json:"missing,omitempty"` // shards that cannot be read; what is found is of the others
	Books    *booksJSON    `json:"books,omitempty"`
	Findings []findingJSON `json:"findings"`
	Repairs  []repair      `json:"repairs,omitempty"` // planned; with a result: done
	Left     *int          `json:"left,omitempty"`    // findings after the repair
}

type findingJSON struct {
	Shard     int        `json:"shard,omitempty"` // from 1; none: of the whole queue
	Kind      check.Kind `json:"kind"`
	Structure string     `json:"structure"`
	Item      string     `json:"item"`
	Text      string     `json:"text"`
	Means     string     `json:"means"`
	Do        string     `json:"do"`
	Repair    bool       `json:"repair"`
}

func (a *app) examine(ctx context.Context, p *examined, mend bool) error {
	if err := a.inspect(ctx, p); err != nil {
		return err
	}
	m := a.newMonitor(p.name)
	books, err := a.books(ctx, m)
	if err != nil {
		return err
	}
	broken := p.broken()
	if books != nil && books.Unaccounted != 0 {
		broken = append(broken, finding{unbalanced(*books), nil})
	}
	reader := a.reader()
	soon, cancel := context.WithTimeout(ctx, link.ReadFor)
	defer cancel()
	l := reader.Read(soon, m)
	if l.Counts.LossMessages > 0 {
		broken = append(broken, finding{lost(l.Counts), nil})
	}
	found := append(broken, a.standstill(ctx, p, l)...)
	d := diagnosis{Queue: p.name, At: p.now(), Messages: p.messages(), verdictJSON: a.verdictJSON(l),
		Missing: a.missing(p), Findings: []findingJSON{}}
	if len(p.shards) > 1 {
		d.Shards = len(p.shards)
	}
	if books != nil {
		d.Books = booksOf(*books)
	}
	for _, f := range found {
		advice := advices[f.Kind]
		d.Findings = append(d.Findings, findingJSON{f.shard.number(), f.Kind, f.Structure, f.Item, f.Text, advice.means,
			advice.do, advice.repair})
	}
	if !a.json {
		say("verdict: %s", a.verdict(l))
		if books != nil {
			describeBooks(*books)
		}
		a.describe(p, found)
	}
	left := len(found)
	if mend && slices.ContainsFunc(broken, func(f finding) bool { return f.Kind == check.UnknownLayout }) {
		if a.json {
			printJSON(d) // the error says the rest
		}
		return unknownLayout(p.name)
	}
	if mend && len(broken) > 0 {
		if d.Repairs = p.plan(found); !a.json {
			describePlan(d.Repairs)
		}
		if len(d.Repairs) > 0 {
			if left, err = a.treat(ctx, p, d.Repairs); err != nil {
				if a.json {
					printJSON(d) // the plan, as far as it went; the error says the rest
				}
				return err
			}
			d.Left = &left
		}
	}
	if a.json {
		d.Missing = a.missing(p) // the repair has looked again
		printJSON(d)
	}
	if err := p.unread(); err != nil {
		code, text := a.explain(err)
		if a.json {
			text = ""
		}
		return &failure{code, text}
	}
	if left > 0 {
		return &failure{code: exitUnsound} // the findings were printed
	}
	return nil
}

// books are those of the queue; nil if they are not open or cannot be read.
func (a *app) books(ctx context.Context, m *ops.Queue) (*ops.Balance, error) {
	b, err := m.Balance(ctx)
	switch {
	case err == nil && !b.Since.IsZero():
		return &b, nil
	case err == nil, errors.Is(err, delayqueue.ErrNoQueue), errors.Is(err, delayqueue.ErrWrongType),
		errors.Is(err, delayqueue.ErrMissingShards),
		redis.HasErrorPrefix(err, "NOPERM"):
		return nil, nil
	}
	return nil, err
}

// treat asks, repairs what was planned, and returns how many findings are left.
func (a *app) treat(ctx context.Context, p *examined, plan []repair) (left int, err error) {
	if err := a.ask("Repair %s of queue %q?", plural(len(plan), "thing"), p.name); err != nil {
		return 0, err
	}
	if err := a.repair(ctx, p.name, plan); err != nil {
		return 0, err
	}
	if err := a.inspect(ctx, p); err != nil {
		return 0, err
	}
	left = len(p.broken())
	if n, err := a.newMonitor(p.name).Counts(ctx); err == nil && (n.Unaccounted != 0 || n.LossMessages > 0) {
		left++
	}
	if !a.json {
		describeResults(plan)
		switch {
		case left > 0:
			say("%s", paint(bad, plural(left, "finding")+" left: delayqueue doctor "+p.name+" names them"))
		case p.unread() != nil:
			say("%s", paint(good, "the shards that can be read are sound now"))
		default:
			say("%s", paint(good, "the queue is sound now"))
		}
	}
	return left, nil
}

// describe prints the findings, kind by kind.
func (a *app) describe(p *examined, found []finding) {
	for _, one := range a.missing(p) {
		say("%s", paint(bad, fmt.Sprintf("shard %d of %d cannot be read: %s", one.Shard, len(p.shards), one.Error)))
	}
	if len(found) == 0 && p.unread() != nil {
		say("%s", paint(good, "the data of the others is sound"))
		return
	}
	if len(found) == 0 {
		say("%s", paint(good, "its data is sound"))
		return
	}
	var kinds []check.Kind // in the order of the checker
	byKind := map[check.Kind][]finding{}
	for _, f := range found {
		if !slices.Contains(kinds, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
		byKind[f.Kind] = append(byKind[f.Kind], f)
	}
	for _, kind := range kinds {
		some := byKind[kind]
		say("\n%s", paint(bad, fmt.Sprintf("%s (%d)", kind, len(some))))
		for _, f := range some[:min(len(some), examples)] {
			lines := []string{p.sentence(f)}
			if kind == scheduleStuck { // its line breaks are its own
				lines = strings.Split(lines[0], "\n")
			}
			for _, line := range lines {
				say("  %s", line)
			}
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

// Findings that break no invariant, and still keep messages from being handled or endanger them.
const (
	noConsumer check.Kind = "due, and no consumer"
	deadLease  check.Kind = "lease long over"
	unwell     check.Kind = "server in trouble"
	throttled  check.Kind = "throttled for long"
	longLane   check.Kind = "waits long for its lane"
	hanging    check.Kind = "handlers hang"
	loss       check.Kind = "messages were lost"

	schedulesNotRun check.Kind = "nobody runs the schedules"
	scheduleStuck   check.Kind = "schedule is not sent"
)

// longOver is how long after the end of a lease nobody can be fetching: living consumers take such a lease back
// within seconds.
const longOver = time.Minute

// standstill looks for them. It leaves out what this user may not read.
func (a *app) standstill(ctx context.Context, p *examined, l *health.Look) (found []finding) {
	add := func(at *part, kind check.Kind, structure, item, format string, args ...any) {
		found = append(found, finding{check.Finding{Kind: kind, Structure: structure, Item: item,
			Text: structure + ": " + fmt.Sprintf(format, args...) + "."}, at})
	}
	if !p.wrongType() {
		kinds := map[health.Code]check.Kind{health.NoConsumers: noConsumer, health.Throttled: throttled,
			health.Lane: longLane, health.Hung: hanging}
		for _, v := range l.Findings() { // of the others each is said elsewhere, or comes and goes
			if kind, is := kinds[v.Code]; is && v.Level >= health.Warning && (kind != noConsumer || v.Level == health.Critical) {
				add(nil, kind, "queue", p.name, "%s", a.words(v.Text))
			}
		}
	}
	for _, one := range p.readable() {
		s, last := one.state, ""
		if len(s.WrongType) > 0 {
			continue
		}
		for _, e := range s.Unack { // those of one lease stand together
			over := time.Duration(s.Now-e.Score) * time.Microsecond
			if e.Lease != last && e.Lease != "" && e.Score > 0 && over > longOver && a.stillHeld(ctx, one.Queue, e) {
				others := ""
				if n := s.Leases[e.Lease].Held - 1; n > 0 {
					others = " and " + plural(n, "other")
				}
				add(one, deadLease, "unack", e.Lease, "the lease of message %s%s ended %s ago", e.ID, others, brief(over))
			}
			last = e.Lease
		}
	}
	for _, f := range a.schedulesStandStill(ctx, p.name) {
		found = append(found, finding{f, nil})
	}
	looked := map[string]bool{} // nodes
	for _, one := range p.readable() {
		node, checks := a.server(ctx, one.Queue, looked)
		looked[node] = true
		for _, c := range checks {
			if c.Level == health.Critical {
				add(one, unwell, "server", a.words(c.Name), "%s: %s. %s", a.words(c.Name), a.words(c.Found),
					strings.TrimSuffix(a.words(c.Advice), "."))
			}
		}
	}
	return found
}

// schedulesStandStill looks for schedules that are not sent.
func (a *app) schedulesStandStill(ctx context.Context, queue string) (found []check.Finding) {
	all, err := schedule.List(ctx, a.newMonitor(queue).Monitor())
	if err != nil {
		return nil
	}
	notRun := 0
	for _, s := range all {
		text := ""
		switch {
		case errors.Is(s.Trouble, schedule.ErrNotRun):
			notRun++
		case s.Trouble != nil:
			text = s.Trouble.Error()
		case !s.Overdue.IsZero():
			text = "its instant " + at(s.Overdue) + " is overdue"
		}
		if text == "" {
			continue
		}
		text = oneLine(fmt.Sprintf("schedules: %s: %s.", s.Name, text))
		if errors.Is(s.Trouble, schedule.ErrMovedToEnd) {
			text = wrapped(text) + "\n" + a.notAnew(queue, s.Name)
		}
		found = append(found, check.Finding{Kind: scheduleStuck, Structure: "schedules", Item: s.Name, Text: text})
	}
	if notRun > 0 {
		since := "no replica ever looked"
		if looked := all[0].Looked; !looked.IsZero() {
			since = "the last replica looked " + at(looked)
		}
		found = append(found, check.Finding{Kind: schedulesNotRun, Structure: "schedules", Item: queue,
			Text: fmt.Sprintf("schedules: nobody runs %s: %s.", plural(notRun, "schedule"), since)})
	}
	return found
}

// stillHeld says whether the lease of an entry, which was read some time ago, is still there and was not renewed.
func (a *app) stillHeld(ctx context.Context, q check.Queue, e check.Entry) bool {
	score, err := a.cli.ZScore(ctx, q.Key("unack"), e.Lease).Result()
	return err == nil && int64(score) == e.Score
}

// server is the node that has a shard, and its health; none if it was looked at before, or if INFO is refused.
func (a *app) server(ctx context.Context, q check.Queue, looked map[string]bool) (name string, checks []health.Check) {
	var node redis.Cmdable = a.cli
	if cluster, ok := a.cli.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, q.Key("msg"))
		if err != nil {
			return "", nil
		}
		node, name = master, master.Options().Addr
	}
	if looked[name] {
		return name, nil
	}
	text, err := node.Info(ctx).Result()
	if err != nil {
		return name, nil
	}
	return name, health.InfoOf(text).Checks()
}
