package main

import (
	"context"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestMain lets the program start this binary as a replica.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-"+childFlag {
		main()
	}
	leaks.Main(m)
}

// A program runs until the end of a test.
type program struct {
	*testing.T
	out, errs testkit.Buffer
}

// runProgram runs the program, with its reports made each second.
func runProgram(t *testing.T, args ...string) *program {
	p := &program{T: t}
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() { code <- run(ctx, append(args, "-every", "1s"), strings.NewReader(""), &p.out, &p.errs) }()
	t.Cleanup(func() {
		cancel()
		if got := testkit.Receive(t, "it ends", code); got != 0 || t.Failed() {
			t.Errorf("exit code %d; it said:\n%s%s", got, &p.out, &p.errs)
		}
	})
	return p
}

// until waits until cond holds.
func (p *program) until(what string, cond func() bool) {
	p.Helper()
	testkit.Until(p, what, cond)
}

// find are the submatches of a pattern in what the program said.
func (p *program) find(pattern string) [][]string {
	return regexp.MustCompile(`(?m)`+pattern).FindAllStringSubmatch(p.out.String(), -1)
}

// kill kills the process that is a replica now.
func (p *program) kill(replica string) (pid string) {
	p.Helper()
	starts := p.find(`replica ` + replica + ` is process (\d+):`)
	pid = starts[len(starts)-1][1]
	id, _ := strconv.Atoi(pid)
	process, err := os.FindProcess(id)
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		p.Fatal(err)
	}
	return pid
}

// made are the ids of the messages by which the report stock was made, by its instants.
func (p *program) made() map[int64]map[string]bool {
	p.Helper()
	made := map[int64]map[string]bool{}
	for _, line := range p.find(`^.* made +stock +of (\S+)  message ([^\s,]+)`) {
		at, err := time.Parse(time.RFC3339, line[1])
		if err != nil {
			p.Fatal(err)
		}
		if made[at.Unix()] == nil {
			made[at.Unix()] = map[string]bool{}
		}
		made[at.Unix()][line[2]] = true
	}
	return made
}

// judge waits until the report has been made of n more instants and of all before them, and wants one message for each.
func (p *program) judge(n int) {
	p.Helper()
	begun := time.Now().Unix()
	p.until("it makes each report", func() bool {
		instants := slices.Sorted(maps.Keys(p.made()))
		return len(instants) > 0 && instants[len(instants)-1] >= begun+int64(n) &&
			instants[len(instants)-1]-instants[0] == int64(len(instants)-1)
	})
	for at, ids := range p.made() {
		if len(ids) != 1 {
			p.Errorf("%d: made by %d messages", at, len(ids))
		}
	}
}

// A replica is killed, and comes again: each instant has its report, once.
func TestReplicaIsKilled(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	p := runProgram(t, "-restart", "2s")
	p.until("both run", func() bool { return len(p.find(`replica [12] is process`)) == 2 && len(p.made()) > 2 })
	if next := p.find(`^sales +next of \S+:00\+0[12]:00$`); len(next) != 1 {
		t.Errorf("it said:\n%s", &p.out)
	}
	killed := p.kill("1")
	p.until("the other one goes on", func() bool { return len(p.find(`replica 1 has ended \(signal: killed\)`)) == 1 })
	p.judge(2)
	p.until("it comes again", func() bool { return len(p.find(`replica 1 is process`)) == 2 })
	if p.kill("2") == killed {
		t.Error("one process twice")
	}
	p.judge(2)
	p.until("exports are skipped", func() bool {
		return len(p.find(`skipped +export +of`)) > 0 && len(p.find(`made +export +of`)) > 0
	})
}

// Both replicas are dead for so long that instants are missed, and made up for: each has its report, once.
func TestAllAreKilled(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	p := runProgram(t, "-restart", "13s")
	p.until("both run", func() bool { return len(p.find(`replica [12] is process`)) == 2 && len(p.made()) > 2 })
	p.kill("1")
	p.kill("2")
	p.until("they come again", func() bool { return len(p.find(`replica [12] is process`)) == 4 })
	p.judge(1)
	p.until("some are caught up", func() bool { return len(p.find(`missed +stock +of \S+, sent \d+s late`)) > 0 })
}

// With a Redis of one's own the program is one replica.
func TestOwnRedis(t *testing.T) {
	t.Setenv("REDIS_ADDR", miniredis.RunT(t).Addr())
	a, b := runProgram(t), runProgram(t)
	a.until("both have made some", func() bool { return len(a.made())+len(b.made()) > 3 })
	made := b.made()
	for at, ids := range a.made() {
		if made[at] != nil && !maps.Equal(made[at], ids) {
			t.Errorf("both have made that of %d", at)
		}
	}
	if len(a.find(`is process`)) > 0 {
		t.Errorf("it started replicas:\n%s", &a.out)
	}
}

func TestUsage(t *testing.T) {
	testkit.RunUsages(t, func(args []string, out, errs io.Writer) int { return run(t.Context(), args, nil, out, errs) },
		[]testkit.Usage{
			{Args: []string{"-h"}, Want: "-every"},
			{Args: []string{"-nosuch"}, Code: 2, Want: "not defined"},
			{Args: []string{"-restart", "-1s"}, Code: 2, Want: "-restart"},
			{Args: []string{"-every", "1500ms"}, Code: 2, Want: "whole seconds"},
			{Redis: "127.0.0.1:1", Code: 1, Want: "does not answer"},
		})
}
