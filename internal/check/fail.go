package check

import (
	"fmt"
	"strings"
)

// Fail is one decoded value of fail. With a Problem, only Delivery is filled, if it can be read.
type Fail struct {
	Delivery int64
	Failures int64
	Losses   int64  // in a row
	When     int64  // unix us
	Error    string // the newest of them; "" if there is none
	Errors   []FailError
	Problem  string

	Superseded bool // another send took the key of the message while it was handled
}

// FailError is why a delivery ended.
type FailError struct {
	At       int64 // unix us; 0: not known
	Delivery int64 // 0: not known
	Text     string
}

// decodeFail reads `<delivery> <failures> <losses> <when> <errors>`; before the errors stands 0x1f if the delivery was superseded.
func decodeFail(raw string) Fail {
	f := decodeRecord(raw)
	if first, _, ok := strings.Cut(raw, " "); ok && f.Problem != "" {
		f.Delivery, _ = decimal(first)
	}
	return f
}

func decodeRecord(raw string) Fail {
	parts := strings.SplitN(raw, " ", 5)
	if len(parts) != 5 {
		return Fail{Problem: fmt.Sprintf("%q has %d parts, want 5", raw, len(parts))}
	}
	var numbers [4]int64
	for i, what := range []string{"delivery number", "number of failures", "number of losses", "instant"} {
		n, err := decimal(parts[i])
		if err != nil {
			return Fail{Problem: "its " + what + " is " + err.Error()}
		}
		numbers[i] = n
	}
	f := Fail{Delivery: numbers[0], Failures: numbers[1], Losses: numbers[2], When: numbers[3]}
	parts[4], f.Superseded = strings.CutPrefix(parts[4], "\x1f")
	problem := f.decodeErrors(parts[4])
	switch {
	case f.Delivery == 0:
		return Fail{Problem: "its delivery number is 0, want 1 or more"}
	case f.When == 0 && (f.Failures > 0 || f.Losses > 0 || f.Errors != nil):
		return Fail{Problem: "its instant is 0 though there was a failure, a loss or an error"}
	case problem != "":
		return Fail{Problem: problem}
	}
	return f
}

// decodeErrors reads errors, the newest first: a mark, `<us> <delivery> <text>`, and so on. A text without a mark is one of
// which no more is known.
func (f *Fail) decodeErrors(raw string) (problem string) {
	const mark, most, longest = "\x1e", 5, 1024
	raw, marked := strings.CutPrefix(raw, mark)
	if !marked {
		if raw != "" {
			f.Error, f.Errors = raw, []FailError{{Text: raw}}
		}
		return ""
	}
	after := f.Delivery
	for i, one := range strings.Split(raw, mark) {
		words := strings.SplitN(one, " ", 3)
		if len(words) != 3 {
			return fmt.Sprintf("error %d is %q, want an instant, a delivery number and a text", i+1, one)
		}
		at, err := decimal(words[0])
		n, err2 := decimal(words[1])
		switch {
		case i == most:
			return fmt.Sprintf("there are more than %d errors", most)
		case err != nil || err2 != nil:
			return fmt.Sprintf("error %d is of delivery %q at %q, want two numbers", i+1, words[1], words[0])
		case n != 0 && n >= after:
			return fmt.Sprintf("error %d is of delivery %d, and comes before that of delivery %d", i+1, n, after)
		case len(words[2]) > longest:
			return fmt.Sprintf("error %d has %d bytes, want at most %d", i+1, len(words[2]), longest)
		}
		if n != 0 {
			after = n
		}
		f.Errors = append(f.Errors, FailError{At: at, Delivery: n, Text: words[2]})
	}
	f.Error = f.Errors[0].Text
	return ""
}
