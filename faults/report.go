package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// A row is one fault and what became of the messages.
type row struct {
	*scenario
	*verdict
}

var head = []string{
	"struck", "accepted", "handled", "lost", "early", "duplicated", "unaccounted", "longest gap", "allowance",
}

func (r row) cells() []string {
	var cells []string
	for _, n := range []int{r.struck, r.accepted, r.handled, r.lost, r.early, r.duplicated, r.unaccounted} {
		cells = append(cells, fmt.Sprint(n))
	}
	return append(cells, seconds(r.gap), seconds(r.allowed))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func us(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func clock(at int64) string { return time.UnixMicro(at).Format("15:04:05.000") }

// problemsShown is how many of the things that are wrong with one fault are printed.
const problemsShown = 10

// printTable writes one aligned line for each fault, then what is wrong.
func printTable(out io.Writer, rows []row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "fault\t%s\t\n", strings.Join(head, "\t"))
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t", r.name, strings.Join(r.cells(), "\t"))
		if len(r.problems) > 0 {
			fmt.Fprintf(w, "  %d WRONG", len(r.problems))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to a terminal
	for _, r := range rows {
		for _, n := range r.notes {
			fmt.Fprintf(out, "%s: %s.\n", r.name, n)
		}
		for i, p := range r.problems {
			if i == problemsShown {
				fmt.Fprintf(out, "%s: and %d more\n", r.name, len(r.problems)-i)
				break
			}
			fmt.Fprintf(out, "%s: WRONG: %s\n", r.name, p)
		}
	}
}

// document is what runs write, each its own part.
const (
	document   = "../docs/reliability.md"
	faultsPart = "## Faults\n"
	soakPart   = "## Soak\n"
)

// writeFaults writes the table of all faults.
func writeFaults(path string, rows []row, took time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, in %s. There are %d producer and %d consumer processes, unless a row says otherwise. "+
		"Of every 1,000 payloads 20 are slow, 52 fail, and 5 are given up on by their handlers, which counts as handled. "+
		"Early is judged by the server's clock. A duplicate is a start of a handler that no failure of it explains. "+
		"Unaccounted is what the books of the queue do not explain (`ops.Queue.Balance`). "+
		"The longest gap is the longest time between two starts of handlers while messages were sent, outages included. "+
		"The allowance is the most by which a bound of the last column was exceeded, because the machine was slow: a bound "+
		"is widened by the %d longest delays that a timer and a PING to another server had meanwhile.\n\n",
		about(), took.Round(time.Second), usual.Producers, consumers, steps)
	fmt.Fprintf(&b,
		"| fault | %s | must hold, beyond nothing lost, nothing early, and nothing twice without a cause |\n|---|%s---|\n",
		strings.Join(head, " | "), strings.Repeat("--:|", len(head)))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.name, strings.Join(r.cells(), " | "), r.holds)
	}
	b.WriteString("\nWhy messages were lost by Redis, or handled twice:\n\n")
	for _, r := range rows {
		if r.lost > 0 {
			fmt.Fprintf(&b, "- %s: %d lost: %s.\n", r.name, r.lost, r.rules.lossy)
		}
		if r.duplicated > 0 {
			fmt.Fprintf(&b, "- %s: %d handled twice: %s.\n", r.name, r.duplicated, strings.Join(r.causes, ", or "))
		}
		for _, p := range r.poison {
			fmt.Fprintf(&b, "- %s: %s.\n", r.name, p)
		}
	}
	said := "\nWhat else was measured:\n\n"
	for _, r := range rows {
		for _, n := range r.notes {
			fmt.Fprintf(&b, "%s- %s: %s.\n", said, r.name, n)
			said = ""
		}
	}
	return writePart(path, faultsPart, b.String())
}

// writePart puts one part of the document in place of what it was, and keeps all that is written by hand, and the
// other part.
func writePart(path, title, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), "\n"+title)
	if !found {
		return fmt.Errorf("%s has no part %q", path, title)
	}
	if _, after, found := strings.Cut(rest, "\n## "); found {
		text = strings.TrimRight(text, "\n") + "\n\n## " + after
	}
	return os.WriteFile(path, []byte(before+"\n"+title+text), 0o644)
}

// about says when, where and with what.
func about() string {
	server, err := redistest.Version(context.Background())
	if err != nil {
		server = "?"
	}
	return fmt.Sprintf("%s, %d cores, %s/%s, %s, %s", time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(),
		runtime.GOOS, runtime.GOARCH, server, strings.Replace(runtime.Version(), "go", "Go ", 1))
}

func (v *verdict) problem(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}
