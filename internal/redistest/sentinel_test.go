package redistest

import (
	"context"
	"testing"
	"time"
)

func TestSentinelServesAndFailsOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s := StartSentinel(t, 2, 3)
	if len(s.Nodes) != 3 || len(s.Sentinels) != 3 {
		t.Fatalf("%d nodes, %d sentinels", len(s.Nodes), len(s.Sentinels))
	}
	for i, node := range s.Nodes {
		want := "master"
		if i > 0 {
			want = "slave"
		}
		role, err := node.Client(t).Do(ctx, "ROLE").Slice()
		if err != nil || role[0] != want {
			t.Errorf("node %d is %v, want %s: %v", i, role, want, err)
		}
	}
	if s.Primary(ctx) != s.Nodes[0] {
		t.Fatal("the first node is not the primary")
	}
	cli := s.Client(t)
	if err := cli.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := cli.Wait(ctx, 2, 20*time.Second).Result(); n != 2 {
		t.Fatalf("%d replicas have it: %v", n, err)
	}

	// A replica takes over from a dead primary, data included, and the client follows.
	s.Nodes[0].Kill()
	if !until(time.Minute, func() bool { p := s.Primary(ctx); return p != nil && p != s.Nodes[0] }) {
		t.Fatal("no failover")
	}
	if !until(time.Minute, func() bool { return cli.Set(ctx, "after", "w", 0).Err() == nil }) {
		t.Fatal("the client does not follow")
	}
	if v, err := cli.Get(ctx, "k").Result(); v != "v" {
		t.Fatalf("the data is lost: %q, %v", v, err)
	}

	// The old primary comes back as a replica.
	s.Nodes[0].Restart(t)
	old := s.Nodes[0].Client(t)
	if !until(time.Minute, func() bool { return old.Get(ctx, "after").Val() == "w" }) {
		t.Fatal("the old primary does not follow the new one")
	}
}
