package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// settledDown checks the counts of a consumer that has ended and whose callbacks have returned:
// what is left over there stalls those that follow.
func settledDown(t *testing.T, c *consumer) {
	t.Helper()
	<-c.lifecycle.done
	eventually(t, "every count of the consumer is zero", func() bool {
		return c.workers.unhandled.Load() == 0 && c.workers.running.size() == 0 && c.leases.held.totals() == heldSums{} && len(c.leases.held.all()) == 0
	})
	slots := c.workers.slots
	slots.mu.Lock()
	defer slots.mu.Unlock()
	if slots.used != 0 || slots.stuck != 0 {
		t.Errorf("%d slots are in use, and %d callbacks stuck", slots.used, slots.stuck)
	}
}

func TestVoidSettlementAfterTheLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered, release := make(chan string, 2), make(chan struct{})
	q := f.queue(func(payload string) bool {
		entered <- payload
		if payload == "stuck" {
			<-release
		}
		return true
	}).WithMaxConsumeDuration(2 * time.Second)
	q.StartConsume()
	info := f.send(q, "stuck", WithRetryCount(0))
	receive(t, "it starts", entered)
	if r, err := q.Cancel(context.Background(), info.ID); err != nil || r.State != StateUnack {
		t.Fatalf("cancel: %+v, %v", r, err)
	}
	eventually(t, "its failure comes too late", func() bool { return f.log.count("came too late") == 1 })
	close(release)
	f.send(q, "next")
	if p := receive(t, "consuming goes on", entered); p != "next" {
		t.Errorf("handled %q", p)
	}
	q.StopConsume()
	settledDown(t, q.current())
}

func TestGoexitAfterTheLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered := make(chan string, 2)
	q := f.queue(nil).WithMaxConsumeDuration(50 * time.Millisecond).WithHandler(func(ctx context.Context, msg *Message) error {
		entered <- msg.Payload
		if msg.Payload == "exits" {
			<-ctx.Done()
			runtime.Goexit()
		}
		return nil
	})
	q.StartConsume()
	f.send(q, "exits", WithRetryCount(0))
	receive(t, "it starts", entered)
	f.send(q, "next")
	receive(t, "consuming goes on", entered)
	q.StopConsume()
	settledDown(t, q.current())
}

// TestPanicNil: where GODEBUG makes recover return nil for it, it is a failure all the same.
func TestPanicNil(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	for name, handler := range map[string]Handler{"handler": func(context.Context, *Message) error { panic(nil) }, "callback": nil} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			deaths := make(chan error, 1)
			q := f.queue(func(string) bool { panic(nil) }).
				WithGarbageHandler(func(_ context.Context, _ *Message, err error) { deaths <- err })
			if handler != nil {
				q.WithHandler(handler)
			}
			info := f.send(q, "x", WithRetryCount(0))
			q.StartConsume()
			eventually(t, "it is settled", func() bool { return f.where(info.ID) != "pending" && f.where(info.ID) != "unack" })
			if where := f.where(info.ID); where != "garbage" {
				t.Fatalf("the message is %s", where)
			}
			if err := receive(t, "its death is told", deaths); !errors.Is(err, ErrPanicked) {
				t.Errorf("it died of %v", err)
			}
		})
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

type panickyError struct{}

func (panickyError) Error() string { panic("in Error") }
func (panickyError) Is(error) bool { panic("in Is") }

// TestErrorsThatPanic: what a handler returns is the user's code as well.
func TestErrorsThatPanic(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deaths := make(chan string, 2)
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Payload == "typed nil" {
			var e *nilError
			return e
		}
		return panickyError{}
	}).WithGarbageHandler(func(_ context.Context, msg *Message, _ error) { deaths <- msg.Payload })
	q.StartConsume()
	for _, payload := range []string{"typed nil", "panics"} {
		f.send(q, payload, WithRetryCount(0))
		if p := receive(t, "it dies of a failure", deaths); p != payload {
			t.Errorf("%q died", p)
		}
	}
	q.StopConsume()
	settledDown(t, q.current())
}

