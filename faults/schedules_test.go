package main

import (
	"slices"
	"testing"
	"time"
)

// TestJudgeSchedules: each instant is one message, at its time, and none is left out.
func TestJudgeSchedules(t *testing.T) {
	const at = 1002 // unix s, which is 2 s after the trial began
	due := instantOf("entry00", time.Unix(at, 0))
	other := instantOf("entry01", time.Unix(at+1, 0))
	both := rules{instants: []string{due, other}}
	second := handles(other, "o", 3, 1, 0, succeeded)
	one := verdict{accepted: 2, handled: 2}
	failover := strike{from: sec(2.3), to: sec(3), why: "it had less"}
	judged(t, map[string]forgery{
		"each is one message": {entries: slices.Concat(handles(due, idA, 2, 1, 0, succeeded), second), rules: both,
			counts: one},
		"handled again, lost": {entries: slices.Concat(handles(due, idA, 2, 1, 0, succeeded),
			handles(due, idA, 4, 2, 0, succeeded), second),
			strikes: []strike{failover}, rules: both, counts: verdict{accepted: 2, handled: 2, duplicated: 1}},
		"left out": {entries: second, rules: both, want: due + ": left out", counts: verdict{accepted: 1, handled: 1}},
		"told, and never run": {entries: slices.Concat([]entry{{Kind: told, At: sec(1), Payload: due, ID: idA}}, second),
			rules: both,
			want:  due + ": left out", counts: verdict{accepted: 1, handled: 1}},
		"no instant": {entries: slices.Concat(handles(due, idA, 2, 1, 0, succeeded), second,
			handles("entry01@1002", idB, 2, 1, 0, succeeded)),
			rules: both, want: "no entry has such an instant", counts: verdict{accepted: 3, handled: 3}},
		"early": {entries: slices.Concat(handles(due, idA, 1.9, 1, 0, succeeded), second), rules: both, want: "early",
			counts: verdict{accepted: 2, handled: 2, early: 1}},
		"sent twice": {entries: slices.Concat(handles(due, idA, 2, 1, 0, succeeded), handles(due, idB, 2.2, 1, 0, succeeded),
			second),
			rules: both, want: "became a message twice", counts: verdict{accepted: 2, handled: 2, duplicated: 1}},
		"Redis forgot the first": {entries: slices.Concat(handles(due, idA, 2, 1, 0, succeeded),
			handles(due, idB, 4, 1, 0, succeeded), second),
			strikes: []strike{failover}, rules: both, counts: verdict{accepted: 2, handled: 2, duplicated: 1}},
	})
}
