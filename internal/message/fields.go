package message

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// This file has what an envelope says of a group and of a lane. A group is a message that was sent with Append and
// grows while it waits.

// How many parts a group may have, and how many bytes.
const (
	MinParts      = 1
	MaxParts      = 1000
	MaxGroupBytes = 1 << 20

	partsDigits     = 4 // of how many, in an envelope
	partBytesDigits = 7
)

// A Group is what an envelope says of a message's parts; the first of them is its payload.
type Group struct {
	Count int      // 0: it is no group
	Bytes int      // of all but the first
	Key   string   // which it had, until it was full or another message took it over
	parts []string // all but the first, which the envelope does not have
}

func (g *Group) text() string {
	return fmt.Sprintf("%0*d%0*d%s", partsDigits, g.Count, partBytesDigits, g.Bytes, g.Key)
}

func (r *envelopeReader) group() Group {
	g := Group{Count: r.digits(partsDigits), Bytes: r.digits(partBytesDigits)}
	g.Key, r.s = r.s, ""
	r.bad = r.bad || g.Count < 1 || g.Count > MaxParts || g.Count == 1 && g.Bytes > 0
	return g
}

func (r *envelopeReader) digits(n int) int {
	number, err := strconv.ParseUint(r.take(uint64(n)), 10, 31)
	r.bad = r.bad || err != nil
	return int(number)
}

var errPartsMissing = errors.New("parts are missing")

// Fill takes all parts but the first. It returns an error if their number or their bytes are not those of the envelope.
func (g *Group) Fill(parts []string) error {
	bytes := 0
	for _, part := range parts {
		bytes += len(part)
	}
	if len(parts) != max(g.Count-1, 0) || bytes != g.Bytes {
		return fmt.Errorf("%w: of %d with %d bytes, besides the first, %d with %d are there", errPartsMissing,
			g.Count-1, g.Bytes, len(parts), bytes)
	}
	g.parts = parts
	return nil
}

// allParts are the parts of a message. They are nil if the message is no group, or its parts are not known.
func (e *Envelope) allParts() []string {
	if e.Group.Count == 0 || len(e.Group.parts) != e.Group.Count-1 {
		return nil
	}
	return append([]string{e.Payload}, e.Group.parts...)
}

const widthDigits = 3

// A Lane is where a message stands in order with others: at most Width of them are handled at a time.
type Lane struct {
	Name  string // 1 to MaxLane bytes without NUL
	Width int    // 1 to MaxWidth; 0: the message has no lane
}

// Text is the lane as field 136 has it, and as settle takes it; "" for none.
func (l Lane) Text() string {
	if l.Width == 0 {
		return ""
	}
	return fmt.Sprintf("%0*d", widthDigits, l.Width) + l.Name
}

// Valid says whether a message may have the lane.
func (l Lane) Valid() bool {
	return l.Name != "" && len(l.Name) <= MaxLane && !strings.Contains(l.Name, "\x00") && l.Width >= 1 &&
		l.Width <= MaxWidth
}

func (r *envelopeReader) lane() (l Lane) {
	l.Width = r.digits(widthDigits)
	l.Name, r.s = r.s, ""
	r.bad = r.bad || !l.Valid()
	return l
}
