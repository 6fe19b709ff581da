package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// over is a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestShutdownBesideStart: a run that Shutdown gave up on has been stopped. One that had not would
// take every message and release it, for ever.
func TestShutdownBesideStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(func(string) bool { return true })
	var wg sync.WaitGroup
	over, quit := over(), make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
					q.StartConsume()
				}
			}
		})
	}
	for range 300 {
		q.StartConsume()
		_ = q.Shutdown(over)
		if c := q.current(); c != nil && c.lifecycle.forceCtx.Err() != nil && !c.lifecycle.stopping() {
			t.Error("a consumer goes on whose workers have been sent away")
			break
		}
	}
	close(quit)
	wg.Wait()
}

// TestShutdownByAHandler: with the handler's own context, or one made of it, it cannot end.
func TestShutdownByAHandler(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(q *DelayQueue, ctx context.Context) error{
		"Shutdown": func(q *DelayQueue, ctx context.Context) error { return q.Shutdown(ctx) },
		"Shutdown, a context made of it": func(q *DelayQueue, ctx context.Context) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer cancel()
			return q.Shutdown(ctx)
		},
		"Run": func(q *DelayQueue, ctx context.Context) error { defer q.StopConsume(); return q.Run(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			other := f.queue(func(string) bool { return true })
			results := make(chan error, 2)
			q := f.queue(nil)
			q.WithHandler(func(ctx context.Context, _ *Message) error {
				other.StartConsume()
				results <- other.Shutdown(ctx)
				results <- call(q, ctx)
				return nil
			})
			done := q.StartConsume()
			f.send(q, "x")
			if err := receive(t, "another queue ends", results); err != nil {
				t.Errorf("of another queue: %v", err)
			}
			if err := receive(t, "it returns at once", results); err == nil || !strings.Contains(err.Error(), "one of its own handlers") {
				t.Errorf("of its own queue: %v", err)
			}
			receive(t, "consuming ends", done)
			f.checkEmpty()
		})
	}
}

// TestShutdownSaysWhatItWaitedFor, and a queue without messages is not waited for beyond the context.
func TestShutdownSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hung, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	cli := redis.NewClient(&redis.Options{Addr: hung.Addr().String()})
	defer cli.Close()
	began := time.Now()
	for range 12 {
		q := f.queueOn(cli, func(string) bool { return true }).WithLease(2 * time.Second)
		q.StartConsume()
		err := q.Shutdown(over())
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waiting for a fetch to be answered") {
			t.Errorf("Shutdown: %v", err)
		}
	}
	if took := time.Since(began); took >= 12*releaseTime {
		t.Errorf("12 queues took %v to stop", took)
	}
}

func TestShutdownWhoseContextEndsFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	causes := make(chan error, 2)
	started := make(chan struct{}, 2)
	q := f.queue(nil).WithConcurrent(2).WithHandler(func(ctx context.Context, _ *Message) error {
		started <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil // void: its message has been released
	})
	ids := []string{f.send(q, "a").ID, f.send(q, "b").ID}
	done := q.StartConsume()
	receive(t, "a handler runs", started)
	receive(t, "another handler runs", started)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := q.Shutdown(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "2 handlers were still running") {
		t.Errorf("Shutdown returned %v", err)
	}
	for range 2 {
		if cause := receive(t, "the handlers' contexts end", causes); !errors.Is(cause, ErrShutdown) {
			t.Errorf("cause %v, want ErrShutdown", cause)
		}
	}
	receive(t, "done closes", done)
	for _, id := range ids {
		if where := f.where(id); where != "ready" {
			t.Errorf("message %s is %s, want ready", id, where)
		}
		if record := f.check().Fail[id]; record.Delivery != 2 || record.Failures != 0 || record.Losses != 0 {
			t.Errorf("record of a released message: %+v", record)
		}
	}
}

func TestShutdownWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan struct{}), make(chan struct{})
	q := f.queue(func(string) bool { close(started); <-release; return true })
	f.send(q, "a")
	q.StartConsume()
	receive(t, "the handler runs", started)
	result := make(chan error)
	go func() { result <- q.Shutdown(context.Background()) }()
	close(release)
	if err := receive(t, "Shutdown returns", result); err != nil {
		t.Error(err)
	}
	f.checkEmpty()
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
			c.lifecycle.force()
			c.member.abandonAll()
		}
	}})
	q.mu.Lock()
	q.settings.compose(f.name)
	q.consumer = startConsumer(&q.producer, q.settings, func(freed signal) *member {
		q.workers.resize(1)
		return q.workers.join(freed, 1, 0, 0)
	})
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
