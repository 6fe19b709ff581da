package check

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/google/uuid"
)

const maxResult = 1 << 20

// Envelope is one value of msg.
type Envelope struct {
	message.Envelope
	Format  byte   // the version in its first byte
	Size    int    // bytes of the whole
	Problem string // "" if all of it is as it may be
}

// decodeHead reads the first bytes of a value of msg that has so many bytes, without headers and payload.
func decodeHead(head string, size int) Envelope {
	e := decodeEnvelope(head, size)
	e.Headers, e.Payload = nil, ""
	return e
}

// decodeEnvelope reads one value of msg, of so many bytes, or the first of them.
func decodeEnvelope(raw string, size int) Envelope {
	read := message.DecodeEnvelope
	if len(raw) < size {
		read = message.DecodeHead
	}
	e := Envelope{Size: size}
	var err error
	e.Envelope, err = read(raw)
	if raw != "" {
		e.Format = raw[0]
	}
	switch {
	case err != nil:
		e.Problem = err.Error()
	case e.Due < 1 || e.Due >= maxInstant:
		e.Problem = fmt.Sprintf("it is due at %d, want an instant in (0, 2^53)", e.Due)
	case max(len(e.Key), len(e.Group.Key)) > message.MaxKey:
		e.Problem = fmt.Sprintf("its key has %d bytes, want at most %d", max(len(e.Key), len(e.Group.Key)), message.MaxKey)
	}
	return e
}

// Fail is one value of fail. With a Problem, only Delivery is filled, if it can be read.
type Fail struct {
	Delivery   int64
	Failures   int64
	Losses     int64    // in a row
	When       int64    // unix us
	Error      string   // the newest of them; "" if there is none
	Errors     []string // why deliveries ended, the newest first
	Superseded bool     // another send took the key of the message while it was handled
	Problem    string
}

// decodeFail reads one value of fail.
func decodeFail(raw string) Fail {
	r, err := message.ParseFail(raw)
	f := Fail{Delivery: int64(r.Delivery), Failures: int64(r.Failures), Losses: int64(r.Losses), When: r.When,
		Superseded: r.Superseded}
	problem := f.setErrors(r.Errors)
	switch {
	case err != nil:
		problem = err.Error()
		if first, _, more := strings.Cut(raw, " "); more { // as scripts read it
			f.Delivery, _ = decimal(first)
		}
	case f.Delivery == 0:
		problem = "its delivery number is 0, want 1 or more"
	case f.When == 0 && (f.Failures > 0 || f.Losses > 0 || f.Errors != nil):
		problem = "its instant is 0 though there was a failure, a loss or an error"
	}
	if problem != "" {
		return Fail{Delivery: f.Delivery, Problem: problem}
	}
	return f
}

// setErrors fills Error and Errors. An error without a mark is one of which no more is known.
func (f *Fail) setErrors(raw string) (problem string) {
	after, anew := f.Delivery, ""
	for i, one := range message.KeptErrors(raw, message.MaxErrors+1) {
		f.Errors = append(f.Errors, one.Text)
		n, at := int64(one.Delivery), int64(0)
		if !one.At.IsZero() {
			at = one.At.UnixMicro()
		}
		anew += fmt.Sprintf("\x1e%d %d %s", at, n, one.Text)
		switch {
		case i == message.MaxErrors:
			return fmt.Sprintf("there are more than %d errors", message.MaxErrors)
		case n != 0 && n >= after:
			return fmt.Sprintf("error %d is of delivery %d, and comes before that of delivery %d", i+1, n, after)
		case len(one.Text) > message.MaxErrorText:
			return fmt.Sprintf("error %d has %d bytes, want at most %d", i+1, len(one.Text), message.MaxErrorText)
		case n != 0:
			after = n
		}
	}
	if f.Errors == nil {
		return ""
	}
	if f.Error = f.Errors[0]; raw[0] == '\x1e' && raw != anew {
		return fmt.Sprintf("its errors are %q, want an instant, a delivery number and a text of each", raw)
	}
	return ""
}

