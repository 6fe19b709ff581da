package redistest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestOtherServer: the variable names the executable, a wrapper too.
func TestOtherServer(t *testing.T) {
	path, err := executable()
	testkit.Must(t, err)
	ran := filepath.Join(t.TempDir(), "ran")
	wrapper := filepath.Join(t.TempDir(), "wrapper")
	text := "#!/bin/sh\ntouch '" + ran + "'\nexec '" + path + "' \"$@\"\n"
	testkit.Must(t, os.WriteFile(wrapper, []byte(text), 0o700))
	t.Setenv(ServerEnv, wrapper)
	if err := Start(t).Client(t).Ping(testCtx(t)).Err(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("the wrapper was not run: %v", err)
	}
	t.Setenv(ServerEnv, filepath.Join(t.TempDir(), "nothing"))
	if _, err := Run(); err == nil || !strings.Contains(err.Error(), ServerEnv) {
		t.Errorf("a server that is not there: %v", err)
	}
}
