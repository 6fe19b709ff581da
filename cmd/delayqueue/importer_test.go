package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// importer is one that a test leads by the hand.
func (w *asynqWorld) importer(into string) *importer {
	im := &importer{
		cli: w.cli, from: "asynq", target: w.prefix + ":" + into, theirs: &asynqQueue{cli: w.cli, name: w.name},
		into: w.publisher(into), monitor: w.monitor(into), moved: func(int) {},
	}
	ok(w, im.begin(w.Context()))
	return im
}

// unsettled is a queue of which nothing can be deleted.
type unsettled struct{ foreignQueue }

func (unsettled) settle(context.Context, string, []claim) error { return errors.New("cut off") }

func tellImportCutOff(world *world) {
	w := newAsynqWorld(world)
	const n = 2*importStep + 50
	for i := range n {
		w.enqueue("t", fmt.Sprint(i), asynq.TaskID(fmt.Sprint("task-", i)), asynq.ProcessIn(time.Hour))
	}
	take := func(im *importer) {
		s := im.theirs.structures(time.Now())[1]
		page, err := im.page(w.Context(), s, 0)
		ok(w, err)
		if k, err := im.claim(w.Context(), s, page); err != nil || k != importStep {
			w.Fatal(k, err)
		}
		if k, err := im.claim(w.Context(), s, page); err != nil || k != 0 { // its reply was lost
			w.Fatal(k, err)
		}
	}
	// one is killed behind its claim, and one behind its send
	take(w.importer("orders"))
	im := w.importer("orders")
	im.theirs = unsettled{im.theirs}
	if err := im.forward(w.Context()); err == nil || im.Moved != importStep {
		w.Fatal(im.importResult, err)
	}
	equal(w, "stored", w.counts("orders").Pending, importStep)
	w.refused(exitRefused, `an import into queue "orders" (prefix "`+w.prefix+
		`") has 200 messages on the way: end it first, with --into orders --prefix `+w.prefix,
		"import", w.name, "--from", "asynq", "--into", "others", "--yes")
	// one stands still behind what it read, while another moves that
	slow := w.importer("orders")
	take(slow)
	out := w.must("import", w.name, "--from", "asynq", "--into", "orders", "--yes")
	w.contains(out, fmt.Sprintf("moved %d messages", n-importStep), "200 messages stored before")
	if err := slow.run(w.Context()); err != nil || slow.Moved != 0 {
		w.Error(slow.importResult, err)
	}
	seen := map[string]int{}
	for m, err := range w.monitor("orders").All(w.Context(), delayqueue.StatePending, ops.Filter{}) {
		ok(w, err)
		seen[m.Payload+" "+m.Key]++
	}
	for i := range n {
		equal(w, fmt.Sprint("times that message ", i, " is there"), seen[fmt.Sprintf("%d task-%d", i, i)], 1)
	}
	w.sound("orders")
}

// The command does not depend on what it imports from.
func TestReleasedWithoutAsynq(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil || strings.Contains(string(out), "hibiken") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A server that is full refuses to store, so nothing may be taken either.
func TestImportIntoFullServer(t *testing.T) {
	world, _ := ownServer(t)
	w := newAsynqWorld(world)
	w.enqueue("t", "a", asynq.ProcessIn(time.Hour))
	w.send("orders", "makes the queue", inAnHour)
	im := w.importer("orders")
	w.cli.ConfigSet(t.Context(), "maxmemory", "1")
	scheduled := im.theirs.structures(time.Now())[1]
	page, err := im.page(w.Context(), scheduled, 0)
	ok(t, err)
	if n, err := im.claim(w.Context(), scheduled, page); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Error(n, err)
	}
	equal(t, "scheduled", w.info().Scheduled, 1)
	w.cli.ConfigSet(t.Context(), "maxmemory", "0")
	w.contains(w.must("import", w.name, "--from", "asynq", "--into", "orders", "--yes"), "moved 1 message of")
}

// What a server that died had in hand is moved a minute after the end of its lease, and not before.
func TestImportOfWhatServersLeftBehind(t *testing.T) {
	w := newAsynqWorld(onServer(t))
	held, stay := make(chan struct{}), make(chan struct{})
	w.enqueue("t", "a")
	stop := w.serve(func(context.Context, *asynq.Task) error {
		close(held)
		<-stay
		return nil
	})
	<-held
	w.contains(w.must("import", w.name, "--from", "asynq", "--dry-run"), "would have moved 0 messages", "left 1: active")
	lease := "asynq:{" + w.name + "}:lease"
	w.until("it is moved", func() bool { // in the end between two heartbeats of the server, which renews the lease
		for _, id := range w.cli.ZRange(t.Context(), lease, 0, -1).Val() {
			w.cli.ZAdd(t.Context(), lease, redis.Z{Score: float64(time.Now().Add(-2 * asynqGrace).Unix()), Member: id})
		}
		return strings.Contains(w.must("import", w.name, "--from", "asynq", "--yes"), "moved 1 message of")
	})
	close(stay)
	stop()
	if i := w.info(); i.Size != 0 || w.cli.ZCard(t.Context(), lease).Val() != 0 {
		t.Errorf("%+v", i)
	}
}

