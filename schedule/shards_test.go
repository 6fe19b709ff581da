package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestShards: in a queue with several shards each entry is sent once for each instant, and a change takes back what
// was sent ahead.
func TestShards(t *testing.T) {
	f := newFixture(t)
	_, err := script.NewStore(f.cli, "dq", f.name).Shards(f.ctx(), 4)
	f.must(err)
	f.pub = delayqueue.NewPublisher(f.name, f.cli, delayqueue.WithShards(4))
	f.s = f.replica()
	t.Cleanup(func() { check.AssertShards(t, f.cli, "dq", f.name, 0) })
	got := f.consume(nil)
	entries := []Entry{{Name: "e", Payload: "before"}, {Name: "a/b", Overlap: Skip}, {Name: "a{b", Payload: "x"},
		{Name: "{customer-42}report", Options: []delayqueue.MsgOption{delayqueue.WithLane("customer-42")}}}
	for i := range entries {
		entries[i].Every = time.Second
		f.must(f.s.Set(f.ctx(), entries[i]))
	}
	f.run(f.s, f.replica())
	for _, e := range entries {
		f.until(e.Name+" is sent", func() bool {
			n, _ := got.of(e.Name)
			return len(n) >= 3
		})
	}
	entries[0].Payload = "after"
	f.must(f.s.Set(f.ctx(), entries[0]))
	changed := f.now()
	f.until("e is sent as it is now", func() bool {
		n, _ := got.of("e")
		for at := range n {
			if at > changed+5 {
				return true
			}
		}
		return false
	})
	for _, e := range entries {
		if n, most := got.of(e.Name); most != 1 {
			t.Errorf("%s: messages for each instant: %v", e.Name, n)
		}
	}
	all, err := List(f.ctx(), f.mon.Monitor())
	f.must(err)
	for _, s := range all {
		if s.Trouble != nil {
			t.Errorf("%s: %v", s.Name, s.Trouble)
		}
	}
	// A lane of another customer lies elsewhere, which the status says.
	f.must(f.s.Set(f.ctx(),
		Entry{Name: "lost", Every: time.Second, Options: []delayqueue.MsgOption{delayqueue.WithLane("customer-42")}}))
	f.until("the entry is refused", func() bool {
		all, err := List(f.ctx(), f.mon.Monitor())
		f.must(err)
		for _, s := range all {
			if s.Name == "lost" && s.Trouble != nil {
				return true
			}
		}
		return false
	})
}

// TestKeysOfShards: the key of a message ahead lies with the sequence of its entry.
func TestKeysOfShards(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range []string{"e", "a/b", "a{b", "{customer}x", "x{customer}", "schedule/e}"} {
		key := keyOf(name, 7, 1000)
		// which is refused
		if lies := script.HashTag(key) == script.HashTag(sequenceOf(name)); lies != (name != "schedule/e}") {
			t.Errorf("%s does not lie with %s", key, sequenceOf(name))
		}
		if seen[key] {
			t.Errorf("%s is of two entries", key)
		}
		seen[key] = true
	}
}

// TestStuckBesideAMissingShard: what is known of an entry whose shard cannot be read is counted, and of what is not
// known there is no 0.
func TestStuckBesideAMissingShard(t *testing.T) {
	f := newFixture(t)
	_, err := script.NewStore(f.cli, "dq", f.name).Shards(f.ctx(), 4)
	f.must(err)
	f.store(1, func(int) record {
		return record{Gen: 1, Since: f.now(), plan: plan{times: times{Every: 3600}, CatchUp: 1}}
	})
	set, err := f.s.shards.Look(f.ctx())
	f.must(err)
	bad := strings.TrimSuffix(set.All[set.Named(sequenceOf("e0"))].Keys.State, "state") + "sequence"
	f.must(f.cli.Set(f.ctx(), bad, "no hash", 0).Err())
	defer func() { f.must(f.cli.Del(f.ctx(), bad).Err()) }()
	if n, err := f.s.Stuck(f.ctx()); err != nil || n["not run"] != 1 {
		t.Errorf("while nobody runs it: %v, %v", n, err)
	}
	schedules := f.s.table.store.Keys.Schedules
	f.must(f.cli.HSet(f.ctx(), schedules, lookedField, f.now()+60).Err())
	if n, err := f.s.Stuck(f.ctx()); err == nil {
		t.Errorf("while its shard cannot be read: %v", n)
	}
	f.must(f.cli.HSet(f.ctx(), schedules, refusedOf("e0"), "1 too large").Err())
	if n, err := f.s.Stuck(f.ctx()); err != nil || n["refused"] != 1 {
		t.Errorf("while it is refused: %v, %v", n, err)
	}
}

