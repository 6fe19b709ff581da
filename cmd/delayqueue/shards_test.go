package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// shard is a shard of the queue orders.
func (w *world) shard(i, of int) check.Queue {
	return keyspace(script.NewShard(w.cli, w.prefix, "orders", i, of))
}

// inShards says how many messages each shard of the queue orders has.
func (w *world) inShards(of int) (all []int64) {
	w.Helper()
	for i := range of {
		n, err := w.cli.HLen(w.Context(), w.shard(i, of).Key("msg")).Result()
		ok(w, err)
		all = append(all, n)
	}
	return all
}

// divide gives the queue orders shards, and a message in each of them that is due in an hour. It returns the keys,
// which are numbers.
func (w *world) divide(of int) (keys []string) {
	w.Helper()
	for i := range of {
		keys = append(keys, nameIn(i, of))
		ok(w, errOf(w.sharded(of).Send(w.Context(), "in "+fmt.Sprint(i), inAnHour, delayqueue.WithKey(keys[i]))))
	}
	return keys
}

// nameIn is a name, which is a number, whose messages a shard has.
func nameIn(shard, of int) string {
	n := 0
	for script.ShardOf(fmt.Sprint(n), of) != shard {
		n++
	}
	return fmt.Sprint(n)
}

// sharded sends to the queue orders, which has so many shards.
func (w *world) sharded(of int) *delayqueue.Publisher {
	return delayqueue.NewPublisher("orders", w.cli, delayqueue.UseCustomPrefix(w.prefix), delayqueue.WithShards(of))
}

// A queue with shards is one queue to all commands.
func tellShards(w *world) {
	const n = 4
	keys := w.divide(n)
	equal(w, "queues", w.must("queues"), "orders\n")
	w.contains(w.must("stats"), "orders        4")
	lane := "{" + keys[2] + "}lane"
	w.must("send", "orders", "named", "--key", "{"+keys[2]+"}", "--lane", lane, "--delay", "2h")
	w.must("send", "orders", "numbered", "--sequence", "{"+keys[3]+"}rows=7", "--delay", "2h")
	w.refused(exitUsage, "lie in different shards", "send", "orders", "x", "--key", keys[0], "--lane", keys[1])
	equal(w, "messages in the shards", w.inShards(n), []int64{1, 1, 2, 2})
	w.contains(w.must("lanes", "orders"), lane)
	w.contains(w.must("lanes", "orders", lane), "1 of at most 1")
	w.contains(w.must("sequences", "orders"), "{"+keys[3]+"}rows")
	w.contains(w.must("sequences", "orders", "{"+keys[3]+"}rows"), "7")
	before, nameless := w.inShards(n), 0
	w.until("each shard gets a message without a name", func() bool {
		w.must("send", "orders", "nameless", "--delay", "3h")
		nameless++
		grown := 0
		for i, now := range w.inShards(n) {
			grown += int(min(now-before[i], 1))
		}
		return grown == n
	})
	w.contains(w.must("ls", "orders", "pending", "--limit", "5"), "in 0", "in 1", "in 2", "in 3", "named")
	w.contains(w.must("find", "orders", "in 3"), "in 3")
	for _, key := range keys {
		w.contains(w.must("get", "orders", key, "--key"), "pending")
	}
	w.contains(w.must("history", "orders", "--json"), fmt.Sprintf(`"sent":%d`, n+2+nameless))
	w.must("limits", "set", "orders", "--concurrency", "8")
	w.contains(w.must("limits", "orders"), "8 at a time")
	ok(w, w.cli.HDel(w.Context(), w.shard(1, n).Key("state"), "override").Err()) // as if it had been away
	w.contains(w.must("limits", "orders"), "8 at a time (only in 3 of 4 shards: set or clear them once more)")
	w.contains(w.must("limits", "orders", "--json"), `"set_in":"only in 3 of 4 shards"`)
	w.must("limits", "clear", "orders")
	w.must("pause", "orders", "--yes")
	w.contains(w.must("stats"), "paused")
	w.must("resume", "orders")
	q := w.consume("orders", func(context.Context, *delayqueue.Message) error { return nil })
	w.heardOf("orders")
	equal(w, "consumers", strings.Count(w.must("consumers", "orders", "--json"), "\n"), 1)
	w.must("cancel", "orders", keys[1], "--key", "--yes")
	w.refused(exitNotFound, "has the key", "get", "orders", keys[1], "--key")
	w.must("cancel", "orders", "--all", "--yes")
	w.contains(w.must("doctor", "orders"), "in 4 shards", "its data is sound")
	check.AssertShards(w, w.cli, w.prefix, "orders", 0)
	ok(w, q.Shutdown(w.Context()))
	w.must("delete", "orders", "--whole-queue", "--force", "--yes")
	for i := range n {
		s := w.shard(i, n)
		but := slices.DeleteFunc(s.Keys(), func(key string) bool {
			return key == s.Key("journal")
		}) // which a deleted queue still has
		if left, err := w.cli.Exists(w.Context(), but...).Result(); err != nil || left > 0 {
			w.Errorf("shard %d has %d keys, %v", i+1, left, err)
		}
	}
}

