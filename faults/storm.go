package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The outbox has a program of its own, in the module that has the drivers of databases.
var storms = []scenario{{
	name: "outbox: services, PostgreSQL and Redis",
	holds: "four services write 3,000 orders, of whose transactions a third roll back: each order that was committed is " +
		"handled, no other is, and none has two messages unless Redis had forgotten one",
	run: storm,
}}

const stormModule = "../outbox/databases"

// storm runs that program in its small size.
func storm(ctx context.Context) (*verdict, error) {
	dir, err := os.MkdirTemp("", "faults-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "storm")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./storm")
	build.Dir = stormModule
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	var said bytes.Buffer
	run := exec.CommandContext(ctx, program, "-fast", "-json")
	run.Stderr = &said
	out, err := run.Output()
	if ended := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ended) {
		return nil, err
	}
	return stormVerdict(out, said.String()), nil
}

// stormVerdict reads what the program found. said is what else it said.
func stormVerdict(text []byte, said string) *verdict {
	var found struct {
		Committed, Handled, Lost, Early, Twice, Missing int

		Gap      time.Duration
		Healed   int
		Strikes  map[string]int
		Findings []string
	}
	v := &verdict{}
	if err := json.Unmarshal(text, &found); err != nil {
		v.problem("the storm did not come to its end: %s", said)
		return v
	}
	v.accepted, v.handled, v.lost = found.Committed, found.Handled, found.Lost
	v.early, v.duplicated, v.unaccounted = found.Early, found.Twice, found.Missing
	v.gap, v.problems = found.Gap, found.Findings
	for _, n := range found.Strikes {
		v.struck += n
	}
	if v.duplicated > 0 {
		v.causes = []string{"Redis had forgotten the message, and it was sent again"}
	}
	v.notes = append(v.notes, fmt.Sprintf("%d messages were sent again that Redis had forgotten", found.Healed))
	return v
}
