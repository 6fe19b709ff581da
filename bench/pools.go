package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
)

// poolWorkers is how many workers the pools here share.
const poolWorkers = 16

// A member is one queue of a pool, and what the trial saw of it.
type member struct {
	queue   *delayqueue.DelayQueue
	weight  int
	atMost  int
	handled atomic.Int64
}

// members makes queues of these weights on a client. All of them have the same handler, which is told whose message it is.
func members(cli redis.UniversalClient, weights []int, handle func(ctx context.Context, m *member, msg *delayqueue.Message)) []*member {
	var all []*member
	for i, weight := range weights {
		m := &member{weight: weight}
		m.queue = delayqueue.NewQueue(fmt.Sprintf("bench%d", i), cli, nil).
			WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))).
			WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
				handle(ctx, m, msg)
				m.handled.Add(1)
				return nil
			})
		all = append(all, m)
	}
	return all
}

// newPool makes a pool of them. stop ends the running handlers' contexts and waits for its end.
func newPool(all []*member, strict bool) (stop func() error) {
	var shares []delayqueue.Share
	for _, m := range all {
		shares = append(shares, delayqueue.Share{Queue: m.queue, Weight: m.weight, AtMost: m.atMost})
	}
	pool := delayqueue.NewPool(poolWorkers, shares...)
	if strict {
		pool.Strict()
	}
	done := pool.StartConsume()
	return sync.OnceValue(func() error {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = pool.Shutdown(ended) // it says that ended has ended, and which handlers ran
		select {
		case <-done:
			return nil
		case <-time.After(patience):
			return fmt.Errorf("a pool has not ended in %v", patience)
		}
	})
}

// fillQueue sends n messages that are due.
func fillQueue(ctx context.Context, q *delayqueue.DelayQueue, n int) error {
	for ; n > 0; n -= batchSize {
		out := make([]delayqueue.Outgoing, min(n, batchSize))
		for i := range out {
			out[i].Payload = payload(i)
		}
		if _, err := q.SendBatch(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

// shares measures how three queues of weight 6, 3 and 1 share the workers while all have more to do, with handlers that take
// so long. Counted in messages.
func shares(handling, over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		cli := t.net.client()
		defer cli.Close()
		all := members(cli, []int{6, 3, 1}, func(ctx context.Context, _ *member, _ *delayqueue.Message) {
			if handling > 0 {
				time.Sleep(handling)
			}
		})
		perSecond := 40_000 // more than there can be
		if handling > 0 {
			perSecond = int(poolWorkers * time.Second / handling)
		}
		n := int(1.5 * float64(perSecond) * (over + time.Second).Seconds())
		for _, m := range all {
			if err := fillQueue(t.ctx, m.queue, n*m.weight/10+batchSize); err != nil {
				return err
			}
		}
		stop := newPool(all, false)
		defer stop()
		time.Sleep(time.Second)
		before := counts(all)
		time.Sleep(over)
		after := counts(all)
		if err := stop(); err != nil {
			return err
		}
		sum, f := 0.0, figures{}
		for i := range after {
			after[i] -= before[i]
			sum += after[i]
		}
		for i, m := range all {
			share := after[i] / sum
			f[offShare] = max(f[offShare], 100*math.Abs(share/(float64(m.weight)/10)-1))
		}
		f[rate] = sum / over.Seconds()
		t.report(t.what.name, t.what.kind, f)
		return nil
	}
}

func counts(all []*member) []float64 {
	var out []float64
	for _, m := range all {
		out = append(out, float64(m.handled.Load()))
	}
	return out
}

// preferred measures how late messages of a first queue are, 200 a second, beside a second one that has more than the
// workers can do: strict, or with a bound on the second, whose handlers then never end.
func preferred(strict bool, n int) func(t *trial) error {
	return func(t *trial) error {
		cli := t.net.client()
		defer cli.Close()
		late := make(chan float64, n)
		all := members(cli, []int{1, 1}, nil)
		first, second := all[0], all[1]
		first.queue.WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			late <- time.Since(msg.Due).Seconds() * 1000
			return nil
		})
		second.queue.WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
			if strict {
				time.Sleep(time.Millisecond)
			} else {
				<-ctx.Done()
			}
			second.handled.Add(1)
			return nil
		})
		backlog := poolWorkers * 10
		if strict {
			backlog = poolWorkers * 1000 * (n/200 + 3)
		} else {
			second.atMost = poolWorkers * 3 / 4
		}
		if err := fillQueue(t.ctx, second.queue, backlog); err != nil {
			return err
		}
		stop := newPool(all, strict)
		defer stop()
		time.Sleep(time.Second)
		before := second.handled.Load()
		begun := time.Now()
		for i := range n {
			if err := first.queue.SendScheduleMsg(payload(i), begun.Add(ahead+time.Duration(i)*5*time.Millisecond)); err != nil {
				return err
			}
		}
		var curve []float64
		for range n {
			select {
			case ms := <-late:
				curve = append(curve, ms)
			case <-time.After(patience):
				return fmt.Errorf("%d messages have not arrived in %v", n-len(curve), patience)
			}
		}
		slices.Sort(curve)
		f := figures{lateP50: quantile(curve, 0.5), lateP99: quantile(curve, 0.99), lateMax: quantile(curve, 1)}
		if strict {
			f[rate] = float64(second.handled.Load()-before) / time.Since(begun).Seconds()
		}
		t.report(t.what.name, t.what.kind, f)
		return stop()
	}
}

// idlePool measures what a pool of queues with nothing to do costs.
func idlePool(queues int, over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		cli := t.net.client()
		defer cli.Close()
		weights := make([]int, queues)
		for i := range weights {
			weights[i] = 1
		}
		stop := newPool(members(cli, weights, nil), false)
		defer stop()
		if err := t.standStill(over/3, over); err != nil {
			return err
		}
		return stop()
	}
}
