package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// What is wrong with one queue stands in its row, and the others are shown.
func tellBadQueue(w *world) {
	w.send("mails", "a", delayqueue.WithDelay(time.Hour))
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	q := check.Queue{Prefix: w.prefix, Name: "mails"}
	ok(w, w.cli.Del(w.Context(), q.Key("pending")).Err())
	ok(w, w.cli.Set(w.Context(), q.Key("pending"), "x", 0).Err())
	for _, args := range [][]string{{"stats"}, {"stats", "mails", "orders"}} {
		r := w.run(args...)
		if r.code == 0 || !strings.Contains(r.err, `queue "mails"`) {
			w.Errorf("%q: %+v", args, r)
		}
		w.contains(r.out, "WRONGTYPE", "orders        1")
	}
	r := w.run("stats", "--json")
	lines := decode[map[string]any](w, r.out)
	if r.code == 0 || len(lines) != 2 || lines[0]["error"] == nil || lines[1]["pending"] != 1.0 {
		w.Errorf("stats --json: %+v", r)
	}
	t := w.terminal("top")
	t.sees("WRONGTYPE")
	t.sees("no consumers")
	t.types(ctrlC)
	t.ends(0)
}

func tellOtherPrefix(w *world) {
	own := w.prefix
	w.send("orders", "a")
	w.prefix = own + "-other"
	w.send("mails", "a")
	w.refused(exitNotFound, `: the prefix "`+own+`" has one: did you mean --prefix `+own+`?`, "stats", "orders")
}

// More queues than lines: the header stays, and it is said how many are not shown.
func tellManyQueues(w *world) {
	const n = 60
	for i := range n {
		w.send(fmt.Sprintf("queue%02d", i), "a", delayqueue.WithDelay(time.Hour))
	}
	t := w.terminal("top")
	t.sees("more: name some")
	t.sees("QUEUE")
	t.sees("queue00")
	t.types(ctrlC)
	t.ends(0)
}

// What others chose is one word where a command to type is shown.
func tellQuoting(w *world) {
	evil := "x'; touch owned; '$(touch owned)"
	w.send(evil, "a", delayqueue.WithDelay(time.Hour))
	w.send(evil, "b", delayqueue.WithDelay(time.Hour))
	r := w.run("ls", evil, "pending", "--limit", "1", "--from", "-1h")
	w.contains(r.err, "delayqueue ls "+shellQuote(evil)+" pending", "--limit 1", "--prefix "+w.prefix, "--cursor ", "--from 20")
	if strings.Contains(r.err, "\x1b") || strings.Contains(r.err, "-1h") {
		w.Errorf("%q", r.err)
	}
}

// A node that hangs hides the queues of its own slots alone.
func TestClusterNodeThatHangs(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	w := newWorld(t, "redis+cluster://"+strings.Join(c.Addrs(), ","), c.Client(t))
	w.usual = true
	var queues []string
	for i := range 12 { // of each node some
		queues = append(queues, fmt.Sprintf("queue%02d", i))
		w.send(queues[i], "a", delayqueue.WithDelay(time.Hour))
	}
	for _, node := range c.Nodes {
		ok(t, node.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	c.Nodes[2].Pause()
	defer c.Nodes[2].Resume()
	r := w.run("stats")
	shown := strings.Count(r.out, "no consumers")
	if r.code != exitNoRedis || shown == 0 || shown == len(queues) || !strings.Contains(r.err, "node "+c.Addrs()[2]) {
		t.Errorf("%d queues, %+v", shown, r)
	}
	r = w.run(append([]string{"stats"}, queues...)...)
	if got := strings.Count(r.out, "no consumers"); r.code != exitNoRedis || got != shown ||
		strings.Count(r.out, "no answer") != len(queues)-shown {
		t.Errorf("%d queues, want %d: %+v", got, shown, r)
	}
	r = w.run("queues")
	if got := strings.Count(r.out, "\n"); r.code != exitNoRedis || got != shown || !strings.Contains(r.err, "node "+c.Addrs()[2]) {
		t.Errorf("%d queues, want %d: %+v", got, shown, r)
	}
}

// Who listens is told of what may have been missed.
func TestEventsSayGaps(t *testing.T) {
	s := redistest.Start(t)
	w := newWorld(t, "redis://"+s.Addr(), s.Client(t))
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	term := w.terminal("events", "orders")
	term.sees("Ctrl-C ends")
	s.Stop()
	s.Restart(t)
	term.sees("cut off from Redis until now; events may have been missed")
	term.types(ctrlC)
	term.ends(0)
}
