package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/hibiken/asynq"
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

// divide gives the queue orders shards, and a message in each of them that is due in an hour. It returns the keys, which are numbers.
func (w *world) divide(of int) (keys []string) {
	w.Helper()
	p := delayqueue.NewPublisher("orders", w.cli, delayqueue.UseCustomPrefix(w.prefix), delayqueue.WithShards(of))
	for i := range of {
		n := 0
		for script.ShardOf(fmt.Sprint(n), of) != i {
			n++
		}
		keys = append(keys, fmt.Sprint(n))
		ok(w, errOf(p.Send(w.Context(), "in "+fmt.Sprint(i), delayqueue.WithDelay(time.Hour), delayqueue.WithKey(keys[i]))))
	}
	return keys
}

// A queue with shards is one queue to all commands.
func tellShards(w *world) {
	const n = 4
	keys := w.divide(n)
	if got := w.must("queues"); got != "orders\n" {
		w.Errorf("queues: %q", got)
	}
	w.contains(w.must("stats"), "orders        4")
	lane := "{" + keys[2] + "}lane"
	w.must("send", "orders", "named", "--key", "{"+keys[2]+"}", "--lane", lane, "--delay", "2h")
	w.must("send", "orders", "numbered", "--sequence", "{"+keys[3]+"}rows=7", "--delay", "2h")
	w.refused(exitUsage, "lie in different shards", "send", "orders", "x", "--key", keys[0], "--lane", keys[1])
	for i, want := range []int64{1, 1, 2, 2} {
		if got := w.inShards(n)[i]; got != want {
			w.Errorf("shard %d has %d messages, want %d", i+1, got, want)
		}
	}
	w.contains(w.must("lanes", "orders"), lane)
	w.contains(w.must("lanes", "orders", lane), "1 of at most 1")
	w.contains(w.must("sequences", "orders"), "{"+keys[3]+"}rows")
	w.contains(w.must("sequences", "orders", "{"+keys[3]+"}rows"), "7")
	before := w.inShards(n)
	for range 10 * n {
		w.must("send", "orders", "nameless", "--delay", "3h")
	}
	for i, got := range w.inShards(n) {
		if got == before[i] {
			w.Errorf("shard %d got no message without a name", i+1)
		}
	}
	w.contains(w.must("ls", "orders", "pending", "--limit", "5"), "in 0", "in 1", "in 2", "in 3", "named")
	w.contains(w.must("find", "orders", "in 3"), "in 3")
	for _, key := range keys {
		w.contains(w.must("get", "orders", key, "--key"), "pending")
	}
	w.contains(w.must("history", "orders", "--json"), fmt.Sprintf(`"sent":%d`, 11*n+2))
	w.must("limits", "set", "orders", "--concurrency", "8")
	w.contains(w.must("limits", "orders"), "8 at a time")
	w.must("limits", "clear", "orders")
	w.must("pause", "orders", "--yes")
	w.contains(w.must("stats"), "paused")
	w.must("resume", "orders")
	w.consumeNothing("orders")
	if got := strings.Count(w.must("consumers", "orders", "--json"), "\n"); got != 1 {
		w.Errorf("%d consumers", got)
	}
	w.must("cancel", "orders", keys[1], "--key", "--yes")
	w.refused(exitNotFound, "has the key", "get", "orders", keys[1], "--key")
	w.must("cancel", "orders", "--all", "--yes")
	w.contains(w.must("doctor", "orders"), "in 4 shards", "nothing is wrong with it")
	check.AssertShards(w, w.cli, w.prefix, "orders", 0)
	w.must("purge", "orders", "--whole-queue", "--force", "--yes")
	for i := range n {
		left, err := w.cli.Exists(w.Context(), w.shard(i, n).Keys()...).Result()
		if err != nil || left > 1 { // the consumer may have come again
			w.Errorf("shard %d has %d keys, %v", i+1, left, err)
		}
	}
}

// spoil makes flaws in the last shard of the queue orders: a message is in no structure, and another one is gone.
func (w *world) spoil(of int) {
	w.Helper()
	q := w.shard(of-1, of)
	p := delayqueue.NewPublisher("orders", w.cli, delayqueue.UseCustomPrefix(w.prefix), delayqueue.WithShards(of))
	n := 0
	for script.ShardOf(fmt.Sprint("lost ", n), of) != of-1 {
		n++
	}
	info, err := p.Send(w.Context(), "x", delayqueue.WithKey(fmt.Sprint("lost ", n)), delayqueue.WithDelay(time.Hour))
	ok(w, err)
	ids, err := w.cli.ZRange(w.Context(), q.Key("pending"), 0, -1).Result()
	ok(w, err)
	for _, id := range ids {
		if id != info.ID {
			ok(w, w.cli.ZRem(w.Context(), q.Key("pending"), id).Err())
		}
	}
	ok(w, w.cli.HDel(w.Context(), q.Key("msg"), info.ID).Err())
}