// spoil makes flaws in the last shard of the queue orders: a message is in no structure, and another one is gone.
func (w *world) spoil(of int) {
	w.Helper()
	q := w.shard(of-1, of)
	ids := w.cli.ZRange(w.Context(), q.Key("pending"), 0, -1).Val()
	ok(w, w.cli.Del(w.Context(), q.Key("pending")).Err())
	info, err := w.sharded(of).Send(w.Context(), "x", delayqueue.WithKey("{"+nameIn(of-1, of)+"}lost"), inAnHour)
	ok(w, err)
	ok(w, w.cli.HDel(w.Context(), q.Key("msg"), info.ID).Err())
	if len(ids) != 1 {
		w.Fatalf("the last shard had %q", ids)
	}
}

// What is wrong in one shard is found, and mended there.
func tellDoctorShards(w *world) {
	const n = 4
	w.divide(n)
	w.contains(w.must("doctor", "orders"), "queue orders holds 4 messages in 4 shards", "its data is sound")
	w.spoil(n)
	w.exits(exitUnsound, "doctor", "orders").shows("shard 4 of 4: ", "no place (1)", "no envelope (1)",
		"1 message vanished without a word")
	d := decode[diagnosis](w, w.run("doctor", "orders", "--json").out)[0]
	if d.Messages != 4 || d.Shards != n || len(d.Missing) != 0 || len(d.Findings) < 3 {
		w.Errorf("%+v", d)
	}
	for _, f := range d.Findings {
		if want := map[bool]int{true: 0, false: n}[f.Structure == "books" || f.Structure == "queue"]; f.Shard != want {
			w.Errorf("shard %d, want %d: %+v", f.Shard, want, f)
		}
	}
	w.contains(w.must("doctor", "orders", "--repair", "--yes"), "shard 4: bring back message ",
		"shard 4: drop from pending: ", "the queue is sound now")
	check.AssertShards(w, w.cli, w.prefix, "orders", 0)

	// What is in two shards is found, and stays.
	ok(w, w.cli.HSet(w.Context(), w.shard(2, n).Key("sequence"), "rows", fmt.Sprintf("%020d", uint64(5)^1<<63)).Err())
	if script.ShardOf("rows", n) == 2 {
		w.Fatal("rows lies there")
	}
	w.exits(exitUnsound, "doctor", "orders", "--repair", "--yes").shows("wrong shard (1)",
		`sequence "rows" is in shard 3 of 4`, "nothing of it can be repaired safely")
}

// Tasks with ids of somebody's choice and without are moved once each, into all shards.
func tellImportShards(world *world) {
	w := newAsynqWorld(world)
	const n = 3
	w.divide(n)
	for i := range 200 {
		w.enqueue("plain", fmt.Sprint("p", i), asynq.ProcessIn(time.Hour))
		if i < 20 {
			w.enqueue("named", fmt.Sprint("n", i), asynq.TaskID(fmt.Sprint("order-", i)), asynq.ProcessIn(time.Hour))
		}
	}
	w.enqueue("named", "braces", asynq.TaskID("a{customer}b"), asynq.ProcessIn(time.Hour))
	w.enqueue("named", "no place", asynq.TaskID("a}b"), asynq.ProcessIn(time.Hour))
	w.enqueue("once", "lock", asynq.Unique(2*time.Hour), asynq.ProcessIn(time.Hour))
	args := []string{"import", w.name, "--from", "asynq", "--into", "orders", "--yes"}
	w.contains(w.must(args...), "moved 222 messages", "left 1: ids with a }")
	for i, got := range w.inShards(n) {
		if got < 40 {
			w.Errorf("shard %d has %d of 225 messages", i+1, got)
		}
	}
	w.contains(w.must("get", "orders", "order-7", "--key"), "n7")
	w.contains(w.must(args...), "moved 0 messages")
	if b, err := w.monitor("orders").Balance(w.Context()); err != nil || b.Imported != 222 {
		w.Errorf("%+v, %v", b, err)
	}
	w.lacks(w.must("journal", "orders"), "import")

	// An import that was cut off before it deleted what it had stored sends it again under the same numbers.
	im := w.importer("orders")
	im.sharded, im.into = true, w.sharded(n)
	ok(w, im.begin(w.Context()))
	w.enqueue("plain", "again", asynq.ProcessIn(time.Hour))
	w.enqueue("named", "again", asynq.TaskID("again"), asynq.ProcessIn(time.Hour))
	im.theirs = unsettled{im.theirs}
	if err := im.run(w.Context()); err == nil || im.Moved != 2 {
		w.Fatalf("moved %d, %v", im.Moved, err)
	}
	w.contains(w.must(args...), "moved 0 messages", "2 messages stored before")
	check.AssertShards(w, w.cli, w.prefix, "orders", 0)
}

