//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable()
	leaks.Main(m)
}

var (
	result = regexp.MustCompile(`sent (\d+), errors of sends (\d+), lost (\d+), handled twice (\d+)`)
	steps  = regexp.MustCompile(
		`(?s)is killed, and shards 1 .*stop.*dead 1.*has taken over.*started again.*is back, as a replica`)
)

func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out, errs testkit.Buffer
	if code := run(t.Context(), []string{"-before", "2s", "-down", "1s", "-after", "1s", "-rate", "500"}, &out,
		&errs); code != 0 {
		t.Fatalf("exit %d, %s\n%s", code, errs.String(), out.String())
	}
	said := out.String()
	if !steps.MatchString(said) {
		t.Error("it did not say what happened to the node")
	}
	m := result.FindStringSubmatch(said)
	if m == nil {
		t.Fatalf("no summary:\n%s", said)
	}
	// Redis may forget what it has answered to in the instant before the kill.
	for i, most := range []int{0: 1_000_000, 1: 0, 2: 20, 3: 20} {
		if n, _ := strconv.Atoi(m[i+1]); n > most || i == 0 && n == 0 {
			t.Error(m[0])
		}
	}
	if t.Failed() {
		t.Log(said)
	}
	nothingLeft(t)
}

// Ctrl-C stops all servers, also while one of them is dead.
func TestInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs testkit.Buffer
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"-before", "2s", "-rate", "500"}, &out, &errs) }()
	testkit.Until(t, "a server is killed", func() bool { return strings.Contains(out.String(), "is killed") })
	cancel()
	if got := testkit.Receive(t, "the end", code); got != 0 ||
		!regexp.MustCompile(`not handled yet \d+`).MatchString(out.String()) {
		t.Errorf("exit %d, %s\n%s", got, errs.String(), out.String())
	}
	nothingLeft(t)
}

// What is behind the rate is not sent any more once the time is over.
func TestSendEnds(t *testing.T) {
	queue := delayqueue.NewQueue("ends", redistest.Start(t).Client(t), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		new(traffic).send(ctx, queue, 10_000_000)
	}()
	testkit.Receive(t, "the end", ended)
}

func nothingLeft(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Error("it has left", left, err)
	}
}

func TestUsage(t *testing.T) {
	usages := []testkit.Usage{
		{Args: []string{"-h"}, Want: "-before"},
		{Args: []string{"-nosuch"}, Code: 2, Want: "not defined"},
		{Args: []string{"more"}, Code: 2, Want: "no arguments"},
		{Args: []string{"-down", "0s"}, Code: 2, Want: "-down"},
		{Args: []string{"-shards", "65"}, Code: 2, Want: "-shards"},
		{Code: 1, Want: "install Redis"},
	}
	t.Setenv("PATH", t.TempDir())
	testkit.RunUsages(t, func(args []string, out, errs io.Writer) int { return run(t.Context(), args, out, errs) }, usages)
}
