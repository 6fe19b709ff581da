package message

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestIDs: those of one sender rise and hold the time, the last ten bits are 0, and each of the other random ones
// varies.
func TestIDs(t *testing.T) {
	t.Parallel()
	source, begun := NewIDSource(), time.Now().UnixMicro()
	last, ones, zeros := "", [16]byte{}, [16]byte{}
	for range 10_000 {
		text := source.Next()
		id, err := uuid.Parse(text)
		if err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 || text <= last || SentAt(text) < begun-1 {
			t.Fatalf("%s after %s: version %d, sent at %d, since %d: %v", text, last, id.Version(), SentAt(text), begun, err)
		}
		last = text
		for i, b := range id {
			ones[i] |= b
			zeros[i] |= ^b
		}
	}
	if ones[14]&3 != 0 || ones[15] != 0 {
		t.Errorf("of the last ten bits %x is set", []byte{ones[14] & 3, ones[15]})
	}
	for i, random := range []byte{8: 0x3f, 9: 0xff, 10: 0xff, 11: 0xff, 12: 0xff, 13: 0xff, 14: 0xfc} {
		if ones[i]&random != random || zeros[i]&random != random {
			t.Errorf("byte %d: set were %08b, not set %08b, want all of %08b", i, ones[i], zeros[i], random)
		}
	}
}
