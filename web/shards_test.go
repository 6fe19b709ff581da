package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// keyOf is a key of a shard.
func keyOf(cli redis.UniversalClient, queue string, i, of int, structure string) string {
	return strings.TrimSuffix(script.NewShard(cli, "dq", queue, i, of).Keys.State, "state") + structure
}

// sharded puts messages into each shard of a queue.
func sharded(t *testing.T, cli redis.UniversalClient, queue string, shards int) {
	t.Helper()
	p := delayqueue.NewPublisher(queue, cli, delayqueue.WithShards(shards))
	for i := range 20 * shards {
		_, err := p.Send(t.Context(), "x", delayqueue.WithDelay(time.Hour), delayqueue.WithKey(fmt.Sprint("key ", i)))
		ok(t, err)
	}
	for i := range shards {
		if n := cli.HLen(t.Context(), keyOf(cli, queue, i, shards, "msg")).Val(); n == 0 {
			t.Fatalf("no message is in shard %d", i)
		}
	}
}

// TestShardsAreOneQueue: the page shows the sum, and no shard is a queue of its own.
func TestShardsAreOneQueue(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	sharded(t, f.cli, "orders", 3)
	f.sees(f.get("").body, ">orders<")
	f.lacks(f.get("").body, "orders/")
	f.sees(f.get("queue?q=orders").body, "<b>60</b>", "60 in all")
	f.sees(f.get("messages?q=orders").body, ">60<")
	for _, page := range []string{"limits", "consumers", "lanes", "journal", "schedules", "pause"} {
		f.lacks(f.wants(http.StatusOK, f.get(page+"?q=orders"), page), "What is shown is without")
	}
	limits := form("q", "orders", "do", "set", "rate", "6", "per", "1s")
	f.did("limits", limits)
	f.lacks(f.get("limits?q=orders").body, "is so only in")
	ok(t, f.cli.HDel(t.Context(), keyOf(f.cli, "orders", 1, 3, "state"), "override").Err()) // it was away
	f.sees(f.get("limits?q=orders").body, "6 in 1 s", "is so only in 2 of 3 shards.")
	f.did("limits", limits)
	f.lacks(f.get("limits?q=orders").body, "is so only in")
	was := f.cli.HGet(t.Context(), keyOf(f.cli, "orders", 1, 3, "state"), "override").Val()
	f.did("limits", form("q", "orders", "do", "clear"))
	ok(t, f.cli.HSet(t.Context(), keyOf(f.cli, "orders", 1, 3, "state"), "override", was).Err()) // it was away
	body := f.get("limits?q=orders").body
	f.sees(body, "is so only in 2 of 3 shards.", `value="clear"`)
	f.lacks(body, "6 in 1 s")
}

// TestShardThatCannotBeRead: the page shows the numbers of the others, and says that they are.
func TestShardThatCannotBeRead(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	sharded(t, f.cli, "orders", 3)
	left := 60 - f.cli.HLen(t.Context(), keyOf(f.cli, "orders", 1, 3, "msg")).Val()
	spoilt := []string{keyOf(f.cli, "orders", 1, 3, "waiting"), keyOf(f.cli, "orders", 1, 3, "consumers"),
		keyOf(f.cli, "orders", 1, 3, "history"), keyOf(f.cli, "orders", 1, 3, "garbage")}
	for _, key := range spoilt {
		ok(t, f.cli.Set(t.Context(), key, "x", 0).Err())
	}
	const says = "only 2 of 3 shards answer: a key of this queue belongs to another program"
	shows := func(page string, all ...string) { // on a busy machine another shard may not answer in time either
		t.Helper()
		f.eventually(page, func() bool {
			body := f.get(page).body
			return !slices.ContainsFunc(all, func(one string) bool { return !strings.Contains(body, one) })
		})
	}
	shows("", "orders", says, fmt.Sprintf("<span>%d</span>", left))
	shows("queue?q=orders", says, fmt.Sprintf("<b>%d</b>", left),
		"Shard 2 of 3 does not answer: ", "The next week, hour by hour", "sent")
	shows("queue?q=orders&lang=zh", "仅 2 / 3 个分片有响应")
	const without = "Shard 2 of 3 does not answer: a key of this queue belongs to another program (WRONGTYPE). " +
		"What is shown is without it."
	for page, more := range map[string]string{"limits?q=orders": "", "consumers?q=orders": "", "pause?q=orders": "",
		"lanes?q=orders": "", "errors?q=orders": "Looked at 0 of 0.", "messages?q=orders": "",
		"messages?q=orders&state=waiting": "",
		"messages?q=orders&text=nothing":  "There are none.", "messages?q=orders&text=key": "The file is without them, too.",
		"plan?q=orders&state=pending&do=run":                "are not among them. Do the same again",
		"plan?q=orders&state=pending&do=postpone&by=1h0m0s": "It is better to wait until all shards answer."} {
		shows(page+"&lang=en", without, more)
	}
	f.eventually("a file", func() bool {
		file := f.get("export?q=orders&text=key&as=csv")
		return file.code == http.StatusOK && strings.Contains(file.body, ",pending,") &&
			strings.Contains(file.header.Get("Content-Disposition"), "orders-incomplete.csv")
	})
	ok(t, f.cli.Set(t.Context(), keyOf(f.cli, "orders", 1, 3, "wake"), "x", 0).Err()) // which a pause writes
	f.eventually("a pause", func() bool {
		got := f.ask(http.MethodPost, "pause", "q=orders&do=pause&for=0s")
		f.wants(http.StatusSeeOther, got, "pause")
		return strings.Contains(f.get(got.header.Get("Location")).body,
			"The queue is paused. But not in the shards with these numbers, which do not answer: 2. Do it again when")
	})
	ok(t, f.cli.Del(t.Context(), keyOf(f.cli, "orders", 1, 3, "wake")).Err())
	ok(t, f.cli.Del(t.Context(), spoilt...).Err())
	f.eventually("all is shown again", func() bool {
		return strings.Contains(f.get("queue?q=orders&lang=en").body, "<b>60</b>")
	})
}

