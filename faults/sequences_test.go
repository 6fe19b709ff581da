package main

import (
	"slices"
	"testing"
)

// TestJudgeSequences: each row is one message, and none is left out.
func TestJudgeSequences(t *testing.T) {
	var others []entry
	first := rowOf(outboxName(0), 1)
	for i := 1; i < outboxes; i++ {
		row := rowOf(outboxName(i), 1)
		others = append(others, entry{Kind: sent, At: sec(0), Payload: row, ID: row, Due: sec(1)})
		others = append(others, handles(row, row, 1, 1, 0, succeeded)...)
	}
	accept := entry{Kind: sent, At: sec(0), Payload: first, ID: idA, Due: sec(1)}
	refuse := entry{Kind: refused, At: sec(0.1), Payload: accept.Payload, Word: "the sequence has passed this number"}
	twice := accept
	twice.ID = idB
	with := func(sends []entry, runs ...[]entry) []entry {
		return slices.Concat(others, sends, slices.Concat(runs...))
	}
	handled := handles(first, idA, 1, 1, 0, succeeded)
	numbered := rules{rows: 1}
	failover := strike{from: sec(2), to: sec(3), why: "it had less"}
	judged(t, map[string]forgery{
		"each is one message": {entries: with([]entry{accept, refuse}, handled), rules: numbered,
			counts: verdict{accepted: outboxes, handled: outboxes}},
		"nobody lived to say so": {entries: with(nil, handled), rules: numbered,
			counts: verdict{accepted: outboxes, handled: outboxes}},
		"sent anew, by one and the same send": {
			entries: with([]entry{{Kind: sent, At: sec(3.1), Took: sec(3.1) - sec(0.5), Payload: accept.Payload, ID: idA,
				Due: sec(4)}}, handled,
				handles(first, idA, 4.1, 1, 0, succeeded)),
			strikes: []strike{failover}, rules: numbered, counts: verdict{accepted: outboxes, handled: outboxes, duplicated: 1}},
		"left out": {entries: with(nil), rules: numbered, want: "outbox1-000001: left out",
			counts: verdict{accepted: outboxes - 1, handled: outboxes - 1}},
		"refused by all": {entries: with([]entry{refuse}), rules: numbered, want: "outbox1-000001: left out",
			counts: verdict{accepted: outboxes - 1, handled: outboxes - 1}},
		"lost": {entries: with([]entry{accept}), rules: numbered, want: "lost",
			counts: verdict{accepted: outboxes, handled: outboxes - 1, lost: 1}},
		"accepted twice": {entries: with([]entry{accept, twice}, handles(first, idB, 1, 1, 0, succeeded)), rules: numbered,
			want: "accepted twice", counts: verdict{accepted: outboxes, handled: outboxes}},
		"two messages": {entries: with([]entry{refuse}, handled, handles(first, idB, 4, 1, 0, succeeded)), rules: numbered,
			want: "it became a message twice", counts: verdict{accepted: outboxes, handled: outboxes, duplicated: 1}},
		"two messages, for Redis forgot the first": {entries: with([]entry{refuse}, handles(first, idA, 0.5, 1, 0, failed),
			handles(first, idA, 1, 2, 0, succeeded), handles(first, idB, 4, 1, 0, succeeded)),
			strikes: []strike{failover}, rules: numbered, counts: verdict{accepted: outboxes, handled: outboxes, duplicated: 1}},
	})
}
