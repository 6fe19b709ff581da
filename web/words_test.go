package web

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue"
)

// texts are how the catalogue's keys stand in templates and in Go: t "…", say("…"), title: "…", &httpError{…, "…"}.
var texts = map[string][]*regexp.Regexp{
	".html": {regexp.MustCompile(`\bt ("(?:[^"\\]|\\.)*")`)},
	".go": {regexp.MustCompile(`\bsay\(("(?:[^"\\]|\\.)*")`), regexp.MustCompile(`\b(?:title|Title|Did): +("(?:[^"\\]|\\.)+")`),
		regexp.MustCompile(`\b(?:Act|BulkPhase) = ("[^"]*")`), // of ops, which pages say as they are
		regexp.MustCompile(`httpError\{[^,}]+, ("(?:[^"\\]|\\.)*")`),
		regexp.MustCompile(`\btwo\(.*?("%s [^"]*").*?("%s [^"]*")`)},
}

// keys are all texts that this module says, and those of internal/health and the journal.
func keys(t *testing.T) map[string]bool {
	found := map[string]bool{}
	look := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, pattern := range texts[filepath.Ext(path)] {
			for _, match := range pattern.FindAllStringSubmatch(string(text), -1) {
				for _, quoted := range match[1:] {
					key, err := strconv.Unquote(quoted)
					if err != nil {
						t.Errorf("%s: %s: %v", path, quoted, err)
					}
					found[key] = true
				}
			}
		}
		return nil
	}
	for _, dir := range []string{".", "../internal/health", "../ops/journal.go"} {
		ok(t, filepath.WalkDir(dir, look))
	}
	for _, state := range append(states, delayqueue.StateGone) {
		if state != delayqueue.StateUnack {
			found[state.String()] = true
		}
	}
	return found
}

// TestLanguagesAreComplete: each text is there in each language, with as many places, and no language has texts that nobody says.
func TestLanguagesAreComplete(t *testing.T) {
	said := keys(t)
	if len(said) < 20 {
		t.Fatalf("found only %d texts", len(said))
	}
	for _, l := range languages {
		if l.words == nil { // the keys themselves
			continue
		}
		for key := range said {
			text, ok := l.words[key]
			if !ok {
				t.Errorf("%s has no %q", l.Tag, key)
			} else if strings.Count(text, "%") != strings.Count(key, "%") || strings.Count(text, "%s") != strings.Count(key, "%s") {
				t.Errorf("%s: %q has other places: %q", l.Tag, key, text)
			}
		}
		for key := range l.words {
			if !said[key] {
				t.Errorf("%s: nobody says %q", l.Tag, key)
			}
		}
	}
}
