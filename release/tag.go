package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

var unreleased = regexp.MustCompile(`(?m)^## \[?Unreleased\]?\n`)

// git runs git in the tree and returns what it wrote, without white space around it.
func (t *tree) git(args ...string) (string, error) {
	out, err := run(t.dir, nil, "git", args...)
	return strings.TrimSpace(out), err
}

// tag makes version of what is committed: a commit with the versions and sums in all go.mod and go.sum, and a tag for
// each released module. All is done in a clone and fetched from there when it is whole, so a tag that fails has changed
// nothing here. With dryRun it is not fetched. It pushes nothing.
func (t *tree) tag(version string, dryRun bool, out io.Writer) error {
	if err := t.mayTag(version); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	clone, err := t.clone(dir)
	if err != nil {
		return err
	}
	tags, err := clone.makeTags(version)
	if err != nil {
		return err
	}
	stat, err := clone.git("show", "--stat", "--format=%h %s", "HEAD")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\ntags, each required by those below at most: %s\n", stat, strings.Join(tags, " "))
	if dryRun {
		fmt.Fprintln(out, "nothing is changed here")
		return nil
	}
	head, err := t.git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if _, err := t.git("fetch", "--quiet", "--no-tags", dir, "HEAD"); err != nil {
		return err
	}
	if _, err := t.git("merge", "--quiet", "--ff-only", "FETCH_HEAD"); err != nil {
		return err
	}
	fetch := []string{"fetch", "--quiet", "--atomic", dir}
	for _, tag := range tags {
		fetch = append(fetch, "refs/tags/"+tag+":refs/tags/"+tag)
	}
	if _, err := t.git(fetch...); err != nil {
		_, undone := t.git("reset", "--quiet", "--keep", head)
		return errors.Join(err, undone)
	}
	fmt.Fprintf(out, "not pushed yet: git push --atomic origin HEAD %s\n", strings.Join(tags, " "))
	return nil
}

