package features

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestPoolStuckCallbacks: callbacks of one queue that never return take workers from that queue alone.
func TestPoolStuckCallbacks(t *testing.T) {
	t.Parallel()
	for _, atMost := range []int{0, 1} {
		t.Run(fmt.Sprint(atMost), func(t *testing.T) {
			fs, release, runs, got := poolFixture(t, 2), make(chan struct{}), atomic.Int64{}, make(chan string, 10)
			hangs := fs[0].Queue(func(string) bool { runs.Add(1); <-release; return true }).
				WithMaxConsumeDuration(time.Millisecond).WithNackRedeliveryDelay(time.Hour)
			other := fs[1].Queue(func(payload string) bool { got <- payload; return true })
			backlogIn(fs[0], hangs, 40)
			p := face.PoolOf(t, 4, delayqueue.Share{Queue: hangs, AtMost: atMost}, delayqueue.Share{Queue: other})
			p.StartConsume()
			want := 2 * int64(cmp.Or(atMost, 4))
			queuetest.Eventually(t, "nothing replaces them any more", func() bool {
				return fs[0].Log.Count("too many callbacks run on", "workers=0") == 1
			})
			for range 10 {
				fs[1].Send(other, "x")
				queuetest.Receive(t, "the other queue has a worker", got)
			}
			if n := runs.Load(); n != want {
				t.Errorf("%d run on, want %d", n, want)
			}
			close(release)
			queuetest.Eventually(t, "all of the first are handled, now that they return", func() bool {
				return runs.Load() == 40
			})
		})
	}
}

// TestPoolLimitedQueue: a queue that may not go on for now, because of its own limits or those of the whole queue, is
// not waited for.
func TestPoolLimitedQueue(t *testing.T) {
	t.Parallel()
	for name, limited := range map[string]func(q *delayqueue.DelayQueue){
		"fetch limit":       func(q *delayqueue.DelayQueue) { q.WithFetchLimit(1) },
		"bytes":             func(q *delayqueue.DelayQueue) { q.WithMaxInFlightBytes(1) },
		"queue concurrency": func(q *delayqueue.DelayQueue) { q.WithQueueConcurrency(1) },
		// On a starved machine a delivery may be given back before a worker has seen it; the rate has counted it.
		"rate": func(q *delayqueue.DelayQueue) { q.WithRateLimit(1, 20*time.Second, 1) },
		"ended context": func(q *delayqueue.DelayQueue) {
			ctx, cancel := context.WithCancel(context.Background())
			q.WithBaseContext(ctx).WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
				return func(ctx context.Context, msg *delayqueue.Message) error {
					cancel()
					return next(context.WithoutCancel(ctx), msg)
				}
			})
		},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", strict), func(t *testing.T) {
				t.Parallel()
				fs, started, release, got := poolFixture(t, 2), make(chan struct{}, 10), make(chan struct{}), make(chan string, 10)
				first := fs[0].Queue(func(string) bool { started <- struct{}{}; <-release; return true })
				second := fs[1].Queue(func(payload string) bool { got <- payload; return true })
				limited(first)
				const backlog = 3
				before := backlog
				if name == "ended context" { // a handler that starts before the context has ended is in time
					before = 1
				}
				backlogIn(fs[0], first, before)
				p := face.PoolOf(t, 3, delayqueue.Share{Queue: first, Weight: 100}, delayqueue.Share{Queue: second})
				if strict {
					p.Strict()
				}
				p.StartConsume()
				queuetest.Receive(t, "the first has what it may", started)
				backlogIn(fs[0], first, backlog-before)
				for range 10 {
					fs[1].Send(second, "x")
					queuetest.Receive(t, "the second goes on", got)
				}
				if n := len(started); n != 0 {
					t.Errorf("%d more of the first run", n)
				}
				p.StopConsume()
				close(release)
			})
		}
	}
}
