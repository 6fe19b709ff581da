package redistest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOtherServer: the variable names the executable, a wrapper too.
func TestOtherServer(t *testing.T) {
	path, err := executable()
	if err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	wrapper := filepath.Join(t.TempDir(), "wrapper")
	text := "#!/bin/sh\ntouch '" + ran + "'\nexec '" + path + "' \"$@\"\n"
	if err := os.WriteFile(wrapper, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
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

func TestVersion(t *testing.T) {
	dir := t.TempDir()
	for said, want := range map[string]string{
		"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1": "Redis 7.0.15",
		"Valkey server v=9.1.2 sha=00000000:0 malloc=jemalloc-5.3.1 bits=64 build=1": "Valkey 9.1.2",
		"what?": "",
	} {
		path := filepath.Join(dir, "server")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+said+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv(ServerEnv, path)
		if got, err := Version(testCtx(t)); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is read as %q, %v", said, got, err)
		}
	}
}
