package delayqueue

import (
	"errors"
	"fmt"
	"strconv"
)

// This file has groups: messages that are sent with Append, and grow while they wait.

// How many parts a group may have, and how many bytes.
const (
	minParts      = 2
	maxParts      = 1000
	maxGroupBytes = 1 << 20

	partsDigits     = 4 // of how many, in an envelope
	partBytesDigits = 7
)

// A group is what an envelope says of a message's parts; the first of them is its payload.
type group struct {
	count int      // 0: it is no group
	bytes int      // of all but the first
	key   string   // which it had, until it was full or another message took it over
	parts []string // all but the first, which the envelope does not have
}

// text is the value of the field.
func (g *group) text() string {
	return fmt.Sprintf("%0*d%0*d%s", partsDigits, g.count, partBytesDigits, g.bytes, g.key)
}

// group reads such a value.
func (r *envelopeReader) group() group {
	g := group{count: r.digits(partsDigits), bytes: r.digits(partBytesDigits)}
	g.key, r.s = r.s, ""
	r.bad = r.bad || g.count < 1 || g.count > maxParts || g.count == 1 && g.bytes > 0
	return g
}

// digits reads a number of n digits.
func (r *envelopeReader) digits(n int) int {
	number, err := strconv.ParseUint(r.take(uint64(n)), 10, 31)
	r.bad = r.bad || err != nil
	return int(number)
}

var errPartsMissing = errors.New("parts are missing")

// fill takes the parts but for the first, and returns an error if these are not all that there should be.
func (g *group) fill(parts []string) error {
	bytes := 0
	for _, part := range parts {
		bytes += len(part)
	}
	if len(parts) != max(g.count-1, 0) || bytes != g.bytes {
		return fmt.Errorf("%w: of %d with %d bytes, besides the first, %d with %d are there", errPartsMissing,
			g.count-1, g.bytes, len(parts), bytes)
	}
	g.parts = parts
	return nil
}

// allParts are those of a message; nil if it is no group, or they are not known.
func (e *envelope) allParts() []string {
	if e.group.count == 0 || len(e.group.parts) != e.group.count-1 {
		return nil
	}
	return append([]string{e.payload}, e.group.parts...)
}

// WithMaxParts says how many parts a group (Append) may have: with the n-th of them it is full, and so it is if a part finds
// no room in 1 MB. A group that is full is due now (but for a retry, which waits for its time), and its key is free for the
// next one, to which that part goes. What the send says that adds a part holds. n is from 2 to 1,000, which is the default.
func WithMaxParts(n int) MsgOption {
	return func(m *draft) error {
		if n < minParts || n > maxParts {
			return fmt.Errorf("%w: WithMaxParts(%d): from %d to %d", ErrBadOption, n, minParts, maxParts)
		}
		m.put.maxParts = n
		return nil
	}
}

// checkGroup makes the message the first part of a group, if it is to be one.
func (m *draft) checkGroup() error {
	switch {
	case m.put.on != Append && m.put.maxParts > 0:
		return fmt.Errorf("%w: WithMaxParts(%d) of a message that is no part: use WithKey or WithPayloadKey with Append",
			ErrBadOption, m.put.maxParts)
	case m.put.on != Append:
		return nil
	case len(m.payload) > maxGroupBytes:
		return fmt.Errorf("%w: a part (Append) of %d bytes, at most %d", ErrPayloadTooLarge, len(m.payload), maxGroupBytes)
	}
	m.group = group{count: 1}
	return nil
}
