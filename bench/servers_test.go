package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestServersPart: the part on servers takes the place of an older one, and the rest stays.
func TestServersPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	if got := keptOf(path); got != "" {
		t.Errorf("of no document: %q", got)
	}
	if err := os.WriteFile(path, []byte("# Benchmarks\n\nall\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{serversPart + "\nold\n", serversPart + "\nnew\n"} {
		if err := replaceServers(path, part); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if want := "# Benchmarks\n\nall\n\n" + serversPart + "\nnew\n"; err != nil || string(text) != want {
		t.Errorf("the document is %q, %v", text, err)
	}
	if got := keptOf(path); got != "\n"+serversPart+"\nnew\n" {
		t.Errorf("the part is %q", got)
	}
	hand := speedPart + "\nby hand\n\n" + serversPart
	if err := os.WriteFile(path, []byte("# Benchmarks\n\nall\n\n"+hand), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := keptOf(path); got != "\n"+hand {
		t.Errorf("what is kept is %q", got)
	}
}
