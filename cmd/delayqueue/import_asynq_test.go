package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqWorld is a queue that asynq's own code fills.
type asynqWorld struct {
	*world
	name string // of asynq's queue
	in   *asynq.Client
	look *asynq.Inspector
}

func newAsynqWorld(w *world) *asynqWorld {
	return &asynqWorld{w, w.prefix, asynq.NewClientFromRedisClient(w.cli), asynq.NewInspectorFromRedisClient(w.cli)}
}

func (w *asynqWorld) enqueue(kind, payload string, opts ...asynq.Option) string {
	w.Helper()
	info, err := w.in.Enqueue(asynq.NewTask(kind, []byte(payload)), append(opts, asynq.Queue(w.name))...)
	ok(w, err)
	return info.ID
}

// serve runs asynq's server until stop is called.
func (w *asynqWorld) serve(handle func(context.Context, *asynq.Task) error) (stop func()) {
	w.Helper()
	s := asynq.NewServerFromRedisClient(w.cli, asynq.Config{
		Concurrency: 2, Queues: map[string]int{w.name: 1}, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 10 * time.Millisecond,
		RetryDelayFunc:    func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	ok(w, s.Start(asynq.HandlerFunc(handle)))
	return s.Shutdown
}

func (w *asynqWorld) info() *asynq.QueueInfo {
	w.Helper()
	info, err := w.look.GetQueueInfo(w.name)
	ok(w, err)
	return info
}

// fail makes asynq's server fail tasks, and waits until they are where failures go.
func (w *asynqWorld) handleAll(fate map[string]error, there func(*asynq.QueueInfo) bool) {
	w.Helper()
	stop := w.serve(func(_ context.Context, t *asynq.Task) error { return fate[t.Type()] })
	w.until("asynq has handled them", func() bool { return there(w.info()) })
	stop()
}

func tellImportAsynq(world *world) {
	w := newAsynqWorld(world)
	w.refused(exitUsage, "from which library?", "import", w.name)
	w.refused(exitUsage, `did you mean "asynq"?`, "import", w.name, "--from", "async")
	w.refused(exitNotFound, "asynq has no queue", "import", w.name, "--from", "asynq")

	w.enqueue("fails", "a", asynq.MaxRetry(5), asynq.TaskID("retry-1"))
	w.enqueue("dies", "b", asynq.MaxRetry(0))
	w.enqueue("works", "c", asynq.Retention(time.Hour))
	boom := errors.New("boom")
	w.handleAll(map[string]error{"fails": boom, "dies": boom},
		func(i *asynq.QueueInfo) bool { return i.Retry == 1 && i.Archived == 1 && i.Completed == 1 })
	due := time.Now().Add(2 * time.Hour).Truncate(time.Second)
	until := due.Add(time.Hour)
	w.enqueue("order", `{"id":42}`)
	w.enqueue("bytes", "\xff\x00\n", asynq.ProcessAt(due), asynq.TaskID("order-7"), asynq.Timeout(90*time.Second),
		asynq.Deadline(until), asynq.Retention(time.Hour))
	w.enqueue("once", "d", asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour))
	w.enqueue("late", "e", asynq.Deadline(time.Now().Add(-time.Minute)))
	w.enqueue("grouped", "f", asynq.Group("g"))
	w.enqueue("grouped", "g", asynq.Group("g"), asynq.ProcessIn(time.Hour))
	ok(w, errOf(w.in.Enqueue(asynq.NewTaskWithHeaders("heads", nil, map[string]string{"tenant": "wile", "kind": "theirs"}),
		asynq.Queue(w.name))))

	left := "left 1: archived\nleft 1: completed\nleft 2: in a group\n"
	args := []string{"import", w.name, "--from", "asynq", "--into", "orders"}
	w.contains(w.must(append(args, "--dry-run")...), "would have moved 6 messages of asynq's queue "+w.name+
		" to queue orders\n"+left)
	w.refused(exitNotFound, "no queue", "stats", "orders")
	w.refused(exitUnconfirmed, `Move 7 messages of asynq's queue "`+w.name+`" to queue "orders"?`, args...)
	w.contains(w.must(append(args, "--yes")...), "moved 6 messages of asynq's queue "+w.name+" to queue orders\n"+left)
	w.contains(w.must(append(args, "--yes", "--json")...),
		`{"moved":0,"left":{"archived":1,"completed":1,"in a group":2}}`)
	if i := w.info(); i.Pending != 0 || i.Retry != 0 || i.Scheduled != 1 || i.Archived != 1 || i.Completed != 1 ||
		i.Aggregating != 1 {
		w.Errorf("asynq has %+v", i)
	}
	w.enqueue("once", "d", asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour)) // the lock is free
	w.moved("orders", due, until)
	w.sound("orders")
}

