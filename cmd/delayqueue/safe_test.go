package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/jedib0t/go-pretty/v6/text"
)

func TestBrief(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "7ms": 7 * time.Millisecond, "1s": 999 * time.Millisecond, "1.5s": 1500 * time.Millisecond,
		"59.9s": 59900 * time.Millisecond,
		"1m":    59990 * time.Millisecond, "1m30s": 90 * time.Second, "2m10s": 130 * time.Second, "10m": 10 * time.Minute,
		"50m20s": 3020 * time.Second,
		"1h":     time.Hour, "1h10s": time.Hour + 10*time.Second, "10h10m10s": 10*time.Hour + 10*time.Minute + 10*time.Second,
		"47h59m50s": 48*time.Hour - 10*time.Second, "2d": 48 * time.Hour, "2d3h": 51*time.Hour + 20*time.Minute,
		"-1m30s":     -90 * time.Second,
		"106751d23h": math.MaxInt64,
	} {
		equal(t, fmt.Sprint(int64(d)), brief(d), want)
	}
	equal(t, "brief of the least", brief(math.MinInt64), "-106751d23h")
}

var hostile = []string{
	"", "plain", "two words", "it's", `back\slash`, "$(touch /tmp/owned)", "`id`", "a\nb", "\x1b[2J", "\x7f",
	"\xff\xfe", "é", "a\u202eb", "-x", "!!",
	"'; rm -rf x; '", "\u0085", "\x00"[:0],
}

// What is quoted for a shell is the same word again, and nothing else is run.
func TestShellQuote(t *testing.T) {
	for _, s := range hostile {
		quoted := shellQuote(s)
		if strings.ContainsFunc(quoted, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: %q would steer a terminal", s, quoted)
		}
		out, err := exec.Command("bash", "-c", "printf %s "+quoted).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q as %s: %q %v", s, quoted, out, err)
		}
	}
}

// The same command once more reads as it did the first time.
func TestAgain(t *testing.T) {
	for want, args := range map[string][]string{
		"delayqueue find orders 17.5 --limit 3": {"find", "orders", "17.5", "--limit", "3"},
		"delayqueue find --limit 3 -- orders -17.5": {"find", "orders", "--limit", "3", "--",
			"-17.5"},
		"delayqueue ls -- -orders garbage": {"ls", "--", "-orders", "garbage"},
		`delayqueue ls orders garbage --header 'a="x, y"=z' --header 'b=it'\''s'`: {"ls", "orders", "garbage", "--header",
			"b=it's", "--header", `a="x, y"=z`},
	} {
		c, rest, err := newApp().root().Find(args)
		ok(t, err)
		ok(t, c.ParseFlags(rest))
		equal(t, fmt.Sprint(args), again(c), want)
	}
}

func TestEscapeJSON(t *testing.T) {
	for _, s := range append(hostile, "\u009b31m", "\u2066", "\U000e0001", "漢字 🙂") {
		raw, err := json.Marshal(s)
		ok(t, err)
		safe := escapeJSON(raw)
		if strings.ContainsFunc(string(safe), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q: %q would steer a terminal", s, safe)
		}
		var before, after string
		ok(t, json.Unmarshal(raw, &before))
		if err := json.Unmarshal(safe, &after); err != nil || after != before {
			t.Errorf("%q: %q %v, want %q", s, after, err, before)
		}
	}
}

// No instant that Redis can hold ends the output.
func TestInstantsForJSON(t *testing.T) {
	for _, at := range []time.Time{{}, time.UnixMicro(math.MaxInt64), time.UnixMicro(math.MinInt64),
		time.UnixMicro(1 << 53),
		time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if _, err := json.Marshal(instant(at)); err != nil {
			t.Errorf("%v: %v", at.Unix(), err)
		}
		if _, err := json.Marshal(utc(at)); err != nil {
			t.Errorf("%v: %v", at.Unix(), err)
		}
	}
}

