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
