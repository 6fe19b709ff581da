package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
)

// ServerEnv names the executable of all servers that this process starts, in place of the
// redis-server in PATH. It takes redis-server's arguments and must become the server itself (a
// wrapper ends in exec): what a test kills and freezes is the process that was started.
const ServerEnv = "DELAYQUEUE_REDIS_SERVER"

// executable is the path of the server that is run.
func executable() (string, error) {
	if path := os.Getenv(ServerEnv); path != "" {
		path, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("redistest: %s: %w", ServerEnv, err)
		}
		return path, nil
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("redistest: there is no redis-server in PATH; run `make test`, which installs it: %w", err)
	}
	return path, nil
}

var versionLine = regexp.MustCompile(`^(\w+) server v=(\S+)`)

// Version is what the server that Start runs says of itself, as in "Redis 7.0.15" or "Valkey 9.1.2".
func Version(ctx context.Context) (string, error) {
	path, err := executable()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("redistest: %s --version: %w", path, err)
	}
	found := versionLine.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("redistest: %s --version says %q", path, out)
	}
	return string(found[1]) + " " + string(found[2]), nil
}
