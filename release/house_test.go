package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// aHouse writes a small tree that keeps all bounds.
func aHouse(t *testing.T) string {
	dir := t.TempDir()
	for _, layer := range layers {
		write(t, dir, filepath.Join(layer, "a.go"), "package a\n")
	}
	write(t, dir, "internal/script/lua/send.lua", "--\n")
	for _, name := range []string{"README.md", "docs/README.zh-CN.md", "docs/ARCHITECTURE.md", "docs/PROTOCOL.md"} {
		write(t, dir, name, "a page\n")
	}
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCheckHouse(t *testing.T) {
	const module = "github.com/go-delayqueue/delayqueue"
	many := func(n int, line string) string { return strings.Repeat(line, n) }
	for name, c := range map[string]struct {
		file, text string
		says       string // "" if nothing is wrong
	}{
		"nothing":            {"b.go", "package a\n", ""},
		"too many lines":     {"b.go", "package a\n" + many(3500, "\n"), "3502 lines of the root package"},
		"a test's lines":     {"b_test.go", "package a\n" + many(3500, "\n"), ""},
		"too many names":     {"b.go", "package a\nvar A" + many(124, ", A") + " int\n", "125 exported top-level names"},
		"hidden names":       {"b.go", "package a\nvar a" + many(120, ", a") + " int\nfunc (t T) M() {}\n", ""},
		"a long README":      {"README.md", many(151, "\n"), "151 lines of README.md"},
		"a wordy README":     {"README.md", many(901, "word "), "901 words of README.md"},
		"a long Lua file":    {"internal/script/lua/lib/time.lua", many(121, "--\n"), "121 lines of the longest file in internal/script/lua"},
		"an upward import":   {"internal/link/b.go", "package a\nimport _ \"" + module + "/internal/script\"\n", "internal/link imports internal/script"},
		"the face from deep": {"internal/link/b.go", "package a\nimport _ \"" + module + "\"\n", "internal/link imports ."},
		"a downward import":  {"ops/b.go", "package a\nimport (\n_ \"" + module + "\"\n_ \"" + module + "/internal/link\"\n_ \"fmt\"\n)\n", ""},
		"a missing layer":    {"b.go", "package", "expected 'IDENT'"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := aHouse(t)
			write(t, dir, c.file, c.text)
			got := strings.Join(checkHouse(dir), "\n")
			if c.says == "" && got != "" || !strings.Contains(got, c.says) {
				t.Errorf("says %q, want %q", got, c.says)
			}
		})
	}
	dir := aHouse(t)
	for i := range 17 {
		write(t, dir, "b"+string(rune('a'+i))+".go", "package a\n")
	}
	if got := checkHouse(dir); len(got) != 1 || !strings.Contains(got[0], "18 files") {
		t.Errorf("of 18 files: %q", got)
	}
}
