package delayqueue

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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