// onNodes is a queue of six shards on three nodes, each of which answers without the others, with 24 entries. away is a
// node that has not the first shard, and there says which entries lie on it.
func onNodes(t *testing.T, entry record) (f *fixture, away *redistest.Server, there map[string]bool) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	f = fixtureOn(t, cluster.Client(t))
	for _, node := range cluster.Nodes {
		f.must(node.Client(t).ConfigSet(f.ctx(), "cluster-require-full-coverage", "no").Err())
	}
	_, err := script.NewStore(f.cli, "dq", f.name).Shards(f.ctx(), 6)
	f.must(err)
	set, err := f.s.shards.Look(f.ctx())
	f.must(err)
	holds := func(node *redistest.Server, i int) bool {
		return node.Client(t).Exists(f.ctx(), set.All[i].Keys.State).Err() == nil // others say MOVED
	}
	away = cluster.Nodes[0]
	if holds(away, 0) {
		away = cluster.Nodes[1]
	}
	there = map[string]bool{}
	f.store(24, func(i int) record {
		name := fmt.Sprint("e", i)
		there[name] = holds(away, set.Named(sequenceOf(name)))
		entry.Overlap = Overlap(i % 2)
		return entry
	})
	return f, away, there
}

// TestOneNodeAway: while a node does not answer that has not the first shard, entries that lie on other nodes go on,
// also by a replica that begins meanwhile. Those of the node go on when it is back.
func TestOneNodeAway(t *testing.T) {
	now := time.Now().Unix()
	f, away, there := onNodes(t, record{Gen: 1, Since: now, plan: plan{times: times{Every: 1}, CatchUp: 1000}})
	got := f.consume(nil)
	until := func(what string, at int64, some func(name string) bool) {
		t.Helper()
		f.until(what, func() bool {
			for name := range there {
				if ran, _ := got.of(name); some(name) && slices.Max(append(slices.Collect(maps.Keys(ran)), 0)) < at {
					return false
				}
			}
			return true
		})
	}
	all, elsewhere := func(string) bool { return true }, func(name string) bool { return !there[name] }
	stop := f.run(f.s)
	until("all run", f.now(), all)
	away.Pause()
	until("the others go on", time.Now().Unix()+20, elsewhere)
	stop()
	f.run(f.replica())
	until("the others go on by a replica that begins", time.Now().Unix()+5, elsewhere)
	f.log.Says(t, 2,
		"cannot be sent for now") // once by each replica; of a slow machine without the shard, if no attempt ended
	away.Resume()
	until("all run again", time.Now().Unix(), all)
	for name := range there {
		if ran, most := got.of(name); most != 1 {
			t.Errorf("%s: messages for each instant: %v", name, ran)
		}
	}
}

// TestLostByAnyNode: what a node has lost that has not the first shard is sent again.
func TestLostByAnyNode(t *testing.T) {
	one := times{Every: int64(maxEvery / time.Second)} // instant that is caught up
	f, away, there := onNodes(t, record{Gen: 1, Since: 1, plan: plan{times: one, CatchUp: 1}})
	f.run(f.s)
	each := func() bool { return f.messages() == int64(len(there)) }
	f.until("each is sent", each)
	away.Kill()
	away.Restart(t) // with nothing
	f.until("each is there again", each)
}
