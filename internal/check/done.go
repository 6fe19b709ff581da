package check

import "slices"

// results wants each of a message that is done, and the soonest end of those known: invariants 1 and 12.
func (b *breaches) results() {
	for _, id := range sortedKeys(b.Results) {
		if !slices.ContainsFunc(b.held[id], func(h holding) bool { return h.place == "done" }) {
			b.add(StrayResult, "result", id, "the result of %s belongs to no message that is done", id)
		}
		if size := b.Results[id]; size == 0 || size > maxResult {
			b.add(BadState, "result", id, "the result of message %s has %d bytes, want 1 to %d", id, size, maxResult)
		}
	}
	if until, ok := b.number("done"); ok && len(b.Done) > 0 && b.Done[0].Score > 0 && (until == 0 || until > b.Done[0].Score) {
		b.add(BadState, "state", "done", "field done is %d, but done holds %q until %d, which nobody would delete in time", until,
			b.Done[0].Tag, b.Done[0].Score)
	}
}
