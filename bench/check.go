package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
)

// worse is how much a ratio may grow over the recorded one.
const worse = 1.5

// ratios are what the library costs as multiples of what the floor costs in the same run.
// They say little about the machine, so they can be compared with those of another.
type ratios map[string]float64

// errWorse: a ratio has grown too much.
var errWorse = errors.New("slower than recorded")

// checkScale makes the check fast enough for every commit.
const checkScale = 0.5

// mostChecks is how often it is measured what was slower than recorded each time: a machine may have other things to
// do.
const mostChecks = 3

// runCheck measures the cheapest scenarios and compares their ratios with the recorded
// ones, or records them. Of several measurements the best counts.
func runCheck(ctx context.Context, b *bench, file string, record bool) error {
	b.scale = checkScale
	var then ratios
	if !record {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("check: no recorded ratios (-record makes them): %w", err)
		}
		if err := json.Unmarshal(text, &then); err != nil {
			return fmt.Errorf("check: %s: %w", file, err)
		}
	}
	best := ratios{}
	for n := 1; ; n++ {
		res, err := b.run(ctx, cheap())
		if err != nil {
			return err
		}
		now, err := ratiosOf(res)
		if err != nil {
			return err
		}
		if record {
			return now.record(file, res)
		}
		best.improve(now)
		fmt.Printf("\n%-42s %9s %9s\n", "library / floor", "recorded", "now")
		for _, name := range slices.Sorted(maps.Keys(best)) {
			fmt.Printf("%-42s %9s %9s\n", name, figure(then[name]), figure(best[name]))
		}
		if err := compare(then, best); !errors.Is(err, errWorse) || n == mostChecks {
			return err
		}
	}
}

// improve takes over what is better in another measurement.
func (r ratios) improve(now ratios) {
	for name, v := range now {
		if best, ok := r[name]; !ok || v < best {
			r[name] = v
		}
	}
}

func (r ratios) record(file string, res *results) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	printTables(os.Stdout, tablesOf(res))
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// ratiosOf reads them from results; the lower the better.
func ratiosOf(res *results) (ratios, error) {
	out := ratios{}
	var errs []error
	add := func(row string, m metric, inverse bool) {
		v, ok := to(row, m, row, nameFloor)(res)
		if !ok || !(v > 0) {
			errs = append(errs, fmt.Errorf("check: %s: no ratio of %s", row, m))
			return
		}
		name := row + ": " + string(m)
		if inverse {
			v, name = 1/v, row+": s/message"
		}
		out[name] = math.Round(v*1000) / 1000
	}
	for _, row := range []string{sendBatch, drain64} {
		add(row, redisCPU, false)
		add(row, rate, true)
	}
	add(memName, bytesEach, false)
	return out, errors.Join(errs...)
}

// compare returns an error that names each ratio which is worse than recorded, or which
// was not recorded or not measured.
func compare(then, now ratios) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(then)) {
		if _, ok := now[name]; !ok {
			errs = append(errs, fmt.Errorf("check: %s: recorded, but not measured", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		old, ok := then[name]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("check: %s: not recorded: run with -record", name))
		case now[name] > old*worse:
			errs = append(errs, fmt.Errorf("check: %s: %w: %.2f times the floor, recorded %.2f", name, errWorse, now[name], old))
		}
	}
	return errors.Join(errs...)
}
