package main

import (
	"archive/zip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"golang.org/x/mod/module"
)

const tried = "v0.1.0"

// A user is somebody with Go and a module proxy that has what this tree would release.
type user struct {
	released *tree
	proxy    string
	env      []string
}

// newUser releases the tree in a copy. Third parties' modules come from this machine's cache, and those that are not
// there from where this machine gets them; none of the user's own is used, and nothing is left in it.
func newUser(t *testing.T) *user {
	t.Helper()
	here, err := readTree("..")
	if err != nil {
		t.Fatal(err)
	}
	u := &user{proxy: t.TempDir()}
	if u.released, err = here.rehearse(t.TempDir(), tried); err != nil {
		t.Fatal(err)
	}
	if err := u.released.writeProxy(u.proxy, tried); err != nil {
		t.Fatal(err)
	}
	machine, err := run(".", nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		t.Fatal(err)
	}
	cache, upstream, _ := strings.Cut(strings.TrimSpace(machine), "\n")
	u.env = []string{
		"GOPROXY=file://" + filepath.ToSlash(u.proxy) + ",file://" + filepath.ToSlash(cache) + "/cache/download," + upstream,
		"GOMODCACHE=" + t.TempDir(), "GOBIN=" + t.TempDir(),
		"GOFLAGS=-modcacherw -trimpath", "GOWORK=off", "GONOSUMDB=github.com/go-delayqueue/*", "GOSUMDB=off", "GOTOOLCHAIN=local",
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
	for _, m := range u.released.released() {
		t.Run("zip of "+m.dir, func(t *testing.T) { u.looksInto(t, m) })
	}
	programs := map[string][]string{".": {"core.go", "typed.go"}, "schedule": {"schedule.go"},
		"metrics": {"prometheus.go", "opentelemetry.go"}, "web": {"web.go"}}
	for _, m := range u.released.released() {
		if programs[m.dir] == nil && m.dir != "cmd/delayqueue" {
			t.Errorf("no program in testdata/try uses %s", m.path)
		}
		for _, program := range programs[m.dir] {
			t.Run(program, func(t *testing.T) { u.compiles(t, m, program) })
		}
	}
	t.Run("command", u.installsTheCommand)
	// Who works on one module of a release by itself has all sums.
	for _, m := range u.released.modules {
		t.Run("sums of "+m.dir, func(t *testing.T) {
			u.does(t, filepath.Join(u.released.dir, m.dir), []string{"GOFLAGS=-mod=readonly -modcacherw"}, "go", "list", "-deps", "-test", "./...")
		})
	}
}

// looksInto a zip: pkg.go.dev shows no module without a license, and of a module only what is in its zip.
func (u *user) looksInto(t *testing.T, m *member) {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := zip.OpenReader(filepath.Join(u.proxy, filepath.FromSlash(escaped), "@v", tried+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, name := range []string{"LICENSE", "README.md", "go.mod"} {
		if _, err := reader.Open(m.path + "@" + tried + "/" + name); err != nil {
			t.Error(err)
		}
	}
}

// compiles a program that needs m, in a fresh folder, and runs it.
func (u *user) compiles(t *testing.T, m *member, program string) {
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/try/" + program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	u.does(t, dir, nil, "go", "mod", "init", "example.com/tried")
	u.does(t, dir, nil, "go", "get", m.path+"@"+tried)
	for _, needed := range strings.Fields(u.does(t, dir, nil, "go", "list", "-e", "-f", `{{join .Imports " "}}`, ".")) {
		if strings.HasPrefix(needed, m.path+"/") { // a package that is not the module's first, as its README says
			u.does(t, dir, nil, "go", "get", needed)
		}
	}
	out := u.does(t, dir, []string{"REDIS=" + miniredis.RunT(t).Addr()}, "go", "run", ".")
	if !strings.Contains(out, "handled 42") {
		t.Errorf("the program printed %q", out)
	}
}

func (u *user) installsTheCommand(t *testing.T) {
	u.does(t, t.TempDir(), nil, "go", "install", "github.com/go-delayqueue/delayqueue/cmd/delayqueue@"+tried)
	command := filepath.Join(strings.TrimSpace(u.does(t, ".", nil, "go", "env", "GOBIN")), "delayqueue")
	if out := u.does(t, ".", nil, command, "--help"); !strings.Contains(out, "Usage") {
		t.Errorf("--help printed %q", out)
	}
}
