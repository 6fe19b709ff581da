package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	batchSize = 500
	senders   = 64
	patience  = 3 * time.Minute // for messages to arrive
)

// hourly is a message that stays pending.
func hourly(payload string) message { return message{payload: payload, delay: time.Hour} }

// sendAll sends n messages, one by one, from so many goroutines.
func (t *trial) sendAll(goroutines, n int, make func(i int) message) error {
	return eachOf(t.ctx, goroutines, func(i int) (bool, error) {
		if i >= n {
			return false, nil
		}
		return true, t.sys.send(t.ctx, make(i))
	})
}

// eachOf has so many goroutines call do with 0, 1, and so on, until it says that there is no more, or fails.
func eachOf(ctx context.Context, goroutines int, do func(i int) (more bool, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				more, err := do(int(next.Add(1)) - 1)
				if err != nil {
					cancel(err)
				}
				if !more {
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// warm opens the client's connections and loads its scripts. It notes how long a send takes here.
func (t *trial) warm(goroutines int) error {
	n, begun := 20*goroutines, time.Now()
	if err := t.sendAll(goroutines, n, func(i int) message { return hourly(payload(i)) }); err != nil {
		return err
	}
	t.pace = time.Since(begun) / time.Duration(n)
	return t.admin.FlushAll(t.ctx).Err()
}

// sendSingly measures single sends, due in an hour.
func sendSingly(goroutines, n int) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(goroutines); err != nil {
			return err
		}
		texts := payloads(t.size(n))
		return t.timed(t.what.name, len(texts), func() error {
			return t.sendAll(goroutines, len(texts), func(i int) message { return hourly(texts[i]) })
		})
	}
}

// sendBatches measures batches, due in an hour, over so many lanes; 0: without lanes.
func sendBatches(n, lanes int) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(1); err != nil {
			return err
		}
		next := 0
		batches := batchesOf(t.size(n), func(payload string) message {
			next++
			return message{payload: payload, delay: time.Hour, lane: laneOf(next, lanes)}
		})
		return t.timed(t.what.name, len(batches)*batchSize, func() error { return t.sendEach(batches) })
	}
}

// batchesOf makes n messages in batches.
func batchesOf(n int, of func(payload string) message) [][]message {
	var batches [][]message
	for i := 0; i < n; i += batchSize {
		batch := make([]message, batchSize)
		for j := range batch {
			batch[j] = of(payload(i + j))
		}
		batches = append(batches, batch)
	}
	return batches
}

func (t *trial) sendEach(batches [][]message) error {
	for _, batch := range batches {
		if err := t.sys.sendBatch(t.ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// timed reports what work on n messages costs.
func (t *trial) timed(name string, n int, work func() error) error {
	c, err := t.meter.of(t.ctx, work)
	if err != nil {
		return err
	}
	f := c.per(n)
	f[rate] = float64(n) / c.wall.Seconds()
	t.report(name, t.what.kind, f)
	return nil
}

// laneOf is the lane of the ith message, of so many; "" if there are none.
func laneOf(i, lanes int) string {
	if lanes == 0 {
		return ""
	}
	return fmt.Sprint("customer-", i%lanes)
}

// drain measures a backlog of due messages that is handled by one consumer, over so many lanes; 0: without lanes.
func drain(workers, n, lanes int) func(t *trial) error {
	return func(t *trial) error {
		f, err := t.drainDue(workers, t.size(n), 0, lanes)
		if err == nil {
			t.report(t.what.name, t.what.kind, f)
		}
		return err
	}
}

// drainDue fills in n messages that are due, and measures how they are handled. Others,
// not due, stay behind.
func (t *trial) drainDue(workers, n int, others int64, lanes int) (figures, error) {
	if err := t.fill(n, func(i int) message { return message{payload: payload(i), lane: laneOf(i, lanes)} }); err != nil {
		return nil, err
	}
	seen := newTally(n)
	var took time.Duration
	c, err := t.meter.of(t.ctx, func() error {
		begun := time.Now()
		stop, err := t.sys.consume(workers, seen.handle)
		if err != nil {
			return err
		}
		defer stop()
		defer func() { took = time.Since(begun) }()
		return t.await(seen)
	})
	if err != nil {
		return nil, err
	}
	f := c.per(n)
	f[rate] = float64(n) / took.Seconds()
	return f, t.onlyLeft(others)
}

// await waits until all messages have arrived.
func (t *trial) await(seen *tally) error {
	select {
	case <-seen.all:
	case <-t.ctx.Done():
		return t.ctx.Err()
	case <-time.After(patience):
	}
	return seen.err()
}

// onlyLeft checks that Redis holds so many messages, no more and no fewer.
func (t *trial) onlyLeft(want int64) error {
	left, err := t.sys.left(t.ctx)
	if err == nil && left != want {
		err = fmt.Errorf("%d messages are left in Redis, want %d", left, want)
	}
	return err
}

// live measures messages that are due at once, sent and consumed at the same time.
func live(n int) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(senders); err != nil {
			return err
		}
		texts := payloads(t.size(n))
		seen := newTally(len(texts))
		stop, err := t.sys.consume(senders, seen.handle)
		if err != nil {
			return err
		}
		err = t.timed(t.what.name, len(texts), func() error {
			if err := t.sendAll(senders, len(texts), func(i int) message { return message{payload: texts[i]} }); err != nil {
				return err
			}
			return t.await(seen)
		})
		stop()
		if err != nil {
			return err
		}
		return t.onlyLeft(0)
	}
}
