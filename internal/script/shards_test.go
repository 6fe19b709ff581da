package script

import (
	"fmt"
	"slices"
	"testing"
)

// TestShardsSpread: the shards of any name spread over nodes whose slots lie side by side.
func TestShardsSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ shards, nodes, most int }{{3, 3, 1}, {6, 3, 2}, {12, 6, 2}, {16, 3, 6}, {64, 32, 2}} {
		worst := 0
		for name := range 200 {
			on := make([]int, c.nodes)
			for i := range c.shards {
				tag := NewShard(nil, "dq", fmt.Sprint("queue-", name), i, c.shards).Keys.State
				on[Slot(tag)*c.nodes/16384]++
			}
			worst = max(worst, slices.Max(on))
		}
		if worst > c.most {
			t.Errorf("%d shards on %d nodes: %d lie on one, want at most %d", c.shards, c.nodes, worst, c.most)
		}
	}
}
