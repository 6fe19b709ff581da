package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

func (a *app) topCommand() *cobra.Command {
	every := durationFlag(2 * time.Second)
	c := &cobra.Command{
		Use:   "top [QUEUE...]",
		Short: "Show all queues live, the worst first",
		Long: `top has a row for each named queue, or for all queues of the prefix that are
found at the start, the worst first: a verdict in words, how many messages wait
to be delivered (LANES: of these, behind others of their lanes, if there are
any), how many come in and go out a second, what share of the deliveries of this
hour of UTC and the one before failed (FAILS SINCE), how many of all workers are
busy, and how long the oldest message that is due has waited. The arrow keys, j,
k, PageUp, PageDown, Home and End scroll, s sorts by another column, and q ends
it. A queue takes three calls of Redis every --interval, some more if a message
has waited long for its lane, and every ten seconds those for its schedules.

With --json, or if the output is no terminal, top looks twice, a second apart,
to know the rates, and prints once. If a queue cannot be read, its row says why,
the others are shown, and the exit code is not 0. If some shards of a queue do
not answer, the numbers of its row are those of the others. The JSON has the
begin of the hour before as "since": "failing_percent" and "new_garbage" count
from then on.`,
		Example: "  delayqueue top\n  delayqueue top --json | jq 'select(.level == \"critical\")'",
		RunE: func(c *cobra.Command, names []string) error {
			if every <= 0 {
				return fail(exitUsage, "--interval must be above 0")
			}
			b, err := a.newBoard(c.Context(), names)
			if err != nil {
				return err
			}
			if !a.json && onTerminal(os.Stdout) {
				return b.watch(c.Context(), time.Duration(every))
			}
			rest(c.Context(), time.Second) // rates need at least a second
			b.read(c.Context())
			return b.print(c.Context(), func(all []*health.Look) { a.topTable(all).print() })
		},
	}
	c.Flags().VarP(&every, "interval", "n", "how often the board looks")
	a.verdictFlags(c)
	return c
}

// verdictFlags are those of commands that judge queues.
func (a *app) verdictFlags(c *cobra.Command) {
	usual := health.Limits{}.OrDefault()
	a.hungAfter, a.laneAfter = durationFlag(usual.Handler), durationFlag(usual.Lane)
	c.Flags().Var(&a.hungAfter, "hung-after", "a handler that runs for longer hangs")
	c.Flags().Var(&a.laneAfter, "lane-after", "a lane stands still if a due message of it waits for longer for one "+
		"that does not go on")
}

// reader reads queues as verdicts want it.
func (a *app) reader() health.Reader {
	return health.Reader{Limits: health.Limits{Handler: time.Duration(a.hungAfter), Lane: time.Duration(a.laneAfter)},
		Unsent: unsent}
}

// unsent are the schedules of a queue for which nothing is sent.
func unsent(ctx context.Context, m *ops.Queue) ([]health.Unsent, error) {
	list, err := schedule.Unsent(ctx, m.Monitor())
	all := make([]health.Unsent, len(list))
	for i := range list {
		all[i] = health.Unsent{Name: list[i].Name, Reason: list[i].Reason(), Since: list[i].Overdue}
	}
	return all, err
}

type topJSON struct {
	Queue   string     `json:"queue"`
	Waits   int64      `json:"waits"`
	Lanes   int64      `json:"waits_for_lanes"` // of these
	In      *float64   `json:"in_per_second"`   // null: not known yet
	Out     *float64   `json:"out_per_second"`
	Failing *float64   `json:"failing_percent"` // since then; null: nothing ended
	Busy    int        `json:"busy"`
	Workers int        `json:"workers"`
	Behind  float64    `json:"behind_seconds"`
	Garbage int64      `json:"new_garbage"`     // since then
	Since   *time.Time `json:"since,omitempty"` // the begin of the hour before
	NextDue *time.Time `json:"next_due,omitempty"`
	verdictJSON
}

// topTable is the board, or prints JSON.
func (a *app) topTable(all []*health.Look) *grid {
	fails := "fails"
	if i := slices.IndexFunc(all, func(l *health.Look) bool { return len(l.Hours) > 0 }); i >= 0 {
		fails += all[i].Recent().Start.Local().Format(" since 15:04")
	}
	header, lanes := []any{"queue", "verdict", "waits", "in/s", "out/s", fails, "busy", "oldest"}, withLanes(all)
	numbers := []int{3, 4, 5, 6, 7, 8}
	if lanes {
		header, numbers = slices.Insert(header, 3, any("lanes")), append(numbers, 9)
	}
	t := a.grid(header...).numbers(numbers...).sentences(2)
	add := func(waiting any, cells ...any) {
		if lanes {
			cells = slices.Insert(cells, 3, waiting)
		}
		t.add(cells...)
	}
	for _, one := range all {
		busy, workers := one.Workers()
		in, gone := one.Rates()
		recent := one.Recent()
		failing := health.Failing(recent)
		switch {
		case a.json:
			a.printLook(one, topJSON{
				one.Name, one.Waits(), one.Counts.Waiting, known(in.PerSecond, in.Known), known(gone.PerSecond, gone.Known),
				known(float64(failing), failing >= 0), busy, workers,
				one.Counts.Behind.Seconds(), recent.Garbage, instant(recent.Start), instant(one.Counts.NextDue),
				a.verdictJSON(one),
			})
		case one.Err != nil:
			add("?", one.Name, a.verdict(one), "?", "?", "?", "?", "?", "")
		default:
			oldest := painted("")
			if one.Counts.Behind > 0 {
				oldest = paint(warn, brief(one.Counts.Behind.Round(time.Second)))
			}
			add(number(one.Counts.Waiting, faint), one.Name, a.verdict(one), one.Waits(), in, gone, failing,
				fmt.Sprintf("%d/%d", busy, workers), oldest)
		}
	}
	return t
}

