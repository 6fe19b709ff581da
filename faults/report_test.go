package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWriteParts: each run writes its own part and keeps the others.
func TestWriteParts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "reliability.md")
	const byHand, others = "# Reliability\n\n## Promises\n\nby hand\n", "\n## Runs\n\nof others\n"
	before := byHand + "\n## Faults\n\noutdated\n\n## Soak\n\noutdated\n" + others
	ok(t, os.WriteFile(path, []byte(before), 0o600))
	rows := []row{{&scenario{name: "some fault", holds: "all"},
		&verdict{struck: 3, accepted: 20_000, handled: 20_000, gap: 1500 * time.Millisecond, allowed: 20 * time.Millisecond}}}
	for _, write := range []func() error{
		func() error { return writeFaults(path, rows, time.Minute) },
		func() error { return writePart(path, soakPart, "\nsoak\n") },
		func() error { return writeFaults(path, rows, time.Minute) },
	} {
		ok(t, write())
	}
	text, err := os.ReadFile(path)
	ok(t, err)
	for _, want := range []string{byHand + "\n## Faults\n\n",
		"| some fault | 3 | 20000 | 20000 | 0 | 0 | 0 | 0 | 1.50 s | 0.02 s | all |\n",
		"\n## Soak\n\nsoak\n" + others} {
		if n := strings.Count(string(text), want); n != 1 {
			t.Errorf("%q is there %d times", want, n)
		}
	}
	if strings.Contains(string(text), "outdated") {
		t.Errorf("the document is\n%s", text)
	}
}
