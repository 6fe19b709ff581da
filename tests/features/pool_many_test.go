package features

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestPoolOfManyQueues: many queues of a pool with one message each for one instant need no more than twice the
// scripts of queues that are started alone.
func TestPoolOfManyQueues(t *testing.T) {
	t.Parallel()
	queues := testkit.Size(200, 40)
	scripts := func(t *testing.T, start func([]*delayqueue.DelayQueue) (stop func(context.Context) error)) int64 {
		f := face.New(t)
		cli := f.Client()
		count := face.CountCalls(t, cli, script.FetchScript.SHA)
		var handled atomic.Int64
		var all []*delayqueue.DelayQueue
		for i := range queues {
			q := delayqueue.NewQueue(fmt.Sprint(f.Name, "-", i), cli, func(string) bool { handled.Add(1); return true })
			all = append(all, face.NoTick(q).WithLogger(slog.New(slog.DiscardHandler)))
			t.Cleanup(func() { f.Cli.Del(queuetest.CtxB, check.Queue{Prefix: "dq", Name: q.Name()}.Keys()...) })
		}
		stop := start(all)
		defer func() {
			f.Must(stop(queuetest.Within(t, queuetest.Patience)))
		}()
		queuetest.Eventually(t, "all wait for wake-ups", func() bool { return int(count.Load()) >= queues })
		for wait := 2 * time.Second; ; wait *= 2 { // until all were sent before the instant
			due := time.Now().Add(wait)
			for _, q := range all {
				f.Send(q, "x", delayqueue.WithDelay(max(time.Until(due), time.Millisecond)))
			}
			before, inTime := count.Load(), time.Now().Before(due)
			queuetest.Reaches(t, "all are handled", queues, func() int { return int(handled.Load()) })
			handled.Store(0)
			if inTime {
				return count.Load() - before
			}
		}
	}
	alone := scripts(t, func(all []*delayqueue.DelayQueue) func(context.Context) error {
		for _, q := range all {
			q.StartConsume()
		}
		return func(ctx context.Context) (err error) {
			for _, q := range all {
				q.StopConsume()
			}
			for _, q := range all {
				if e := q.Shutdown(ctx); e != nil {
					err = e
				}
			}
			return err
		}
	})
	together := scripts(t, func(all []*delayqueue.DelayQueue) func(context.Context) error {
		var shares []delayqueue.Share
		for _, q := range all {
			shares = append(shares, delayqueue.Share{Queue: q})
		}
		p := delayqueue.NewPool(16, shares...)
		p.StartConsume()
		return p.Shutdown
	})
	// Each queue needs one at least.
	if t.Logf("%d fetches by queues alone, %d in a pool", alone, together); together > 2*max(alone, int64(queues)) {
		t.Errorf("%d fetches in a pool, and %d by queues alone", together, alone)
	}
}