// A bridge runs without a terminal, begins before there is a queue of theirs, and outlasts restarts of Redis.
func TestImportFollowsFromNothingOverRestarts(t *testing.T) {
	world, s := ownServer(t, "--appendonly", "yes", "--appendfsync", "always")
	world.hurried = true
	w := newHdtWorld(world, hdtPrefix)
	var said testkit.Buffer
	cmd := w.command("import", w.q.name, "--from", "hdt3213", "--into", "orders", "--follow")
	cmd.Stderr = &said
	ok(t, cmd.Start())
	t.Cleanup(func() {
		if _ = cmd.Process.Kill(); t.Failed() {
			t.Logf("it said:\n%s", &said)
		}
	})
	says := func(text string, times int) {
		t.Helper()
		w.until("it says "+text, func() bool { return strings.Count(said.String(), text) >= times })
	}
	says("waiting for it", 1)
	due := time.Now().Add(time.Hour)
	w.pending("first", 3, due)
	w.hasPending(1)
	for n := range 2 {
		s.Stop()
		says("waiting for Redis", n+1)
		s.Restart(t)
		w.pending("after a restart", 3, due)
		w.hasPending(int64(n) + 2)
		w.until("it is settled", func() bool { return len(w.keys()) == 1 }) // the numbers
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it is there
	ok(t, cmd.Wait())
	says("moved 1 message so far", 1)
	w.sound("orders")
}

// An import that takes hours says each outage of them.
func TestEachOutageOfAnImportIsTold(t *testing.T) {
	im := newAsynqWorld(onServer(t)).importer("orders")
	broken, calls := errors.New("broken"), 0
	var told []bool
	im.outage = func(_ error, first bool) bool {
		told = append(told, first)
		return len(told) < 3
	}
	err := im.outlast(t.Context(), func(context.Context) error {
		if calls++; calls == 2 {
			im.Moved++
		}
		return broken
	})
	if want := []bool{true, true, false}; err != broken || !slices.Equal(told, want) {
		t.Errorf("%v, told %v, want %v", err, told, want)
	}
}

// What another import has settled was not deleted by somebody.
func TestImportBesideAnother(t *testing.T) {
	w := newAsynqWorld(onServer(t))
	for i := range 20 {
		w.enqueue("t", fmt.Sprint(i), asynq.ProcessIn(time.Hour))
	}
	im := w.importer("orders")
	scheduled := im.theirs.structures(time.Now())[1]
	page, err := im.page(t.Context(), scheduled, 0)
	ok(t, err)
	ok(t, errOf(im.claim(t.Context(), scheduled, page)))
	slow := *im
	slow.theirs = &beforeLoad{foreignQueue: im.theirs, call: func() { ok(t, im.run(t.Context())) }}
	ok(t, slow.forward(t.Context()))
	if im.Moved != 20 || slow.Gone != 0 || slow.Repeated != 20 {
		t.Errorf("moved %d; the other one: %+v", im.Moved, slow.importResult)
	}
	w.sound("orders")
}

// beforeLoad is a queue that somebody changes between what is read of the claims and of their messages.
type beforeLoad struct {
	foreignQueue
	call func()
}

func (b *beforeLoad) load(ctx context.Context, now time.Time, claims []claim) ([]foreignMessage, error) {
	if call := b.call; call != nil {
		b.call = nil
		call()
	}
	return b.foreignQueue.load(ctx, now, claims)
}

// A task of asynq.Unique that has its lock keeps it as a key: what old senders send meanwhile is one with it.
func TestImportOfUniqueTasks(t *testing.T) {
	w := newAsynqWorld(onServer(t))
	into := func(want int64, text string) {
		t.Helper()
		w.contains(w.must("import", w.name, "--from", "asynq", "--into", "orders", "--yes"), text)
		equal(t, "pending", w.counts("orders").Pending, want)
	}
	unique := []asynq.Option{asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour)}
	w.enqueue("rebuild", "a", unique...)
	into(1, "moved 1 message of")
	w.enqueue("rebuild", "a", unique...)
	into(1, "1 message dropped: a message with the same key was there")
	w.enqueue("rebuild", "b", unique...)
	w.enqueue("purge", "a", unique...)
	into(3, "moved 2 messages of")
	// the lock of one is over, so it is not unique any more
	w.enqueue("rebuild", "c", unique...)
	for _, lock := range w.cli.Keys(t.Context(), "asynq:{"+w.name+"}:unique:*").Val() {
		w.cli.Del(t.Context(), lock)
	}
	w.enqueue("rebuild", "c", unique...)
	into(5, "moved 2 messages of")
	w.sound("orders")
}
