package main

import (
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

// edits is a change of a document, or a send that put it off: from, to and due, in s.
func edits(payload, id, word string, from, to, due float64) entry {
	return entry{Kind: sent, At: sec(to), Took: sec(to) - sec(from), Payload: payload, ID: id, Word: word, Due: sec(due)}
}

// handles is a run of a change.
func handles(payload, id string, at float64, delivery, failures int, word string) []entry {
	begin := entry{Kind: started, At: sec(at), Payload: payload, ID: id, Delivery: delivery, Failures: failures, who: "c1"}
	end := begin
	end.Kind, end.At, end.Word = ended, sec(at+0.05), word
	return []entry{begin, end}
}

// TestJudgeDebounce: what is handed out is the last change before, in time, and the last one of all is handled.
func TestJudgeDebounce(t *testing.T) {
	bound := rules{lease: time.Second, maxWait: time.Second}
	first := edits("d/1", idA, stored, 0, 0.01, 0.5)
	second := edits("d/2", idA, replaced, 0.1, 0.11, 0.6)
	put := func(sends []entry, runs ...[]entry) []entry {
		return append(slices.Clone(sends), slices.Concat(runs...)...)
	}
	both := []entry{first, second}
	one := verdict{accepted: 1, handled: 1}
	judged(t, map[string]forgery{
		"the last one": {entries: put(both, handles("d/2", idA, 0.6, 1, 0, succeeded)), rules: bound, counts: one},
		"the first one": {entries: put(both, handles("d/1", idA, 0.6, 1, 0, succeeded)), rules: bound,
			want: "handed out d/1, though d/2 came after it", counts: one},
		"either, if at once": {entries: put([]entry{first, edits("d/2", idA, replaced, 0.005, 0.02, 0.6)},
			handles("d/1", idA, 0.6, 1, 0, succeeded)), rules: bound, counts: one},
		"a change beside its handler": {
			entries: put([]entry{first, edits("d/2", idB, stored, 0.52, 0.53, 0.9)}, handles("d/1", idA, 0.5, 1, 0, succeeded),
				handles("d/2", idB, 0.9, 1, 0, succeeded)),
			rules: bound, counts: verdict{accepted: 2, handled: 2}},
		"put off": {entries: put([]entry{first, edits("d/2", idA, postponed, 0.1, 0.11, 0.8)},
			handles("d/1", idA, 0.8, 1, 0, succeeded)),
			rules: bound, counts: one},
		"put off, and handled": {entries: put([]entry{first, edits("d/2", idA, postponed, 0.1, 0.11, 0.8)},
			handles("d/2", idA, 0.8, 1, 0, succeeded)), rules: bound,
			want: "handed out d/2, which is no change of it", counts: one},
		"early": {entries: put(both, handles("d/2", idA, 0.55, 1, 0, succeeded)), rules: bound, want: "early",
			counts: verdict{accepted: 1, handled: 1, early: 1}},
		"never changed any more": {
			entries: put([]entry{first, edits("d/2", idA, replaced, 0.7, 0.71, 0.9)}, handles("d/1", idA, 0.5, 1, 0, succeeded)),
			rules:   bound,
			want:    "its last change was not handled", counts: one},
		"changed after its ack was forgotten, and superseded": {
			entries: put([]entry{first, edits("d/2", idA, replaced, 0.57, 0.58, 0.6),
				edits("d/3", idB, stored, 0.62, 0.63, 0.9)},
				handles("d/1", idA, 0.5, 1, 0, succeeded), handles("d/2", idA, 0.61, 1, 0, failed),
				handles("d/3", idB, 0.91, 1, 0, succeeded)),
			strikes: []strike{{from: sec(0.56), to: sec(0.565), loses: time.Second, why: "its ack was forgotten"}}, rules: bound,
			counts: verdict{accepted: 2, handled: 2, duplicated: 1}},
		"superseded between its hand-out and the start of its handler": {
			entries: put([]entry{first, edits("d/2", idB, stored, 0.51, 0.52, 0.9)}, handles("d/1", idA, 0.53, 1, 0, failed),
				handles("d/2", idB, 0.91, 1, 0, succeeded)),
			state: &check.State{Fields: map[string]string{"superseded": "1"}}, rules: bound,
			counts: verdict{accepted: 2, handled: 2}},
		"lost, and its key was taken later": {
			entries: put([]entry{first, edits("d/2", idB, stored, 0.7, 0.72, 0.9)}, handles("d/1", idA, 0.53, 1, 0, failed),
				handles("d/2", idB, 0.91, 1, 0, succeeded)),
			rules: bound, want: "1 messages ended because their keys were taken, and 0 were counted",
			counts: verdict{accepted: 2, handled: 2}},
		"changed after a failure": {
			entries: put([]entry{first, edits("d/2", idA, replaced, 0.57, 0.58, 0.6)}, handles("d/1", idA, 0.5, 1, 0, failed),
				handles("d/2", idA, 0.61, 2, 0, succeeded)),
			rules: bound, counts: one},
		"starved": {entries: put(both, handles("d/2", idA, 3.1, 1, 0, succeeded)), rules: bound,
			want: "put off: 3.09s, want at most 3s", counts: one},
		"lost with its consumer": {entries: put(both, handles("d/2", idA, 3.1, 2, 0, succeeded)), rules: bound, counts: one},
		"starved after a failure": {entries: put(both, handles("d/2", idA, 0.6, 1, 0, failed),
			handles("d/2", idA, 4, 2, 1, succeeded)),
			rules: bound, want: "put off: 3.99s, want at most 3.84s", counts: one},
		"handled twice": {entries: put(both, handles("d/2", idA, 0.6, 1, 0, succeeded),
			handles("d/2", idA, 0.9, 2, 0, succeeded)),
			rules: bound, want: "handled twice", counts: verdict{accepted: 1, handled: 1, duplicated: 1}},
		"lost": {entries: both, rules: bound, want: "lost", counts: verdict{accepted: 1, lost: 1}},
		"nobody sent it": {entries: put(both, handles("d/3", idA, 0.6, 1, 0, succeeded)), rules: bound,
			want: "which is no change of it", counts: one},
	})
}
