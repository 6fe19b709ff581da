package main

import (
	"fmt"
	"strings"
	"time"

	str2duration "github.com/xhit/go-str2duration/v2"
)

var layouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"}

// parseWhen reads an instant, or a duration from now.
func parseWhen(text string, now time.Time) (time.Time, error) {
	if text == "now" {
		return now, nil
	}
	if d, err := parseDuration(text); err == nil {
		return now.Add(d), nil
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	if t, days, ok := timeOfDay(text); ok {
		return time.Date(now.Year(), now.Month(), now.Day()+days, t.Hour(), t.Minute(), t.Second(), 0, time.Local), nil
	}
	if text == "24:00" {
		return time.Time{}, fmt.Errorf("%q is no time: write 'tomorrow 00:00'", text)
	}
	return time.Time{},
		fmt.Errorf("%q is no time: write 2006-01-02T15:04:05Z, 2006-01-02 15:04, 15:04 (today), tomorrow 15:04, now, or a "+
			"duration like 15m, 7d or -2h", text)
}

// timeOfDay reads 15:04 and tomorrow 15:04; days counts from today.
func timeOfDay(text string) (t time.Time, days int, ok bool) {
	clock, tomorrow := strings.CutPrefix(text, "tomorrow ")
	if tomorrow {
		days = 1
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, clock); err == nil {
			return t, days, true
		}
	}
	return time.Time{}, 0, false
}

// justNow is how far back an instant may lie and still mean now: 19:02 may be typed while that minute lasts.
const justNow = time.Minute

// ahead refuses an instant that has passed, because a message that is due then would fire at once by a slip of the
// hand. instead is what to write for now. An instant that is past by no more than late is accepted.
func (w *whenFlag) ahead(flag, instead string, late time.Duration) error {
	if w.text == "" || w.text == "now" && late > 0 || w.After(time.Now().Add(-late)) {
		return nil
	}
	if _, days, ok := timeOfDay(w.text); ok && days == 0 {
		return fail(exitUsage, "%s has passed: %s, or --%s 'tomorrow %s'?", w.text, instead, flag, w.text)
	}
	if d, err := parseDuration(w.text); err == nil && d < 0 {
		return fail(exitUsage, "--%s %s is in the past: %s, or %s?", flag, w.text, instead, brief(-d))
	}
	return fail(exitUsage, "--%s %s is in the past: %s?", flag, w.text, instead)
}

func parseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	d, err := str2duration.ParseDuration(text)
	if err != nil || d.Abs() > 150*365*24*time.Hour {
		return 0, fmt.Errorf("%q is no duration: write 90s, 15m, 36h or 7d", text)
	}
	return d, nil
}

// whenFlag is the value of a flag.
type whenFlag struct {
	time.Time
	text string
}

func (w *whenFlag) String() string { return w.text }
func (*whenFlag) Type() string     { return "time" }
func (w *whenFlag) Set(text string) (err error) {
	w.text = text
	w.Time, err = parseWhen(text, time.Now())
	return err
}

// boundFlag is an instant, or none.
type boundFlag struct{ whenFlag }

func (b *boundFlag) Set(text string) error {
	if text == "none" {
		b.whenFlag = whenFlag{text: text}
		return nil
	}
	return b.whenFlag.Set(text)
}

// durationFlag is a duration that may have days.
type durationFlag time.Duration

func (d *durationFlag) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}
func (*durationFlag) Type() string { return "duration" }
func (d *durationFlag) Set(text string) error {
	got, err := parseDuration(text)
	*d = durationFlag(got)
	return err
}
