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
)

// about says where and with what was measured.
type about struct {
	machine  string
	versions []string
	when     time.Time
	took     time.Duration
	quick    bool
}

func describeMachine(ctx context.Context) (about, error) {
	a := about{
		when:    time.Now(),
		machine: fmt.Sprintf("%s, %d cores, %s/%s", processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
	}
	server, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return a, fmt.Errorf("redis-server --version: %w", err)
	}
	version := "?"
	for _, word := range strings.Fields(string(server)) {
		if v, ok := strings.CutPrefix(word, "v="); ok {
			version = v
		}
	}
	a.versions = []string{"Redis " + version, strings.Replace(runtime.Version(), "go", "Go ", 1)}
	if commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil {
		a.versions = append(a.versions, "delayqueue "+strings.TrimSpace(string(commit)))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "github.com/hibiken/asynq", "github.com/redis/go-redis/v9":
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