// TestHooksThatEndTheirGoroutine: every function of the user's may be a t.Fatal.
func TestHooksThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handled, deaths := make(chan string, 4), make(chan string, 4)
	q := f.queue(func(payload string) bool { handled <- payload; return payload == "good" }).
		WithErrorHandler(func(context.Context, *Message, error) { runtime.Goexit() }).
		WithRetryDelayFunc(func(int, error, *Message) time.Duration { runtime.Goexit(); return 0 }).
		WithGarbageHandler(func(_ context.Context, msg *Message, _ error) { deaths <- msg.Payload; runtime.Goexit() })
	q.StartConsume()
	for _, payload := range []string{"bad", "worse"} {
		f.send(q, payload, WithRetryCount(0))
		receive(t, "it is handled", handled)
		receive(t, "its death is told", deaths)
	}
	retried := f.send(q, "retried", WithRetryCount(1))
	receive(t, "it is handled", handled)
	eventually(t, "it waits for the default delay", func() bool { return f.where(retried.ID) == "retry" })
	f.send(q, "good")
	if p := receive(t, "consuming goes on", handled); p != "good" {
		t.Errorf("handled %q", p)
	}
	q.StopConsume()
	settledDown(t, q.current())
}

// TestHooksOwnTheirMessage: what they do to it is their own affair.
func TestHooksOwnTheirMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	spoil := func(msg *Message) {
		msg.ID, msg.Key, msg.MaxRetries = "mine", "mine", 0
		if msg.Headers != nil {
			msg.Headers["mine"] = "mine"
		}
	}
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error { spoil(msg); return errBoom }).
		WithErrorHandler(func(_ context.Context, msg *Message, _ error) { spoil(msg) }).
		WithRetryDelayFunc(func(_ int, _ error, msg *Message) time.Duration { spoil(msg); return time.Hour })
	info := f.send(q, "x", WithRetryCount(5), WithKey("k"), WithHeader("h", "v"))
	q.StartConsume()
	eventually(t, "it waits for its retry", func() bool { return f.where(info.ID) == "retry" })
}

// TestSettledBeforeDone: a failure at the limit, while the queue stops, is settled before done closes.
func TestSettledBeforeDone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered, failing := make(chan struct{}), make(chan struct{})
	q := f.queue(nil).WithMaxConsumeDuration(100 * time.Millisecond).
		WithErrorHandler(func(context.Context, *Message, error) { close(failing); time.Sleep(200 * time.Millisecond) }).
		WithHandler(func(ctx context.Context, _ *Message) error { close(entered); <-ctx.Done(); return nil })
	info := f.send(q, "x", WithRetryCount(0))
	done := q.StartConsume()
	receive(t, "it starts", entered)
	q.StopConsume()
	receive(t, "it fails", failing)
	receive(t, "done closes", done)
	if where := f.where(info.ID); where != "garbage" {
		t.Errorf("done is closed, and the message is %s", where)
	}
}

// TestLostWhileItLeaves: the limit's timer fires just when the worker has left a lost delivery.
func TestLostWhileItLeaves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithMaxConsumeDuration(time.Hour).WithHandler(func(context.Context, *Message) error { return nil })
	q.StartConsume()
	c := q.current()
	d := &delivery{id: "x", tag: "x", number: 1}
	c.leases.held.add(d)
	c.workers.unhandled.Add(1)
	w := &worker{workers: &c.workers}
	c.leases.lose(d, ErrDeliveryLost)
	w.serve(d)
	if w.gone {
		t.Error("the worker was replaced")
	}
	c.workers.expire(context.Background(), d)
	if n := q.slots.stuck; n != 0 {
		t.Errorf("%d counted as abandoned", n)
	}
	q.StopConsume()
	settledDown(t, c)
}

// onDone runs code inside serve, between the context and the first look at the fate.
type onDone struct {
	context.Context
	f func()
}

func (c onDone) Done() <-chan struct{} { c.f(); return nil }

func TestShutdownWhileAHandlerIsAboutToStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var c *consumer
	var looks atomic.Int64 // the first is the consumer's own, at its start
	q := f.queue(nil).WithHandler(func(context.Context, *Message) error { t.Error("a handler started"); return nil })
	q.WithBaseContext(onDone{context.Background(), func() {
		if looks.Add(1) > 1 {
			c.stop()
			c.workers.abandonAll()
		}
	}})
	q.mu.Lock()
	q.settings.compose(f.name)
	q.consumer = startConsumer(q.store, q.settings, q.events, &q.slots)
	c = q.consumer
	q.mu.Unlock()
	info := f.send(q, "x")
	settledDown(t, c)
	if where := f.where(info.ID); where != "ready" {
		t.Errorf("the message is %s", where)
	}
}

