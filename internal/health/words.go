package health

import (
	"fmt"
	"strconv"
	"time"
)

// A Text is an English sentence, with %s for each of its arguments. Who shows it may translate the sentence, and
// writes the arguments in its own way: lengths of time, instants, counts (int64), errors, what others wrote (string),
// and what can write itself.
type Text struct {
	English string
	Args    []any
}

func say(english string, args ...any) Text { return Text{english, args} }

// verbatim is no sentence.
func verbatim(what any) Text { return Text{"%s", []any{what}} }

// In writes a text.
func (t Text) In(translate func(string) string, write func(any) string) string {
	if t.English == "" {
		return ""
	}
	written := make([]any, len(t.Args))
	for i, arg := range t.Args {
		if inner, ok := arg.(Text); ok {
			written[i] = inner.In(translate, write)
		} else {
			written[i] = write(arg)
		}
	}
	return fmt.Sprintf(translate(t.English), written...)
}

// A Percent is a part of a hundred; less than 0 is unknown.
type Percent float64

func (p Percent) String() string {
	switch {
	case p < 0:
		return "–"
	case p == 0 || p >= 10:
		return strconv.FormatFloat(float64(p), 'f', 0, 64) + "%"
	case p < 0.1:
		return "<0.1%"
	}
	return strconv.FormatFloat(float64(p), 'f', 1, 64) + "%"
}

// A Rate is a number a second; it is not known until there are two samples.
type Rate struct {
	PerSecond float64
	Known     bool
}

// RateOf is a known one.
func RateOf(n int64, in time.Duration) Rate { return Rate{float64(max(n, 0)) / in.Seconds(), true} }

func (r Rate) String() string {
	switch n := r.PerSecond; {
	case !r.Known:
		return "–"
	case n == 0:
		return "0"
	case n < 0.1:
		return "<0.1"
	case n < 10:
		return strconv.FormatFloat(n, 'f', 1, 64)
	default:
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
}

// Bytes are a number of them.
type Bytes int64

func (b Bytes) String() string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	f := float64(b)
	for f >= 1024 && len(units) > 1 {
		f, units = f/1024, units[1:]
	}
	digits := 0
	if f < 10 && units[0] != "B" {
		digits = 1
	}
	return strconv.FormatFloat(f, 'f', digits, 64) + " " + units[0]
}
