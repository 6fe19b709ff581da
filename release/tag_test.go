package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// commit writes a file of the tree and commits it.
func (t *tree) commit(test *testing.T, name, text string) {
	test.Helper()
	write(test, t.dir, name, text)
	t.must(test, "commit", "--quiet", "--all", "--message", name)
}

func (t *tree) must(test *testing.T, args ...string) string {
	test.Helper()
	out, err := t.git(args...)
	if err != nil {
		test.Fatal(err)
	}
	return out
}

// refuses checks that version is not made, and that the error says why.
func (t *tree) refuses(test *testing.T, version, why string) {
	test.Helper()
	again := treeIn(test, t.dir)
	before := t.must(test, "rev-parse", "HEAD") + t.must(test, "tag", "--list")
	if err := again.tag(version, false, io.Discard); err == nil || !strings.Contains(err.Error(), why) {
		test.Errorf("%s: %v; it should say %q", version, err, why)
	}
	if after := t.must(test, "rev-parse", "HEAD") + t.must(test, "tag", "--list"); after != before {
		test.Errorf("%s was refused, and changed something:\n%s\n%s", version, before, after)
	}
}

const changes = "# Changelog\n\n## Unreleased\n\n- This.\n"

func TestTag(t *testing.T) {
	tree := rehearsed(t, "v0.1.0")
	tree.refuses(t, "v0.1.1", "says nothing under Unreleased")
	write(t, tree.dir, "CHANGELOG.md", changes)
	tree.refuses(t, "v0.1.1", "commit first")
	tree.commit(t, "CHANGELOG.md", changes)
	for version, why := range map[string]string{
		"0.1.1": "not a version", "v0.1": "not a version", "v2.0.0": "paths that end with /v2",
		"v0.1.0": "does not follow v0.1.0", "v0.0.9": "does not follow", "v0.3.0": "does not follow",
		"v0.1.2": "does not follow",
	} {
		tree.refuses(t, version, why)
	}

	api, err := os.ReadFile(tree.apiFile(tree.modules[0]))
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(api), "\n")
	tree.commit(t, "api/delayqueue.txt", rest)
	tree.refuses(t, "v0.1.1", "its API lacks: "+first)

	before := tree.must(t, "rev-parse", "HEAD") + tree.must(t, "tag", "--list")
	if err := tree.tag("v0.2.0", true, io.Discard); err != nil {
		t.Error("a dry run:", err)
	}
	if after := tree.must(t, "rev-parse", "HEAD") + tree.must(t, "tag", "--list"); after != before {
		t.Error("a dry run changed something")
	}

	// A module whose listing is new takes nothing away.
	tree.must(t, "tag", "--force", "v0.1.0",
		tree.must(t, "commit-tree", "-m", "without api", tree.must(t, "rev-parse", "HEAD:api")))
	if err := tree.tag("v0.1.1", true, io.Discard); err != nil {
		t.Error("with a new module:", err)
	}
	mod, err := os.ReadFile(filepath.Join(tree.dir, "schedule/go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	tree.commit(t, "schedule/go.mod", string(mod)+"\nreplace github.com/go-delayqueue/delayqueue => ../\n")
	tree.refuses(t, "v0.2.0", "has a replace")
	tree.commit(t, "schedule/go.mod", string(mod))

	const inTheWay = "cmd/delayqueue/v0.2.0/draft" // of the last tag to be set
	tree.must(t, "tag", inTheWay)
	tree.refuses(t, "v0.2.0", "cmd/delayqueue/v0.2.0")
	tree.must(t, "tag", "--delete", inTheWay)
	if err := tree.tag("v0.2.0", false, io.Discard); err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(tree.dir, "schedule/go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]int{"v0.1.0": 0, "v0.2.0": 2} {
		if n := strings.Count(string(sum), "github.com/go-delayqueue/delayqueue "+version); n != want {
			t.Errorf("schedule/go.sum has %d sums of %s, want %d", n, version, want)
		}
	}
	if released := tree.must(t, "tag", "--list", "*v0.2.0"); !strings.Contains(released, "cmd/delayqueue/v0.2.0") ||
		strings.Contains(released, "bench") {
		t.Errorf("tags: %s", released)
	}

	tree.must(t, "tag", "--delete", "schedule/v0.2.0")
	tree.commit(t, "CHANGELOG.md", changes)
	tree.refuses(t, "v0.3.0", "the last release is not whole: the root has v0.2.0, schedule has v0.1.0")
}
