package redistest

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestQuietly: what is said while tests run is shown if they fail, up to so many lines of it, and the rest is in a
// file.
func TestQuietly(t *testing.T) { // not parallel, because others' chatter would be there, too
	t.Setenv("TMPDIR", t.TempDir())
	files := func() []string {
		all, err := filepath.Glob(filepath.Join(os.TempDir(), "*.log"))
		testkit.Must(t, err)
		return all
	}
	var out strings.Builder
	run := func(code int) {
		t.Helper()
		if got := quietly(&out, func() int {
			for i := range 2 * tailLines {
				log.Print("line ", i, ".")
			}
			chatter{}.Printf(testCtx(t), "of %s", "go-redis")
			return code
		}); got != code {
			t.Errorf("the exit code is %d, want %d", got, code)
		}
	}
	if run(0); out.Len() > 0 || len(files()) > 0 {
		t.Errorf("tests that pass print %q, and leave %v", out.String(), files())
	}
	run(3)
	all := files()
	if len(all) != 1 {
		t.Fatalf("files %v, want one", all)
	}
	testkit.Has(t, out.String(), all[0], "redis: of go-redis", fmt.Sprint("line ", 2*tailLines-1, "."))
	if strings.Contains(out.String(), "line 0.") {
		t.Error("all is printed")
	}
	text, err := os.ReadFile(all[0])
	if err != nil || !strings.Contains(string(text), "line 0.") {
		t.Errorf("the file has not all: %v", err)
	}
}
