package delayqueue

import (
	"strings"
	"testing"
	"time"
)

// TestCallersOfTheProcess: publishers that are made for one send each use the callers of others.
func TestCallersOfTheProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 1000
	for range n {
		if err := NewPublisher(f.name, f.cli).SendDelayMsg("x", time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	callers := 0
	for field := range f.check().Fields {
		if strings.HasPrefix(field, "call:") {
			callers++
		}
	}
	if callers > n/2 { // other tests take some from time to time
		t.Errorf("%d publishers had %d callers", n, callers)
	}
}
