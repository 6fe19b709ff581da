package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWriteParts: each run writes its own part and keeps the other's.
func TestWriteParts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "reliability.md")
	const byHand = "# Reliability\n\n## Promises\n\nby hand\n"
	if err := os.WriteFile(path, []byte(byHand+"\n## Faults\n\noutdated\n\n## Soak\n\noutdated\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows := []row{{&scenario{name: "some fault", holds: "all"},
		&verdict{struck: 3, accepted: 20_000, handled: 20_000, gap: 1500 * time.Millisecond, before: []string{"stuck for 9s"}}}}
	for _, write := range []func() error{
		func() error { return writeFaults(path, rows, time.Minute) },
		func() error { return writePart(path, soakPart, "\nsoak\n") },
		func() error { return writeFaults(path, rows, time.Minute) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{byHand + "\n## Faults\n\n",
		"| some fault | 3 | 20000 | 20000 | 0 | 0 | 0 | 0 | 1.50 s | all |\n",
		"\n- some fault: run again, because it took too long, which may be this machine's fault: stuck for 9s.\n\n## Soak\n\nsoak\n"} {
		if n := strings.Count(string(text), want); n != 1 {
			t.Errorf("%q is there %d times", want, n)
		}
	}
	if strings.Contains(string(text), "outdated") {
		t.Errorf("the document is\n%s", text)
	}
}

// A trial is made again if nothing is wrong with it but that something took long.
func TestAgain(t *testing.T) {
	v := &verdict{}
	if v.again() {
		t.Error("a good one")
	}
	if v.tooSlow("slow"); !v.again() {
		t.Error("a slow one is not")
	}
	if v.problem("lost"); v.again() {
		t.Error("one that has lost something")
	}
}
