package features

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestStartAndStopFromEverywhere: from many goroutines and from handlers; after that the queue
// consumes as ever, and stops.
func TestStartAndStopFromEverywhere(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var q *delayqueue.DelayQueue
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
	q = f.Queue(nil).WithConcurrent(3).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
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
		f.Send(q, strconv.Itoa(i), delayqueue.WithRetryCount(1000))
	}
	wg.Wait()
	queuetest.Reaches(t, "all are handled", 0, func() int {
		q.StartConsume() // a handler may have stopped it
		return -len(f.Check().Messages)
	})
	if n := most.Load(); n > 6 {
		t.Errorf("%d handlers at a time", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), queuetest.Patience)
	defer cancel()
	if err := q.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// TestConcurrencyIsTheQueues: runs that follow each other share the workers.
func TestConcurrencyIsTheQueues(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.Queue(func(payload string) bool { started <- payload; <-release; return true }).WithConcurrent(2)
	for i := range 6 {
		f.Send(q, strconv.Itoa(i))
	}
	runs := []<-chan struct{}{q.StartConsume()}
	queuetest.Receive(t, "one handler runs", started)
	queuetest.Receive(t, "and another", started)
	for range 5 {
		q.StopConsume()
		runs = append(runs, q.StartConsume())
		seen := f.Check().Fields["seen"]
		queuetest.Eventually(t, "the new consumer polls", func() bool { return f.Check().Fields["seen"] != seen })
	}
	if state := f.Check(); len(started) > 0 || len(state.Unack) != 2 {
		t.Errorf("%d more handlers started, %d messages are handed out, want 2", len(started), len(state.Unack))
	}
	close(release)
	for range 4 {
		queuetest.Receive(t, "the last consumer has the workers that the first one leaves", started)
	}
	for _, done := range runs[:5] {
		queuetest.Receive(t, "each consumer but the last ends", done)
	}
}
