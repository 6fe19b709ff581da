package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// The servers that others run: the same few measurements on each that .ci/servers knows. The table is a part of
// benchmarks.md of its own, which a run of all scenarios leaves as it is.

const (
	speedPart   = "## What bounds the speed\n" // written by hand
	serversPart = "## Servers\n"
)

// serverScenarios are what is measured on each server, beside the floor.
func serverScenarios() []scenario {
	ours := except(nameAsynq)
	return []scenario{
		{name: send1, kind: throughputTable, systems: ours, rounds: 3, measure: sendSingly(1, 20_000, 0)},
		{name: sendBatch, kind: throughputTable, systems: ours, rounds: 3, measure: sendBatches(200_000)},
		{name: drain64, kind: throughputTable, systems: ours, rounds: 3, measure: drain(64, 200_000, 0)},
		{name: memName, kind: memoryTable, systems: ours, rounds: 1, measure: memory(100_000, 0)},
	}
}

// serverColumns are the figures of serverScenarios, each followed by its ratio to the floor's.
var serverColumns = []struct {
	head, scenario string
	metric         metric
}{
	{"send alone/s", send1, rate},
	{"batches/s", sendBatch, rate},
	{"drain/s", drain64, rate},
	{"bytes a message", memName, bytesEach},
}

// fetchServer names the executable of a server of .ci/servers.
func fetchServer(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "../.ci/servers", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf(".ci/servers %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// benchServers measures all servers that can be had, and writes the table into dir/benchmarks.md unless the run is quick.
func benchServers(ctx context.Context, b *bench, dir string) error {
	begun := time.Now()
	names, err := fetchServer(ctx, "list")
	if err != nil {
		return err
	}
	t := table{title: "Servers", head: []string{"server", "suite"}}
	for _, c := range serverColumns {
		t.head = append(t.head, c.head, "x floor")
	}
	for name := range strings.FieldsSeq(names) {
		path, err := fetchServer(ctx, "path", name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err) // the others can be measured
			continue
		}
		if err := os.Setenv(redistest.ServerEnv, path); err != nil {
			return err
		}
		version, err := redistest.Version(ctx)
		if err != nil {
			return err
		}
		fmt.Println(version)
		res, err := b.run(ctx, serverScenarios())
		if err != nil {
			return fmt.Errorf("%s: %w", version, err)
		}
		line := []string{version, strings.Split(name, "/")[0]}
		for _, c := range serverColumns {
			kind := throughputTable
			if c.scenario == memName {
				kind = memoryTable
			}
			r := res.row(c.scenario, kind)
			line = append(line, cell(r, nameLibrary, column{c.head, c.metric, ""}), cell(r, nameLibrary, column{"x floor", c.metric, nameFloor}))
		}
		t.lines = append(t.lines, line)
	}
	printTables(os.Stdout, []table{t})
	if b.quick {
		return nil
	}
	text := fmt.Sprintf("%s\nWritten by `make bench-servers` on %s, in %s, on %s. "+
		"The servers are packages of Debian's suites, each with the C library of its suite. "+
		"`send alone` has one goroutine, `batches` are of 500, and the drain has 64 workers.\n\n%s",
		serversPart, begun.UTC().Format("2006-01-02"), time.Since(begun).Round(time.Second), processor(), t.markdown())
	return replaceServers(filepath.Join(dir, "benchmarks.md"), text)
}

// replaceServers puts the part on servers at the end of the document, in place of the one that is there.
func replaceServers(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	rest, _, _ := strings.Cut(string(old), "\n"+serversPart)
	return os.WriteFile(path, []byte(strings.TrimRight(rest, "\n")+"\n\n"+text), 0o644)
}

// keptOf is what a run leaves as it is at the end of a document: the part written by hand, and the part on servers. It is "" if there is none.
func keptOf(path string) string {
	old, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, first := range []string{speedPart, serversPart} {
		if _, part, found := strings.Cut(string(old), "\n"+first); found {
			return "\n" + first + part
		}
	}
	return ""
}
