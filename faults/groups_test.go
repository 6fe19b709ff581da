package main

import (
	"slices"
	"testing"
	"time"
)

// TestJudgeGroups: each part is in one message, once and in order, and all of them are handled.
func TestJudgeGroups(t *testing.T) {
	bound := rules{lease: time.Second, maxWait: time.Second, parts: 3}
	part := func(payload, id string, from, to float64) entry { return edits(payload, id, appended, from, to, 0.5) }
	first, second := part("g/p1-1", idA, 0, 0.01), part("g/p1-2", idA, 0.1, 0.11)
	two := []entry{first, second}
	with := func(sends []entry, runs ...[]entry) []entry {
		return append(slices.Clone(sends), slices.Concat(runs...)...)
	}
	handles := func(at float64, delivery int, word string, parts ...string) []entry {
		run := handles("g/p1-1", idA, at, delivery, delivery-1, word)
		run[0].Parts = parts
		return run
	}
	one := verdict{accepted: 1, handled: 1}
	judged(t, map[string]forgery{
		"all parts": {entries: with(two, handles(0.6, 1, succeeded, "g/p1-1", "g/p1-2")), rules: bound, counts: one},
		"one is lost": {entries: with(two, handles(0.6, 1, succeeded, "g/p1-1")), rules: bound,
			want: "handed out without part g/p1-2", counts: one},
		"one came too late": {
			entries: with([]entry{first, part("g/p1-2", idA, 0.7, 0.71)}, handles(0.6, 1, succeeded, "g/p1-1")), rules: bound,
			want: "not handled with all of its parts", counts: one},
		"appended after a failure": {
			entries: with([]entry{first, part("g/p1-2", idA, 0.7, 0.71)}, handles(0.6, 1, failed, "g/p1-1"),
				handles(0.9, 2, succeeded, "g/p1-1", "g/p1-2")),
			rules: bound, counts: one},
		"one twice": {entries: with(two, handles(0.6, 1, succeeded, "g/p1-1", "g/p1-2", "g/p1-2")), rules: bound,
			want: "is there twice", counts: one},
		"in another one": {entries: with([]entry{first, part("g/p1-2", idB, 0.1, 0.11)},
			handles(0.6, 1, succeeded, "g/p1-1", "g/p1-2")),
			rules: bound, want: "was not sent to it", counts: verdict{accepted: 2, handled: 1, lost: 1}},
		"in wrong order": {entries: with([]entry{first, part("g/p2-1", idA, 0.1, 0.11), part("g/p2-2", idA, 0.1, 0.11)},
			handles(0.6, 1, succeeded, "g/p1-1", "g/p2-2", "g/p2-1")), rules: bound, want: "part g/p2-2 stands before g/p2-1",
			counts: one},
		"either, at once": {entries: with([]entry{first, part("g/p2-1", idA, 0.1, 0.12), part("g/p3-1", idA, 0.11, 0.13)},
			handles(0.6, 1, succeeded, "g/p1-1", "g/p3-1", "g/p2-1")), rules: bound, counts: one},
		"too many": {entries: with([]entry{first, second, part("g/p1-3", idA, 0.2, 0.21), part("g/p1-4", idA, 0.3, 0.31)},
			handles(0.6, 1, succeeded, "g/p1-1", "g/p1-2", "g/p1-3", "g/p1-4")),
			rules: bound, want: "4 parts, at most 3", counts: one},
	})
}
