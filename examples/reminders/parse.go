package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// forms is what a line may look like, for the user.
const forms = `  2s pay the rent                          after a delay: 300ms, 2s, +1m30s, 36h
  15:04 call the bank                      at a time: today, or tomorrow if it is past; also 15:04:05
  2030-12-31 15:04:05 renew the passport   on a day; also without the seconds
  2s !flaky send the report                fails on its first delivery, to show a retry
`

// hint is a line that is right, for one that is not.
const hint = `write "2s pay the rent", "15:04:05 call the bank" or "2030-12-31 15:04:05 renew the passport"`

// A reminder is what a line asks for: text after delay or, if at is set, at that instant.
type reminder struct {
	text  string
	delay time.Duration
	at    time.Time
}

// parse reads a line; now says which day today is, and where.
func parse(line string, now time.Time) (reminder, error) {
	when, text := cut(line)
	var r reminder
	if day, err := time.ParseInLocation(time.DateOnly, when, now.Location()); err == nil {
		var clock string
		clock, text = cut(text)
		if r.at, err = clockOn(day, clock); err != nil {
			return r, fmt.Errorf("after a date comes a time, and %q is none", clock)
		}
		if r.at.Before(now) {
			return r, fmt.Errorf("%s %s is past", when, clock)
		}
	} else if r.at, err = clockOn(now, when); err == nil {
		if !r.at.After(now) {
			r.at, _ = clockOn(now.AddDate(0, 0, 1), when)
		}
	} else if r.delay, err = time.ParseDuration(when); err != nil {
		return r, fmt.Errorf("%q is neither a delay nor a time nor a date", when)
	} else if r.delay < 0 {
		return r, fmt.Errorf("the delay %s is negative", when)
	}
	if text == "" {
		return r, errors.New("there is a time but no text")
	}
	r.text = text
	return r, nil
}

// clockOn reads a time of day and sets it on a day.
func clockOn(day time.Time, clock string) (time.Time, error) {
	c, err := time.Parse("15:04:05", clock)
	if err != nil {
		if c, err = time.Parse("15:04", clock); err != nil {
			return time.Time{}, err
		}
	}
	year, month, d := day.Date()
	return time.Date(year, month, d, c.Hour(), c.Minute(), c.Second(), c.Nanosecond(), day.Location()), nil
}

// cut splits off the first word.
func cut(s string) (word, rest string) {
	s = strings.TrimSpace(s)
	if i := strings.IndexFunc(s, unicode.IsSpace); i >= 0 {
		return s[:i], strings.TrimSpace(s[i:])
	}
	return s, ""
}
