package main

import (
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var (
	row  = regexp.MustCompile(`(alice|bob|carol|acme) +(\d) at a time  ([✓█↻·]+) +handled +\d+ of +(\d+)`)
	wide = regexp.MustCompile(`acme +100 handled, at most [2-5] at a time, 0 retries`)
	late = regexp.MustCompile(`no lane +\d+ handled, at most [\d.]+ ms late`)
)

// The lanes are in order, on the embedded server and on a real one.
func TestRun(t *testing.T) {
	for _, addr := range []string{"", redistest.Start(t).Addr()} {
		t.Setenv("REDIS_ADDR", addr)
		var out, errs testkit.Buffer
		if code := run(t.Context(), []string{"-work", "10ms", "-backlog", "100"}, &out, &errs); code != 0 {
			t.Fatalf("exit %d, %s", code, errs.String())
		}
		said := out.String()
		for _, want := range []string{
			"alice      20 handled, at most 1 at a time, 0 retries, in order",
			"bob        20 handled, at most 1 at a time, 2 retries, in order",
			"carol      20 handled, at most 1 at a time, 0 retries, in order",
			"acme     5 at a time                        handled  100 of  100",
		} {
			if !strings.Contains(said, want) {
				t.Errorf("it did not say %q:\n%s", want, said)
			}
		}
		for _, want := range []*regexp.Regexp{wide, late} {
			if !want.MatchString(said) {
				t.Errorf("it did not say %v:\n%s", want, said)
			}
		}
		for _, m := range row.FindAllStringSubmatch(said, -1) {
			if width, _ := strconv.Atoi(m[2]); strings.Count(m[3], "█") > width {
				t.Errorf("more than %d at a time: %s", width, m[0])
			}
		}
	}
}

func TestUsage(t *testing.T) {
	testkit.RunUsages(t, func(args []string, out, errs io.Writer) int { return run(t.Context(), args, out, errs) },
		[]testkit.Usage{
			{Args: []string{"-h"}, Want: "-backlog"},
			{Args: []string{"-nosuch"}, Code: 2, Want: "not defined"},
			{Args: []string{"more"}, Code: 2, Want: "no arguments"},
			{Args: []string{"-work", "0s"}, Code: 2, Want: "-work"},
			{Args: []string{"-backlog", "0"}, Code: 2, Want: "-backlog"},
			{Redis: "127.0.0.1:1", Code: 1, Want: "does not answer"},
		})
}
