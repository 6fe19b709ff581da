package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A tree is a checkout of the repository.
type tree struct {
	dir     string
	work    *modfile.WorkFile
	modules []*member // what is required stands before who requires it
}

// A member is one module of the tree.
type member struct {
	dir  string // below the tree's; "." is the root's
	path string
	mod  *modfile.File
}

// readTree reads go.work and each go.mod that it uses.
func readTree(dir string) (*tree, error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.work"))
	if err != nil {
		return nil, err
	}
	t := &tree{dir: dir}
	if t.work, err = modfile.ParseWork("go.work", text, nil); err != nil {
		return nil, err
	}
	for _, use := range t.work.Use {
		m := &member{dir: filepath.ToSlash(filepath.Clean(use.Path))}
		name := t.file(m, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if m.mod, err = modfile.Parse(name, text, nil); err != nil {
			return nil, err
		}
		m.path = m.mod.Module.Mod.Path
		t.modules = append(t.modules, m)
	}
	return t, t.order()
}

// order sorts the modules so that each stands behind those that it requires.
func (t *tree) order() error {
	rest := t.modules
	slices.SortFunc(rest, func(a, b *member) int { return strings.Compare(a.dir, b.dir) })
	t.modules = nil
	for len(rest) > 0 {
		next := slices.IndexFunc(rest, func(m *member) bool {
			return !slices.ContainsFunc(rest, func(other *member) bool { return m.requires(other) != "" })
		})
		if next < 0 {
			return errors.New("modules require each other in a circle: " + names(rest))
		}
		t.modules = append(t.modules, rest[next])
		rest = slices.Delete(slices.Clone(rest), next, next+1)
	}
	return nil
}

// released are the modules that others may require, in the order in which they are tagged.
func (t *tree) released() []*member {
	return slices.DeleteFunc(slices.Clone(t.modules), func(m *member) bool {
		top, _, _ := strings.Cut(m.dir, "/")
		return slices.Contains([]string{"examples", "bench", "faults", "release"}, top) ||
			m.dir == "web/browsertest" || m.dir == "outbox/databases"
	})
}

func (t *tree) file(m *member, name string) string { return filepath.Join(t.dir, m.dir, name) }

// requires returns the version of other that m requires, or "".
func (m *member) requires(other *member) string {
	for _, r := range m.mod.Require {
		if r.Mod.Path == other.path {
			return r.Mod.Version
		}
	}
	return ""
}

// tag is the name of the tag that makes this commit a version of m.
func (m *member) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return m.dir + "/" + version
}

// write puts go.mod where it was read.
func (t *tree) write(m *member) error {
	m.mod.Cleanup()
	text, err := m.mod.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(t.file(m, "go.mod"), text, 0o644)
}

func names(modules []*member) string {
	var dirs []string
	for _, m := range modules {
		dirs = append(dirs, m.dir)
	}
	return strings.Join(dirs, ", ")
}

// run executes a command in dir and returns what it wrote to its standard output.
func run(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		return "", fmt.Errorf("%s %s in %s: %w", name, strings.Join(args, " "), dir, err)
	}
	return string(out), nil
}
