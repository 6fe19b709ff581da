package main

import (
	"testing"
	"time"
)

// A bound is widened by what the machine showed in that time, and by nothing else.
func TestInTime(t *testing.T) {
	g := &gauge{delays: []delay{{sec(0), time.Second}}} // before that time
	for i := range 2 * steps {                          // of which half are among the longest
		g.note(delay{sec(1.5) + int64(i), time.Duration(1+19*(i%2)) * time.Millisecond})
	}
	g.note(delay{sec(8), time.Second}) // after it
	for _, c := range []struct {
		gauge   *gauge
		took    time.Duration
		wrong   bool
		allowed time.Duration
	}{
		{g, 2 * time.Second, false, 0},
		{g, 2400 * time.Millisecond, false, 400 * time.Millisecond},
		{g, 2401 * time.Millisecond, true, 400 * time.Millisecond},
		{nil, 2001 * time.Millisecond, true, 0},
	} {
		v := &verdict{}
		v.inTime(c.gauge, sec(1.5)+1, c.took, 2*time.Second, "it took")
		if wrong := len(v.problems) > 0; wrong != c.wrong || v.allowed != c.allowed {
			t.Errorf("%v: problems %q, and allowed %v; want %v, %v", c.took, v.problems, v.allowed, c.wrong, c.allowed)
		}
	}
}

// Each fast row is there, so that a new name does not make the set smaller.
func TestFast(t *testing.T) {
	chosen, err := choose("", true)
	if err != nil || len(chosen) != len(fast) || len(fast) != 10 {
		t.Errorf("%d of %d fast rows are there: %v", len(chosen), len(fast), err)
	}
	if some, err := choose("lanes,shards", false); err != nil || len(some) != len(lanes)+len(shards) {
		t.Errorf("%d rows have these parts of names: %v", len(some), err)
	}
	if _, err := choose("nothing of this name", false); err == nil {
		t.Error("a name that no row has is not refused")
	}
}
