package message

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Delivered is a message as a handler gets it. Message of the root package has the same fields, so a *Delivered
// converts to a *Message.
type Delivered struct {
	ID      string
	Key     string
	Payload string
	Parts   []string
	Headers map[string]string
	Lane    string
	Due     time.Time

	Delivery   int
	Failures   int
	MaxRetries int

	CountdownLeft int
}

// Delivered is the message of an envelope in one delivery.
func (e *Envelope) Delivered(id string, number, failures int) Delivered {
	return Delivered{
		ID: id, Key: cmp.Or(e.Key, e.Group.Key), Payload: e.Payload, Parts: e.allParts(), Headers: e.Headers,
		Lane: e.Lane.Name, Due: time.UnixMicro(e.Due),
		Delivery: number, Failures: failures, MaxRetries: e.Retries,
	}
}

// Attrs names the message in a record of the log.
func (d *Delivered) Attrs() slog.Attr {
	attrs := []any{slog.String("id", d.ID), slog.Int("delivery", d.Delivery)}
	if d.Key != "" {
		attrs = append(attrs, slog.String("key", d.Key))
	}
	return slog.Group("message", attrs...)
}

// A FailRecord is the hash fail's entry for a message: `<delivery> <failures> <losses> <when> <errors>`. The mark of a
// delivery that is superseded, or ended the message without an ack (lua/lib/record.lua), stands before the errors.
type FailRecord struct {
	Delivery, Failures, Losses int
	When                       int64  // unix us
	Errors                     string // undecoded: KeptErrors reads them
	Superseded                 bool
}

// ParseFail reads an entry of fail.
func ParseFail(s string) (FailRecord, error) {
	var r FailRecord
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
	return FailRecord{int(numbers[0]), int(numbers[1]), int(numbers[2]), numbers[3], errors, superseded}, nil
}

// A keptError is why a delivery ended. KeptError of package ops has the same fields.
type keptError struct {
	At       time.Time // zero: not known
	Delivery int       // 0: not known
	Text     string
}

const (
	supersededMark = "\x1f"  // before the errors of a record
	errorMark      = "\x1e"  // before each error of a record
	MaxErrors      = 5       // of a record
	MaxErrorText   = 1 << 10 // bytes of the newest
	maxOlderText   = 200     // of those before it
)

// ErrorText is what is kept of an error with the message: valid UTF-8, at most MaxErrorText bytes.
func ErrorText(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(fmt.Sprint(err), "\uFFFD"), errorMark, " ")
	return strings.ToValidUTF8(text[:min(len(text), MaxErrorText)], "") // without the half of a character
}

// KeptErrors reads at most so many errors of a record, which are there newest first, each as mark`<us> <delivery>
// <text>`. What has another form is the text of one.
func KeptErrors(errors string, most int) (all []keptError) {
	rest, more := strings.CutPrefix(errors, errorMark)
	if !more && errors != "" {
		return []keptError{{Text: errors}}
	}
	for more && len(all) < most {
		var text string
		text, rest, more = strings.Cut(rest, errorMark)
		one := keptError{Text: text}
		if fields := strings.SplitN(text, " ", 3); len(fields) == 3 {
			at, err := strconv.ParseUint(fields[0], 10, 63)
			n, err2 := strconv.ParseUint(fields[1], 10, 31)
			if err == nil && err2 == nil {
				one = keptError{InstantTime(int64(at)), int(n), fields[2]}
			}
		}
		all = append(all, one)
	}
	return all
}

// LastError is the newest of them; "" if there is none.
func LastError(errors string) string {
	for _, e := range KeptErrors(errors, 1) {
		return e.Text
	}
	return ""
}

// WithError puts an error of this delivery before those of a record, as settle.lua takes them. Settle itself writes
// the mark and the instant of the new error.
func WithError(delivery int, text, errors string) string {
	out := fmt.Appendf(nil, "%d %s", delivery, text)
	for _, e := range KeptErrors(errors, MaxErrors-1) {
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
