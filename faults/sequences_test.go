package main

import (
	"slices"
	"testing"
)

// row1 is a run of the first row of the first outbox, as a message with this id.
func row1(at float64, id string, delivery int, word string) []entry {
	begin := entry{Kind: started, At: sec(at), Payload: rowOf(outboxName(0), 1), ID: id, Delivery: delivery, who: "c1"}
	end := begin
	end.Kind, end.At, end.Word = ended, sec(at+0.1), word
	return []entry{begin, end}
}

// TestJudgeSequences: each row is one message, and none is left out.
func TestJudgeSequences(t *testing.T) {
	var others []entry
	for i := 1; i < outboxes; i++ {
		row := rowOf(outboxName(i), 1)
		others = append(others, entry{Kind: sent, At: sec(0), Payload: row, ID: row, Due: sec(1)},
			entry{Kind: started, At: sec(1), Payload: row, ID: row, Delivery: 1, who: "c1"},
			entry{Kind: ended, At: sec(1.1), Payload: row, ID: row, Delivery: 1, Word: succeeded, who: "c1"})
	}
	accept := entry{Kind: sent, At: sec(0), Payload: rowOf(outboxName(0), 1), ID: idA, Due: sec(1)}
	refuse := entry{Kind: refused, At: sec(0.1), Payload: accept.Payload, Word: "the sequence has passed this number"}
	twice := accept
	twice.ID = idB
	with := func(first []entry, parts ...[]entry) []entry {
		return slices.Concat(others, first, slices.Concat(parts...))
	}
	handled := row1(1, idA, 1, succeeded)
	numbered := rules{rows: 1}
	failover := strike{from: sec(2), to: sec(3), why: "it had less"}
	judged(t, map[string]forgery{
		"each is one message": {entries: with([]entry{accept, refuse}, handled), rules: numbered,
			counts: verdict{accepted: outboxes, handled: outboxes}},
		"nobody lived to say so": {entries: with(nil, handled), rules: numbered, counts: verdict{accepted: outboxes, handled: outboxes}},
		"sent anew, by one and the same send": {
			entries: with([]entry{{Kind: sent, At: sec(3.1), Took: sec(3.1) - sec(0.5), Payload: accept.Payload, ID: idA, Due: sec(4)}}, handled,
				row1(4.1, idA, 1, succeeded)),
			strikes: []strike{failover}, rules: numbered, counts: verdict{accepted: outboxes, handled: outboxes, duplicated: 1}},
		"left out": {entries: with(nil), rules: numbered, want: "outbox1-000001: left out",
			counts: verdict{accepted: outboxes - 1, handled: outboxes - 1}},
		"refused by all": {entries: with([]entry{refuse}), rules: numbered, want: "outbox1-000001: left out",
			counts: verdict{accepted: outboxes - 1, handled: outboxes - 1}},
		"lost": {entries: with([]entry{accept}), rules: numbered, want: "lost",
			counts: verdict{accepted: outboxes, handled: outboxes - 1, lost: 1}},
		"accepted twice": {entries: with([]entry{accept, twice}, row1(1, idB, 1, succeeded)), rules: numbered, want: "accepted twice",
			counts: verdict{accepted: outboxes, handled: outboxes}},
		"two messages": {entries: with([]entry{refuse}, handled, row1(4, idB, 1, succeeded)), rules: numbered, want: "it became a message twice",
			counts: verdict{accepted: outboxes, handled: outboxes, duplicated: 1}},
		"two messages, for Redis forgot the first": {entries: with([]entry{refuse}, row1(0.5, idA, 1, failed),
			row1(1, idA, 2, succeeded), row1(4, idB, 1, succeeded)),
			strikes: []strike{failover}, rules: numbered, counts: verdict{accepted: outboxes, handled: outboxes, duplicated: 1}},
	})
}
