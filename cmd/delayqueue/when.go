package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	str2duration "github.com/xhit/go-str2duration/v2"
)

var layouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"}

// parseWhen reads an instant, or a duration from now on.
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
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.Local), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 2006-01-02T15:04:05Z, 2006-01-02 15:04, 15:04 (today), now, or a duration like 15m, 7d or -2h", text)
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

var (
	_ pflag.Value = (*whenFlag)(nil)
	_ pflag.Value = (*durationFlag)(nil)
)