// mayTag returns why version cannot be made of the tree.
func (t *tree) mayTag(version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("%q is not a version like v0.1.0", version)
	}
	if semver.Compare(semver.Major(version), "v1") > 0 {
		return fmt.Errorf("%s needs module paths that end with /%s", version, semver.Major(version))
	}
	if dirty, err := t.git("status", "--porcelain"); err != nil || dirty != "" {
		return errors.Join(errors.New("commit first, this would not be in the release:\n"+dirty), err)
	}
	last, err := t.lastTag(t.modules[0])
	if err != nil {
		return err
	}
	if last != "" && !follows(last, version) {
		return fmt.Errorf("%s does not follow %s", version, last)
	}
	for _, m := range t.released() {
		own, err := t.lastTag(m)
		if err != nil {
			return err
		}
		if own != "" && own != last {
			return fmt.Errorf("the last release is not whole: the root has %s, %s has %s", last, m.dir, own)
		}
	}
	changes, err := os.ReadFile(filepath.Join(t.dir, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	at := unreleased.FindIndex(changes)
	if at == nil || !strings.Contains(strings.Split(string(changes[at[1]:])+"\n## ", "\n## ")[0], "- ") {
		return errors.New("CHANGELOG.md says nothing under Unreleased")
	}
	if wrong := slices.Concat(t.checkWork(), t.checkModules()); wrong != nil {
		return joined(wrong)
	}
	return t.mayBreak(last, version)
}

// mayBreak refuses a version that must not take anything from the API, if something is gone since last.
func (t *tree) mayBreak(last, version string) error {
	if last == "" || semver.Major(last) != semver.Major(version) ||
		semver.Major(version) == "v0" && semver.MajorMinor(last) != semver.MajorMinor(version) {
		return nil
	}
	for _, m := range t.released() {
		is, err := os.ReadFile(t.apiFile(m))
		if os.IsNotExist(err) {
			continue
		}
		name, err2 := filepath.Rel(t.dir, t.apiFile(m))
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if there, err := t.git("ls-tree", "--name-only", last, "--", name); err != nil || there == "" {
			if err != nil {
				return err
			}
			continue // the module is new
		}
		was, err := t.git("show", last+":"+name)
		if err != nil {
			return err
		}
		for _, line := range compare(was+"\n", string(is)) {
			if strings.HasPrefix(line, "- ") {
				return fmt.Errorf("%s follows %s, but its API lacks: %s", version, last, line[2:])
			}
		}
	}
	return nil
}

// follows says whether version is one that may come after last: no number is left out.
func follows(last, version string) bool {
	if semver.Compare(version, last) <= 0 {
		return false
	}
	var was, is [3]int
	fmt.Sscanf(last, "v%d.%d.%d", &was[0], &was[1], &was[2])
	fmt.Sscanf(version, "v%d.%d.%d", &is[0], &is[1], &is[2])
	return is == was || // after a prerelease of it
		is == [3]int{was[0], was[1], was[2] + 1} || is == [3]int{was[0], was[1] + 1, 0} || is == [3]int{was[0] + 1, 0, 0}
}

// lastTag is the newest version of m, or "".
func (t *tree) lastTag(m *member) (string, error) {
	out, err := t.git("tag", "--list", m.tag("v*"))
	if err != nil {
		return "", err
	}
	last := ""
	for _, tag := range strings.Fields(out) {
		version := strings.TrimPrefix(tag, m.tag(""))
		if semver.IsValid(version) && (last == "" || semver.Compare(version, last) > 0) {
			last = version
		}
	}
	return last, nil
}

// clone makes a repository in dir with what is committed here.
func (t *tree) clone(dir string) (*tree, error) {
	head, err := t.git("rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	if _, err := t.git("clone", "--quiet", "--no-checkout", ".", dir); err != nil {
		return nil, err
	}
	c := &tree{dir: dir}
	if _, err := c.git("checkout", "--quiet", "--detach", head); err != nil {
		return nil, err
	}
	for _, setting := range []string{"user.name", "user.email"} {
		if value, err := t.git("config", setting); err == nil {
			if _, err := c.git("config", setting, value); err != nil {
				return nil, err
			}
		}
	}
	return readTree(dir)
}

// makeTags commits version and sets the tags. A module's sum covers its go.sum, and so the sums of what it requires:
// they are added module by module, to the same commit.
func (t *tree) makeTags(version string) ([]string, error) {
	if err := t.setVersion(version); err != nil {
		return nil, err
	}
	if err := t.release(version, time.Now().UTC()); err != nil {
		return nil, err
	}
	if _, err := t.git("commit", "--quiet", "--all", "--message", "release "+version); err != nil {
		return nil, err
	}
	var tags []string
	for _, m := range t.released() {
		sums, err := t.sums(m, version)
		if err != nil {
			return nil, err
		}
		for _, other := range t.modules {
			if other.requires(m) != "" {
				if err := setSums(t.file(other, "go.sum"), m.path, sums); err != nil {
					return nil, err
				}
			}
		}
		if _, err := t.git("commit", "--quiet", "--all", "--amend", "--no-edit", "--allow-empty"); err != nil {
			return nil, err
		}
		tags = append(tags, m.tag(version))
	}
	for _, tag := range tags {
		if _, err := t.git("tag", "--annotate", "--message", tag, tag); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// setVersion makes every module require its siblings at version.
func (t *tree) setVersion(version string) error {
	for _, m := range t.modules {
		for _, other := range t.modules {
			if m.requires(other) == "" {
				continue
			}
			if err := m.mod.AddRequire(other.path, version); err != nil {
				return err
			}
		}
		if err := t.write(m); err != nil {
			return err
		}
	}
	name := filepath.Join(t.dir, "go.work")
	work, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text := string(work)
	for _, replaced := range t.work.Replace {
		text = strings.ReplaceAll(text, replaced.Old.Path+" "+replaced.Old.Version+" =>", replaced.Old.Path+" "+version+" =>")
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// release gives what is unreleased in the changelog its version and date.
func (t *tree) release(version string, now time.Time) error {
	name := filepath.Join(t.dir, "CHANGELOG.md")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	heading := fmt.Sprintf("## [Unreleased]\n\n## [%s] - %s\n", strings.TrimPrefix(version, "v"),
		now.Format(time.DateOnly))
	return os.WriteFile(name, unreleased.ReplaceAll(text, []byte(heading)), 0o644)
}

// sums are the lines of go.sum for version of m, as it is committed.
func (t *tree) sums(m *member, version string) ([]string, error) {
	file, err := os.CreateTemp("", "module*.zip")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := t.zip(file, m, version, "HEAD"); err != nil {
		return nil, err
	}
	whole, err := dirhash.HashZip(file.Name(), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return os.Open(t.file(m, "go.mod"))
	})
	return []string{
		fmt.Sprintf("%s %s %s\n", m.path, version, whole),
		fmt.Sprintf("%s %s/go.mod %s\n", m.path, version, mod),
	}, err
}

// zip writes m at a revision as a proxy serves it.
func (t *tree) zip(w io.Writer, m *member, version, revision string) error {
	dir := m.dir
	if dir == "." {
		dir = ""
	}
	return modzip.CreateFromVCS(w, module.Version{Path: m.path, Version: version}, t.dir, revision, dir)
}

// setSums puts the sums of the module at path into a go.sum, in place of those that are there.
func setSums(name, path string, sums []string) error {
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(string(text))),
		func(line string) bool { return strings.HasPrefix(line, path+" ") })
	at := slices.IndexFunc(lines, func(line string) bool { return strings.Fields(line)[0] > path })
	if at < 0 {
		at = len(lines)
	}
	return os.WriteFile(name, []byte(strings.Join(slices.Insert(lines, at, sums...), "")), 0o644)
}
