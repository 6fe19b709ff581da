package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// horizon is the time over which a backlog is due.
const horizon = 24 * time.Hour

// backlogMeasures is how often send and drain are measured at each level.
const backlogMeasures = 3

// backlogName is the row of one thing done at one level.
func backlogName(what string, level int) string {
	return fmt.Sprintf("%s, %s pending", what, count(level))
}

// backlog measures send, drain and lateness while ever more messages are pending, due at
// random instants of the next day. Sends are measured twice: due in an hour, as most
// senders' messages are due at about the same place, and due at such random instants.
func backlog(levels []int, n, late int, over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(senders); err != nil {
			return err
		}
		pending := 0
		later := func(i int) message {
			return message{payload: payload(i), at: time.Now().Add(time.Hour + rand.N(horizon))}
		}
		soon := func(i int) message { return hourly(payload(i)) }
		for _, level := range levels {
			if err := t.fill(level-pending, later); err != nil {
				return err
			}
			pending = max(level, pending)
			if err := t.settleTables(pending); err != nil {
				return err
			}
			for range backlogMeasures {
				for _, send := range []struct {
					name string
					of   func(i int) message
				}{{"send", soon}, {"send at random", later}} {
					sent, err := t.backlogSend(backlogName(send.name, level), t.size(n), send.of)
					if err != nil {
						return err
					}
					pending += sent
				}
				f, err := t.drainDue(senders, t.size(n), int64(pending), 0)
				if err != nil {
					return err
				}
				t.report(backlogName("drain", level), t.what.kind, f)
			}
			if t.system == nameFloor {
				continue
			}
			if err := t.lateness(backlogName("lateness", level), latenessTable, 1, late, over, int64(pending)); err != nil {
				return err
			}
		}
		return nil
	}
}

// settleTables lets Redis finish growing its hash tables, which it does step by step with
// each access and which makes all of them dearer meanwhile, whoever moves the messages.
func (t *trial) settleTables(n int) error {
	keys, err := t.admin.Keys(t.ctx, "*").Result()
	if err != nil || n == 0 {
		return err
	}
	absent := make([]string, 1000)
	for i := range absent {
		absent[i] = fmt.Sprintf("absent-%d", i)
	}
	for _, key := range keys {
		kind, err := t.admin.Type(t.ctx, key).Result()
		if err != nil {
			return err
		}
		for range n/len(absent) + 1 {
			switch kind {
			case "zset":
				err = t.admin.ZMScore(t.ctx, key, absent...).Err()
			case "hash":
				err = t.admin.HMGet(t.ctx, key, absent...).Err()
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// backlogSend measures batches among others.
func (t *trial) backlogSend(name string, n int, of func(i int) message) (int, error) {
	batches := batchesOf(n, func(p string) message { return of(indexOf(p)) })
	return n, t.timed(name, n, func() error { return t.sendEach(batches) })
}

// count is a number as people say it.
func count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%d million", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%d thousand", n/1000)
	default:
		return fmt.Sprint(n)
	}
}
