package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
func printTable(out io.Writer, rows []row, verbose bool) {
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
		if verbose {
			for _, line := range append(r.doubles, r.poison...) {
				fmt.Fprintf(out, "%s: %s\n", r.name, line)
			}
			fmt.Fprintf(out, "%s: latest first start %v after due, resumed within %v, back from a kill within %v, longest send %v\n", r.name,
				r.late, r.resumed, r.comeback, r.sending)
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

// The parts of reliability.md, each written by a run of its own.
const (
	documentHead = "# Reliability\n\nWhat became of every message while Redis, the network and the consumers broke. " +
		"Written by `make faults` and `make soak`.\n"
	faultsPart = "## Faults\n"
	soakPart   = "## Soak\n"
)

// besides says what rows are about that do not speak for themselves.
const besides = `
Some rows are about what messages can do beyond being sent and handled, under killed consumers, lost replies and a failover
of Sentinel, which forgets what was written last in those of sequences, debounce, groups and schedules.
*results*: what is kept is what the handler said whose delivery was acked. *chains*: what a handler names by ` + "`" + `Then` + "`" + `
follows the ack, once. *sequences*: four relays, which are killed too, send the same
numbered rows of eight outboxes; each number is one message, and none is left out. So that a failover leaves out none, a
relay sends with ` + "`" + `WithReplicaAck` + "`" + `, begins with the last number that is there, and goes on when that is confirmed.
*debounce*: four producers replace and reschedule what waits under 20 keys; what is handed out is the last change before,
the last of all is handled, and none is put off longer than ` + "`" + `WithMaxWait` + "`" + `, beyond what a lost consumer costs.
*groups*: they append to 10 groups; each part is in one message, once, in the order of the sends, and is handled with all others of it.
*pools*: each consumer handles three queues of weight 6, 3 and 1 with the same 32 workers; each queue is judged by itself.
*schedules*: four replicas, of which some are killed and one is frozen over the failover, run the same 60 entries; each instant is one
message, and none is left out. What the promoted replica had not heard of is sent again, under the same instant. In two rows the primary is
replaced as planned, which leaves the old one alive for a while, and each send waits for all replicas.
`

// writeFaults writes the table of all faults.
func writeFaults(dir string, rows []row, took time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, in %s. %d producer and %d consumer processes, unless a row says otherwise; "+
		"of every 1,000 payloads 20 are slow, 52 fail, "+
		"and 5 are given up on by their handlers, which counts as handled. Early is by the server's clock; a duplicate is a start that no "+
		"failure of the handler explains. The longest gap is that between the starts of any two handlers while messages were sent, "+
		"outages included.\n\n", about(), took.Round(time.Second), usual.Producers, consumers)
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
			fmt.Fprintf(&b, "- %s: run again, for it took too long, of this machine or not: %s.\n", r.name, p)
		}
		for _, p := range r.poison {
			fmt.Fprintf(&b, "- %s: %s.\n", r.name, p)
		}
	}
	fmt.Fprintf(&b, "\nThe user of least privilege, for a queue called orders:\n\n```\n"+
		"ACL SETUSER app on >secret resetchannels ~{dq:orders}:* %s\n```\n", leastPrivilege)
	return writePart(dir, faultsPart, b.String())
}

// writePart puts one part of the document in place of what it was, and keeps the others.
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
