package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestParse(t *testing.T) {
	berlin := time.FixedZone("", 3600)
	now := time.Date(2026, 2, 28, 15, 4, 5, 0, berlin)
	on := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 2, day, hour, minute, second, 0, berlin)
	}
	for _, tt := range []struct {
		line string
		want reminder
		err  string
	}{
		{line: "2s pay the rent", want: reminder{text: "pay the rent", delay: 2 * time.Second}},
		{line: "+1m30s take out the bread", want: reminder{text: "take out the bread", delay: 90 * time.Second}},
		{line: "  300ms\t tea  ", want: reminder{text: "tea", delay: 300 * time.Millisecond}},
		{line: "0s now", want: reminder{text: "now"}},
		{line: "16:00:01 later today", want: reminder{text: "later today", at: on(28, 16, 0, 1)}},
		{line: "16:00 later today", want: reminder{text: "later today", at: on(28, 16, 0, 0)}},
		{line: "9:30 tomorrow, another month", want: reminder{text: "tomorrow, another month", at: on(29, 9, 30, 0)}},
		{line: "15:04:05 this very second is past", want: reminder{text: "this very second is past", at: on(29, 15, 4, 5)}},
		{line: "15:04:06 a second from now", want: reminder{text: "a second from now", at: on(28, 15, 4, 6)}},
		{line: "2026-03-01 09:30:00 on a day", want: reminder{text: "on a day", at: on(29, 9, 30, 0)}},
		{line: "2026-03-01 09:30 on a day", want: reminder{text: "on a day", at: on(29, 9, 30, 0)}},
		{line: "2s 16:00 is the text", want: reminder{text: "16:00 is the text", delay: 2 * time.Second}},

		{line: "2026-02-28 15:04:04 a second ago", err: "is past"},
		{line: "2026-02-30 10:00 no such day", err: `"2026-02-30" is neither`},
		{line: "2026-03-01 tea", err: `"tea" is none`},
		{line: "2026-03-01", err: `"" is none`},
		{line: "2026-03-01 10:00", err: "no text"},
		{line: "25:00 no such hour", err: `"25:00" is neither`},
		{line: "5 minutes", err: `"5" is neither`},
		{line: "soon tea", err: `"soon" is neither`},
		{line: "-2s too late", err: "negative"},
		{line: "2s", err: "no text"},
		{line: "16:00", err: "no text"},
	} {
		got, err := parse(tt.line, now)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("parse(%q) = %v, want an error with %q", tt.line, err, tt.err)
			}
		case err != nil:
			t.Errorf("parse(%q) = %v", tt.line, err)
		case got.text != tt.want.text || got.delay != tt.want.delay || !got.at.Equal(tt.want.at):
			t.Errorf("parse(%q) = %+v, want %+v", tt.line, got, tt.want)
		}
	}
}

// start runs the program in the background.
func start(t *testing.T, in io.Reader, args ...string) *process {
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{t: t, stop: cancel, code: make(chan int, 1)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("it said:\n%s%s", &p.out, &p.errs)
		}
	})
	go func() { p.code <- run(ctx, args, in, &p.out, &p.errs) }()
	return p
}

type process struct {
	t         *testing.T
	out, errs testkit.Buffer
	stop      context.CancelFunc
	code      chan int
}

func (p *process) end(want int) {
	p.t.Helper()
	defer p.stop()
	if got := testkit.Receive(p.t, "it ends", p.code); got != want {
		p.t.Errorf("exit code %d, want %d; it said:\n%s%s", got, want, &p.out, &p.errs)
	}
}

// has waits for a line of output.
func (p *process) has(pattern string) {
	p.t.Helper()
	re := regexp.MustCompile(`(?m)` + pattern)
	testkit.Until(p.t, "it prints "+pattern, func() bool { return re.MatchString(p.out.String()) })
}

const ms = ` +\d+\.\d\d ms late +` // never early

func TestRun(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	p := start(t, strings.NewReader("\ufeff# a comment\r\n\r\n100ms one\r\nnonsense here\n0s now\n200ms !flaky two\n50ms"))
	p.end(1)
	for _, want := range []string{
		`^redis: embedded`,
		`^scheduled +\S+ +in 100ms +one$`,
		`^fired +\S+` + ms + `one$`,
		`^fired +\S+` + ms + `now$`,
		`^failed +\S+` + ms + `!flaky two \(again in 1s\)$`,
		`^fired +\S+` + ms + `!flaky two$`,
		`^3 fired, 1 retried, worst lateness \d+\.\d\d ms$`,
	} {
		p.has(want)
	}
	want := `reminders: line 4: "nonsense" is neither a delay nor a time nor a date; ` + hint + `
reminders: line 7: there is a time but no text; ` + hint + `
reminders: lines not scheduled: 2
`
	if p.errs.String() != want {
		t.Errorf("stderr:\n%s\nwant:\n%s", &p.errs, want)
	}
}

