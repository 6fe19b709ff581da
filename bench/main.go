// Command bench measures this library, github.com/hibiken/asynq, and the floor: the same
// structures moved by bare Redis commands. It starts its own redis-server for every
// measurement, prints a table, and writes docs/benchmarks.md.
//
//	go run .                     everything, about 15 minutes
//	go run . -quick              a short look, about a minute; nothing is written
//	go run . -scenarios 'drain'  some of it; nothing is written
//	go run . -check              compare with recorded.json, exit 1 where it got worse
//	go run . -record             write recorded.json
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
	"scale":    runScale,
	"shards":   runShards,
}

// runNamed runs the program that the first argument names, or else the comparison.
func runNamed(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return run(ctx)
	}
	program, ok := programs[args[0]]
	if !ok {
		return fmt.Errorf("no program %q: the programs are %s", args[0], strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
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

func run(ctx context.Context) error {
	only := flag.String("scenarios", "", "run the scenarios whose names match this expression")
	quick := flag.Bool("quick", false, "small numbers and one round: shows that all works, proves nothing; nothing is written")
	check := flag.Bool("check", false, "run the cheapest scenarios and compare their ratios with recorded.json")
	record := flag.Bool("record", false, "like -check, but write the ratios")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-scenarios: %w", err)
	}

	if *check || *record {
		return runCheck(ctx, newBench(os.Stdout, false), "recorded.json", *record)
	}
	var chosen []scenario
	for _, s := range scenarios(*quick) {
		if match.MatchString(s.name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no scenario matches %q", *only)
	}
	begun := time.Now()
	res, err := newBench(os.Stdout, *quick).run(ctx, chosen)
	if err != nil {
		return err
	}
	tables := tablesOf(res)
	printTables(os.Stdout, tables)
	if *only != "" || *quick {
		return nil
	}
	about, err := describeMachine(ctx)
	if err != nil {
		return err
	}
	about.took = time.Since(begun)
	printTables(os.Stdout, []table{targetsOf(res)})
	if err := writeReport(document, about, res, tables); err != nil {
		return err
	}
	fmt.Printf("\nwritten: %s\n", document)
	return nil
}
