package script

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestScriptShards: who asks for more shards gets them, if they are a multiple, and names stay.
func TestScriptShards(t *testing.T) {
	for _, c := range []struct {
		name, before string // of the field; "": the queue is new, "-": it was used and has no such field
		n, names     int    // asked
		want         ShardsReply
		after        string
	}{
		{"a look", "", 0, 0, ShardsReply{}, ""},
		{"a new queue", "", 6, 0, ShardsReply{6, 6}, "6 6"},
		{"one that was used", "-", 6, 0, ShardsReply{6, 1}, "6 1"},
		{"one shard of a used queue", "-", 1, 0, ShardsReply{1, 1}, ""},
		{"one shard of a new queue", "", 1, 0, ShardsReply{1, 1}, "1 1"},
		{"more than one", "1 1", 6, 0, ShardsReply{6, 1}, "6 1"},
		{"more", "3 3", 12, 0, ShardsReply{12, 3}, "12 3"},
		{"more again", "12 3", 24, 0, ShardsReply{24, 3}, "24 3"},
		{"the same", "6 3", 6, 0, ShardsReply{6, 3}, "6 3"},
		{"fewer", "6 3", 3, 0, ShardsReply{6, 3}, "6 3"},
		{"no multiple", "6 3", 8, 0, ShardsReply{6, 3}, "6 3"},
		{"a look at several", "6 1", 0, 0, ShardsReply{6, 1}, "6 1"},
		{"a copy", "", 6, 3, ShardsReply{6, 3}, "6 3"},
		{"a copy that does not fit", "", 6, 4, ShardsReply{}, ""},
		{"no number", "many", 6, 0, ShardsReply{6, 1}, "6 1"},
		{"too many", "128 1", 0, 0, ShardsReply{}, "128 1"},
		{"names that do not fit", "6 4", 0, 0, ShardsReply{}, "6 4"},
		{"no names", "6 0", 0, 0, ShardsReply{}, "6 0"},
		{"a huge number", strings.Repeat("9", 400) + " 1", 0, 0, ShardsReply{}, strings.Repeat("9", 400) + " 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := queuetest.NewBase(t)
			s := NewStore(f.Cli, "dq", f.Name)
			switch c.before {
			case "":
			case "-":
				f.Must(f.Cli.HSet(context.Background(), f.Key("state"), "seen", "0").Err())
			default:
				f.Must(f.Cli.HSet(context.Background(), f.Key("state"), "shards", c.before).Err())
			}
			for range 2 { // a call that comes twice changes nothing more
				got, err := s.Shards(context.Background())
				if c.n > 0 {
					got, err = s.Join(context.Background(), c.n, c.names)
				}
				if err != nil || got != c.want {
					t.Errorf("%+v, %v, want %+v", got, err, c.want)
				}
			}
			after, err := f.Cli.HGet(context.Background(), f.Key("state"), "shards").Result()
			if err != nil && err != redis.Nil || after != c.after {
				t.Errorf("state.shards is %q, %v, want %q", after, err, c.after)
			}
			f.Cli.Del(context.Background(), f.Key("state"))
		})
	}
}

// TestScriptShardsOfPaused: a queue gets no more shards while it is paused, or has limits of its own, because new shards would know nothing of that.
func TestScriptShardsOfPaused(t *testing.T) {
	f := queuetest.NewBase(t)
	s := NewStore(f.Cli, "dq", f.Name)
	f.Must(f.Cli.HSet(context.Background(), f.Key("state"), "shards", "3 3").Err())
	for field, values := range map[string][2]string{"pause": {"7258118400000000", "1"}, "override": {"5 1000000 1 0", ""}} {
		f.Must(f.Cli.HSet(context.Background(), f.Key("state"), field, values[0]).Err())
		if got, err := s.Join(context.Background(), 6, 0); err != nil || got != (ShardsReply{3, 3}) {
			t.Errorf("with %s: %+v, %v", field, got, err)
		}
		f.Must(f.Cli.HSet(context.Background(), f.Key("state"), field, values[1]).Err())
	}
	if got, err := s.Join(context.Background(), 6, 0); err != nil || got != (ShardsReply{6, 3}) {
		t.Errorf("after that: %+v, %v", got, err)
	}
	f.Cli.Del(context.Background(), f.Key("state"))
}

// TestShardName: the names of shards are those of docs/PROTOCOL.md, and those of fewer shards are among those of more.
func TestShardName(t *testing.T) {
	slot := func(name string) int { return Slot("{dq:" + name + "}:state") }
	for _, n := range []int{1, 2, 3, 6, 12, 64} {
		seen := map[string]bool{}
		for i := range n {
			name := shardName("dq", "orders", i, n)
			if want := (slot("orders") + i*slots/n) % slots; slot(name) != want {
				t.Errorf("shard %d of %d is %s, in slot %d, want %d", i, n, name, slot(name), want)
			}
			if n <= 32 && name != shardName("dq", "orders", 2*i, 2*n) {
				t.Errorf("shard %d of %d is not shard %d of %d", i, n, 2*i, 2*n)
			}
			if i > 0 && ValidName(name) {
				t.Errorf("%s may be the name of a queue", name)
			}
			seen[name] = true
		}
		if len(seen) != n {
			t.Errorf("%d shards have %d names", n, len(seen))
		}
	}
	// As CLUSTER KEYSLOT answers.
	for name, want := range map[string]int{"": 0, "foo": 12182, "{foo}bar": 12182, "foo{}{bar}": 8363, "foo{{bar}}zap": 4015, "123456789": 12739} {
		if got := Slot(name); got != want {
			t.Errorf("the slot of %q is %d, want %d", name, got, want)
		}
	}
	if a, b := fmt.Sprint(ShardOf("order", 6)/2), fmt.Sprint(ShardOf("order", 3)); a != b {
		t.Errorf("a name is in the shards %s and %s", a, b)
	}
}