func known(n float64, is bool) *float64 {
	if !is {
		return nil
	}
	return &n
}

// printLook prints a queue as JSON, or why the queue cannot be read.
func (a *app) printLook(one *health.Look, out any) {
	if one.Err != nil {
		_, text := a.explain(one.Err)
		out = statsErrorJSON{one.Name, text}
	}
	printJSON(out)
}

// verdictJSON is the verdict on a queue, with the level and words of the page.
type verdictJSON struct {
	Level   string      `json:"level"`
	Code    health.Code `json:"code"`
	Verdict string      `json:"verdict"`
	Error   string      `json:"error,omitempty"` // why numbers are those of some shards alone
}

func (a *app) verdictJSON(one *health.Look) verdictJSON {
	v, text := one.Judge(), ""
	if one.Missing != nil {
		_, text = a.explain(one.Missing)
	}
	return verdictJSON{v.Level.String(), v.Code, a.words(v.Text), text}
}

// colours are those of levels. Green is only for a queue that has consumers.
var colours = [...]text.Colors{health.Quiet: faint, health.Fine: good, health.Notice: noted, health.Warning: warn,
	health.Critical: bad}

func (a *app) verdict(one *health.Look) painted {
	v := one.Judge()
	return paint(colours[v.Level], a.words(v.Text))
}

// words writes a text of internal/health.
func (a *app) words(t health.Text) string {
	return t.In(func(english string) string { return english }, func(arg any) string {
		switch arg := arg.(type) {
		case time.Duration:
			return brief(arg.Round(time.Second))
		case time.Time:
			return at(arg)
		case int64:
			return humanize.Comma(arg)
		case error:
			return a.trouble(arg)
		}
		return oneLine(fmt.Sprint(arg))
	})
}

// A board shows many queues, once or again and again.
type board struct {
	*app
	monitors []*ops.Queue
	missing  error // why other queues may be missing
	watcher  health.Watcher
	all      []*health.Look // what was read last
	view     view
}

// newBoard is a board of the queues of these names, or of all that are found. It was read once.
func (a *app) newBoard(ctx context.Context, names []string) (*board, error) {
	if err := validNames(names); err != nil {
		return nil, err
	}
	if err := a.connect(ctx); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	names = slices.DeleteFunc(names, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	})
	// Many queues are asked at a time, so that those that do not answer are waited for together.
	b := &board{app: a, watcher: health.Watcher{Reader: a.reader(), Limit: link.ReadFor, AtOnce: 32}}
	add := func(name string) { b.monitors = append(b.monitors, a.newMonitor(name)) }
	found := len(names) == 0
	if found {
		b.missing = missingFromList(a.discover(ctx, add))
	}
	for _, name := range names {
		add(name)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case len(b.monitors) == 0 && b.missing != nil:
		return nil, b.missing
	case len(b.monitors) == 0:
		return nil, fail(exitNotFound, "there are no queues under the prefix %q", a.prefix)
	case found:
		slices.SortFunc(b.monitors, func(x, y *ops.Queue) int { return cmp.Compare(x.Name(), y.Name()) })
	}
	if b.read(ctx); found {
		return b, ctx.Err()
	}
	for _, one := range b.all { // the row of the queue shows any other error
		var known *failure
		if err := a.absent(ctx, one.Name, one.Err); errors.As(err, &known) || ctx.Err() != nil {
			return nil, cmp.Or(ctx.Err(), err)
		}
	}
	return b, nil
}

// read looks at all queues.
func (b *board) read(ctx context.Context) { b.all = b.watcher.Read(ctx, b.monitors) }

// print shows the queues, the worst first. The first error decides the exit code; each row shows its own.
func (b *board) print(ctx context.Context, show func([]*health.Look)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	show(health.WorstFirst(b.all))
	if wrong := b.firstError(); wrong != nil {
		code, text := b.explain(wrong)
		if b.json && b.missing == nil {
			text = "" // its row has it
		}
		return &failure{code, text}
	}
	return nil
}

// firstError is why queues may be missing, or else the first error of a queue.
func (b *board) firstError() error {
	wrong := b.missing
	for _, one := range b.all {
		if wrong == nil {
			wrong = cmp.Or(one.Err, one.Missing)
		}
	}
	return wrong
}
