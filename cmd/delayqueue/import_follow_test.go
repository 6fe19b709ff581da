package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/hibiken/asynq"
)

// A bridge runs without a terminal, begins before there is a queue of theirs, and outlasts restarts of Redis.
func TestImportFollowsFromNothingOverRestarts(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	w := newHdtWorld(newWorld(t, "redis://"+s.Addr(), s.Client(t)), hdtPrefix)
	cmd := w.command("import", w.q.name, "--from", "hdt3213", "--into", "orders", "--follow")
	said := filepath.Join(t.TempDir(), "said")
	file, err := os.Create(said)
	ok(t, err)
	defer file.Close()
	cmd.Stderr = file
	ok(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // in case that the test failed
	says := func(text string, times int) {
		t.Helper()
		w.until("it says "+text, func() bool {
			all, _ := os.ReadFile(said) // it was created above
			return strings.Count(string(all), text) >= times
		})
	}
	says("waiting for it", 1)
	due := time.Now().Add(time.Hour)
	w.q.tagged = true
	w.pending("first", 3, due)
	moved := func(n int64) {
		w.until(fmt.Sprint(n, " are moved"), func() bool {
			c, err := w.monitor("orders").Counts(w.Context())
			return err == nil && c.Pending == n
		})
	}
	moved(1)
	for n := int64(2); n < 4; n++ {
		s.Stop()
		says("waiting for Redis", int(n)-1)
		s.Restart(t)
		w.pending("after a restart", 3, due)
		moved(n)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it is there
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	says("moved 1 message so far", 1)
	w.sound("orders")
}

// What another import has settled was not deleted by somebody.
func TestImportBesideAnother(t *testing.T) {
	s := redistest.Start(t)
	world := newWorld(t, "redis://"+s.Addr(), s.Client(t))
	asynqs, hdts := newAsynqWorld(world), newHdtWorld(world, hdtPrefix)
	for i := range 20 {
		asynqs.enqueue("t", fmt.Sprint(i), asynq.ProcessIn(time.Hour))
		hdts.pending(fmt.Sprint(i), 3, time.Now().Add(time.Hour))
	}
	hdt := asynqs.importer("orders")
	hdt.from, hdt.theirs = "hdt3213", hdts.q
	for _, im := range []*importer{asynqs.importer("orders"), hdt} {
		slow := *im
		slow.theirs = &beforeLoad{foreignQueue: im.theirs, call: func() {
			if err := im.run(t.Context()); err != nil {
				t.Error(err)
			}
		}}
		pending := im.theirs.structures(time.Now())
		for _, s := range pending {
			page, err := im.page(t.Context(), s, 0)
			ok(t, err)
			if len(page) > 0 {
				ok(t, errOf(im.claim(t.Context(), s, page)))
			}
		}
		ok(t, slow.forward(t.Context()))
		if im.Moved != 20 || slow.Gone != 0 || slow.Repeated != 20 {
			t.Errorf("%s: moved %d; the other one: %+v", im.from, im.Moved, slow.importResult)
		}
	}
	world.sound("orders")
}

// beforeLoad is a queue that somebody changes between what is read of the claims and of their messages.
type beforeLoad struct {
	foreignQueue
	call func()
}

func (b *beforeLoad) load(ctx context.Context, now time.Time, claims []claim) ([]foreignMessage, error) {
	if b.call != nil {
		call := b.call
		b.call = nil
		call()
	}
	return b.foreignQueue.load(ctx, now, claims)
}

// A task of asynq.Unique that has its lock keeps it as a key: what old senders send meanwhile is one with it.
func TestImportOfUniqueTasks(t *testing.T) {
	s := redistest.Start(t)
	w := newAsynqWorld(newWorld(t, "redis://"+s.Addr(), s.Client(t)))
	into := func(want int64, text string) {
		t.Helper()
		w.contains(w.must("import", w.name, "--from", "asynq", "--into", "orders", "--yes"), text)
		if n := w.counts("orders"); n.Pending != want {
			t.Errorf("%d are stored, want %d", n.Pending, want)
		}
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
	for _, lock := range w.cli.Keys(t.Context(), "asynq:*:unique:*").Val() {
		w.cli.Del(t.Context(), lock)
	}
	w.enqueue("rebuild", "c", unique...)
	into(5, "moved 2 messages of")
	w.sound("orders")
}

// An import respects a key that an acked message holds: what has it is dropped, as what has the key of a live message.
func TestImportRespectsKeyHolds(t *testing.T) {
	s := redistest.Start(t)
	w := newAsynqWorld(newWorld(t, "redis://"+s.Addr(), s.Client(t)))
	imported := func(text string) {
		t.Helper()
		w.enqueue("pay", "a", asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour))
		w.contains(w.must("import", w.name, "--from", "asynq", "--into", "orders", "--yes"), text)
	}
	imported("moved 1 message of")
	page, err := w.monitor("orders").List(t.Context(), delayqueue.StatePending, ops.Filter{}, "")
	if err != nil || len(page.Messages) != 1 || page.Messages[0].Key == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	key := page.Messages[0].Key
	w.must("cancel", "orders", page.Messages[0].ID, "--yes")

	paid := make(chan string, 1)
	w.send("orders", "paid", delayqueue.WithKey(key), delayqueue.WithKeyHold(time.Hour))
	w.consume("orders", func(_ context.Context, m *delayqueue.Message) error {
		paid <- m.Payload
		return nil
	})
	if got := <-paid; got != "paid" {
		t.Errorf("handled %q", got)
	}
	w.until("it is acked, and the key is held", func() bool {
		return errors.As(errOf(w.monitor("orders").GetKey(t.Context(), key)), new(*ops.KeyHeldError))
	})
	imported("1 message dropped: a message with the same key was there")
	if n := w.counts("orders"); n.Pending != 0 {
		t.Errorf("%+v", n)
	}
	w.sound("orders")
}