// A table is as wide as the terminal, numbers stay whole as long as that can be, and what is cut says so.
func TestTableFits(t *testing.T) {
	g := newGrid("id", "key", "count", "payload", "state").numbers(3)
	id := "01890000-0000-7000-8000-000000000000"
	g.add(id, strings.Repeat("k", 30), int64(1234567), strings.Repeat("漢", 40), paint(good, "running"))
	g.add(id, "", int64(1), "short", "paused until tomorrow")
	for _, width := range []int{200, 120, 100, 80, 60, 40, 20} {
		lines := strings.Split(g.render(width), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines at %d columns", len(lines), width)
		}
		for _, line := range lines {
			if w := text.StringWidthWithoutEscSequences(line); w > width {
				t.Errorf("%d columns of %d: %q", w, width, line)
			}
		}
		all := strings.Join(lines, "\n")
		if width >= 200 && !strings.Contains(all, id) {
			t.Errorf("the id is cut at %d columns:\n%s", width, all)
		}
		if width >= 60 && (!strings.Contains(all, id[len(id)-8:]) || !strings.Contains(all, "1,234,567") ||
			!strings.Contains(all, "STATE")) {
			t.Errorf("at %d columns:\n%s", width, all)
		}
		if width < 200 && !strings.Contains(all, "…") {
			t.Errorf("nothing is said to be cut at %d columns:\n%s", width, all)
		}
	}
	if all := g.render(0); strings.Contains(all, "…") {
		t.Errorf("cut without a terminal:\n%s", all)
	}
}

// At 80 columns the table of garbage says when and why, and at 60 that of errors says which, whatever else is in them.
func TestTablesSayWhatMatters(t *testing.T) {
	id := "01890000-0000-7000-8000-00003f9a21bc"
	died := time.Now().Add(-150 * time.Second)
	garbage := newGrid("id", "key", "died", "delivery", "failures", "payload", "last error").numbers(4, 5).cutLast(7)
	garbage.add(id, "", moment{died}, 4, 4, strings.Repeat("payload ", 5),
		paint(bad, "dial tcp 10.0.0.7:443: connection refused"))
	errors := newGrid("count", "first", "last", "error", "last one").numbers(1).cutLast(4)
	errors.add(int64(1234), moment{died.Add(-time.Hour)}, moment{died}, paint(bad, "dial tcp #:#: connection refused"), id)
	stats := newGrid("queue", "pending", "ready", "unack", "retry", "garbage", "done", "behind", "next due", "state").
		numbers(2, 3, 4, 5, 6, 7, 8).cutLast(10)
	stats.add("orders", int64(200000), "0", "0", "0", int64(6000), int64(0), "", "in 3s", paint(bad, "no consumers"))
	report := schedule.Entry{Name: "monthly-report", Cron: "0 9 1 * *", Zone: "Europe/Berlin"}
	schedules := new(app).scheduleTable([]schedule.Status{{Entry: report, Next: died.Add(50 * time.Hour), Last: died}})
	for _, tt := range []struct {
		g     *grid
		width int
		want  []string
	}{
		{garbage, 80, []string{"DIED", "2m ago", "LAST ERROR", "dial tcp 10.0.0.7:443: connect", "…3f9a21bc"}},
		{errors, 60, []string{"1,234", "1h ago", "2m ago", "dial tcp #:#: connect", "…3f9a21bc"}},
		{stats, 80, []string{"200,000", "6,000", "no consumers"}},
		{stats, 60, []string{"200,000", "6,000", "no consumers"}},
		{schedules, 80, []string{"monthly-report", "0 9 1 * *", "in 2d", "2m ago", "running"}},
		{garbage, 200, []string{id, " (2m30s ago)"}},
	} {
		all := text.StripEscape(tt.g.render(tt.width))
		if strings.Contains(all, "\x1b") || strings.Contains(all, "…2m") {
			t.Errorf("a header is cut within its colour at %d columns:\n%s", tt.width, all)
		}
		for _, want := range tt.want {
			if !strings.Contains(all, want) {
				t.Errorf("no %q at %d columns:\n%s", want, tt.width, all)
			}
		}
	}
}
