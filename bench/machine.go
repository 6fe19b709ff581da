package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// about says where and with what was measured.
type about struct {
	machine  string
	commit   string
	versions []string
	when     time.Time
	took     time.Duration
}

func describeMachine(ctx context.Context) (about, error) {
	a := about{
		when:    time.Now(),
		machine: fmt.Sprintf("%s, %d cores, %s/%s", processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
	}
	server, err := redistest.Version(ctx)
	if err != nil {
		return a, err
	}
	a.versions = []string{server, strings.Replace(runtime.Version(), "go", "Go ", 1)}
	if commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		a.commit = strings.TrimSpace(string(commit))
		a.versions = append(a.versions, "delayqueue "+a.commit)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/redis/go-redis/v9" {
				a.versions = append(a.versions, strings.TrimPrefix(dep.Path, "github.com/")+" "+dep.Version)
			}
		}
	}
	return a, nil
}

// processor is the name of the machine's processor, where the system tells.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "unknown processor"
}