// TestShardsOfANodeThatIsAway: what the other nodes have is shown, and where something is missing is said.
func TestShardsOfANodeThatIsAway(t *testing.T) {
	w, c := partial(t)
	const n = 6
	w.divide(n)
	w.spoil(n)
	ok(t, w.monitor("orders").Pause(t.Context()))
	var nodes [n]string // of each shard
	for i := range n {
		node, err := w.cli.(*redis.ClusterClient).MasterForKey(t.Context(), w.shard(i, n).Key("state"))
		ok(t, err)
		nodes[i] = node.Options().Addr
	}
	var gone []int
	for _, node := range c.Nodes {
		if node.Addr() != nodes[0] && node.Addr() != nodes[n-1] {
			node.Stop()
			for i := range n {
				if nodes[i] == node.Addr() {
					gone = append(gone, i)
				}
			}
			break
		}
	}
	if len(gone) == 0 {
		t.Fatal("no shard is away")
	}
	part := fmt.Sprintf("only %d of %d shards", n-len(gone), n)
	t.Run("looks", func(t *testing.T) { // they are over before something is changed
		for name, look := range map[string]func(w *world){
			"stats": func(w *world) {
				w.exits(exitNoRedis, "stats", "orders").says(part).shows(fmt.Sprintf("orders        %d", n-len(gone)),
					part+" answer: no answer; paused")
			},
			"stats in JSON": func(w *world) {
				w.run("stats", "orders", "--json").shows(fmt.Sprintf(`"pending":%d,`, n-len(gone)), `"code":"shards missing"`, part)
			},
			"ls":     func(w *world) { w.exits(exitNoRedis, "ls", "orders", "pending").says(part).shows("in 0") },
			"errors": func(w *world) { w.exits(exitNoRedis, "errors", "orders").says("looked at 0 of 0", part) },
			"cancel": func(w *world) {
				w.exits(exitNoRedis, "cancel", "orders", "--all", "--dry-run").says(part).shows("would have canceled")
			},
			"history": func(w *world) { w.contains(w.run("history", "orders", "--json").out, `"sent":`) },
			"doctor": func(w *world) {
				w.exits(exitNoRedis, "doctor", "orders").says(part+" were checked").
					shows(fmt.Sprintf("shard %d of %d cannot be read: ", gone[0]+1, n), "shard 6 of 6: ", "no place (1)",
						"no envelope (1)")
			},
		} {
			t.Run(name, func(t *testing.T) { look(w.at(t)) })
		}
	})
	for name, act := range map[string]func(w *world){
		"repair": func(w *world) {
			r := w.exits(exitNoRedis, "doctor", "orders", "--repair", "--yes", "--json")
			d := decode[diagnosis](w, r.out)[0]
			if len(d.Missing) != len(gone) || d.Missing[0].Shard != gone[0]+1 || d.Left == nil || *d.Left != 0 ||
				len(d.Repairs) == 0 {
				w.Errorf("%+v\n%s", d, r.err)
			}
		},
		"send":  func(w *world) { w.must("send", "orders", "nameless") }, // by way of the other shards
		"pause": func(w *world) { w.refused(exitNoRedis, "paused in "+part[len("only "):], "pause", "orders", "--yes") },
	} {
		t.Run(name, func(t *testing.T) { act(w.at(t)) })
	}
}

// TestShardThatHangs: doctor says in plain words that a node does not answer.
func TestShardThatHangs(t *testing.T) {
	w, c := partial(t)
	const n = 6
	w.divide(n)
	first, err := w.cli.(*redis.ClusterClient).MasterForKey(t.Context(), w.shard(0, n).Key("state"))
	ok(t, err)
	for _, node := range c.Nodes {
		if node.Addr() != first.Options().Addr {
			node.Pause()
			t.Cleanup(node.Resume)
		}
	}
	r := w.exits(exitNoRedis, "doctor", "orders").shows("cannot be read: ", "no answer").says("no answer")
	w.lacks(r.out+r.err, "deadline exceeded")
}

// TestFirstShardIsAway: a command, which knows nothing of the queue, learns from the other shards how many there are.
func TestFirstShardIsAway(t *testing.T) {
	w, c := partial(t)
	const n = 6
	w.divide(n)
	first, err := w.cli.(*redis.ClusterClient).MasterForKey(t.Context(), w.shard(0, n).Key("state"))
	ok(t, err)
	for _, node := range c.Nodes {
		if node.Addr() == first.Options().Addr {
			node.Stop()
		}
	}
	w.exits(exitNoRedis, "ls", "orders", "pending").says("of 6 shards answer, not shard").shows("in 5")
	w.refused(exitNoRedis, "not in shard", "pause", "orders", "--yes")
}
