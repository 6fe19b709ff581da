package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"golang.org/x/mod/module"
)

const tried = "v0.1.0"

// A user is somebody with Go and a module proxy that has what this tree would release.
type user struct {
	released *tree
	env      []string
}

// rehearsed is what stands in the tree, committed or not, released in a repository of its own.
func rehearsed(t *testing.T, version string) *tree {
	t.Helper()
	files, err := run("..", nil, "git", "ls-files", "-co", "--exclude-standard", "-z")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(files, "\x00"), "\x00") {
		if text, err := os.ReadFile(filepath.Join("..", name)); err == nil { // or it is deleted, and not committed
			write(t, dir, name, string(text))
		}
	}
	write(t, dir, "CHANGELOG.md", changes) // whatever it says by now
	copied := treeIn(t, dir)
	for _, args := range [][]string{
		{"init", "--quiet"}, {"config", "user.name", "rehearsal"}, {"config", "user.email", "rehearsal@localhost"},
		{"add", "--all"}, {"commit", "--quiet", "--message", "rehearsal"},
	} {
		copied.must(t, args...)
	}
	if err := copied.tag(version, false, io.Discard); err != nil {
		t.Fatal(err)
	}
	return treeIn(t, dir)
}

func treeIn(t *testing.T, dir string) *tree {
	t.Helper()
	read, err := readTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// serve writes into dir what a module proxy serves of version, which is tagged.
func (t *tree) serve(test *testing.T, dir, version string) {
	test.Helper()
	for _, m := range t.released() {
		escaped, err := module.EscapePath(m.path)
		if err != nil {
			test.Fatal(err)
		}
		var zipped bytes.Buffer
		if err := t.zip(&zipped, m, version, m.tag(version)); err != nil {
			test.Fatal(err)
		}
		for name, text := range map[string]string{
			"list": version + "\n", version + ".zip": zipped.String(),
			version + ".info": fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339)),
			version + ".mod":  t.must(test, "show", m.tag(version)+":"+strings.TrimPrefix(m.dir+"/go.mod", "./")) + "\n",
		} {
			write(test, dir, filepath.Join(filepath.FromSlash(escaped), "@v", name), text)
		}
	}
}

// newUser releases the tree in a copy. Third parties' modules come from this machine's cache, and those that are not
// there from where this machine gets them; none of the user's own is used, and nothing is left in it.
func newUser(t *testing.T) *user {
	t.Helper()
	u := &user{released: rehearsed(t, tried)}
	proxy := t.TempDir()
	u.released.serve(t, proxy, tried)
	machine, err := run(".", nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		t.Fatal(err)
	}
	cache, upstream, _ := strings.Cut(strings.TrimSpace(machine), "\n")
	u.env = []string{
		"GOPROXY=file://" + filepath.ToSlash(proxy) + ",file://" + filepath.ToSlash(cache) + "/cache/download," + upstream,
		"GOMODCACHE=" + t.TempDir(), "GOBIN=" + t.TempDir(),
		"GOFLAGS=-modcacherw -trimpath", "GOWORK=off", "GONOSUMDB=github.com/go-delayqueue/*", "GOSUMDB=off",
		"GOTOOLCHAIN=local",
	}
	return u
}

// does runs a command as the user, and returns its output.
func (u *user) does(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := run(dir, slices.Concat(u.env, env), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestReleaseInAProxy(t *testing.T) {
	u := newUser(t)
	programs := map[string][]string{".": {"core.go", "typed.go"}, "schedule": {"schedule.go"},
		"metrics": {"prometheus.go", "opentelemetry.go"}, "web": {"web.go"}, "outbox": {"outbox.go"}}
	for _, m := range u.released.released() {
		if programs[m.dir] == nil && m.dir != "cmd/delayqueue" {
			t.Errorf("no program in testdata/try uses %s", m.path)
		}
		for _, program := range programs[m.dir] {
			t.Run(program, func(t *testing.T) {
				text, err := os.ReadFile("testdata/try/" + program)
				if err != nil {
					t.Fatal(err)
				}
				u.runs(t, m, string(text), "handled 42")
			})
		}
	}
	t.Run("program of the README", func(t *testing.T) {
		text, err := os.ReadFile("../README.md")
		_, program, _ := strings.Cut(string(text), "\n```go\n")
		program, _, found := strings.Cut(program, "```")
		if err != nil || !found {
			t.Fatalf("%v: README.md has no program", err)
		}
		program = strings.Replace(program, `"127.0.0.1:6379"`, strconv.Quote(miniredis.RunT(t).Addr()), 1)
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprintf("got %d\n", i))
		}
		all := u.released.released()
		root := slices.IndexFunc(all, func(m *member) bool { return m.dir == "." })
		u.runs(t, all[root], program, want...)
	})
	t.Run("command", u.installsTheCommand)
	// Who works on one module of a release by itself has all sums.
	for _, m := range u.released.modules {
		t.Run("sums of "+m.dir, func(t *testing.T) {
			u.does(t, filepath.Join(u.released.dir, m.dir), []string{"GOFLAGS=-mod=readonly -modcacherw"}, "go", "list", "-deps",
				"-test", "./...")
		})
	}
}

// runs a program that needs m, in a fresh folder, and wants it to print these texts.
func (u *user) runs(t *testing.T, m *member, program string, want ...string) {
	dir := t.TempDir()
	write(t, dir, "main.go", program)
	u.does(t, dir, nil, "go", "mod", "init", "example.com/tried")
	u.does(t, dir, nil, "go", "get", m.path+"@"+tried)
	for _, needed := range strings.Fields(u.does(t, dir, nil, "go", "list", "-e", "-f", `{{join .Imports " "}}`, ".")) {
		if strings.HasPrefix(needed, m.path+"/") { // a package that is not the module's first, as its README says
			u.does(t, dir, nil, "go", "get", needed)
		}
	}
	out := u.does(t, dir, []string{"REDIS=" + miniredis.RunT(t).Addr()}, "go", "run", ".")
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("the program printed %q, want %q", out, text)
		}
	}
}

func (u *user) installsTheCommand(t *testing.T) {
	u.does(t, t.TempDir(), nil, "go", "install", "github.com/go-delayqueue/delayqueue/cmd/delayqueue@"+tried)
	command := filepath.Join(strings.TrimSpace(u.does(t, ".", nil, "go", "env", "GOBIN")), "delayqueue")
	if out := u.does(t, ".", nil, command, "--help"); !strings.Contains(out, "Usage") {
		t.Errorf("--help printed %q", out)
	}
}
