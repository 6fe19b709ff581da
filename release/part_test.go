package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPart: a part of make check-all that has passed has one row, which its next run replaces. One that has failed, was
// cut short or ran no test leaves the page as it is.
func TestPart(t *testing.T) {
	const before, after = "# Reliability\n\n| `good` | in another table |\n\n", "\n## Soak\n\nsoak\n"
	const table = "## Runs of make check-all\n\n| part |\n|---|\n"
	dir := t.TempDir()
	for _, name := range []string{".ci/part", ".ci/named"} {
		script, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, string(script))
	}
	write(t, dir, "Makefile", "FUZZTIME ?= 1m\ngood other:\n\t@true\nbad:\n\t@false\nchanged:\n\t@touch changed\n"+
		"none:\n\t@bash .ci/named echo 'ok good 0.1s [no tests to run]'\n")
	write(t, dir, "docs/reliability.md", before+table+after)
	do := func(name string, args ...string) error {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		t.Logf("%s %s: %s", name, strings.Join(args, " "), out)
		return err
	}
	for _, args := range [][]string{
		{"init", "--quiet"}, {"config", "user.name", "part"}, {"config", "user.email", "part@localhost"},
		{"add", "--all"}, {"commit", "--quiet", "--message", "part"},
	} {
		if err := do("git", args...); err != nil {
			t.Fatal(err)
		}
	}
	row := func(part, changes string) string {
		return "\\| `" + part + "` \\| [0-9a-f]+" + changes +
			" \\| [0-9-]+ \\| [0-9]+:[0-9]{2} \\| [0-9]+ \\| 1\\.[^|]+ \\| [^|]+ \\|\n"
	}
	good, both := row("good", ""), row("good", "")+row("other", "")
	for _, run := range []struct {
		env, part, change string // a file that is written before, and not committed
		rows              string
		fails             bool
	}{
		{part: "good", rows: good}, {part: "other", rows: both}, {part: "bad", rows: both, fails: true},
		{env: "MAKEFLAGS=i", part: "bad", rows: both, fails: true},
		{env: "FUZZTIME=1s", part: "good", rows: both, fails: true},
		{part: "none", rows: both, fails: true}, {part: "changed", rows: both, fails: true},
		{part: "good", change: "new.go", rows: row("good", ", with changes") + row("other", "")},
	} {
		if run.change != "" {
			write(t, dir, run.change, "package part\n")
		}
		if err := do("env", "-S", run.env+" bash .ci/part "+run.part); (err != nil) != run.fails {
			t.Errorf("%s %s: %v", run.env, run.part, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "docs/reliability.md"))
		if err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile("^" + regexp.QuoteMeta(before+table) + run.rows + regexp.QuoteMeta(after) + "$")
		if !want.Match(text) {
			t.Errorf("after %s the page is\n%s", run.part, text)
		}
	}
}
