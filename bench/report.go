package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// kindNotes explain what a table's figures are.
var kindNotes = [kinds]string{
	throughputTable: "Costs are those of one message: CPU time of Redis's main thread (`INFO cpu`) and of the " +
		"whole client process, the bench included; commands with those inside scripts (`INFO commandstats`); " +
		"round trips counted on the connections; heap allocations of the client process.",
	latenessTable: "`live` counts from the call of the send, the others from the due instant. `herd` has 64 idle " +
		"consumers and 200 messages a second. asynq keeps whole seconds and looks every five.",
	idleTable:   "Commands include those inside scripts.",
	memoryTable: "`used_memory`, per message.",
	massTable: "The longest time that anything held the server (`SLOWLOG`, `LATENCY`), " +
		"and how long the PINGs of another process took meanwhile.",
	strangerTable: "Handlers do nothing. Each consumer has a client of its own, so it calls as a process of its own would. " +
		"The idle server is another one on the same machine, at the same time. `WithFetchLimit` makes the consumers' calls smaller.",
	poolTable: "`weights` are 6, 3 and 1, with a backlog in each queue; shown is the queue whose part of what was handled in ten " +
		"seconds is furthest off. The others have 200 messages a second in a first queue, with their lateness in ms, " +
		"beside a second one with more than the workers can do: handlers of 1 ms in a strict pool (messages/s: the second queue's), " +
		"or handlers that do not end and at most 12 of them.",
	backlogTable: "The pending messages are due at random instants of the next day. Those sent here are due in an hour, or also at random, " +
		"in batches of 500 (asynq: singly); the drain is that of 64 workers. Measured after Redis has finished growing its hash tables.",
}

// kindPlots are the pictures that go with a table.
var kindPlots = [kinds]string{throughputTable: plotThroughput, latenessTable: plotLateness, backlogTable: plotBacklog}

// writeReport writes benchmarks.md and the plots into a directory.
func writeReport(dir string, a about, res *results, tables []table) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	drawn, err := drawPlots(dir, res)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var b strings.Builder
	command := "make bench"
	if a.quick {
		command = "cd bench && go run . -quick"
	}
	fmt.Fprintf(&b, "# Benchmarks\n\nWritten by `%s` on %s, in %s. Medians; each measurement on a server of its own, "+
		"the systems in turns.\n\n",
		command, a.when.UTC().Format("2006-01-02"), a.took.Round(time.Second))
	if a.quick {
		b.WriteString("**A quick run: small numbers, one round. It shows that all works and proves nothing.**\n\n")
	}
	fmt.Fprintf(&b, "- %s\n- %s\n\n", a.machine, strings.Join(a.versions, ", "))
	fmt.Fprintf(&b, "`%s` is the least that anything on these structures costs: the same sorted sets and hash, moved by "+
		"bare variadic commands in batches of 500, pipelined, with no script, no option and no check, so it loses or "+
		"repeats messages as soon as something goes wrong. Client and server share the machine's cores.\n\n", nameFloor)

	b.WriteString("## Targets\n\n| | target | measured | |\n|---|--:|--:|---|\n")
	for _, v := range targetsOf(res) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", v.what, v.want, v.got, v.word())
	}
	for k := range kinds {
		for _, t := range tables {
			if t.title != kindTitles[k] {
				continue
			}
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s", t.title, kindNotes[k], t.markdown())
			if drawn[kindPlots[k]] {
				fmt.Fprintf(&b, "\n![%s](%s)\n", t.title, kindPlots[k])
			}
		}
	}
	path := filepath.Join(dir, "benchmarks.md")
	b.WriteString(serversOf(path))
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