// moved looks at what came.
func (w *asynqWorld) moved(queue string, due, until time.Time) {
	w.Helper()
	get := func(key string) *ops.MessageStatus {
		m, err := w.monitor(queue).GetKey(w.Context(), key)
		ok(w, err)
		return m
	}
	m := get("order-7")
	if m.Payload != "\xff\x00\n" || !m.Due.Equal(due) || m.Timeout != 90*time.Second || !m.Deadline.Equal(until) ||
		m.Retention != time.Hour ||
		m.MaxRetries != 25 || m.Headers["kind"] != "bytes" {
		w.Errorf("%+v", m)
	}
	for m, err := range w.monitor(queue).All(w.Context(), delayqueue.StateReady,
		ops.Filter{Headers: map[string]string{"tenant": "wile"}}) {
		if err != nil || m.Headers["kind"] != "heads" || m.Headers["asynq-kind"] != "theirs" {
			w.Errorf("%+v, %v", m, err)
		}
	}
	if m = get("retry-1"); m.MaxRetries != 4 || time.Until(m.Due) < 50*time.Minute || m.Headers["kind"] != "fails" ||
		m.Timeout != 30*time.Minute {
		w.Errorf("%+v", m)
	}
}

// Two imports at once, while asynq's servers take what they can and its client sends: each task is handled by one of
// both.
func tellImportBesideServers(world *world) {
	const n = 600
	w := newAsynqWorld(world)
	handled := make(chan string, 2*n) // by either
	for i := range n {
		w.enqueue("t", fmt.Sprint(i), asynq.ProcessIn(time.Duration(i%3)*time.Second))
	}
	stop := w.serve(func(_ context.Context, t *asynq.Task) error {
		handled <- string(t.Payload())
		time.Sleep(time.Millisecond)
		return nil
	})
	defer stop()
	w.send("orders", "extra", inAnHour)
	w.consume("orders", func(_ context.Context, m *delayqueue.Message) error {
		handled <- m.Payload
		return nil
	})
	var imports sync.WaitGroup
	for range 2 {
		imports.Go(func() {
			if out, err := w.command("import", w.name, "--from", "asynq", "--into", "orders",
				"--yes").CombinedOutput(); err != nil {
				w.Errorf("%v: %s", err, out)
			}
		})
	}
	imports.Wait()
	once(w.world, handled, n, func(payload string) string { return payload })
	if left, err := w.cli.ZCard(w.Context(), "asynq:{"+w.name+"}:delayqueue:"+w.prefix+":orders").Result(); left != 0 ||
		err != nil {
		w.Errorf("%d on the way, %v", left, err)
	}
}

func tellImportRubbish(world *world) {
	w := newAsynqWorld(world)
	base := "asynq:{" + w.name + "}:"
	w.enqueue("good", "a", asynq.TaskID("taken"))
	w.enqueue("good", "b", asynq.ProcessIn(time.Hour))
	w.send("orders", "mine", delayqueue.WithKey("taken"), inAnHour)
	ctx := w.Context()
	w.cli.RPush(ctx, base+"pending", "no such task", "no hash", "no message", "other id") // the oldest
	w.cli.Set(ctx, base+"t:no hash", "x", 0)
	w.cli.HSet(ctx, base+"t:no message", "msg", "\xff\xff\xff")
	w.cli.HSet(ctx, base+"t:other id", "msg", "\x0a\x01x\x1a\x01y")
	w.cli.ZAddArgs(ctx, base+"retry", redis.ZAddArgs{Members: []redis.Z{{Score: -5, Member: "minus"}}})
	w.cli.HSet(ctx, base+"t:minus", "msg", "\x0a\x01x\x1a\x05minus")
	w.cli.ZAddArgs(ctx, base+"scheduled", redis.ZAddArgs{Members: []redis.Z{{Score: 1e300, Member: "far"}}})
	w.cli.HSet(ctx, base+"t:far", "msg", "\x0a\x01x\x1a\x03far")
	for range 2 {
		out := w.must("import", w.name, "--from", "asynq", "--into", "orders", "--yes")
		w.contains(out, "left 1: ids without a message\n", "left 5: unreadable\n")
	}
	equal(w, "pending", w.counts("orders").Pending, 2)
	if k, err := w.cli.LLen(ctx, base+"pending").Result(); k != 4 || err != nil {
		w.Error(k, err)
	}
	w.enqueue("good", "c", asynq.ProcessIn(time.Hour))
	w.cli.Del(ctx, base+"retry")
	w.cli.Set(ctx, base+"retry", "x", 0)
	w.refused(exitFailed, "WRONGTYPE", "import", w.name, "--from", "asynq", "--into", "orders", "--yes")
	w.cli.Del(ctx, base+"retry", base+"delayqueue")
	w.cli.Set(ctx, base+"delayqueue", "x", 0)
	w.refused(exitFailed, "WRONGTYPE", "import", w.name, "--from", "asynq", "--into", "orders", "--yes")
	w.cli.Del(ctx, base+"delayqueue") // and with it how far the numbers have come
	w.enqueue("good", "d", asynq.ProcessIn(time.Hour))
	w.must("import", w.name, "--from", "asynq", "--into", "orders", "--yes")
	equal(w, "pending", w.counts("orders").Pending, 4)
	w.sound("orders")
}
