package features

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestPoolRestart: a pool that was stopped starts anew, also while handlers of its former run have workers.
func TestPoolRestart(t *testing.T) {
	t.Parallel()
	fs, started, release := poolFixture(t, 2), make(chan string, 10), make(chan struct{})
	handle := func(payload string) bool {
		started <- payload
		if payload == "slow" {
			<-release
		}
		return true
	}
	a, b := fs[0].Queue(handle), fs[1].Queue(handle)
	p := face.PoolOf(t, 2, delayqueue.Share{Queue: a}, delayqueue.Share{Queue: b})
	p.StopConsume() // before the first start
	done := p.StartConsume()
	if p.StartConsume() != done {
		t.Error("a second start is another one")
	}
	fs[0].Send(a, "slow")
	queuetest.Receive(t, "it runs", started)
	p.StopConsume()
	p.StopConsume()
	again := p.StartConsume()
	for i, q := range []*delayqueue.DelayQueue{a, b, a, b} {
		fs[i%2].Send(q, "quick")
		if got := queuetest.Receive(t, "the other worker", started); got != "quick" {
			t.Errorf("it has %s", got)
		}
	}
	if conc.Closed(done) {
		t.Error("the first run has ended although a handler runs")
	}
	close(release)
	queuetest.Receive(t, "the first run ends", done)
	fs[0].Must(a.Shutdown(queuetest.WithTimeout(t))) // alone
	if p.StartConsume() != again || conc.Closed(again) {
		t.Error("a queue that stops ends the pool")
	}
	fs[1].Send(b, "quick")
	queuetest.Receive(t, "the other one goes on", started)
	b.StopConsume()
	queuetest.Receive(t, "all have stopped", again)
	p.StartConsume()
	fs[0].Send(a, "quick")
	queuetest.Receive(t, "the pool starts all of them", started)
}

// TestPoolIsLeft: when a pool has ended, its queues may go to another one, or be started alone. Then the old pool has
// no part in them.
func TestPoolIsLeft(t *testing.T) {
	t.Parallel()
	fs, started, release := poolFixture(t, 2), make(chan string, 10), make(chan struct{})
	handle := func(payload string) bool {
		started <- payload
		if payload == "slow" {
			<-release
		}
		return true
	}
	a, b := fs[0].Queue(handle), fs[1].Queue(handle)
	old := face.PoolOf(t, 2, delayqueue.Share{Queue: a}, delayqueue.Share{Queue: b})
	panics := func(what, want string, call func()) {
		t.Helper()
		if text := queuetest.PanicText(call); !strings.Contains(text, want) {
			t.Errorf("%s: it says %s", what, text)
		}
	}
	old.StartConsume()
	fs[0].Send(a, "slow")
	queuetest.Receive(t, "it runs", started)
	if err := old.Shutdown(queuetest.Over()); err == nil {
		t.Error("Shutdown says that no handler runs")
	}
	panics("while a handler runs", "is in another pool", func() { delayqueue.NewPool(1, delayqueue.Share{Queue: b}) })
	close(release)
	fs[0].Must(old.Shutdown(queuetest.WithTimeout(t)))
	panics("a wrong share", "must be at least 1", func() {
		delayqueue.NewPool(1, delayqueue.Share{Queue: a}, delayqueue.Share{Queue: b, Weight: -1})
	})
	old.StartConsume() // nobody has left it
	fs[0].Must(old.Shutdown(queuetest.WithTimeout(t)))
	face.PoolOf(t, 1, delayqueue.Share{Queue: a, Weight: 3}).StartConsume()
	b.StartConsume()
	panics("the old pool", "has left this Pool", func() { old.StartConsume() })
	fs[0].Must(old.Shutdown(queuetest.WithTimeout(t))) // stops nothing
	for i, q := range []*delayqueue.DelayQueue{a, b} {
		fs[i].Send(q, "quick")
		queuetest.Receive(t, "a handler runs", started)
	}
}

// TestPoolShutdown: it waits for all handlers, gives up when its context ends, and a handler cannot wait for itself.
func TestPoolShutdown(t *testing.T) {
	t.Parallel()
	fs, started, release, said := poolFixture(t, 3), make(chan struct{}), make(chan struct{}), make(chan error, 2)
	stuck := func(string) bool { started <- struct{}{}; <-release; return true }
	a, b, c := fs[0].Queue(stuck), fs[1].Queue(stuck), fs[2].Queue(nil)
	p := face.PoolOf(t, 3, delayqueue.Share{Queue: a}, delayqueue.Share{Queue: b}, delayqueue.Share{Queue: c})
	c.WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
		said <- p.Run(ctx)
		said <- p.Shutdown(ctx)
		return nil
	})
	p.StartConsume()
	sent := []*delayqueue.MessageInfo{fs[0].Send(a, "x"), fs[1].Send(b, "x")}
	queuetest.Receive(t, "one runs", started)
	queuetest.Receive(t, "two run", started)
	fs[2].Send(c, "x")
	for _, call := range []string{"Run", "Shutdown"} {
		if err := queuetest.Receive(t, "it says", said); err == nil ||
			!strings.Contains(err.Error(), call+": called by one of its own handlers") {
			t.Errorf("it says %v", err)
		}
	}
	err := p.Shutdown(queuetest.Over())
	for _, f := range fs[:2] {
		if want := fmt.Sprintf("delayqueue: queue %q: shutdown: 1 handlers were still running: ", f.Name); !errors.Is(err,
			context.Canceled) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, want %s", err, want)
		}
	}
	for i, info := range sent {
		queuetest.Eventually(t, "it is released", func() bool { return fs[i].Where(info.ID) == "ready" })
	}
	close(release)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- p.Run(ctx) }()
	queuetest.Receive(t, "one runs again", started)
	queuetest.Receive(t, "two run again", started)
	cancel()
	fs[0].Must(queuetest.Receive(t, "Run returns", ran))
	fs[0].CheckEmpty()
}

// TestPoolShutdownWithoutAServer: a queue whose server is away is not waited for beyond Shutdown's context, and the
// others end as if it were not there.
func TestPoolShutdownWithoutAServer(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	other, got := face.New(t), make(chan string, 1)
	handle := func(payload string) bool { got <- payload; return true }
	first, second := f.Queue(handle).WithLogger(slog.New(slog.DiscardHandler)), other.Queue(handle)
	p := face.PoolOf(t, 2, delayqueue.Share{Queue: first}, delayqueue.Share{Queue: second})
	p.StartConsume()
	f.Send(first, "x")
	queuetest.Receive(t, "the first works", got)
	other.Send(second, "x")
	queuetest.Receive(t, "it is handled", got)
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithCancel(context.Background())
	p.StopConsume()
	f.Must(second.Shutdown(queuetest.WithTimeout(t)))
	cancel()
	if err := p.Shutdown(ctx); err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), first.Name()) {
		t.Errorf("it says %v", err)
	}
}
