package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

func (a *app) topCommand() *cobra.Command {
	var once bool
	every := durationFlag(2 * time.Second)
	c := &cobra.Command{
		Use:   "top [QUEUE...]",
		Short: "Show all queues live, the worst first",
		Long: `top has a row for each named queue, or for all queues of the prefix that are found at the start, the worst first: a verdict in
words, how many messages wait to be delivered, how many come in and go out a second, what share of the deliveries of the
last hour failed, how many of all workers are busy, and how long the oldest message that is due has waited. A queue takes
three calls of Redis every --interval.

With --once, with --json, or if the output is no terminal, top looks twice, a second apart, to know the rates, and prints once. If
a queue cannot be read, its row says why, the others are shown, and the exit code is not 0.`,
		Example: "  delayqueue top\n  delayqueue top --json | jq 'select(.level == \"critical\")'",
		RunE: func(c *cobra.Command, names []string) error {
			if every <= 0 {
				return fail(exitUsage, "--interval must be above 0")
			}
			monitors, missing, err := a.monitors(c.Context(), names)
			if err != nil {
				return err
			}
			b := &board{app: a, monitors: monitors, missing: missing, print: a.printTop, every: time.Duration(every), watcher: newWatcher()}
			if !once && !a.json && onTerminal(os.Stdout) {
				return b.watch(c.Context())
			}
			b.watcher.Read(c.Context(), monitors)
			rest(c.Context(), time.Second) // rates need at least a second
			return b.once(c.Context())
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print once")
	c.Flags().VarP(&every, "interval", "n", "how often the board looks")
	return c
}

type topJSON struct {
	Queue   string     `json:"queue"`
	Waits   int64      `json:"waits"`
	In      *float64   `json:"in_per_second"` // null: not known yet
	Out     *float64   `json:"out_per_second"`
	Failing *float64   `json:"failing_percent"` // null: nothing ended in the last hour
	Busy    int        `json:"busy"`
	Workers int        `json:"workers"`
	Behind  float64    `json:"behind_seconds"`
	Garbage int64      `json:"garbage_last_hour"`
	NextDue *time.Time `json:"next_due,omitempty"`
	verdictJSON
}

// printTop draws the board.
func (a *app) printTop(all []*health.Look, columns, most int) string {
	t := a.grid("queue", "verdict", "waits", "in/s", "out/s", "fails", "busy", "oldest").numbers(3, 4, 5, 6, 7, 8).cutLast(2)
	all, hidden := withRoom(health.WorstFirst(all), most)
	for _, one := range all {
		busy, workers := one.Workers()
		in, gone := one.Rates()
		failing := health.Failing(one.LastHour())
		switch {
		case a.json:
			a.printLook(one, topJSON{
				one.Name, one.Waits(), known(in.PerSecond, in.Known), known(gone.PerSecond, gone.Known),
				known(float64(failing), failing >= 0), busy, workers,
				one.Counts.Behind.Seconds(), one.LastHour().Garbage, instant(one.Counts.NextDue), a.verdictJSON(one),
			})
		case one.Err != nil:
			t.add(one.Name, a.verdict(one), "?", "?", "?", "?", "?", "")
		default:
			oldest := painted("")
			if one.Counts.Behind > 0 {
				oldest = paint(warn, brief(one.Counts.Behind.Round(time.Second)))
			}
			t.add(one.Name, a.verdict(one), one.Waits(), in, gone, failing, fmt.Sprintf("%d/%d", busy, workers), oldest)
		}
	}
	return t.whole(columns, hidden)
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
}

func (a *app) verdictJSON(one *health.Look) verdictJSON {
	v := one.Judge()
	return verdictJSON{v.Level.String(), v.Code, a.words(v.Text)}
}

// colours are those of levels. Green is only for a queue that has consumers.
var colours = [...]text.Colors{health.Quiet: faint, health.Fine: good, health.Notice: noted, health.Warning: warn, health.Critical: bad}

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

// Sequences that every terminal knows.
const (
	altScreen   = "\x1b[?1049h\x1b[?25l" // without a cursor
	mainScreen  = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearToLine = "\x1b[K"
	clearToEnd  = "\x1b[J"
)

// footLines counts the lines around the rows: the header, and those below the table.
const footLines = 4

// A board shows many queues, once or again and again.
type board struct {
	*app
	monitors []*ops.Queue
	missing  error // why other queues may be missing
	watcher  health.Watcher
	every    time.Duration
	print    func(all []*health.Look, columns, most int) string // a table with no more rows than most, unless that is 0
}

// newWatcher asks many queues at a time, so that those that do not answer are waited for together.
func newWatcher() health.Watcher { return health.Watcher{Limit: patience, AtOnce: 32} }

// once prints the table. The first error decides the exit code; each row shows its own.
func (b *board) once(ctx context.Context) error {
	all := b.watcher.Read(ctx, b.monitors)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if text := b.print(all, width(), 0); text != "" {
		say("%s", painted(strings.TrimSuffix(text, "\n")))
	}
	if b.missing != nil {
		return b.missing
	}
	for _, one := range all {
		if one.Err != nil {
			code, text := b.explain(one.Err)
			if b.json {
				text = ""
			}
			return &failure{code, text}
		}
	}
	return nil
}

// watch redraws the table in place, as large as the window allows. An outage does not end it. The last table stays on the screen.
func (b *board) watch(ctx context.Context) error {
	inPlace := onTerminal(os.Stdout) && !b.json
	last := ""
	if inPlace {
		fmt.Print(altScreen)
		defer func() { fmt.Print(mainScreen + last) }()
	}
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for unsaid == nil {
		all := b.watcher.Read(ctx, b.monitors)
		if ctx.Err() != nil {
			return nil // it was told to end
		}
		last = b.frame(all, inPlace)
		frame := last
		if inPlace {
			frame += "\n" + faint.Sprintf("%s, every %s; Ctrl-C ends", time.Now().Format("15:04:05"), brief(b.every)) + "\n"
			frame = home + strings.ReplaceAll(frame, "\n", clearToLine+"\n") + clearToEnd
		}
		if _, err := fmt.Print(frame); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// frame is the table and, on a line of its own, the first error.
func (b *board) frame(all []*health.Look, inPlace bool) string {
	wrong := b.missing
	for _, one := range all {
		if wrong == nil {
			wrong = one.Err
		}
	}
	most, columns := 0, 0
	if inPlace {
		columns, most = window()
		most = max(most-footLines, 2)
		if wrong != nil {
			most = max(most-1, 2)
		}
	}
	frame := b.print(all, columns, most)
	if wrong != nil && !b.json {
		_, text := b.explain(wrong)
		text = oneLine(text)
		if columns > 0 {
			text = cut(text, columns)
		}
		frame += bad.Sprint(text) + "\n"
	}
	return frame
}

// withRoom returns at most this many queues (0: any number). If some are hidden, one line less, for the line that says so.
func withRoom(all []*health.Look, most int) (shown []*health.Look, hidden int) {
	if most == 0 || len(all) <= most {
		return all, 0
	}
	return all[:most-1], len(all) - most + 1
}

// whole is a table of queues, "" with --json.
func (t *grid) whole(columns, hidden int) string {
	if t.json {
		return ""
	}
	text := t.render(columns) + "\n"
	if hidden > 0 {
		text += faint.Sprintf("… and %s more: name some, or make the window higher", plural(hidden, "queue")) + "\n"
	}
	return text
}
