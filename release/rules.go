package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

const apiChanged = `the API is not the one that api/ lists ("-" is gone: who uses it does not compile any more;
"+" is new).
If that is meant: make api, commit api/ with the change, and say in CHANGELOG.md what users see, and do about it:
`

// check returns an error that says all that does not hold.
func (t *tree) check() error {
	wrong := slices.Concat(t.checkWork(), t.checkModules(), t.checkDocs(), checkHouse(t.dir), checkLinks(t.dir))
	untidy, err := t.tidy(false)
	if err != nil {
		return err
	}
	if untidy != nil {
		wrong = append(wrong, "make tidy would change go.mod or go.sum of "+names(untidy))
	}
	changed, err := t.changedAPI()
	if err != nil {
		return err
	}
	if changed != nil {
		wrong = append(wrong, apiChanged+strings.Join(changed, "\n"))
	}
	return joined(wrong)
}

// joined is nil for no line.
func joined(wrong []string) error {
	if wrong == nil {
		return nil
	}
	return errors.New(strings.Join(wrong, "\n"))
}

// checkWork: what work here uses is what a release is made of.
func (t *tree) checkWork() []string {
	var wrong []string
	files, err := run(t.dir, nil, "git", "ls-files", "-co", "--exclude-standard", "--", "go.mod", "**/go.mod")
	if err != nil {
		return []string{err.Error()}
	}
	for file := range strings.Lines(files) {
		dir := filepath.ToSlash(filepath.Dir(strings.TrimSpace(file)))
		if !slices.ContainsFunc(t.modules, func(m *member) bool { return m.dir == dir }) {
			wrong = append(wrong, fmt.Sprintf("go.work does not use ./%s", dir))
		}
	}
	for _, m := range t.released() {
		if !slices.ContainsFunc(t.modules, func(other *member) bool { return other.requires(m) != "" }) {
			continue
		}
		found := slices.ContainsFunc(t.work.Replace, func(r *modfile.Replace) bool {
			return r.Old.Path == m.path && r.Old.Version == t.version() && r.New.Path == m.place()
		})
		if !found {
			wrong = append(wrong, fmt.Sprintf("go.work lacks in replace: %s %s => %s", m.path, t.version(), m.place()))
		}
	}
	makefile, err := os.ReadFile(filepath.Join(t.dir, "Makefile"))
	if err != nil {
		return append(wrong, err.Error())
	}
	_, list, _ := strings.Cut(string(makefile), "\nMODULES := ")
	list, _, _ = strings.Cut(list, "\n")
	for _, m := range t.modules {
		if !slices.Contains(strings.Fields(list), m.dir) {
			wrong = append(wrong, "the Makefile's MODULES lacks "+m.dir)
		}
	}
	return wrong
}

// checkModules: each go.mod can be used by itself, and all of them alike.
func (t *tree) checkModules() []string {
	var wrong []string
	for _, m := range t.modules {
		if len(m.mod.Replace) > 0 {
			wrong = append(wrong, m.dir+"/go.mod has a replace: who requires the module does not get it; go.work is the place")
		}
		for _, other := range t.modules {
			version := m.requires(other)
			if version != "" && version != t.version() {
				wrong = append(wrong, fmt.Sprintf("%s/go.mod requires %s %s, others %s", m.dir, other.path, version, t.version()))
			}
			if version != "" && !slices.Contains(t.released(), other) {
				wrong = append(wrong, fmt.Sprintf("%s/go.mod requires %s, which is not released", m.dir, other.path))
			}
		}
	}
	// The workspace has the newest of what any module requires: the root's tests would run with that alone.
	const redis = "github.com/redis/go-redis/v9"
	all, err := run(t.dir, nil, "go", "list", "-m", "-f", "{{.Version}}", redis)
	own, err2 := run(t.dir, []string{"GOWORK=off"}, "go", "list", "-m", "-f", "{{.Version}}", redis)
	if err := errors.Join(err, err2); err != nil {
		wrong = append(wrong, err.Error())
	} else if all != own {
		wrong = append(wrong,
			fmt.Sprintf("a module requires %s %s, the root %s: the oldest that is supported is no longer tested", redis,
				strings.TrimSpace(all), strings.TrimSpace(own)))
	}
	return wrong
}

// checkDocs: a module's zip has only its own directory, and pkg.go.dev shows no module without a license.
func (t *tree) checkDocs() []string {
	var wrong []string
	license, err := os.ReadFile(filepath.Join(t.dir, "LICENSE"))
	if err != nil {
		return []string{err.Error()}
	}
	for _, m := range t.released() {
		if own, err := os.ReadFile(t.file(m, "LICENSE")); err != nil || !bytes.Equal(own, license) {
			wrong = append(wrong, m.dir+"/LICENSE is not a copy of LICENSE")
		}
		if _, err := os.Stat(t.file(m, "README.md")); err != nil {
			wrong = append(wrong, m.dir+" has no README.md")
		}
		undocumented, err := run(filepath.Join(t.dir, m.dir), nil, "go", "list", "-f",
			`{{if and .GoFiles (not .Doc)}}{{.ImportPath}}{{end}}`, "./...")
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		for _, path := range strings.Fields(undocumented) {
			wrong = append(wrong, path+" has no package comment")
		}
	}
	return wrong
}

// version is the one that siblings require: the last that was released, or the first that will be.
func (t *tree) version() string {
	for _, m := range t.modules {
		if version := m.requires(t.modules[0]); version != "" {
			return version
		}
	}
	return ""
}

// place is where go.work finds m.
func (m *member) place() string {
	if m.dir == "." {
		return "./"
	}
	return "./" + m.dir
}