// What is wrong in one shard is found, and mended there.
func tellDoctorShards(w *world) {
	const n = 4
	w.divide(n)
	w.contains(w.must("doctor", "orders"), "queue orders holds 4 messages in 4 shards", "nothing is wrong with it")
	w.spoil(n)
	r := w.run("doctor", "orders")
	w.contains(r.out, "shard 4 of 4: ", "no place (1)", "no envelope (1)", "1 message vanished without a word")
	if r.code != exitUnsound {
		w.Errorf("exit code %d", r.code)
	}
	d := decode[diagnosis](w, w.run("doctor", "orders", "--json").out)[0]
	if d.Messages != 4 || d.Shards != n || len(d.Missing) != 0 || len(d.Findings) < 3 {
		w.Errorf("%+v", d)
	}
	for _, f := range d.Findings {
		if want := map[bool]int{true: 0, false: n}[f.Structure == "books" || f.Structure == "queue"]; f.Shard != want {
			w.Errorf("shard %d, want %d: %+v", f.Shard, want, f)
		}
	}
	w.contains(w.must("doctor", "orders", "--repair", "--yes"), "shard 4: bring back message ", "shard 4: drop from pending: ", "the queue is sound now")
	check.AssertShards(w, w.cli, w.prefix, "orders", 0)

	// What is in two shards is found, and stays.
	id := w.cli.ZRange(w.Context(), w.shard(1, n).Key("pending"), 0, 0).Val()[0]
	ok(w, w.cli.HSet(w.Context(), w.shard(2, n).Key("sequence"), "rows", fmt.Sprintf("%020d", uint64(5)^1<<63)).Err())
	if script.ShardOf("rows", n) == 2 {
		w.Fatal("rows lies there")
	}
	r = w.run("doctor", "orders", "--repair", "--yes")
	w.contains(r.out, "wrong shard (1)", `sequence "rows" is in shard 3 of 4`, "nothing of it can be repaired safely")
	if r.code != exitUnsound {
		w.Errorf("%s: exit code %d", id, r.code)
	}
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
	if journal := w.must("journal", "orders"); strings.Contains(journal, "import") {
		w.Errorf("the journal has steps of an import:\n%s", journal)
	}

	// An import that was cut off before it deleted what it had stored sends it again under the same numbers.
	im := w.importer("orders")
	im.sharded, im.into = true, delayqueue.NewPublisher("orders", w.cli, delayqueue.UseCustomPrefix(w.prefix), delayqueue.WithShards(n))
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
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	for _, node := range c.Nodes {
		ok(t, node.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	cli := c.Client(t)
	w := newWorld(t, "redis+cluster://"+strings.Join(c.Addrs(), ","), cli)
	w.usual = true
	const n = 6
	w.divide(n)
	w.spoil(n)
	nodeOf := func(i int) string {
		node, err := cli.MasterForKey(t.Context(), w.shard(i, n).Key("state"))
		ok(t, err)
		return node.Options().Addr
	}
	var gone []int
	for _, node := range c.Nodes {
		if node.Addr() != nodeOf(0) && node.Addr() != nodeOf(n-1) {
			for i := range n {
				if nodeOf(i) == node.Addr() {
					gone = append(gone, i)
				}
			}
			node.Stop()
			break
		}
	}
	if len(gone) == 0 {
		t.Fatal("no shard is away")
	}
	part := fmt.Sprintf("only %d of %d shards", n-len(gone), n)
	r := w.run("stats", "orders")
	w.contains(r.out, fmt.Sprintf("orders        %d", n-len(gone)), part+" answer: no answer")
	w.contains(r.err, part)
	if r.code != exitNoRedis {
		t.Errorf("stats: exit code %d", r.code)
	}
	if one := decode[statsJSON](w, w.run("stats", "orders", "--json").out); len(one) != 1 || one[0].Pending != int64(n-len(gone)) ||
		one[0].Code != "shards missing" || !strings.Contains(one[0].Error, part) {
		t.Errorf("%+v", one)
	}
	r = w.run("doctor", "orders")
	w.contains(r.out, fmt.Sprintf("shard %d of %d cannot be read: ", gone[0]+1, n), "shard 6 of 6: ", "no place (1)", "no envelope (1)")
	w.contains(r.err, part+" were checked")
	if r.code != exitNoRedis {
		t.Errorf("doctor: exit code %d", r.code)
	}
	r = w.run("doctor", "orders", "--repair", "--yes", "--json")
	if r.out == "" {
		t.Fatalf("doctor --json: %s", r.err)
	}
	d := decode[diagnosis](w, r.out)[0]
	if r.code != exitNoRedis || len(d.Missing) != len(gone) || d.Missing[0].Shard != gone[0]+1 || d.Left == nil || *d.Left != 0 || len(d.Repairs) == 0 {
		t.Errorf("%+v\n%s", d, r.err)
	}
	w.contains(w.run("history", "orders", "--json").out, `"sent":`)
	w.must("send", "orders", "nameless") // by way of the other shards
	w.refused(exitNoRedis, part, "pause", "orders", "--yes")
}
