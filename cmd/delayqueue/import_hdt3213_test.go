package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// hdtWorld is a queue as hdt3213/delayqueue leaves it in Redis.
type hdtWorld struct {
	*world
	q *hdtQueue
}

func newHdtWorld(w *world, prefix string) *hdtWorld {
	return &hdtWorld{w, &hdtQueue{cli: w.cli, prefix: prefix, name: w.prefix, tagged: true}}
}

// put does what their SendScheduleMsgV2 does, but for the structure.
func (w *hdtWorld) put(payload string, again int, due time.Time) (id string) {
	w.Helper()
	id = uuid.NewString()
	ok(w, w.cli.Set(w.Context(), w.q.payload(id), payload, time.Until(due)+time.Hour).Err())
	ok(w, w.cli.HSet(w.Context(), w.q.base()+"retry:cnt", id, again).Err())
	return id
}

func (w *hdtWorld) pending(payload string, again int, due time.Time) string {
	id := w.put(payload, again, due)
	w.zadd("pending", id, due)
	return id
}

func (w *hdtWorld) zadd(name, id string, at time.Time) {
	w.Helper()
	ok(w, w.cli.ZAdd(w.Context(), w.q.base()+name, redis.Z{Score: float64(at.Unix()), Member: id}).Err())
}

func (w *hdtWorld) push(name, id string) {
	w.Helper()
	ok(w, w.cli.LPush(w.Context(), w.q.base()+name, id).Err())
}

// keys are those that are left of theirs.
func (w *hdtWorld) keys() (left []string) {
	w.Helper()
	s := search{pattern: "*:" + globEscape(w.q.name) + "}:*", found: func(key string) {
		if strings.Contains(key, "dp:"+w.q.name) || strings.Contains(key, w.q.prefix+":"+w.q.name+"}") &&
			w.q.prefix != w.prefix {
			left = append(left, key)
		}
	}}
	ok(w, s.run(w.Context(), w.cli))
	slices.Sort(left)
	return slices.Compact(left)
}

func tellImportHdt(world *world) {
	w := newHdtWorld(world, hdtPrefix)
	w.refused(exitNotFound, "there is no key dp:"+w.q.name, "import", w.q.name, "--from", "hdt3213")
	now := time.Now()
	due := now.Add(20 * time.Minute).Truncate(time.Second)
	w.pending("later", 3, due)
	w.pending("\xff\x00", 0, due.Add(time.Minute))
	w.push("ready", w.put("now", 2, now))
	w.push("retry", w.put("again", 1, now))
	w.zadd("unack", w.put("comes again", 2, now), now.Add(-time.Second))
	worn := w.put("worn", 0, now)
	w.zadd("unack", worn, now.Add(-time.Second))
	running := w.put("running", 1, now)
	w.zadd("unack", running, now.Add(time.Hour))
	w.push("ready", uuid.NewString()) // it has expired

	cmd := w.command("import", w.q.name, "--from", "hdt3213", "--yes")
	cmd.Args[len(cmd.Args)-1] = "dp" // the prefix
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != exitUsage ||
		!strings.Contains(string(out), "would be the same") {
		w.Errorf("into itself: %s", out)
	}
	args := []string{"import", w.q.name, "--from", "hdt3213", "--into", "orders"}
	left := "left 1: handed out, or waiting after a failure\nleft 1: ids without a message\nleft 1: without a retry left\n"
	w.contains(w.must(append(args, "--dry-run")...), "would have moved 5 messages of hdt3213's queue ", left)
	w.contains(w.must(append(args, "--yes")...), "moved 5 messages of hdt3213's queue "+w.q.name+" to queue orders\n"+left)
	w.contains(w.must(append(args, "--yes")...), "moved 0 messages", left)
	retries, dues := map[string]int{}, map[string]time.Time{}
	for _, state := range []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady} {
		for m, err := range w.monitor("orders").All(w.Context(), state, ops.Filter{}) {
			ok(w, err)
			retries[m.Payload], dues[m.Payload] = m.MaxRetries, m.Due
		}
	}
	equal(w, "retries", fmt.Sprint(retries), "map[again:1 comes again:1 later:3 now:2 \xff\x00:0]")
	if !dues["later"].Equal(due) || dues["now"].After(time.Now().Add(time.Second)) {
		w.Error(dues)
	}
	want := []string{w.q.base() + "delayqueue", w.q.payload(running), w.q.payload(worn), w.q.base() + "ready",
		w.q.base() + "retry:cnt", w.q.base() + "unack"}
	slices.Sort(want)
	equal(w, "what is left", w.keys(), want)
	w.sound("orders")
}

// Their payloads keep the prefix dp, also if the queue has another one.
func tellImportHdtPrefix(world *world) {
	w := newHdtWorld(world, "mine")
	due := time.Now().Add(time.Hour)
	for i := range 2*importStep + 10 {
		w.pending(fmt.Sprint(i), 3, due.Add(time.Duration(i)*time.Second))
	}
	w.refused(exitNotFound, "there is no key", "import", w.q.name, "--from", "hdt3213")
	w.refused(exitUsage, "name the queue of this library by --into", "import", "{order}", "--from", "hdt3213")
	w.refused(exitUsage, "go with --from hdt3213", "import", w.q.name, "--from", "asynq", "--from-prefix", "mine")
	w.contains(w.must("import", w.q.name, "--from", "hdt3213", "--from-prefix", "mine", "--yes"), "moved 410 messages of")
	equal(w, "pending", w.counts(w.q.name).Pending, 410)
	equal(w, "what is left", w.keys(), []string{w.q.base() + "delayqueue"})
	w.sound(w.q.name)
}

// A queue with hash tags and one without may have the same name.
func TestImportOfTwoQueues(t *testing.T) {
	w := newHdtWorld(onServer(t), hdtPrefix)
	due := time.Now().Add(time.Hour)
	w.pending("tagged", 3, due)
	w.q.tagged = false
	w.pending("plain", 3, due)
	args := []string{"import", w.q.name, "--from", "hdt3213", "--into", "orders", "--yes"}
	w.refused(exitUsage, "there are two such queues", args...)
	w.contains(w.must(append(args, "--hash-tag=false")...), "moved 1 message")
	w.contains(w.must(append(args, "--hash-tag")...), "moved 1 message")
	equal(t, "pending", w.counts("orders").Pending, 2)
}
