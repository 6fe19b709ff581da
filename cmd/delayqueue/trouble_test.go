package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// What is wrong with one queue stands in its row, and the others are shown.
func tellBadQueue(w *world) {
	w.send("mails", "a", inAnHour)
	w.send("orders", "a", inAnHour)
	q := check.Queue{Prefix: w.prefix, Name: "mails"}
	ok(w, w.cli.Del(w.Context(), q.Key("pending")).Err())
	ok(w, w.cli.Set(w.Context(), q.Key("pending"), "x", 0).Err())
	for _, args := range [][]string{{"stats"}, {"stats", "mails", "orders"}} {
		w.exits(exitFailed, args...).shows("WRONGTYPE", "orders        1").says(`queue "mails"`)
	}
	w.inOrder(w.exits(exitFailed, "stats", "--json").out, `{"queue":"mails","error":"`, "\n",
		`{"queue":"orders","pending":1,`)
	t := w.terminal("top")
	t.sees("WRONGTYPE")
	t.sees("no consumers")
	t.interrupted(0)
}

func tellOtherPrefix(w *world) {
	own := w.prefix
	w.send("only here", "a")
	w.prefix = own + "-other"
	w.send("mails", "a")
	w.refused(exitNotFound, `: the prefix "`+own+`" has one: did you mean --prefix `+own+`?`, "stats", "only here")
}

// More queues than lines: the header stays, keys scroll and sort, and it is said which rows are shown.
func tellManyQueues(w *world) {
	const n = 60
	for i := range n { // a verdict of one word or two, so each has one line
		w.send(fmt.Sprintf("queue%02d", i), "a", delayqueue.WithDelay(4*time.Minute))
	}
	w.send("queue59", "b", inAnHour)
	w.send("queue59", "c", inAnHour)
	w.columns, w.rows = 80, 24
	t := w.terminal("top")
	t.sees("rows 1 to 22 of 60, by worst")
	top := "queue00"
	if lines := strings.Split(t.screen.String(), "\n"); !strings.HasPrefix(lines[1], "queue") {
		w.Errorf("the first row is %q", lines[1])
	} else {
		top = lines[1][:len(top)]
	}
	t.types("j")
	t.sees("rows 2 to 23 of 60")
	w.lacks(t.screen.String(), top+" ")
	t.types("\x1b[6~\x1b[B\x1b[A")
	t.sees("rows 24 to 45 of 60")
	t.types("\x1b[F\x1b[B") // there is nothing behind the end
	t.sees("rows 39 to 60 of 60")
	t.types("\x1b[5~\x1b[H")
	t.sees("rows 1 to 22 of 60")
	t.types("ss")
	t.sees("by waits")
	if lines := strings.Split(t.screen.String(), "\n"); !strings.HasPrefix(lines[0], "QUEUE") ||
		!strings.HasPrefix(lines[1], "queue59") {
		w.Errorf("by waits:\n%s", t.screen.String())
	}
	t.types("q")
	t.ends(0)
}

// Keys that nobody takes, because Redis hangs, do not keep Ctrl-C from ending the board.
func TestKeysWhileRedisHangs(t *testing.T) {
	ended := 0
	keys := make(chan string, 2)
	handOut(strings.NewReader("jj\x1b[Bs\x03"), keys, func() { ended++ })
	equal(t, "ends", ended, 1)
	equal(t, "keys", len(keys), 2)
}

// What others chose is one word where a command to type is shown.
func tellQuoting(w *world) {
	evil := "x'; touch owned; '$(touch owned)"
	w.send(evil, "a", inAnHour)
	w.send(evil, "b", inAnHour)
	r := w.run("ls", evil, "pending", "--limit", "1", "--from", "-1h").
		says("delayqueue ls "+shellQuote(evil)+" pending", "--limit 1", "--prefix "+w.prefix, "--cursor ", "--from 20")
	w.lacks(r.err, "-1h")
}

// A node that hangs hides the queues of its own slots alone.
func TestClusterNodeThatHangs(t *testing.T) {
	w, c := partial(t)
	var queues []string
	for i := range 12 { // of each node some
		queues = append(queues, fmt.Sprintf("queue%02d", i))
		w.send(queues[i], "a", inAnHour)
	}
	c.Nodes[2].Pause()
	t.Cleanup(c.Nodes[2].Resume)
	shown := 0 // queues of the other nodes
	for _, queue := range queues {
		node, err := w.cli.(*redis.ClusterClient).MasterForKey(t.Context(),
			check.Queue{Prefix: w.prefix, Name: queue}.Key("state"))
		if ok(t, err); node.Options().Addr != c.Addrs()[2] {
			shown++
		}
	}
	if shown == 0 || shown == len(queues) {
		t.Fatalf("%d of %d queues are on the other nodes", shown, len(queues))
	}
	away := "node " + c.Addrs()[2]
	t.Run("all", func(t *testing.T) {
		r := w.at(t).exits(exitNoRedis, "stats").says(away)
		equal(t, "lines", strings.Count(r.out, "no consumers"), shown)
	})
	t.Run("named", func(t *testing.T) {
		r := w.at(t).exits(exitNoRedis, append([]string{"stats"}, queues...)...)
		equal(t, "lines", strings.Count(r.out, "no consumers"), shown)
		equal(t, "lines", strings.Count(r.out, "no answer"), len(queues)-shown)
	})
	t.Run("queues", func(t *testing.T) {
		r := w.at(t).exits(exitNoRedis, "queues").says("queues may be missing from the list: ", away)
		equal(t, "lines", strings.Count(r.out, "\n"), shown)
	})
}

// partial is a world on a Cluster of its own that serves also if a node is away.
func partial(t *testing.T) (*world, *redistest.Cluster) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	for _, node := range c.Nodes {
		ok(t, node.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	w := newWorld(t, clusterURL(c), c.Client(t))
	w.patience = hasty
	return w, c
}

// at is the same world in a test that runs beside its siblings.
func (w *world) at(t *testing.T) *world {
	t.Parallel()
	part := *w
	part.T = t
	return &part
}

// Who listens is told of what may have been missed.
func TestEventsSayGaps(t *testing.T) {
	w, s := ownServer(t)
	w.send("orders", "a", inAnHour)
	term := w.terminal("events", "orders")
	term.sees("Ctrl-C ends")
	s.Stop()
	s.Restart(t)
	term.sees("cut off from Redis until now; events may have been missed")
	term.interrupted(0)
}
