package delayqueue_test

import (
	"os"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		childMain(spec)
		return
	}
	link.ReadFor = queuetest.Patience / 2 // what was not read is so for another reason than a slow machine
	os.Exit(queuetest.RunTests(m, script.ScriptTexts...))
}

// TestShardExceptions: each test that "make test-shards" leaves out is there, and stands under a reason.
func TestShardExceptions(t *testing.T) {
	tests, reason := queuetest.ReadText(t, "*_test.go"), ""
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
