package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
)

// rehearse releases what stands in the tree, committed or not, in a repository of its own in dir.
func (t *tree) rehearse(dir, version string) (*tree, error) {
	files, err := run(t.dir, nil, "git", "ls-files", "-co", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Split(strings.TrimSuffix(files, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(t.dir, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		to := filepath.Join(dir, name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644)); err != nil {
			return nil, err
		}
	}
	// Whatever the changelog says by now, and whoever is here.
	if err := os.WriteFile(filepath.Join(dir, "CHANGELOG.md"),
		[]byte("# Changelog\n\n## [Unreleased]\n\n- A rehearsal.\n"), 0o644); err != nil {
		return nil, err
	}
	copied, err := readTree(dir)
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"init", "--quiet"}, {"config", "user.name", "rehearsal"}, {"config", "user.email", "rehearsal@localhost"},
		{"add", "--all"}, {"commit", "--quiet", "--message", "rehearsal"},
	} {
		if _, err := copied.git(args...); err != nil {
			return nil, err
		}
	}
	if err := copied.tag(version, false, new(strings.Builder)); err != nil {
		return nil, err
	}
	return readTree(dir)
}

// writeProxy writes into dir what a module proxy serves of version, which is tagged.
func (t *tree) writeProxy(dir, version string) error {
	for _, m := range t.released() {
		escaped, err := module.EscapePath(m.path)
		if err != nil {
			return err
		}
		at := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
		mod, err := run(t.dir, nil, "git", "show", m.tag(version)+":"+strings.TrimPrefix(m.dir+"/go.mod", "./"))
		if err != nil {
			return err
		}
		info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339))
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		for name, text := range map[string]string{"list": version + "\n", version + ".info": info, version + ".mod": mod} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		file, err := os.Create(filepath.Join(at, version+".zip"))
		if err != nil {
			return err
		}
		if err := errors.Join(t.zip(file, m, version, m.tag(version)), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// proxy makes dir a proxy of what stands in the tree.
func (t *tree) proxy(dir string) error {
	scratch, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	released, err := t.rehearse(scratch, t.version())
	if err != nil {
		return err
	}
	return released.writeProxy(dir, t.version())
}