// Lines count as they come: standard input may stay open.
func TestRunReadsOn(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	in, feed := io.Pipe()
	p := start(t, in)
	io.WriteString(feed, "10ms one\n")
	p.has(`^fired .* one$`)
	io.WriteString(feed, "10ms two\n")
	p.has(`^fired .* two$`)
	feed.Close()
	p.end(0)
}

// stopped is a run that was stopped while two reminders wait. They do so for a second or some: if that was too short
// for this machine, it is another run, with another Redis.
func stopped(t *testing.T) *process {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(file, []byte("0s !flaky one\n5s two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for begun := testkit.Worked(); ; {
		t.Setenv("REDIS_ADDR", miniredis.RunT(t).Addr())
		p := start(t, nil, file)
		p.has(`^scheduled .* two$`)
		p.has(`^failed .* !flaky one`)
		p.stop()
		p.end(0)
		if !strings.Contains(p.out.String(), "\nfired ") || testkit.Worked()-begun > testkit.Patience {
			return p
		}
	}
}

// What waits at Ctrl-C is shown, and fires when the program runs again.
func TestStopAndResume(t *testing.T) {
	p := stopped(t)
	p.has(`^waits +\S+ +in \S+ +!flaky one$`)
	p.has(`^waits +\S+ +in \S+ +two$`)
	p.has(`^1 wait in Redis, besides retries; the next run goes on with all of them$`)
	p.has(`^0 fired, 1 retried`)

	p = start(t, strings.NewReader(""))
	p.end(0)
	p.has(`^fired +\S+ +late by \? +!flaky one$`)
	p.has(`^fired .* two$`)
	p.has(`^2 fired, 0 retried`)
	if p.errs.String() != "" {
		t.Errorf("stderr: %s", &p.errs)
	}
}

func TestStopEmbedded(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	p := start(t, strings.NewReader("1h one\n23:59:59 two"))
	p.has(`^scheduled .* two$`)
	p.stop()
	p.end(0)
	p.has(`^waits +.* one$`)
	p.has(`^what waits ends with the embedded Redis$`)
}

// Two processes share a queue: each reminder fires once, in one of them.
func TestTwoProcesses(t *testing.T) {
	t.Setenv("REDIS_ADDR", miniredis.RunT(t).Addr())
	lines := "300ms one\n300ms two\n300ms three\n400ms !flaky four\n"
	a, b := start(t, strings.NewReader(lines)), start(t, strings.NewReader(lines))
	a.end(0)
	b.end(0)
	both := a.out.String() + b.out.String()
	for _, text := range []string{"one", "two", "three", "!flaky four"} {
		if n := len(regexp.MustCompile(`(?m)^fired .* `+text+`$`).FindAllString(both, -1)); n != 2 {
			t.Errorf("%q fired %d times, want 2:\n%s", text, n, both)
		}
	}
}

func TestUsage(t *testing.T) {
	testkit.RunUsages(t, func(args []string, out, errs io.Writer) int { return run(t.Context(), args, nil, out, errs) },
		[]testkit.Usage{
			{Args: []string{"-h"}, Want: "!flaky"},
			{Args: []string{"-nosuch"}, Code: 2, Want: "not defined"},
			{Args: []string{"file", "file"}, Code: 2, Want: "one file"},
			{Args: []string{"/no/such/file"}, Code: 1, Want: "no such file"},
			{Redis: "127.0.0.1:1", Code: 1, Want: "does not answer"},
		})
}

// sample.txt is over within 6 seconds and has no line that cannot be read.
func TestSample(t *testing.T) {
	raw, err := os.ReadFile("sample.txt")
	if err != nil {
		t.Fatal(err)
	}
	good := 0
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if r, err := parse(line, time.Now()); err != nil || r.delay > 6*time.Second || !r.at.IsZero() {
			t.Errorf("%q: %+v, %v", line, r, err)
		}
		good++
	}
	if good < 6 {
		t.Errorf("%d lines", good)
	}
}
