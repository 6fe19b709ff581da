package delayqueue

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestPoolOfManyQueues: many queues of a pool with one message each for one instant need no more than twice the scripts of queues
// that are started alone.
func TestPoolOfManyQueues(t *testing.T) {
	t.Parallel()
	const queues = 200
	scripts := func(t *testing.T, start func([]*DelayQueue) (stop func(context.Context) error)) int64 {
		f := newFixture(t)
		cli := f.client()
		var count atomic.Int64
		hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) > 1 && args[1] == fetchScript.sha {
				count.Add(1)
			}
			return next(ctx, cmd)
		}))
		var handled atomic.Int64
		var all []*DelayQueue
		for i := range queues {
			q := NewQueue(fmt.Sprint(f.name, "-", i), cli, func(string) bool { handled.Add(1); return true })
			q.store.attemptTimeout = time.Hour
			all = append(all, q.WithLogger(slog.New(slog.DiscardHandler)))
			t.Cleanup(func() {
				for _, key := range q.store.keys.all {
					f.cli.Del(ctxB, key.(string))
				}
			})
		}
		stop := start(all)
		defer func() {
			ctx, cancel := context.WithTimeout(ctxB, patience)
			defer cancel()
			f.must(stop(ctx))
		}()
		eventually(t, "all wait for wake-ups", func() bool { return int(count.Load()) >= queues })
		due := time.Now().Add(2 * time.Second)
		for _, q := range all {
			f.send(q, "x", WithDelay(time.Until(due)))
		}
		before := count.Load()
		reaches(t, "all are handled", queues, func() int { return int(handled.Load()) })
		return count.Load() - before
	}
	alone := scripts(t, func(all []*DelayQueue) func(context.Context) error {
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
	together := scripts(t, func(all []*DelayQueue) func(context.Context) error {
		var shares []Share
		for _, q := range all {
			shares = append(shares, Share{Queue: q})
		}
		p := NewPool(16, shares...)
		p.StartConsume()
		return p.Shutdown
	})
	// Each queue needs one at least: on a slow machine some are handled before the last is sent, and before fetches are counted.
	if t.Logf("%d fetches by queues alone, %d in a pool", alone, together); together > 2*max(alone, queues) {
		t.Errorf("%d fetches in a pool, and %d by queues alone", together, alone)
	}
}