func TestShutdownTellsOfLostDeliveries(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered, ended, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	q := f.queue(nil).WithLease(3 * time.Second).WithHandler(func(ctx context.Context, _ *Message) error {
		close(entered)
		<-ctx.Done()
		close(ended)
		<-release // goes on for long
		return nil
	})
	done := q.StartConsume()
	info := f.send(q, "x")
	receive(t, "it starts", entered)
	if _, err := q.Cancel(context.Background(), info.ID); err != nil {
		t.Fatal(err)
	}
	receive(t, "its context ends", ended)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := q.Shutdown(ctx); err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	receive(t, "done closes, though the handler runs on", done)
	close(release)
	settledDown(t, q.current())
}

// TestShutdownReleasesBeforeItReturns: a process may exit right after it.
func TestShutdownReleasesBeforeItReturns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 10 {
		entered, release := make(chan struct{}), make(chan struct{})
		q := f.queue(func(string) bool { close(entered); <-release; return true })
		info := f.send(q, "x")
		q.StartConsume()
		receive(t, "it starts", entered)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		begun := time.Now()
		if err := q.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		inTime := time.Since(begun) < releaseTime
		cancel()
		if where := f.where(info.ID); where != "ready" && inTime {
			t.Errorf("when Shutdown returned the message was %s", where)
		}
		close(release)
		eventually(t, "it is released", func() bool { return f.where(info.ID) == "ready" })
		if _, err := q.TryIntercept(info); err != nil {
			t.Fatal(err)
		}
		settledDown(t, q.current())
	}
}

func TestShutdownOfAStoppedQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(func(string) bool { return true })
	done := q.StartConsume()
	q.StopConsume()
	receive(t, "it stops", done)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 {
		if err := q.Shutdown(ctx); err != nil {
			t.Fatalf("Shutdown: %v", err)
		}
	}
}

// TestShutdownWaitsForEarlierRuns that were stopped and have not ended.
func TestShutdownWaitsForEarlierRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	q := f.queue(func(string) bool { entered <- struct{}{}; <-release; return true })
	first := q.StartConsume()
	f.send(q, "x")
	receive(t, "it starts", entered)
	q.StopConsume()
	q.StartConsume()
	result := make(chan error)
	go func() { result <- q.Shutdown(context.Background()) }()
	select {
	case err := <-result:
		t.Errorf("Shutdown returned %v with a handler of the earlier run at work", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	if err := receive(t, "Shutdown returns", result); err != nil {
		t.Error(err)
	}
	receive(t, "the earlier run has ended", first)
}

func TestShutdownDoesNotWaitForAGarbageHandler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	q := f.queue(func(string) bool { return false }).
		WithGarbageHandler(func(context.Context, *Message, error) { close(entered); <-release })
	done := q.StartConsume()
	f.send(q, "x", WithRetryCount(0))
	receive(t, "the garbage handler hangs", entered)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := q.Shutdown(ctx); err == nil {
		t.Error("Shutdown returned nil")
	}
	receive(t, "done closes", done)
}

// TestChaos: limits, short leases, interceptions and impatient shutdowns all at once.
func TestChaos(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const rounds, messages = 12, 60
	for round := range rounds {
		q := NewQueue(f.name, f.cli, nil).WithLogger(slog.New(slog.DiscardHandler)).WithConcurrent(8).
			WithLease(100 * time.Millisecond).WithMaxConsumeDuration(40 * time.Millisecond).WithNackRedeliveryDelay(time.Millisecond).
			WithHandler(func(ctx context.Context, _ *Message) error {
				if rand.IntN(2) == 0 {
					<-ctx.Done()
				} else {
					time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				}
				return nil
			})
		q.StartConsume()
		var infos []*MessageInfo
		for range messages {
			infos = append(infos, f.send(q, fmt.Sprint(round), WithRetryCount(2)))
		}
		for range messages / 2 {
			if _, err := q.Cancel(context.Background(), infos[rand.IntN(messages)].ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20))*time.Millisecond)
		_ = q.Shutdown(ctx)
		cancel()
		settledDown(t, q.current())
		f.check()
	}
}
