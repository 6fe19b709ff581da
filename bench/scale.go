package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// runScale says on paper what a load needs. It measures nothing.
func runScale(_ context.Context, args []string) error {
	l, figures, err := parseLoad(args, os.Stdout)
	if err != nil {
		return err
	}
	if figures {
		return printFigures(os.Stdout)
	}
	p, err := planFor(l)
	if err != nil {
		return err
	}
	return printPlan(os.Stdout, p)
}

// parseLoad reads a load from a command line. Help goes to out.
func parseLoad(args []string, out io.Writer) (l load, figures bool, err error) {
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is said once, by who gets it
	flags.IntVar(&l.size, "size", payloadSize, "bytes of a payload")
	flags.Float64Var(&l.rate, "rate", 10_000, "messages a second that are sent, and that are handled")
	flags.Float64Var(&l.pending, "pending", 1e6, "messages that wait")
	flags.BoolVar(&l.singly, "singly", false, "messages are sent one by one from many goroutines, not in batches")
	flags.BoolVar(&l.soon, "soon", false, "all messages wait for about as long; else they are due at random instants")
	flags.IntVar(&l.nodes, "nodes", 0, "primaries; 0: as many as are needed")
	flags.IntVar(&l.largest, "largest", 0,
		"primaries that there will ever be; 0: twice -nodes, or -nodes if that is above 64")
	memory := flags.Float64("memory", 16, "GB (10^9 bytes) of a node that Redis may use")
	margin := flags.Float64("margin", 50, "% of memory beyond the data, for copy-on-write and fragmentation")
	utilisation := flags.Float64("utilisation", 60, "% of a core that may be busy, on nodes and clients")
	flags.IntVar(&l.replicas, "replicas", 1, "replicas of each primary")
	flags.IntVar(&l.consumers, "consumers", 0, "consumer processes; 0: as many as are needed")
	flags.IntVar(&l.senders, "senders", 0, "sending processes; 0: as many as consumers")
	flags.IntVar(&l.cores, "cores", 4, "cores of a consumer process")
	flags.DurationVar(&l.handler, "handler", time.Millisecond, "time that a handler takes")
	flags.IntVar(&l.workers, "workers", 0, "workers of a consumer process; 0: as many as are needed")
	flags.DurationVar(&l.nodeTimeout, "node-timeout", 15*time.Second, "cluster-node-timeout; the default is Redis's")
	flags.BoolVar(&figures, "figures", false, "print the figures that this is computed from, and where they stand")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(out,
				"scale computes the nodes, memory and clients that a load needs, from figures of docs/benchmarks.md.")
			flags.SetOutput(out)
			flags.PrintDefaults()
		}
		return l, false, err
	}
	if flags.NArg() > 0 {
		return l, false, fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	l.memory, l.margin, l.utilisation = *memory*1e9, *margin/100, *utilisation/100
	return l, figures, nil
}

// printFigures says where figures come from.
func printFigures(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "figure\t\ttable of docs/benchmarks.md\trow\tcolumn")
	for _, f := range measuredFigures {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.what, figure(f.value), f.table, f.row, f.head)
	}
	return w.Flush()
}

