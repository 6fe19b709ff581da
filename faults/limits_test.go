package main

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/ops"
)

// TestWeighLimits: the judge sees what goes too fast, and what is too many at a time.
func TestWeighLimits(t *testing.T) {
	l := ops.Limits{Rate: 10, Per: time.Second, Burst: 2, Concurrency: 1}
	for name, c := range map[string]struct {
		readings []reading
		entries  []entry
		wrong    int
	}{
		"as it should be": {[]reading{{0, 0, 0}, {100_000, 3, 1}, {1_000_000, 12, 0}},
			[]entry{{Kind: started, At: 1, Payload: "a"}, {Kind: ended, At: 2, Payload: "a"},
				{Kind: started, At: 2, Payload: "b"},
				{Kind: ended, At: 3, Payload: "b"}}, 0},
		"too fast":   {[]reading{{0, 0, 0}, {100_000, 4, 1}}, nil, 1},
		"fast later": {[]reading{{0, 0, 0}, {1_000_000, 1, 1}, {1_100_000, 5, 1}}, nil, 1},
		"too many":   {[]reading{{0, 0, 0}, {100_000, 3, 2}}, nil, 1},
		"handlers": {[]reading{{0, 0, 0}, {1, 0, 0}},
			[]entry{{Kind: started, At: 1, Payload: "a"}, {Kind: started, At: 2, Payload: "b"},
				{Kind: ended, At: 3, Payload: "a"},
				{Kind: ended, At: 4, Payload: "b"}}, 1},
		"one of them killed": {[]reading{{0, 0, 0}, {1, 0, 0}},
			[]entry{{Kind: started, At: 1, Payload: "a"}, {Kind: started, At: 2, Payload: "b"},
				{Kind: ended, At: 4, Payload: "b"}}, 0},
	} {
		v := &verdict{}
		v.weighRate(c.readings, l)
		v.weighPlaces(c.entries, l.Concurrency)
		if len(v.problems) != c.wrong {
			t.Errorf("%s: %q", name, v.problems)
		}
	}
}
