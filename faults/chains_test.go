package main

import (
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

// TestJudgeChains: what was acked is followed once, and nothing else is.
func TestJudgeChains(t *testing.T) {
	chain := func(parts ...[]entry) []entry {
		all := []entry{accept}
		for _, part := range parts {
			all = append(all, part...)
		}
		return all
	}
	const next = "a" + linkMark
	linked := rules{links: 1}
	lossy := rules{links: 1, lossy: "it had less", duplicate: "it had less"}
	failover := strike{from: sec(3), to: sec(3.5), loses: aftermath, why: lossy.duplicate}
	again := []entry{starts(4, "c2", 1, 0), ends(4.1, "c2", 1, succeeded)}
	judged(t, map[string]forgery{
		"followed": {entries: chain(done, handles(next, idB, 2, 1, 0, succeeded)), rules: linked,
			counts: verdict{accepted: 2, handled: 2}},
		"not followed": {entries: chain(done), rules: linked, want: "a: acked and not followed",
			counts: verdict{accepted: 1, handled: 1}},
		"not followed, for its ack was forgotten with it, and the message": {
			entries: chain([]entry{starts(2.9, "c1", 1, 0), ends(2.95, "c1", 1, succeeded)}), strikes: []strike{failover},
			rules:  lossy,
			counts: verdict{accepted: 1, handled: 1},
		},
		"followed twice": {
			entries: chain(done, handles(next, idB, 2, 1, 0, succeeded), handles(next, idA, 3, 1, 0, succeeded)), rules: linked,
			want: "followed twice", counts: verdict{accepted: 2, handled: 2, duplicated: 1},
		},
		"followed anew, for the first was forgotten": {
			entries: chain([]entry{starts(2, "c1", 1, 0), ends(2.1, "c1", 1, succeeded)},
				handles(next, idB, 2.2, 1, 0, succeeded), again,
				handles(next, idA, 4.2, 1, 0, succeeded)),
			strikes: []strike{failover}, rules: lossy, counts: verdict{accepted: 2, handled: 2, duplicated: 2},
		},
		"followed after a failure": {
			entries: chain([]entry{starts(1, "c1", 1, 0), ends(1.1, "c1", 1, gaveUp)}, handles(next, idB, 2, 1, 0, succeeded)),
			state:   inGarbage("skip"), rules: linked, want: "never handled to its end",
			counts: verdict{accepted: 1, handled: 1},
		},
		"followed before it ended": {
			entries: chain(done, handles(next, idB, 1.05, 1, 0, succeeded)), rules: linked, want: "before a had ended",
			counts: verdict{accepted: 2, handled: 2},
		},
		"follows garbage": {
			entries: chain(done, handles(next, idB, 2, 1, 0, succeeded)), state: inGarbage("boom"), rules: linked,
			want: "follows what is in garbage", counts: verdict{accepted: 2, handled: 2},
		},
		"acked, and lost": {
			entries: chain(done, handles(next, idB, 2, 1, 0, cutOff)), rules: linked, want: "lost",
			counts: verdict{accepted: 2, handled: 1, lost: 1},
		},
		"still there": {
			entries: chain(done, handles(next, idB, 2, 1, 0, succeeded)), rules: linked, want: "still in pending",
			counts: verdict{accepted: 2, handled: 2},
			state: &check.State{Pending: []check.Entry{{Tag: idB, ID: idB, Delivery: 1, Score: sec(1)}},
				Messages: map[string]check.Envelope{idB: envelopeDue(sec(1))}},
		},
	})
}