// printPlan writes a plan as aligned tables.
func printPlan(out io.Writer, p plan) error {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	part := func(title string, lines ...[3]string) {
		fmt.Fprintf(w, "%s\n", title)
		for _, l := range lines {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", l[0], l[1], l[2])
		}
	}
	// Whole numbers, if they are no figures.
	num := func(n int) string {
		if n < 1000 {
			return fmt.Sprint(n)
		}
		return figure(float64(n))
	}
	gb := func(bytes float64) string { return figure(bytes/1e9) + " GB" }
	mb := func(bytes float64) string { return figure(bytes/1e6) + " MB/s" }
	percent := func(part float64) string { return figure(part*100) + " %" }

	part("Message",
		[3]string{"memory", figure(p.bytes) + " B", fmt.Sprintf("pending, with a payload of %s B", num(p.size))},
		[3]string{"Redis CPU", figure(p.cpuSend+p.cpuHandle) + " us",
			fmt.Sprintf("send %s, handle %s: %s, %s", figure(p.cpuSend), figure(p.cpuHandle),
				choose(p.singly, "sent singly", "sent in batches"),
				choose(p.soon, "due after about as long", "due at random instants"))})
	part("Nodes",
		[3]string{"needed", num(max(p.byMemory, p.byCPU)),
			fmt.Sprintf("memory %d, CPU %d at %s of a core", p.byMemory, p.byCPU, percent(p.utilisation))},
		[3]string{"primaries", num(p.nodes), ""},
		[3]string{"replicas", num(p.nodes * p.replicas), fmt.Sprintf("%d of each", p.replicas)},
		[3]string{"memory of a node", gb(p.memNode),
			fmt.Sprintf("data %s, and %s for copy-on-write and fragmentation; it has %s",
				gb(p.dataNode), percent(p.margin), gb(p.memory))},
		[3]string{"memory in all", gb(p.memAll), "with replicas"},
		[3]string{"CPU of a node", percent(p.cpuNode), fmt.Sprintf("of the core that carries out commands, at %s messages/s",
			figure(p.rate/float64(p.nodes)))},
		[3]string{"network of a node", mb(p.inNode + p.outNode + p.copyNode),
			fmt.Sprintf("in %s, out to clients %s, to replicas %s",
				mb(p.inNode), mb(p.outNode), mb(p.copyNode))},
		[3]string{"network in all", mb((p.inNode + p.outNode + p.copyNode) * float64(p.nodes)), ""})
	part("Shards",
		[3]string{"shards", num(p.shards), fmt.Sprintf("%d on a node, for at most %d nodes", p.shards/p.nodes, p.largest)},
		[3]string{"even over", joined(p.evenly), "nodes"})
	part("Clients, beside what handlers do",
		[3]string{"consumer processes", num(p.consumers),
			fmt.Sprintf("%s messages/s each, and %s cores of %d", figure(p.rate/float64(p.consumers)),
				figure(p.clientHandle/float64(p.consumers)), p.cores)},
		[3]string{"workers of each", num(p.workers), fmt.Sprintf("%s busy in all, with handlers of %v", figure(p.busyWorkers),
			p.handler)},
		[3]string{"sending processes", num(p.senders), figure(p.clientSend/float64(p.senders)) + " cores each"},
		[3]string{"cores in all", figure(p.clientHandle + p.clientSend),
			fmt.Sprintf("handle %s, send %s", figure(p.clientHandle), figure(p.clientSend))},
		[3]string{"connections of a consumer", num(p.consumerNode * p.nodes),
			fmt.Sprintf("at most; %d to a node", p.consumerNode)},
		[3]string{"connections of a sender", num(p.senderNode * p.nodes), fmt.Sprintf("at most; %d to a node", p.senderNode)},
		[3]string{"connections of a node", num(p.connNode), fmt.Sprintf("at most; %s in all", num(p.connAll))})
	if p.replicas > 0 {
		caughtUp := "does not catch up"
		if p.catchUp > 0 {
			caughtUp = "and " + p.catchUp.Round(100*time.Millisecond).String() + " later all are handled"
		}
		part("Failover of a node",
			[3]string{"gap", p.gap.Round(10 * time.Millisecond).String(),
				fmt.Sprintf("cluster-node-timeout %v, and %v as measured of a frozen primary", p.nodeTimeout,
					gapFrozen-gapNodeTimeout)},
			[3]string{"messages that wait", figure(p.waiting), fmt.Sprintf("one of %d; %s", p.nodes, caughtUp)})
	}
	if len(p.missing) > 0 {
		part("Mind")
		for _, m := range p.missing {
			fmt.Fprintf(w, "  %s\n", m)
		}
	}
	_ = w.Flush() // to memory
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func choose(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

func joined(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ", ")
}
