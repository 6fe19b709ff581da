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
	dir := t.TempDir()
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "reliability.md"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rows := []row{{&scenario{name: "some fault", holds: "all"},
		&verdict{struck: 3, accepted: 20_000, handled: 20_000, gap: 1500 * time.Millisecond, before: []string{"stuck for 9s"}}}}
	for _, write := range []func() error{
		func() error { return writePart(dir, soakPart, "\nsoak one\n") },
		func() error { return writeFaults(dir, rows, time.Minute) },
		func() error { return writePart(dir, soakPart, "\nsoak two\n") },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	text := read()
	for _, want := range []string{documentHead, "\n## Faults\n",
		"| some fault | 3 | 20000 | 20000 | 0 | 0 | 0 | 1.50 s | all |\n",
		"\n- some fault: run again, because it took too long, which may be this machine's fault: stuck for 9s.\n", "\n## Soak\n\nsoak two\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is there %d times", want, strings.Count(text, want))
		}
	}
	if strings.Contains(text, "soak one") || strings.Index(text, "## Soak") < strings.Index(text, "## Faults") {
		t.Errorf("the document is\n%s", text)
	}
	text = strings.Replace(text, documentHead, documentHead+"\n## Promises\n\nby hand\n", 1)
	if err := os.WriteFile(filepath.Join(dir, "reliability.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeFaults(dir, rows, time.Minute); err != nil {
		t.Fatal(err)
	}
	if again := read(); again != text {
		t.Errorf("written again it differs:\n%s", again)
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
