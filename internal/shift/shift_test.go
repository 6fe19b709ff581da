package shift

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/ops"
)

func TestSameFilter(t *testing.T) {
	t.Parallel()
	eight := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	window := func(from, to time.Duration) ops.Filter { return ops.Filter{From: eight.Add(from), To: eight.Add(to)} }
	for name, c := range map[string]struct {
		then, now ops.Filter
		ago       time.Duration
		want      bool
	}{
		"the same instants":        {window(0, time.Hour), window(0, time.Hour), 3 * time.Hour, true},
		"the same durations":       {window(0, time.Hour), window(3*time.Hour, 4*time.Hour), 3*time.Hour + time.Minute, true},
		"another window":           {window(0, time.Hour), window(2*time.Hour, 3*time.Hour), 3 * time.Hour, false},
		"a window beside it":       {window(0, time.Hour), window(time.Hour, 2*time.Hour), 10 * time.Minute, false},
		"no end":                   {window(0, time.Hour), ops.Filter{From: eight}, time.Minute, false},
		"another header":           {ops.Filter{Headers: map[string]string{"a": "b"}}, ops.Filter{}, time.Minute, false},
		"no header, and a nil one": {ops.Filter{Headers: map[string]string{}}, ops.Filter{}, time.Minute, true},
	} {
		if got := sameFilter(c.then, c.now, c.ago); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
