package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// allTests are the texts of this module's tests.
func allTests(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(queuetest.File(t, "."), func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestRedisPageEvents: each event stands in docs/redis.md, and the one that it shows is read.
func TestRedisPageEvents(t *testing.T) {
	codes := queuetest.RedisSection(t, "## Events")
	for code := delayqueue.NewMessageEvent; code <= delayqueue.SupersededEvent; code++ {
		if !strings.Contains(codes, fmt.Sprintf("| %d |", code)) {
			t.Errorf("the event %d (%v) is missing", code, code)
		}
	}
	var events []delayqueue.Event
	if err := json.Unmarshal([]byte(queuetest.RedisExample(t, "events")), &events); err != nil || len(events) != 1 ||
		events[0].Code != delayqueue.AckEvent {
		t.Errorf("the events are %+v, %v", events, err)
	}
}

// invariants is the text of the package comment of internal/check.
func invariants(t *testing.T) string {
	head, _, _ := strings.Cut(queuetest.ReadText(t, "internal/check/check.go"), "\npackage check")
	return strings.Join(strings.Fields(strings.ReplaceAll(head, "//", "")), " ")
}

// TestInvariantsHaveTests: the tests that the invariants name are there.
func TestInvariantsHaveTests(t *testing.T) {
	tests, named := allTests(t), regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(invariants(t), -1)
	if len(named) < 10 {
		t.Errorf("they name %d", len(named))
	}
	for _, name := range named {
		if !strings.Contains(tests, "func "+name+"(") {
			t.Errorf("there is no %s", name)
		}
	}
}

// TestInvariantsNameBreaches: each kind of breach stands under an invariant.
func TestInvariantsNameBreaches(t *testing.T) {
	text := invariants(t)
	for _, kind := range regexp.MustCompile(`Kind = "([^"]+)"`).FindAllStringSubmatch(queuetest.ReadText(t,
		"internal/check/finding.go"), -1) {
		if !strings.Contains(text, kind[1]) {
			t.Errorf("no invariant names the breach %q", kind[1])
		}
	}
}

// builds compiles a program of a page as it stands.
func builds(t *testing.T, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	queuetest.Must(t, os.WriteFile(file, []byte(program), 0o600))
	build := exec.Command("go", "build", "-o", os.DevNull, file)
	build.Dir = queuetest.File(t, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("the program\n%s\ndoes not compile: %v\n%s", program, err, out)
	}
}

// TestRecipes: the code in pages stands so in Examples and tests. A whole program compiles, and its main is an Example.
func TestRecipes(t *testing.T) {
	indent := regexp.MustCompile(`(?m)^\t+`)
	program := strings.NewReplacer("func Example() {", "func main() {")
	for page, files := range map[string][]string{
		"README.md": {"example_test.go"},
		"docs/recipes.md": {"example_recipes_test.go", "example_services_test.go", "typed/example_recipes_test.go",
			"schedule/example_test.go",
			"metrics/otelqueue/example_test.go"},
		"docs/testing.md": {"delayqueuetest/docs_test.go", "delayqueuetest/service_test.go"},
	} {
		var compiled string
		for _, file := range files {
			compiled += queuetest.ReadText(t, file)
		}
		compiled = indent.ReplaceAllString(program.Replace(compiled), "")
		blocks := strings.Split(queuetest.ReadText(t, page), "\n```go\n")
		for _, block := range blocks[1:] {
			code, _, _ := strings.Cut(block, "```")
			if strings.HasPrefix(code, "package main\n") {
				builds(t, code)
				code = code[strings.Index(code, "func main() {"):]
			}
			if !strings.Contains(compiled, indent.ReplaceAllString(code, "")) {
				t.Errorf("%s: none of %q has\n%s", page, files, code)
			}
		}
		if len(blocks) < 2 {
			t.Errorf("%s has none", page)
		}
	}
}

// TestPromisesHaveTests: the tests that docs/reliability.md names are there.
func TestPromisesHaveTests(t *testing.T) {
	promises, _, _ := strings.Cut(queuetest.ReadText(t, "docs/reliability.md"), "\n## Faults\n")
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(promises, -1)
	if len(named) < 12 {
		t.Errorf("it names %d", len(named))
	}
	tests := allTests(t)
	for _, name := range named {
		if !strings.Contains(tests, "func "+name[1]+"(") {
			t.Errorf("there is no %s", name[1])
		}
	}
}

// TestShardExceptions: each test that "make test-shards" leaves out is there, and stands under a reason.
func TestShardExceptions(t *testing.T) {
	tests, reason := queuetest.ReadText(t, "*_test.go", "tests/*/*_test.go"), ""
	for line := range strings.Lines(queuetest.ReadText(t, ".ci/shards-exceptions")) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(line, "/")
		switch {
		case line == "":
			reason = ""
		case strings.HasPrefix(line, "#"):
			reason = line
		case reason == "" || !strings.Contains(tests, "\nfunc "+name+"(t *testing.T) {"):
			t.Errorf("%q is no test, or stands under no reason", line)
		}
	}
}
