package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPart: a part of make check-all that has passed has one row, which its next run replaces. One that has failed
// leaves the page as it is.
func TestPart(t *testing.T) {
	script, err := os.ReadFile("../.ci/part")
	if err != nil {
		t.Fatal(err)
	}
	const before, after = "# Reliability\n\n| `good` | in another table |\n\n", "\n## Soak\n\nsoak\n"
	const table = "## Runs of make check-all\n\n| part |\n|---|\n"
	dir := t.TempDir()
	write(t, dir, ".ci/part", string(script))
	write(t, dir, "Makefile", "good other:\n\t@true\nbad:\n\t@false\n")
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
	for _, run := range []struct {
		part, change string // a file that is written before, and not committed
		rows         string
	}{
		{"good", "", row("good", "")},
		{"other", "", row("good", "") + row("other", "")},
		{"bad", "", row("good", "") + row("other", "")},
		{"good", "new.go", row("good", ", with changes") + row("other", "")},
	} {
		if run.change != "" {
			write(t, dir, run.change, "package part\n")
		}
		if err := do("bash", ".ci/part", run.part); (err == nil) != (run.part != "bad") {
			t.Errorf("%s: %v", run.part, err)
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
