package main

import (
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

// TestShardRows: the judge finds two live messages of one key, and messages that were refused for their keys and
// handled all the same.
func TestShardRows(t *testing.T) {
	const a, b = "key1/a", "key1/b"
	shared := rules{names: true}
	of := func(payload, id string, from, to float64, word string) []entry {
		all := []entry{
			{Kind: sent, At: sec(from), Payload: payload, ID: id, Due: sec(from)},
			starts(to-0.1, "c1", 1, 0), ends(to, "c1", 1, word),
		}
		for i := range all {
			all[i].Payload, all[i].ID = payload, id
		}
		return all
	}
	both := func(a, b []entry) []entry { return append(a, b...) }
	two := verdict{accepted: 2, handled: 2}
	judged(t, map[string]forgery{
		"one after the other": {
			entries: both(of(a, idA, 0, 1, succeeded), of(b, idB, 1.5, 2, succeeded)), rules: shared, counts: two},
		"the second is sent before the ack of the first": {
			entries: both(of(a, idA, 0, 1, succeeded), of(b, idB, 0.5, 2, succeeded)), rules: shared, counts: two,
			want: "two messages live"},
		"of two keys": {
			entries: both(of(a, idA, 0, 1, succeeded), of("key2/b", idB, 0.5, 2, succeeded)), rules: shared, counts: two},
		"without keys": {
			entries: both(of("a", idA, 0, 1, succeeded), of("b", idB, 0.5, 2, succeeded)), rules: shared, counts: two},
		"the rule is off": {
			entries: both(of(a, idA, 0, 1, succeeded), of(b, idB, 0.5, 2, succeeded)), counts: two},
		"the key is taken": {
			entries: append(of(a, idA, 0, 1, succeeded), entry{Kind: taken, At: sec(0.5), Payload: b}), rules: shared,
			counts: verdict{accepted: 1, handled: 1}},
		"the key is taken, and it is handled": {
			entries: append(of(a, idA, 0, 1, succeeded),
				append(of(b, idB, 2, 3, succeeded)[1:], entry{Kind: taken, At: sec(0.5), Payload: b})...),
			rules: shared, counts: verdict{accepted: 1, handled: 1}, want: "never sent"},
	})
}

// TestShardOf: the shard of an id is that of its place.
func TestShardOf(t *testing.T) {
	w := wholeOf(&check.Sharded{Shards: []*check.State{{}, {}, {}}})
	for id, want := range map[string]int{
		"0190a1b2-0000-7000-8000-000000000000": 0, "0190a1b2-0000-7000-8000-000000000155": 1,
		"0190a1b2-0000-7000-8000-0000000002aa": 2,
		"0190a1b2-0000-7000-8000-000000000001": -1, "": -1,
	} {
		if got := w.shardOf(id); got != want {
			t.Errorf("%q is in shard %d, want %d", id, got, want)
		}
	}
}
