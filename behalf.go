package delayqueue

import (
	"strconv"
	"strings"
	"time"
	"unicode"
)

// onBehalf is who acts, and why, as they said.
type onBehalf struct{ by, why string }

// What is kept of them, in bytes.
const (
	maxBy  = 200
	maxWhy = 1000
)

// WithOperator says in whose name the Monitor acts: it stands in the events that its calls tell (Event.By), with a pause
// (Counts.PausedBy) and in the journal. At most 200 bytes are kept, of one line. Before the first call. Default: none.
func (m *Monitor) WithOperator(name string) *Monitor {
	m.who.by = oneLine(name, maxBy)
	return m
}

// WithReason says why the Monitor does what it does, with a pause (Counts.PauseReason) and in the journal. At most 1,000
// bytes are kept, of one line. Before the first call; make a Monitor for each act, it costs next to nothing. Default: none.
func (m *Monitor) WithReason(text string) *Monitor {
	m.who.why = oneLine(text, maxWhy)
	return m
}

// oneLine is a text as it is kept: valid UTF-8, without control characters, of at most so many bytes.
func oneLine(text string, most int) string {
	text = strings.ToValidUTF8(text[:min(len(text), 4*most)], "\uFFFD") // of which most are kept
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text))
	return strings.ToValidUTF8(text[:min(len(text), most)], "") // without the half of a character
}

// pausedOf reads the field paused: since when, who says so, and why. It counts if it is about this pause.
func pausedOf(field string, until, now int64) (since time.Time, by, why string) {
	start, rest, _ := strings.Cut(field, " ")
	end, said, _ := strings.Cut(rest, " ")
	us, err := strconv.ParseInt(start, 10, 64)
	if err != nil || us <= 0 || us > now || end != strconv.FormatInt(until, 10) {
		return since, "", ""
	}
	by, why, _ = strings.Cut(said, "\n")
	return instantTime(us), oneLine(by, maxBy), oneLine(why, maxWhy)
}
