package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	role := flag.String("role", "", "be a program of a trial; for the suite itself")
	only := flag.String("only", "", "faults to run, by parts of their names with commas between; nothing is written")
	quick := flag.Bool("fast", false, "run the ten faults that found most; nothing is written")
	list := flag.Bool("list", false, "list the faults")
	minutes := flag.Int("soak", 0, "soak for so many minutes instead")
	flag.Parse()
	if *role != "" {
		end(serve(*role))
	}
	if *list {
		for _, s := range scenarios {
			fmt.Printf("%-28s %s\n", s.name, s.holds)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	redis.SetLogger(quiet{}) // the programs' logs have it
	if *minutes > 0 {
		end(soak(ctx, *minutes))
	}
	chosen, err := choose(*only, *quick)
	if err != nil {
		end(err)
	}
	end(runAll(ctx, chosen))
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runAll runs the chosen scenarios one after the other, and writes the document if these are all.
func runAll(ctx context.Context, chosen []scenario) error {
	begun := time.Now()
	var rows []row
	wrong := 0
	for i := range chosen {
		fmt.Printf("%4d/%d  %5s  %s\n", i+1, len(chosen), time.Since(begun).Round(time.Second), chosen[i].name)
		v, err := runTrial(ctx, &chosen[i])
		if err != nil {
			return err
		}
		rows = append(rows, row{&chosen[i], v})
		wrong += len(v.problems)
	}
	printTable(os.Stdout, rows)
	if wrong > 0 {
		return fmt.Errorf("%d things are wrong", wrong)
	}
	fmt.Printf("nothing is wrong with %d faults, in %v\n", len(rows), time.Since(begun).Round(time.Second))
	if len(rows) < len(scenarios) {
		return nil
	}
	return writeFaults(document, rows, time.Since(begun))
}

// choose returns the scenarios whose names hold one of the parts, the fast ones, or all.
func choose(only string, quick bool) ([]scenario, error) {
	var chosen []scenario
	for _, s := range scenarios {
		isNamed := func(part string) bool { return strings.Contains(s.name, part) }
		if slices.ContainsFunc(strings.Split(only, ","), isNamed) && (!quick || slices.Contains(fast, s.name)) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no fault is called %q; -list names them", only)
	}
	return chosen, nil
}
