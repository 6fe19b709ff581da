package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"
)

var (
	good  = text.Colors{text.FgGreen}
	noted = text.Colors{text.FgCyan}
	warn  = text.Colors{text.FgYellow}
	bad   = text.Colors{text.FgRed}
	faint = text.Colors{text.Faint}
)

// paint colours a text that anybody may have written.
func paint(c text.Colors, s string) painted {
	if s == "" {
		return ""
	}
	return painted(c.Sprint(oneLine(s)))
}

// painted is safe to print as it is.
type painted string

// number is red, yellow or green when it is not 0.
func number(n int64, c text.Colors) painted {
	if n == 0 {
		return "0"
	}
	return paint(c, humanize.Comma(n))
}

// brief rounds a duration to what a person reads.
func brief(d time.Duration) string {
	if d < 0 {
		return "-" + brief(d.Abs())
	}
	switch {
	case d < 995*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d < 59950*time.Millisecond:
		return d.Round(100 * time.Millisecond).String()
	}
	d = d.Round(time.Second)
	units := []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	switch {
	case d >= 48*time.Hour:
		units = units[:2]
	default:
		units = units[1:]
	}
	text := ""
	for _, unit := range units {
		if n := d / unit.size; n > 0 {
			text += fmt.Sprint(int64(n)) + unit.name
			d -= n * unit.size
		}
	}
	return text
}

// at is an instant with its distance from now.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return clock(t) + " (" + away(time.Until(t), brief) + ")"
}

// age is the distance of an instant from now, in its largest unit.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return away(time.Until(t), func(far time.Duration) string {
		text := brief(far.Truncate(time.Second))
		return text[:strings.IndexAny(text, "dhms")+1]
	})
}

// away is a distance from now in words.
func away(far time.Duration, words func(time.Duration) string) string {
	if far < 0 {
		return words(far.Abs()) + " ago"
	}
	return "in " + words(far)
}

func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }

// plural is a count with its noun.
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return humanize.Comma(int64(n)) + " " + noun
}

// progress is a bar for long work, on a terminal.
func (a *app) progress(what string, total int64) *progressbar.ProgressBar {
	if total == 0 {
		total = -1 // not known
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetVisibility(onTerminal(os.Stderr) && !a.json),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(total > 0),
		progressbar.OptionFullWidth(),
		progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

func finish(bar *progressbar.ProgressBar) { _ = bar.Finish() } // a bar that cannot be drawn stops nothing

// unsaid is the first error of say and printJSON, with which the program ends: a table that a full disk cut off must
// not look whole.
var unsaid error

// say prints a line. Texts in args are made printable, on one line, unless they are painted.
func say(format string, args ...any) {
	for i, arg := range args {
		if s, ok := arg.(string); ok {
			args[i] = oneLine(s)
		}
	}
	_, err := fmt.Printf(format+"\n", args...)
	unsaid = cmp.Or(unsaid, err)
}

// say says something, or with --json prints an object that says the same.
func (a *app) say(object any, format string, args ...any) {
	if a.json {
		printJSON(object)
		return
	}
	say(format, args...)
}

// ask asks for a yes. Without one it returns an error.
func (a *app) ask(format string, args ...any) error {
	question := printable(fmt.Sprintf(format, args...))
	if a.yes {
		return nil
	}
	if !onTerminal(os.Stdin) {
		return fail(exitUnconfirmed, "%s There is nobody to ask: add --yes.", question)
	}
	fmt.Fprintf(os.Stderr, "%s [y/N] ", question)
	type answer struct {
		text string
		err  error
	}
	given := make(chan answer, 1)
	go func() {
		text, err := a.in.ReadString('\n')
		given <- answer{text, err}
	}()
	select {
	case <-a.command.Context().Done():
		fmt.Fprintln(os.Stderr)
		return a.command.Context().Err()
	case got := <-given:
		if word := strings.ToLower(strings.TrimSpace(got.text)); got.err == nil && (word == "y" || word == "yes") {
			return nil
		}
		return fail(exitUnconfirmed, "nothing was done")
	}
}
