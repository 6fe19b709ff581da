// Command bench measures this library and the floor: the same structures moved by bare Redis commands. It starts its
// own redis-server for every measurement, prints a table, and writes its part of docs/benchmarks.md.
//
//	go run . peers               beside what people would pick instead, about 30 minutes; writes the other part
//	go run .                     everything else, about 15 minutes
//	go run . -quick              a short look, about a minute; nothing is written
//	go run . -scenarios 'drain'  some of it; nothing is written
//	go run . -check              compare with recorded.json, exit 1 where it got worse
//	go run . -record             write recorded.json
//	go run . -against HEAD~20    that commit and this tree, uncommitted changes included, in turns, about 10 minutes
//	go run . -instructions       the machine instructions of redis-server for each kind of call; needs valgrind
//
// With -against the ratios tell what a change of the library costs. Ratios to the commit that this tree is made from
// (-against HEAD) show how much of them is noise.
// With -instructions -against HEAD~20 -rounds 3 instructions are compared, in three minutes. Their noise is below 1 %.
//
// Programs beside it, each with -help:
//
//	go run . scale               on paper: the nodes, memory and clients that a load needs
//	go run . payloads            what a larger payload costs
//	go run . shards              what a message costs over several shards of a Cluster
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if addr := os.Getenv(strangerEnv); addr != "" {
		beStranger(addr)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runNamed(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// programs are what can be named as the first argument. They write to stdout, and do not touch the document.
var programs = map[string]func(ctx context.Context, args []string) error{
	"payloads": runPayloads,
	"peers":    runPeers,
	"scale":    runScale,
	"shards":   runShards,
	workerWord: runWorker,
}

// runNamed runs the program that the first argument names, or else the comparison.
func runNamed(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return run(ctx)
	}
	program, ok := programs[args[0]]
	if !ok {
		return fmt.Errorf("no program %q: the programs are %s", args[0],
			strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
	}
	err := program(ctx, args[1:])
	if errors.Is(err, flag.ErrHelp) { // it has been printed
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}

// document is what a run of everything writes.
const document = "../docs/benchmarks.md"

// options are what the flags say.
type options struct {
	only, against                string
	rounds                       int
	quick, check, record, asJSON bool
	instructions                 bool
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.only, "scenarios", "", "run the scenarios whose names match this expression")
	flag.BoolVar(&o.quick, "quick", false,
		"small numbers and one round: shows that all works, proves nothing; nothing is written")
	flag.BoolVar(&o.check, "check", false, "run the cheapest scenarios and compare their ratios with recorded.json")
	flag.BoolVar(&o.record, "record", false, "like -check, but write the ratios")
	flag.BoolVar(&o.asJSON, "json", false, "one round of this library alone, printed as JSON; nothing is written")
	flag.StringVar(&o.against, "against", "", "measure the library of this `commit` and of this tree in turns, and print "+
		"ratios (this tree / commit) of -scenarios, or else of "+strings.Join(againstScenarios, "; "))
	flag.BoolVar(&o.instructions, "instructions", false, "count by valgrind how many machine instructions of "+
		"redis-server each kind of call of this library costs; nothing is written")
	flag.IntVar(&o.rounds, "rounds", againstRounds, "with -against, measure each side so often")
	flag.Parse()
	if o.check || o.record {
		return runCheck(ctx, newBench(os.Stdout, false), "recorded.json", o.record)
	}
	chosen, err := o.chosen()
	switch {
	case err != nil:
		return err
	case o.asJSON:
		return printJSON(ctx, chosen, o.quick)
	case o.against != "":
		return runAgainst(ctx, o.against, chosen, o.rounds, o.quick)
	}
	return compareSystems(ctx, chosen, o)
}

// chosen are the scenarios that the flags name: with -json and -against those of this library.
func (o options) chosen() ([]scenario, error) {
	if o.rounds < 1 {
		return nil, fmt.Errorf("-rounds is %d, and must be at least 1", o.rounds)
	}
	if o.instructions {
		return []scenario{{name: "instructions", kind: instructionsTable, systems: []string{nameLibrary},
			measure: countInstructions}}, nil
	}
	only, ofLibrary := o.only, o.asJSON || o.against != ""
	if only == "" && o.against != "" {
		only = exactly(againstScenarios...)
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-scenarios: %w", err)
	}
	var chosen []scenario
	for _, s := range scenarios(o.quick) {
		if match.MatchString(s.name) && (!ofLibrary || slices.Contains(s.systems, nameLibrary)) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no scenario matches %q", only)
	}
	return chosen, nil
}

// exactly is an expression that matches these names alone.
func exactly(names ...string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}

// compareSystems measures all systems. If it measures everything, it writes the document.
func compareSystems(ctx context.Context, chosen []scenario, o options) error {
	begun := time.Now()
	res, err := newBench(os.Stdout, o.quick).run(ctx, chosen)
	if err != nil {
		return err
	}
	tables := tablesOf(res)
	printTables(os.Stdout, tables)
	if o.only != "" || o.quick || o.instructions {
		return nil
	}
	about, err := describeMachine(ctx)
	if err != nil {
		return err
	}
	about.took = time.Since(begun)
	printTables(os.Stdout, []table{targetsOf(res, targets())})
	if err := writeReport(document, about, res, tables); err != nil {
		return err
	}
	fmt.Printf("\nwritten: %s\n", document)
	return nil
}
