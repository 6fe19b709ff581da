package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tidy runs go mod tidy in every module, and returns the modules that it changed, or would change. It looks for
// siblings by their versions, which may not be released: a copy of go.mod replaces them by those of this tree.
func (t *tree) tidy(write bool) ([]*member, error) {
	var changed []*member
	for _, m := range t.modules {
		mod, sum, err := t.tidied(m)
		if err != nil {
			return nil, err
		}
		for name, is := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
			was, err := os.ReadFile(t.file(m, name))
			if err != nil && !os.IsNotExist(err) {
				return nil, err
			}
			if bytes.Equal(was, is) {
				continue
			}
			if !slices.Contains(changed, m) {
				changed = append(changed, m)
			}
			if write {
				if err := os.WriteFile(t.file(m, name), is, 0o644); err != nil {
					return nil, err
				}
			}
		}
	}
	return changed, nil
}

// tidied returns go.mod and go.sum of m as they are to be.
func (t *tree) tidied(m *member) (mod, sum []byte, err error) {
	scratch, err := os.MkdirTemp("", "tidy")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(scratch)
	if mod, err = m.mod.Format(); err != nil {
		return nil, nil, err
	}
	before, err := os.ReadFile(t.file(m, "go.sum"))
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, err
	}
	modFile, sumFile := filepath.Join(scratch, "go.mod"), filepath.Join(scratch, "go.sum")
	if err := errors.Join(os.WriteFile(modFile, mod, 0o644), os.WriteFile(sumFile, before, 0o644)); err != nil {
		return nil, nil, err
	}
	replace, drop := []string{"mod", "edit"}, []string{"mod", "edit"}
	for _, other := range t.modules {
		place, err := filepath.Abs(filepath.Join(t.dir, other.dir))
		if err != nil {
			return nil, nil, err
		}
		replace = append(replace, "-replace="+other.path+"="+place)
		drop = append(drop, "-dropreplace="+other.path)
	}
	dir := filepath.Join(t.dir, m.dir)
	for _, args := range [][]string{append(replace, modFile), {"mod", "tidy", "-modfile=" + modFile},
		append(drop, modFile)} {
		if _, err := run(dir, []string{"GOWORK=off"}, "go", args...); err != nil {
			return nil, nil, err
		}
	}
	// A module that is replaced needs no sum: those of released siblings are put back.
	for _, other := range t.modules {
		var sums []string
		for line := range strings.Lines(string(before)) {
			if strings.HasPrefix(line, other.path+" ") {
				sums = append(sums, line)
			}
		}
		if sums != nil {
			if err := setSums(sumFile, other.path, sums); err != nil {
				return nil, nil, err
			}
		}
	}
	if mod, err = os.ReadFile(modFile); err != nil {
		return nil, nil, err
	}
	if sum, err = os.ReadFile(sumFile); os.IsNotExist(err) {
		err = nil
	}
	return mod, sum, err
}
