package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
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
	a, b := fs[0].queue(handle), fs[1].queue(handle)
	p := poolOf(t, 2, Share{Queue: a}, Share{Queue: b})
	p.StopConsume() // before the first start
	done := p.StartConsume()
	if p.StartConsume() != done {
		t.Error("a second start is another one")
	}
	fs[0].send(a, "slow")
	receive(t, "it runs", started)
	p.StopConsume()
	p.StopConsume()
	again := p.StartConsume()
	for i, q := range []*DelayQueue{a, b, a, b} {
		fs[i%2].send(q, "quick")
		if got := receive(t, "the other worker", started); got != "quick" {
			t.Errorf("it has %s", got)
		}
	}
	if closed(done) {
		t.Error("the first run has ended although a handler runs")
	}
	close(release)
	receive(t, "the first run ends", done)
	a.StopConsume() // alone
	receive(t, "it has stopped", a.current().lifecycle.done)
	if p.StartConsume() != again || closed(again) {
		t.Error("a queue that stops ends the pool")
	}
	fs[1].send(b, "quick")
	receive(t, "the other one goes on", started)
	b.StopConsume()
	receive(t, "all have stopped", again)
	p.StartConsume()
	fs[0].send(a, "quick")
	receive(t, "the pool starts all of them", started)
}

// TestPoolShutdown: it waits for all handlers, gives up when its context ends, and a handler cannot wait for itself.
func TestPoolShutdown(t *testing.T) {
	t.Parallel()
	fs, started, release, said := poolFixture(t, 3), make(chan struct{}), make(chan struct{}), make(chan error, 2)
	stuck := func(string) bool { started <- struct{}{}; <-release; return true }
	a, b, c := fs[0].queue(stuck), fs[1].queue(stuck), fs[2].queue(nil)
	p := poolOf(t, 3, Share{Queue: a}, Share{Queue: b}, Share{Queue: c})
	c.WithHandler(func(ctx context.Context, _ *Message) error {
		said <- p.Run(ctx)
		said <- p.Shutdown(ctx)
		return nil
	})
	p.StartConsume()
	sent := []*MessageInfo{fs[0].send(a, "x"), fs[1].send(b, "x")}
	receive(t, "one runs", started)
	receive(t, "two run", started)
	fs[2].send(c, "x")
	for _, call := range []string{"Run", "Shutdown"} {
		if err := receive(t, "it says", said); err == nil || !strings.Contains(err.Error(), call+": called by one of its own handlers") {
			t.Errorf("it says %v", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := p.Shutdown(ctx)
	for _, f := range fs[:2] {
		if want := fmt.Sprintf("delayqueue: queue %q: shutdown: 1 handlers were still running: ", f.name); !errors.Is(err, context.Canceled) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, want %s", err, want)
		}
	}
	for i, info := range sent {
		eventually(t, "it is released", func() bool { return fs[i].where(info.ID) == "ready" })
	}
	close(release)
	ctx, cancel = context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- p.Run(ctx) }()
	receive(t, "one runs again", started)
	receive(t, "two run again", started)
	cancel()
	if err := receive(t, "Run returns", ran); err != nil {
		t.Error(err)
	}
	fs[0].checkEmpty()
}

// TestPoolShutdownWithoutAServer: a queue whose server is away is not waited for beyond Shutdown's context, and the others
// end as if it were not there.
func TestPoolShutdownWithoutAServer(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	other, got := newFixture(t), make(chan string, 1)
	handle := func(payload string) bool { got <- payload; return true }
	first, second := f.queue(handle).WithLogger(slog.New(slog.DiscardHandler)), other.queue(handle)
	p := poolOf(t, 2, Share{Queue: first}, Share{Queue: second})
	p.StartConsume()
	f.send(first, "x")
	receive(t, "the first works", got)
	other.send(second, "x")
	receive(t, "it is handled", got)
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithCancel(context.Background())
	p.StopConsume()
	receive(t, "the second ends", second.current().lifecycle.done)
	cancel()
	if err := p.Shutdown(ctx); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), first.store.queue) {
		t.Errorf("it says %v", err)
	}
}

// TestPoolShutdownWaitsForFormerRuns: handlers of a run that a queue had alone are waited for, whether the pool has started or not.
func TestPoolShutdownWaitsForFormerRuns(t *testing.T) {
	t.Parallel()
	for _, starts := range []bool{false, true} {
		t.Run(fmt.Sprint(starts), func(t *testing.T) {
			f, started, release := newFixture(t), make(chan struct{}), make(chan struct{})
			q := f.queue(func(string) bool { started <- struct{}{}; <-release; return true })
			q.StartConsume()
			info := f.send(q, "x")
			receive(t, "it runs", started)
			q.StopConsume()
			p := poolOf(t, 1, Share{Queue: q})
			if starts {
				p.StartConsume()
				p.StopConsume()
				receive(t, "the pool's run ends", q.current().lifecycle.done)
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := p.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 handlers were still running") {
				t.Errorf("it says %v", err)
			}
			eventually(t, "it is released", func() bool { return f.where(info.ID) == "ready" })
			close(release)
		})
	}
}
