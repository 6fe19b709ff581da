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
	end(runAll(ctx, *only))
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

// mostTries is how often a scenario is run that took too long each time.
const mostTries = 3

// runAll runs the chosen scenarios one after the other.
func runAll(ctx context.Context, only string) error {
	chosen := choose(only)
	if len(chosen) == 0 {
		return fmt.Errorf("no fault is called %q; -list names them", only)
	}
	begun := time.Now()
	var rows []row
	wrong := 0
	for i := range chosen {
		fmt.Printf("%4d/%d  %5s  %s\n", i+1, len(chosen), time.Since(begun).Round(time.Second), chosen[i].name)
		var v *verdict
		var before []string
		for try := 1; try == 1 || try <= mostTries && v.again(); try++ {
			if try > 1 { // the machine may have had other things to do
				fmt.Printf("%s took too long, and is run again: %q\n", chosen[i].name, v.problems)
				before = append(before, v.problems...)
			}
			var err error
			if v, err = runTrial(ctx, &chosen[i]); err != nil {
				return err
			}
		}
		v.before = before
		rows = append(rows, row{&chosen[i], v})
		wrong += len(v.problems)
	}
	printTable(os.Stdout, rows)
	if wrong > 0 {
		return fmt.Errorf("%d things are wrong", wrong)
	}
	if only != "" {
		return nil
	}
	return writeFaults(document, rows, time.Since(begun))
}

// choose returns the scenarios whose names hold one of the parts.
func choose(only string) []scenario {
	if only == "" {
		return scenarios
	}
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool {
		return !slices.ContainsFunc(strings.Split(only, ","), func(part string) bool { return strings.Contains(s.name, part) })
	})
}
