package web

import (
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/redis/go-redis/v9"
)

// texts are how the catalogue's keys stand in templates and in Go: t "…", say("…"), title: "…", &httpError{…, "…"}.
var texts = map[string][]*regexp.Regexp{
	".html": {regexp.MustCompile(`\bt ("(?:[^"\\]|\\.)*")`)},
	".go": {regexp.MustCompile(`\bsay\(\s*("(?:[^"\\]|\\.)*")`),
		regexp.MustCompile(`\b(?:title|Title|Did|Means):\s+("(?:[^"\\]|\\.)+")`),
		regexp.MustCompile(`httpError\{[^,}]+,\s+("(?:[^"\\]|\\.)*")`),
		regexp.MustCompile(`(?s)\btwo\([^;]*?("%s [^"]*")[^;]*?("%s [^"]*")`)},
}

// broken is where a text goes on in the next line.
var broken = regexp.MustCompile(`" ?\+\n\t+"`)

// keys are all texts that this module says, and those of internal/health, of ops.Why and of the journal.
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
			for _, match := range pattern.FindAllStringSubmatch(broken.ReplaceAllString(string(text), ""), -1) {
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
	for _, dir := range []string{".", "../internal/health", "../ops/why_causes.go"} {
		ok(t, filepath.WalkDir(dir, look))
	}
	words, err := os.ReadFile("../internal/journal/words.go") // which pages say as they are
	ok(t, err)
	for _, match := range regexp.MustCompile(`(?m)^\t\w+ += "([^"]*)"`).FindAllStringSubmatch(string(words), -1) {
		found[match[1]] = true
	}
	for _, state := range append(states, delayqueue.StateGone) {
		if state != delayqueue.StateUnack {
			found[state.String()] = true
		}
	}
	return found
}

// TestLanguagesAreComplete: each text is there in each language, with as many places, and no language has texts that
// nobody says.
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
			} else if strings.Count(text, "%") != strings.Count(key, "%") ||
				strings.Count(text, "%s") != strings.Count(key, "%s") {
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

var (
	action     = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	tag        = regexp.MustCompile(`(?s)<[^>]*>`)
	saidByAttr = regexp.MustCompile(`\b(?:aria-label|title|placeholder|alt|data-label|data-silent)="([^"]*)"`)
	word       = regexp.MustCompile(`[A-Za-z]{2,}`)
)

// Templates hold no words of their own: each is of the catalogue.
func TestTemplatesHaveNoWords(t *testing.T) {
	files, err := filepath.Glob("templates/*.html")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		ok(t, err)
		page := action.ReplaceAllString(string(source), " ")
		text := tag.ReplaceAllString(page, " ") + strings.Join(said(page), " ")
		for _, english := range word.FindAllString(text, -1) {
			if english != "delayqueue" { // the brand
				t.Errorf("%s says %q itself", file, english)
			}
		}
	}
}

// sameInAll are words that are written the same in all languages.
var sameInAll = []string{"delayqueue", "English", "UTC", "Redis", "AOF", "JSON", "CSV", "Config", "Queues", "Throttle",
	"KB", "MB", "GB", "TB", "maxmemory", "policy", "noeviction", "appendonly", "yes", "maxclients"}

// notWords are ids, the place of a time in a text for the script, and what a server is.
var notWords = regexp.MustCompile(
	`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\{at\}|\b(redis|valkey|redict|kvrocks) [0-9]\S*`)

// foreign are elements whose text is somebody else's, or is the same in all languages.
var foreign = regexp.MustCompile(
	`(?s)<(code|pre|bdi|time|title)\b.*?</(code|pre|bdi|time|title)>|` +
		`<\w+ [^>]*class="[^"]*\bforeign\b[^"]*"[^>]*>[^<]*</\w+>`)

