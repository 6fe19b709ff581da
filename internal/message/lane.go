package message

import (
	"fmt"
	"strings"
)

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
	return l.Name != "" && len(l.Name) <= MaxLane && !strings.Contains(l.Name, "\x00") && l.Width >= 1 && l.Width <= MaxWidth
}

func (r *envelopeReader) lane() (l Lane) {
	l.Width = r.digits(widthDigits)
	l.Name, r.s = r.s, ""
	r.bad = r.bad || !l.Valid()
	return l
}
