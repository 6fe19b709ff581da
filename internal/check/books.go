package check

import "strings"

// Unaccounted is how many messages are missing by the books; less than 0: so many are too many. It is false if the
// books are not open, or not all was read at one instant.
func (s *State) Unaccounted() (missing int64, ok bool) {
	if _, open := s.Fields["in:stored"]; !open || !s.whole {
		return 0, false
	}
	missing = -int64(len(s.Messages))
	for field, value := range s.Fields {
		n, err := decimal(value)
		switch {
		case err != nil:
		case field == "in:stored", field == "in:found", field == "kept":
			missing += n
		case strings.HasPrefix(field, "out:"):
			missing -= n
		}
	}
	return missing, true
}

// Expect says that so many messages are missing by the books because whoever checks has deleted them; less than 0:
// has made them.
func (s *State) Expect(missing int64) { s.expected = missing }

// books wants each message accounted for: invariant 14.
func (b *breaches) books() {
	if missing, ok := b.Unaccounted(); ok && missing != b.expected {
		b.add(Unbalanced, "state", "books", "%d messages should be here by the books, and %d are",
			int64(len(b.Messages))+missing, len(b.Messages))
	}
}