// englishOf are the English words that a page says itself, not in a text of somebody else's or an id.
func englishOf(page string) (found []string) {
	page = foreign.ReplaceAllString(page, " ")
	for _, text := range append(tag.Split(page, -1), said(page)...) {
		text = notWords.ReplaceAllString(html.UnescapeString(text), "")
		if slices.ContainsFunc(word.FindAllString(text, -1), func(w string) bool { return !slices.Contains(sameInAll, w) }) {
			found = append(found, strings.TrimSpace(text))
		}
	}
	return found
}

// said are the texts in attributes of a page.
func said(page string) (all []string) {
	for _, attr := range saidByAttr.FindAllStringSubmatch(page, -1) {
		all = append(all, attr[1])
	}
	return all
}

// No English is left on a Chinese page, beside what others have written.
func TestChinesePagesAreChinese(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	id := f.sent("1", `{"1":1}`, delayqueue.WithDelay(time.Hour), delayqueue.WithKey("1"), delayqueue.WithHeader("1", "1"),
		delayqueue.WithCountdown(2), delayqueue.WithCounts("2"))
	s := schedule.New(delayqueue.NewPublisher("1", f.cli))
	for _, e := range []schedule.Entry{
		{Name: "1", Cron: "30 3 * * *", Payload: "1"}, {Name: "2", Every: time.Hour, Payload: "1", Overlap: schedule.Skip},
	} {
		ok(t, s.Set(f.Context(), e))
	}
	m := f.monitor("1").WithOperator("1").WithReason("1")
	_, limited := m.SetLimits(f.Context(), ops.Limits{Rate: 1, Per: time.Second, Burst: 1})
	ok(t, errors.Join(limited, m.PauseFor(f.Context(), time.Hour)))
	pages := append(f.pagesOf("1"), "nothing", "message?q=1&id=2")
	for i, act := range []string{
		journal.RunNow, journal.Reschedule, journal.Requeue, journal.Delete,
		journal.Unthrottle, journal.StopBulk,
	} {
		phase := []string{"running", "finished", "stopped", "failed"}[i%4]
		at := 1_700_000_000_000_000 + i
		entry := fmt.Sprintf(`0123456789abcdef runs %d {"act":%q,"n":1,"bulk":{"is":%q,"of":2,"looked":1,`+
			`"passed":{"moved":1,"new":1,"key taken":1}}}`, time.Now().UnixMicro(), act, phase)
		ok(t, f.cli.ZAdd(f.Context(), "{dq:1}:journal", redis.Z{Score: float64(at), Member: entry}).Err())
		pages = append(pages, address("job", "q", "1", "id", fmt.Sprintf("%d-0123456789abcdef", at)))
	}
	for _, v := range scheduleVerbs {
		pages = append(pages, address("schedule", "q", "1", "name", "1", "do", v.Name),
			address("schedules", "q", "1", "done", "schedule "+v.Name))
	}
	for _, v := range verbs {
		pages = append(pages, address("act", "q", "1", "id", id, "do", v.Name))
		for _, state := range v.States {
			pages = append(pages, address("messages", "q", "1", "state", state.String()),
				address("plan", "q", "1", "do", v.Name, "state", state.String(),
					"key", "1", "contains", "1", "error", "1", "like", "1", "header", "1=1", "from", "2026-01-02", "to",
					"2026-01-02T15:04"))
		}
	}
	pages = append(pages, address("message", "q", "1", "id", id), address("messages", "q", "1", "text", "1"),
		address("queue", "q", "1", "done", "set"), address("queue", "q", "1", "done", "clear"),
		address("plan", "q", "1", "do", "postpone", "state", "pending", "by", "1h0m0s"),
		address("plan", "q", "1", "do", "cancel", "state", "pending", "key", "1"))
	for _, page := range pages {
		got := f.get(page, header("Accept-Language", "zh"))
		f.sees(got.body, `lang="zh"`)
		for _, english := range englishOf(got.body) {
			t.Errorf("%s (%d) says %q", page, got.code, english)
		}
	}
	if got := f.get("", header("Accept-Language", "en")); got.code != http.StatusOK || len(englishOf(got.body)) < 10 {
		t.Errorf("this finds no English: %q", englishOf(got.body))
	}
}
