package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestScriptShards: the number of shards is what the first call has asked for, and does not change.
func TestScriptShards(t *testing.T) {
	for _, c := range []struct {
		name, field, said string // a field of state before; "": the queue is new
		asked, has        int
		after             string
	}{
		{"new", "", "", 6, 6, "6"},
		{"new, with one", "", "", 1, 1, "1"},
		{"used before, without shards", "in:stored", "7", 6, 1, ""},
		{"the same", "shards", "6", 6, 6, "6"},
		{"fewer", "shards", "6", 3, 6, "6"},
		{"more", "shards", "3", 6, 3, "3"},
		{"the most", "shards", "64", 6, 64, "64"},
		{"no number", "shards", "many", 6, 6, "6"},
		{"too many", "shards", "65", 6, 6, "6"},
		{"none", "shards", "0", 6, 6, "6"},
		{"a number in another form", "shards", "06", 6, 6, "6"},
		{"a huge number", "shards", strings.Repeat("9", 400), 6, 6, "6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := queuetest.NewBase(t)
			s := NewStore(f.Cli, "dq", f.Name)
			if c.field != "" {
				f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("state"), c.field, c.said).Err())
			}
			for range 2 { // a call that comes twice changes nothing more
				if has, err := s.Shards(queuetest.CtxB, c.asked); err != nil || has != c.has {
					t.Errorf("%d, %v, want %d", has, err, c.has)
				}
			}
			after, err := f.Cli.HGet(queuetest.CtxB, f.Key("state"), "shards").Result()
			if err != nil && err != redis.Nil || after != c.after {
				t.Errorf("state.shards is %q, %v, want %q", after, err, c.after)
			}
			if read, err := s.Shards(queuetest.CtxB, 0); err != nil || read != c.has {
				t.Errorf("read: %d, %v", read, err)
			}
			f.Cli.Del(queuetest.CtxB, f.Key("state"))
		})
	}
}

// TestOtherShards: each script that sends or fetches refuses another number of shards than the queue has, and changes
// nothing. What is no number counts as none.
func TestOtherShards(t *testing.T) {
	lone := func(m *SendMessage) {}
	for name, of := range map[string]func(*SendMessage){
		"single": lone,
		"send":   func(m *SendMessage) { m.Version = 0 },
		"keyed":  func(m *SendMessage) { m.Key = "k" },
		"put":    func(m *SendMessage) { m.Put = &PutOptions{Sequence: "s", Number: 1} },
		"fetch":  nil,
	} {
		for _, c := range []struct {
			n       int
			said    string
			refused bool
		}{
			{1, "", false}, {1, "1", false}, {1, "6", true}, {1, "many", false}, {1, "0", false}, {1, "65", false},
			{6, "", true}, {6, "1", true}, {6, "6", false}, {6, "3", true}, {6, "many", true}, {6, "06", true},
		} {
			t.Run(fmt.Sprintf("%s %d %q", name, c.n, c.said), func(t *testing.T) {
				f := queuetest.NewBase(t)
				s := NewStore(f.Cli, "dq", f.Name)
				if c.n > 1 {
					s = NewShard(f.Cli, "dq", f.Name, 0, c.n)
				}
				if c.said != "" {
					f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("state"), "shards", c.said).Err())
				}
				for range 2 { // the first call opens the books, which single needs
					err := sendOrFetch(s, of)
					if errors.Is(err, ErrShardCount) != c.refused || !c.refused && err != nil || c.refused && !link.Refusal(err) {
						t.Errorf("%v, want a refusal: %t", err, c.refused)
					}
				}
				keys, err := f.Cli.Keys(queuetest.CtxB, f.Key("*")).Result()
				if f.Must(err); c.refused && len(keys) > 1 {
					t.Errorf("it has written %q", keys)
				}
				f.Cli.Del(queuetest.CtxB, keys...)
			})
		}
	}
}

// sendOrFetch fetches, or sends a message that of has made different.
func sendOrFetch(s *Store, of func(*SendMessage)) error {
	c := NewCaller()
	c.Next()
	if of == nil {
		settings := FetchSettings{Lease: time.Minute, MaxLosses: 3}
		return queuetest.Failure(s.Fetch(queuetest.CtxB, c, FetchRequest{Want: 1, Settings: &settings}))
	}
	e, ids := message.Envelope{Payload: "x"}, message.NewIDSource()
	m := SendMessage{ID: ids.Next(), When: message.When{Us: 3_600_000_000}}
	m.Version, m.Text = e.Version(), e.Encode(m.When)
	of(&m)
	_, err := s.Send(queuetest.CtxB, c, SendRequest{Messages: []*SendMessage{&m}})
	return err
}

// TestRefusedOnce: a call that a shard has refused is made again when it is found out why, and else says why.
func TestRefusedOnce(t *testing.T) {
	f := queuetest.NewBase(t)
	s := NewShard(f.Cli, "dq", f.Name, 0, 6)
	why := errors.New("nobody knows")
	s.FindShards = func(ctx context.Context) error { return why }
	if err := sendOrFetch(s, nil); !errors.Is(err, why) || errors.Is(err, ErrShardCount) || !link.Refusal(err) {
		t.Errorf("%v, want %v", err, why)
	}
	s.FindShards = func(ctx context.Context) error { return s.CopyShards(ctx, 6) }
	f.Must(sendOrFetch(s, nil))
	f.Cli.Del(queuetest.CtxB, f.Cli.Keys(queuetest.CtxB, f.Key("*")).Val()...)
}

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

// TestShardName: the names of shards are those of docs/redis.md.
func TestShardName(t *testing.T) {
	slot := func(name string) int { return Slot("{dq:" + name + "}:state") }
	for _, n := range []int{1, 2, 3, 6, 12, 64} {
		seen := map[string]bool{}
		for i := range n {
			name := shardName("dq", "orders", i, n)
			if want := (slot("orders") + i*slots/n) % slots; slot(name) != want {
				t.Errorf("shard %d of %d is %s, in slot %d, want %d", i, n, name, slot(name), want)
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
	for name, want := range map[string]int{"": 0, "foo": 12182, "{foo}bar": 12182, "foo{}{bar}": 8363,
		"foo{{bar}}zap": 4015,
		"123456789":     12739} {
		if got := Slot(name); got != want {
			t.Errorf("the slot of %q is %d, want %d", name, got, want)
		}
	}
}