// decodeTag takes `<id>` or `<n>:<id>` apart. From a malformed tag it still reads the id if there is one, so that one
// fault is one breach.
func decodeTag(tag string) Entry {
	id, n := message.SplitTag(tag)
	if isID(id) {
		return Entry{Tag: tag, ID: id, Delivery: int64(n)}
	}
	e := Entry{Tag: tag, TagProblem: "want a UUIDv7, or a number from 2 on, a colon and a UUIDv7"}
	if id := tag[strings.LastIndexByte(tag, ':')+1:]; isID(id) {
		e.ID = id
	}
	return e
}

// isID says whether an id is a UUIDv7 as it is written here.
func isID(id string) bool {
	u, err := uuid.Parse(id)
	return err == nil && u.Version() == 7 && u.Variant() == uuid.RFC4122 && u.String() == id
}

// The two kinds of members of lanes.
var (
	turnMember = regexp.MustCompile(`(?s)^([^\x00]*)\x00\x00([0-9]{3})(.*)$`)
	waitMember = regexp.MustCompile(`(?s)^([^\x00]*)\x00([0-9]{16})(.*) ([0-9]+) ([0-9]{3})$`)
)

// decodeLaneMember reads `<lane> NUL NUL <width><tag>` or `<lane> NUL <us, 16 digits><id> <delivery> <width>`.
func decodeLaneMember(member, score string) LaneMember {
	m := LaneMember{Member: member}
	width, tag := "", ""
	if turn := turnMember.FindStringSubmatch(member); turn != nil {
		m.Lane, width, tag = turn[1], turn[2], turn[3]
	} else if wait := waitMember.FindStringSubmatch(member); wait != nil {
		m.Lane, width, tag, m.Waits = wait[1], wait[5], wait[3], true
		m.Due, _ = strconv.ParseInt(wait[2], 10, 64)
		if wait[4] != "1" {
			tag = wait[4] + ":" + tag
		}
	} else {
		m.Lane, _, _ = strings.Cut(member, "\x00")
		m.Problem = "want a lane, NUL, and NUL, a width and a tag, or 16 digits, an id, a delivery and a width"
		return m
	}
	m.Width, _ = strconv.Atoi(width)
	m.Tag = decodeTag(tag)
	switch {
	case !(message.Lane{Name: m.Lane, Width: m.Width}).Valid():
		m.Problem = fmt.Sprintf("its lane has %d bytes and the width %d, want 1 to %d bytes and 1 to %d", len(m.Lane),
			m.Width, message.MaxLane,
			message.MaxWidth)
	case m.Tag.TagProblem != "":
		m.Problem = m.Tag.TagProblem
	case score != "0":
		m.Problem = "its score is " + score + ", want 0"
	}
	return m
}

// decodeCounted reads how many acks have counted for a message, and for how many it waits.
func decodeCounted(text string) (counted, n int64, ok bool) {
	first, second, _ := strings.Cut(text, " ")
	counted, err1 := decimal(first)
	n, err2 := decimal(second)
	return counted, n, err1 == nil && err2 == nil
}

// decimal reads a number as fields of state write it: digits alone, no leading zero, below 2^53. (`1.7e+15` is what
// Lua's tostring would make.)
func decimal(text string) (int64, error) {
	if text == "" {
		return 0, errors.New("empty, want a decimal number")
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, fmt.Errorf("%q, want digits only", text)
		}
	}
	if text[0] == '0' && text != "0" {
		return 0, fmt.Errorf("%q, want no leading zero", text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n >= maxInstant {
		return 0, fmt.Errorf("%q, want less than 2^53", text)
	}
	return n, nil
}

// decodeScore reads a score, which Redis may write as 1.7e+15.
func decodeScore(text string) (us int64, problem string) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || f <= 0 || f >= float64(maxInstant) {
		return 0, text + ", want an integer in (0, 2^53)"
	}
	return int64(f), ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
