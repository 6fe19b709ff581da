package main

import (
	"fmt"
	"strings"
	"time"
)

// kindNotes explain what a table's figures are.
var kindNotes = [kinds]string{
	throughputTable: "Costs are those of one message. CPU time is that of Redis's main thread (`INFO cpu`) and of the " +
		"whole client process, which includes the bench. Commands include those inside scripts (`INFO commandstats`). " +
		"Round trips are counted on the connections, and heap allocations in the client process.",
	latenessTable: "`live` and the lanes count from the call of the send, the others from the due instant. The lanes " +
		"get 1,000 messages a second, and of the backlog one message is handled at a time. `herd` has 64 idle consumers " +
		"and 200 messages a second.",
	idleTable:   "Commands include those inside scripts.",
	memoryTable: "`used_memory`, per message, with 200,000 of them pending.",
	massTable: "The longest hold is the longest time that anything kept the server busy (`SLOWLOG`, `LATENCY`). " +
		"The PINGs are those of another process meanwhile.",
	backlogTable: "The pending messages are due at random instants of the next day. The messages that are sent are due " +
		"in an hour, or at random instants, in batches of 500. The drain has 64 workers. All is measured " +
		"after Redis has finished growing its hash tables.",
}

// writeReport writes this run's part of the document at path.
func writeReport(path string, a about, res *results, tables []table) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Written by `cd bench && go run .` on %s, in %s. Figures are medians. Each measurement has a server "+
		"of its own, and the systems take turns.\n\n", a.when.UTC().Format("2006-01-02"), a.took.Round(time.Second))
	fmt.Fprintf(&b, "- %s\n- %s\n\n", a.machine, strings.Join(a.versions, ", "))
	fmt.Fprintf(&b, "`%s` is what bare commands cost. It moves the same sorted sets and hash by variadic commands, in "+
		"pipelined batches of 500 where it can. It has no script, no option and no check, so it loses or repeats messages "+
		"as soon as something goes wrong. The library can be faster than that where it gathers what goroutines send at the "+
		"same moment. Handlers do nothing. Client and server share the machine's cores.\n\n", nameFloor)
	fmt.Fprintf(&b, "### Targets\n\nWhat this project wants to reach.\n\n%s", targetsOf(res, targets()).markdown())
	for _, t := range tables {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n%s", t.title, t.note, t.markdown())
	}
	return writePart(path, againstBare, b.String())
}
