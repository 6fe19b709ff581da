package main

import (
	"slices"
	"testing"
)

// TestVerdictsOfAPool: each queue's entries are judged by themselves, and what is of none by the first alone.
func TestVerdictsOfAPool(t *testing.T) {
	books := &books{counts: map[string]int{}, entries: []entry{
		{Kind: sent, Payload: "producer1/1-000000"}, {Kind: sent, Payload: "producer1/2-000000"}, {Kind: quit},
		{Kind: sent, Payload: "producer2/2-000000"},
	}}
	tr := &trial{books: books, load: load{Pool: []int{2, 1}}}
	if n := []int{len(tr.entriesOf(0)), len(tr.entriesOf(1))}; !slices.Equal(n, []int{2, 2}) {
		t.Errorf("they have %v entries", n)
	}
	v := &verdict{}
	v.add(&verdict{struck: 3, accepted: 2, handled: 1, lost: 1, gap: 1, causes: []string{"a"}, problems: []string{"x"}})
	v.add(&verdict{struck: 3, accepted: 4, handled: 4, gap: 7, causes: []string{"a", "b"}})
	if v.struck != 3 || v.accepted != 6 || v.handled != 5 || v.lost != 1 || v.gap != 7 ||
		len(v.causes) != 2 || len(v.problems) != 1 {
		t.Errorf("together they are %+v", v)
	}
}
