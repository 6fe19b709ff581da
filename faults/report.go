package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

var head = []string{"struck", "accepted", "handled", "lost", "early", "duplicated", "longest gap"}

func (r row) cells() []string {
	var cells []string
	for _, n := range []int{r.struck, r.accepted, r.handled, r.lost, r.early, r.duplicated} {
		cells = append(cells, fmt.Sprint(n))
	}
	return append(cells, seconds(r.gap))
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
		for i, p := range r.problems {
			if i == problemsShown {
				fmt.Fprintf(out, "%s: and %d more\n", r.name, len(r.problems)-i)
				break
			}
			fmt.Fprintf(out, "%s: WRONG: %s\n", r.name, p)
		}
	}
}

// The parts of reliability.md, each written by a run of its own.
const (
	documentHead = "# Reliability\n\nWhat became of every message while Redis, the network and the consumers broke. " +
		"Written by `make faults` and `make soak`.\n"
	faultsPart = "## Faults\n"
	soakPart   = "## Soak\n"
)

// besides says what the rows are about whose names do not say it.
const besides = `
Some rows are about more than sending and handling. Consumers are killed in them, replies are lost, and the primary fails over by
Sentinel. That failover forgets the last writes in the rows of sequences, debounce, groups and schedules.

- *results*: the result that is kept comes from the delivery that was acked.
- *chains*: a message that a handler names by ` + "`" + `Then` + "`" + ` follows the ack, once.
- *sequences*: four relays, which are killed too, send the same numbered rows of eight outboxes. Each number is one message, and none
  is left out. To lose none in a failover, a relay sends with ` + "`" + `WithReplicaAck` + "`" + `, begins with the last number that is there, and goes
  on when that number is confirmed.
- *debounce*: four producers replace and reschedule the messages under 20 keys. A handler gets the last change before its start. The
  last change of all is handled. No message is put off longer than ` + "`" + `WithMaxWait` + "`" + ` and the time that a lost consumer costs.
- *groups*: four producers append to 10 groups. Each part is in one message, once, in the order of the sends, and is handled with all
  other parts of that message.
- *pools*: each consumer handles three queues of weight 6, 3 and 1 with the same 32 workers. Each queue is judged by itself.
- *schedules*: four replicas run the same 60 entries. Some replicas are killed, and one is frozen over the failover. Each instant is one
  message, and none is left out: if the promoted replica does not have a message, it is sent again, for the same instant. In two rows the
  failover is planned, so the old primary lives on for a while, and each send waits for all replicas.
`

// writeFaults writes the table of all faults.
func writeFaults(dir string, rows []row, took time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, in %s. There are %d producer and %d consumer processes, unless a row says otherwise. "+
		"Of every 1,000 payloads 20 are slow, 52 fail, and 5 are given up on by their handlers, which counts as handled. "+
		"Early is judged by the server's clock. A duplicate is a start of a handler that no failure of it explains. "+
		"The longest gap is the longest time between two starts of handlers while messages were sent, outages included.\n\n", about(), took.Round(time.Second), usual.Producers, consumers)
	fmt.Fprintf(&b, "| fault | %s | must hold, beyond nothing lost, nothing early, and nothing twice without a cause |\n|---|%s---|\n",
		strings.Join(head, " | "), strings.Repeat("--:|", len(head)))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.name, strings.Join(r.cells(), " | "), r.holds)
	}
	b.WriteString(besides)
	b.WriteString("\nWhy messages were lost by Redis, or handled twice:\n\n")
	for _, r := range rows {
		if r.lost > 0 {
			fmt.Fprintf(&b, "- %s: %d lost: %s.\n", r.name, r.lost, r.rules.lossy)
		}
		if r.duplicated > 0 {
			fmt.Fprintf(&b, "- %s: %d handled twice: %s.\n", r.name, r.duplicated, strings.Join(r.causes, ", or "))
		}
		for _, p := range r.before {
			fmt.Fprintf(&b, "- %s: run again, because it took too long, which may be this machine's fault: %s.\n", r.name, p)
		}
		for _, p := range r.poison {
			fmt.Fprintf(&b, "- %s: %s.\n", r.name, p)
		}
	}
	return writePart(dir, faultsPart, b.String())
}

// writePart puts one part of the document in place of what it was, and keeps the others, and all that stands before them.
func writePart(dir, title, text string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, "reliability.md")
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	document := documentHead
	first := regexp.MustCompile("(?m)^(" + faultsPart + "|" + soakPart + ")").FindIndex(old)
	if first != nil { // the promises with their tests, which are written by hand
		document = strings.TrimRight(string(old[:first[0]]), "\n") + "\n"
	}
	for _, part := range []string{faultsPart, soakPart} {
		_, body, found := strings.Cut(string(old), "\n"+part)
		body, _, _ = strings.Cut(body, "\n## ")
		if part == title {
			body, found = strings.TrimRight(text, "\n")+"\n", true
		}
		if found {
			document += "\n" + part + strings.TrimRight(body, "\n") + "\n"
		}
	}
	return os.WriteFile(path, []byte(document), 0o644)
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

// tooSlow is a problem that may be this machine's.
func (v *verdict) tooSlow(format string, args ...any) {
	v.problem(format, args...)
	v.slow++
}

// again says whether a trial is to be made once more: nothing is wrong with it but that something took long.
func (v *verdict) again() bool { return v.slow > 0 && len(v.problems) == v.slow }
