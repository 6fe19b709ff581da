package delayqueue

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A failRecord is the hash fail's entry for a message: `<delivery> <failures> <losses> <when> <errors>`. The mark of a
// delivery that is superseded, or ended the message without an ack (superseded.lua), stands before the errors.
type failRecord struct {
	delivery, failures, losses int
	when                       int64  // unix us
	errors                     string // as they stand there: keptErrors reads them
	superseded                 bool
}

func parseFail(s string) (failRecord, error) {
	var r failRecord
	fields := strings.SplitN(s, " ", 5)
	if len(fields) != 5 {
		return r, fmt.Errorf("broken fail record %q", s)
	}
	var numbers [4]int64
	for i := range numbers {
		n, err := strconv.ParseUint(fields[i], 10, 63) // no sign
		if err != nil || i < 3 && n > math.MaxInt32 {
			return r, fmt.Errorf("broken fail record %q", s)
		}
		numbers[i] = int64(n)
	}
	errors, superseded := strings.CutPrefix(fields[4], supersededMark)
	return failRecord{int(numbers[0]), int(numbers[1]), int(numbers[2]), numbers[3], errors, superseded}, nil
}

// A KeptError says why a delivery of a message ended: with a failure, a loss, or in garbage. The last five are kept with the
// message (MessageStatus.LastErrors), until it is acked, and longer if it is kept.
type KeptError struct {
	At       time.Time // by the server's clock; zero: not known
	Delivery int       // the number of that delivery; 0: not known
	Text     string    // UTF-8, at most 1,024 bytes; of an error before the last failure, 200
}

const (
	supersededMark = "\x1f"  // before the errors of a record
	errorMark      = "\x1e"  // before each error of a record
	maxErrors      = 5       // of a record
	maxErrorText   = 1 << 10 // bytes of the newest
	maxOlderText   = 200     // of those before it
)

// errorText is what is kept of an error with the message: valid UTF-8, at most maxErrorText bytes.
func errorText(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(fmt.Sprint(err), "\uFFFD"), errorMark, " ")
	return strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "") // without the half of a character
}

// keptErrors reads at most so many errors of a record, which are there newest first, each as mark`<us> <delivery> <text>`.
// What has another form is the text of one.
func keptErrors(errors string, most int) (all []KeptError) {
	rest, more := strings.CutPrefix(errors, errorMark)
	if !more && errors != "" {
		return []KeptError{{Text: errors}}
	}
	for more && len(all) < most {
		var text string
		text, rest, more = strings.Cut(rest, errorMark)
		one := KeptError{Text: text}
		if fields := strings.SplitN(text, " ", 3); len(fields) == 3 {
			at, err := strconv.ParseUint(fields[0], 10, 63)
			n, err2 := strconv.ParseUint(fields[1], 10, 31)
			if err == nil && err2 == nil {
				one = KeptError{instantTime(int64(at)), int(n), fields[2]}
			}
		}
		all = append(all, one)
	}
	return all
}

// lastError is the newest of them; "" if there is none.
func lastError(errors string) string {
	for _, e := range keptErrors(errors, 1) {
		return e.Text
	}
	return ""
}

// withError puts an error of this delivery before those of a record, as settle takes them: what is kept of all, but for the
// mark and the instant of the new one.
func withError(delivery int, text, errors string) string {
	out := fmt.Appendf(nil, "%d %s", delivery, text)
	for _, e := range keptErrors(errors, maxErrors-1) {
		var at int64
		if !e.At.IsZero() {
			at = e.At.UnixMicro()
		}
		end := min(len(e.Text), maxOlderText)
		for end > 0 && end < len(e.Text) && !utf8.RuneStart(e.Text[end]) {
			end--
		}
		out = fmt.Appendf(out, "%s%d %d %s", errorMark, at, e.Delivery, strings.ReplaceAll(e.Text[:end], errorMark, " "))
	}
	return string(out)
}
