package delayqueue

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
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

// TestStartAndStopFromEverywhere: from many goroutines and from handlers; after that the queue
// consumes as ever, and stops.
func TestStartAndStopFromEverywhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var q *DelayQueue
	act := func(ctx context.Context) {
		switch rand.N(6) {
		case 0, 1:
			q.StartConsume()
		case 2:
			q.StopConsume()
		case 3:
			short, cancel := context.WithTimeout(ctx, rand.N(3*time.Millisecond))
			defer cancel()
			_ = q.Shutdown(short)
		case 4:
			short, cancel := context.WithTimeout(ctx, rand.N(3*time.Millisecond))
			defer cancel()
			_ = q.Run(short)
		}
	}
	var now, most atomic.Int64
	q = f.queue(nil).WithConcurrent(3).WithHandler(func(ctx context.Context, _ *Message) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		act(ctx)
		return nil
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 40 {
				act(context.Background())
			}
		})
	}
	const n = 300
	for i := range n {
		f.send(q, strconv.Itoa(i), WithRetryCount(1000))
	}
	wg.Wait()
	reaches(t, "all are handled", 0, func() int {
		q.StartConsume() // a handler may have stopped it
		return -len(f.check().Messages)
	})
	if n := most.Load(); n > 6 {
		t.Errorf("%d handlers at a time", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := q.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	settledDown(t, q.current())
}

// TestConcurrencyIsTheQueues: runs that follow each other share the workers.
func TestConcurrencyIsTheQueues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.queue(func(payload string) bool { started <- payload; <-release; return true }).WithConcurrent(2)
	for i := range 6 {
		f.send(q, strconv.Itoa(i))
	}
	q.StartConsume()
	receive(t, "one handler runs", started)
	receive(t, "and another", started)
	consumers := []*consumer{q.current()}
	for range 5 {
		q.StopConsume()
		q.StartConsume()
		consumers = append(consumers, q.current())
		seen := f.check().Fields["seen"]
		eventually(t, "the new consumer polls", func() bool { return f.check().Fields["seen"] != seen })
	}
	if state := f.check(); len(started) > 0 || len(state.Unack) != 2 {
		t.Errorf("%d more handlers started, %d messages are handed out, want 2", len(started), len(state.Unack))
	}
	close(release)
	for range 4 {
		receive(t, "the last consumer has the workers that the first one leaves", started)
	}
	for _, c := range consumers[:5] {
		receive(t, "each consumer but the last ends", c.lifecycle.done)
	}
	q.StopConsume()
	settledDown(t, q.current())
}

// TestStuckCallbacks: one that runs on past its limit has a successor, until as many run on as there
// are workers; the log says of each, and when that is reached.
func TestStuckCallbacks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.queue(func(payload string) bool {
		started <- payload
		if payload == "stuck" {
			<-release
		}
		return true
	}).WithMaxConsumeDuration(20 * time.Millisecond).WithFetchInterval(100 * time.Millisecond)
	q.StartConsume()
	const replaced, bound = "another worker takes its place", "too many callbacks run on"
	var quick *MessageInfo
	for i := range 2 {
		stuck := f.send(q, "stuck", WithRetryCount(0))
		receive(t, "it starts", started)
		eventually(t, "it is told", func() bool { return f.log.count(replaced, stuck.ID) == 1 })
		if i == 0 {
			quick = f.send(q, "quick", WithRetryCount(0))
			receive(t, "its successor goes on", started)
		}
	}
	// On a machine that stands still the quick one runs past its limit as well, and reaches the bound.
	eventually(t, "the bound is told", func() bool { return f.log.count(bound) == 1+f.log.count(replaced, quick.ID) })
	waiting := f.send(q, "quick")
	for range 2 {
		seen := f.check().Fields["seen"]
		eventually(t, "the consumer ticks", func() bool { return f.check().Fields["seen"] != seen })
	}
	if where := f.where(waiting.ID); where != "pending" {
		t.Errorf("with two callbacks of one worker running on, the message is %s", where)
	}
	close(release)
	receive(t, "consuming goes on when they return", started)
	q.StopConsume()
	settledDown(t, q.current())
}

// TestMiddlewareThatCallsItsQueue: constructors are the user's code, and may call anything.
func TestMiddlewareThatCallsItsQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started := make(chan string, 1)
	q := f.queue(func(payload string) bool { started <- payload; return true })
	q.WithMiddleware(func(next Handler) Handler {
		q.StopConsume()
		q.WithConcurrent(2)
		if err := q.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		return next
	})
	result := make(chan struct{})
	go func() { q.StartConsume(); close(result) }()
	receive(t, "StartConsume returns", result)
	f.send(q, "x")
	receive(t, "it consumes", started)
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

// nobody is a client that no server answers.
func nobody(t *testing.T) redis.UniversalClient {
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// TestStopsWithoutRedis: a queue that holds nothing does not wait for Redis to come back, and what
// Shutdown waited for is in its error.
func TestStopsWithoutRedis(t *testing.T) {
	t.Parallel()
	queue := func() *DelayQueue {
		q := NewQueue("away", nobody(t), func(string) bool { return true }).WithLease(time.Hour).WithLogger(slog.New(slog.DiscardHandler))
		q.StartConsume()
		eventually(t, "it notices", func() bool { return q.current().lifecycle.outage.cause() != nil })
		return q
	}
	if err := queue().Shutdown(context.Background()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	q := queue()
	done := q.StartConsume()
	q.StopConsume()
	receive(t, "done closes long before the lease is over", done)
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

// TestDrain: after a stop, calls to Redis go on while handlers run, and for a lease after each answer.
func TestDrain(t *testing.T) {
	handling := true
	l := newLifecycle(time.Hour, slog.Default(), func() bool { return handling })
	defer l.force()
	if l.stopping() || l.redisCtx.Err() != nil {
		t.Error("it stops at its start")
	}
	l.stop()
	l.stop()
	if !l.stopping() || l.redisCtx.Err() != nil {
		t.Error("calls end with the stop")
	}
	l.redisDeadline.set(time.Now().Add(-time.Second))
	if l.drained(); l.redisCtx.Err() != nil {
		t.Error("calls end while a handler runs")
	}
	handling = false
	l.extendDrain()
	if l.drained(); l.redisCtx.Err() != nil {
		t.Error("calls end within a lease of an answer")
	}
	l.redisDeadline.set(time.Now().Add(-time.Second))
	if l.drained(); l.redisCtx.Err() == nil {
		t.Error("calls go on for longer than a lease")
	}
	l.drainTimer.Stop()
}