// TestRequestHasNoDeadline: a read of a queue on a node that is away ends with its own time, and a page with its bound.
func TestRequestHasNoDeadline(t *testing.T) {
	h := &Handler{bounds: bounds{request: time.Millisecond}}
	ctx, cancel := h.within(t.Context())
	defer cancel()
	if deadline, has := ctx.Deadline(); has {
		t.Errorf("it has the deadline %v", deadline)
	}
	<-ctx.Done()
	if !unreachable(context.Cause(ctx)) {
		t.Errorf("it ends with %v", context.Cause(ctx))
	}
}

// TestShardsOfANodeThatIsAway: the page has the numbers of the shards on other nodes.
func TestShardsOfANodeThatIsAway(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	for _, node := range c.Nodes {
		ok(t, node.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	cli := c.Client(t)
	sharded(t, cli, "orders", 6)
	f := &fixture{T: t, cli: cli, log: &testkit.Buffer{}}
	f.serve(Config{Queues: []string{"orders"}})
	f.sees(f.get("queue?q=orders").body, "<b>120</b>")

	first, err := cli.MasterForKey(t.Context(), keyOf(cli, "orders", 0, 6, "state"))
	ok(t, err)
	var away *redistest.Server
	left := int64(0)
	for _, node := range c.Nodes {
		if node.Addr() != first.Options().Addr {
			away = node
		}
	}
	for i := range 6 {
		at, err := cli.MasterForKey(t.Context(), keyOf(cli, "orders", i, 6, "state"))
		if ok(t, err); at.Options().Addr != away.Addr() {
			left += cli.HLen(t.Context(), keyOf(cli, "orders", i, 6, "msg")).Val()
		}
	}
	away.Stop()
	f.page.Close()
	f.serve(Config{Queues: []string{"orders"}})
	f.page.bounds = hasty
	for page, texts := range map[string][]string{
		"queue?q=orders": {"only 4 of 6 shards answer", fmt.Sprintf("<b>%d</b>", left), `<h2 id="books-head">Books</h2>`,
			"They cannot be balanced without all shards"},
		"":                   {"only 4 of 6 shards answer", fmt.Sprintf("<span>%d</span>", left)},
		"consumers?q=orders": {"Shards ", " do not answer"},
		"health":             {"Not all servers answer", "Server 2"},
	} {
		f.eventually(page+" says so", func() bool {
			body := f.get(page).body
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(body, text) })
		})
	}
	file := f.get("export?q=orders&state=pending&as=jsonl")
	if n := strings.Count(f.wants(http.StatusOK, file), "\n"); int64(n) != left {
		t.Errorf("%d of %d messages are exported", n, left)
	}
	f.sees(file.header.Get("Content-Disposition"), "orders-incomplete.jsonl")
}
