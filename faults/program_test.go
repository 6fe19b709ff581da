package main

import (
	"fmt"
	"testing"
)

// TestManners: every way of handling occurs among as many payloads as a trial has.
func TestManners(t *testing.T) {
	t.Parallel()
	seen := map[manner]int{}
	for i := range usual.Messages / usual.Producers {
		seen[manners(fmt.Sprintf("producer1-%06d", i))]++
	}
	for _, m := range []manner{{}, {slow: true}, {failures: 1}, {failures: 2}, {failures: retries + 1}, {givesUp: true}} {
		if seen[m] == 0 {
			t.Errorf("no payload is treated as %+v", m)
		}
	}
}
