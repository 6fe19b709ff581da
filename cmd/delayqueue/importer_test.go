package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
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
	if k := w.counts("orders").Pending; k != importStep {
		w.Errorf("%d are stored", k)
	}
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
		if k := seen[fmt.Sprintf("%d task-%d", i, i)]; k != 1 {
			w.Errorf("%d is there %d times", i, k)
		}
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
	s := redistest.Start(t)
	w := newAsynqWorld(newWorld(t, "redis://"+s.Addr(), s.Client(t)))
	w.enqueue("t", "a", asynq.ProcessIn(time.Hour))
	w.send("orders", "makes the queue", delayqueue.WithDelay(time.Hour))
	im := w.importer("orders")
	w.cli.ConfigSet(t.Context(), "maxmemory", "1")
	scheduled := im.theirs.structures(time.Now())[1]
	page, err := im.page(w.Context(), scheduled, 0)
	ok(t, err)
	if n, err := im.claim(w.Context(), scheduled, page); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Error(n, err)
	}
	if i := w.info(); i.Scheduled != 1 {
		t.Errorf("%+v", i)
	}
	w.cli.ConfigSet(t.Context(), "maxmemory", "0")
	w.contains(w.must("import", w.name, "--from", "asynq", "--into", "orders", "--yes"), "moved 1 message of")
}

// What a server that died had in hand is moved a minute after the end of its lease, and not before.
func TestImportOfWhatServersLeftBehind(t *testing.T) {
	s := redistest.Start(t)
	w := newAsynqWorld(newWorld(t, "redis://"+s.Addr(), s.Client(t)))
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

// With --follow the import goes on with what is sent, until it is interrupted.
func TestImportFollows(t *testing.T) {
	s := redistest.Start(t)
	w := newAsynqWorld(newWorld(t, "redis://"+s.Addr(), s.Client(t)))
	w.enqueue("t", "a", asynq.ProcessIn(time.Hour))
	term := w.terminal("import", w.name, "--from", "asynq", "--into", "orders", "--follow")
	term.sees(`Move 1 message of asynq's queue`)
	term.types("y\r")
	for i := range int64(3) {
		w.until("it is moved", func() bool {
			n, err := w.monitor("orders").Counts(w.Context())
			return err == nil && n.Pending == i+1
		})
		w.enqueue("t", "more", asynq.ProcessIn(time.Hour))
	}
	w.until("the last is moved", func() bool { return w.counts("orders").Pending == 4 })
	term.types(ctrlC)
	term.ends(exitDone)
	w.sound("orders")
}

// Killed wherever it is, again and again: in the end each task was moved once.
func TestImportKilled(t *testing.T) {
	s := redistest.Start(t)
	w := newAsynqWorld(newWorld(t, "redis://"+s.Addr(), s.Client(t)))
	const n = 3000
	for i := range n {
		w.enqueue("t", fmt.Sprint(i), asynq.ProcessIn(time.Hour))
	}
	for moved := int64(0); moved < n/2; { // until so many have come
		cmd := w.command("import", w.name, "--from", "asynq", "--into", "orders", "--yes")
		ok(t, cmd.Start())
		w.until("it goes on", func() bool {
			c, err := w.monitor("orders").Counts(w.Context())
			return err == nil && c.Pending > moved
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		moved = w.counts("orders").Pending
	}
	w.must("import", w.name, "--from", "asynq", "--into", "orders", "--yes")
	seen := map[string]int{}
	for m, err := range w.monitor("orders").All(w.Context(), delayqueue.StatePending, ops.Filter{}) {
		ok(t, err)
		seen[m.Payload]++
	}
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			t.Errorf("%d is there %d times", i, seen[fmt.Sprint(i)])
		}
	}
	if i := w.info(); i.Size != 0 {
		t.Errorf("asynq has %+v", i)
	}
	w.sound("orders")
}
