package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// aHouse writes a small tree that keeps all bounds, has things that do not count, and gets further files.
func aHouse(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, layer := range layers {
		write(t, dir, filepath.Join(layer, "a.go"), "package a\n")
	}
	for _, name := range []string{"README.md", "docs/README.zh-CN.md", "docs/redis.md", ".gitignore"} {
		write(t, dir, name, "")
	}
	write(t, dir, "docs/benchmarks.md", strings.Repeat("x", 121))
	write(t, dir, "pages/accents.md", strings.Repeat("é", 120)+"\r\n")
	for name, text := range files {
		write(t, dir, name, text)
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}} {
		if _, err := run(dir, nil, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "built", "") // and not tracked
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

// files are n files that pattern names, with one text.
func files(n int, pattern, text string) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf(pattern, i)] = text
	}
	return all
}

// packageOf is a package with n names that go doc lists, of each kind, and with others.
func packageOf(n int) string {
	return `package a
const A, a = 1, 2
var B, b int
func F() {}
func f() {}
type I interface { M(); m() }
type T struct { I; t; C` + strings.Repeat(",\nC", n-8) + ` int; c int }
func (T) M() {}
func (T) m() {}
type t struct { D int }
`
}

// grown are the files that make a house have n of something.
var grown = map[string]func(n int) map[string]string{
	"entries of the root": func(n int) map[string]string { return files(n-6, "folder%d/file", "") },
	"files of the root package without tests": func(n int) map[string]string {
		return files(n-1, "b%d.go", "package a\n")
	},
	"test files of the root package": func(n int) map[string]string { return files(n, "b%d_test.go", "package a\n") },
	"exported names of the root package": func(n int) map[string]string {
		return map[string]string{"b.go": packageOf(n), "b_test.go": packageOf(n)}
	},
	"exported names of ops": func(n int) map[string]string {
		return map[string]string{"ops/b.go": packageOf(n)}
	},
	"lines over 120 characters in Go files":       longIn("deep/long.go"),
	"lines over 120 characters in Lua files":      longIn("deep/long.lua"),
	"lines over 120 characters in Markdown files": longIn("deep/long.md"),
	"calls of a computed command in Lua files":    repeated("deep/calls.lua", "redis.call(name)\n"),
	"lines of README.md":                          repeated("README.md", "\n"),
	"words of README.md":                          repeated("README.md", "word "),
	"lines of docs/README.zh-CN.md":               repeated("docs/README.zh-CN.md", "\n"),
	"bytes of docs/redis.md":                      repeated("docs/redis.md", "\n"),
}

func repeated(name, text string) func(n int) map[string]string {
	return func(n int) map[string]string { return map[string]string{name: strings.Repeat(text, n)} }
}

func longIn(name string) func(n int) map[string]string {
	return repeated(name, strings.Repeat("é", 121)+"\n")
}

// TestBounds: as much as a bound says is right, and one more is wrong, which the line that says so explains.
func TestBounds(t *testing.T) {
	if len(grown) != len(bounds) {
		t.Errorf("%d bounds, %d are tried", len(bounds), len(grown))
	}
	for _, b := range bounds {
		t.Run(b.what, func(t *testing.T) {
			if wrong := checkHouse(aHouse(t, grown[b.what](b.most))); wrong != nil {
				t.Errorf("with %d: %q", b.most, wrong)
			}
			want := fmt.Sprintf("there are %d %s, at most %d may be: %s", b.most+1, b.what, b.most, b.why)
			if wrong := checkHouse(aHouse(t, grown[b.what](b.most+1))); !slices.Equal(wrong, []string{want}) {
				t.Errorf("with one more: %q, want %q", wrong, want)
			}
		})
	}
}

func TestCheckLayers(t *testing.T) {
	const module = "github.com/go-delayqueue/delayqueue"
	for name, c := range map[string]struct {
		file, imports string
		says          string // "" if nothing is wrong
	}{
		"an upward import":   {"internal/link/b.go", module + "/internal/script", "internal/link imports internal/script"},
		"the face from deep": {"internal/link/b.go", module, "internal/link imports ."},
		"the face from ops":  {"ops/b.go", module, ""},
		"a downward import":  {"ops/b.go", module + "/internal/link", ""},
		"another's package":  {"internal/conc/b.go", "fmt", ""},
		"one of no layer":    {"internal/conc/b.go", module + "/internal/check", "internal/check, which is in no layer"},
		"no Go":              {"internal/conc/b.go", "\"", "string literal not terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			file := map[string]string{c.file: "package a\nimport _ \"" + c.imports + "\"\n"}
			got := strings.Join(checkHouse(aHouse(t, file)), "\n")
			if c.says == "" && got != "" || !strings.Contains(got, c.says) {
				t.Errorf("says %q, want %q", got, c.says)
			}
		})
	}
}
