package redistest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestClusterServesAndFailsOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := StartCluster(t, 3, 1)
	if len(c.Nodes) != 6 {
		t.Fatalf("%d nodes", len(c.Nodes))
	}
	cli := c.Client(t)
	for i := range 100 {
		if err := cli.Set(ctx, fmt.Sprint("k", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cli.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		n, err := node.DBSize(ctx).Result()
		if err == nil && n == 0 {
			err = fmt.Errorf("%s has no keys", node)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	for i, node := range c.Nodes {
		want := "master"
		if i >= 3 {
			want = "slave"
		}
		role, err := node.Client(t).Do(ctx, "ROLE").Slice()
		if err != nil || role[0] != want {
			t.Errorf("node %d is %v, want %s: %v", i, role, want, err)
		}
	}

	// Its replica takes over from a dead primary, data included.
	if err := cli.Wait(ctx, 1, 20*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	c.Nodes[0].Kill()
	awaitRole(t, c.Nodes[3], "master")
	if err := await(ctx, func() error {
		cli.ReloadState(ctx)
		for i := range 100 {
			if err := cli.Get(ctx, fmt.Sprint("k", i)).Err(); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	// The old primary comes back as a replica.
	c.Nodes[0].Restart(t)
	awaitRole(t, c.Nodes[0], "slave")
}

// awaitRole waits until a node has a role.
func awaitRole(t *testing.T, node *Server, want string) {
	t.Helper()
	ctx, cli := testCtx(t), node.Client(t)
	if err := await(ctx, func() error {
		role, err := cli.Do(ctx, "ROLE").Slice()
		if err == nil && role[0] != want {
			err = fmt.Errorf("still %v", role[0])
		}
		return err
	}); err != nil {
		t.Fatalf("no %s: %v", want, err)
	}
}

func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	if err := StartCluster(t, 1, 0).Client(t).Set(testCtx(t), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// Servers before 7.0 do not know ADDSLOTSRANGE.
func TestAddSlotsOnOldServer(t *testing.T) {
	t.Parallel()
	addr := fakeServer(t,
		"-ERR unknown command 'HELLO'\r\n",
		"-ERR Unknown subcommand or wrong number of arguments for 'ADDSLOTSRANGE'. Try CLUSTER HELP.\r\n",
		"+OK\r\n",
	)
	wire := NewWire(t, addr)
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), Protocol: 2, DisableIdentity: true, MaxRetries: -1})
	defer cli.Close()
	var cmds [][]string
	spy := wire.DropReply(func(cmd []string) bool { cmds = append(cmds, cmd); return false })
	if err := addSlots(testCtx(t), cli, 3, 5); err != nil {
		t.Fatal(err)
	}
	mustBeOpen(t, spy, "a drop")
	got := cmds[len(cmds)-1]
	if fmt.Sprint(got) != "[cluster addslots 3 4 5]" {
		t.Fatalf("commands %q", cmds)
	}
}
