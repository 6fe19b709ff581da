package main

import (
	"context"
	"fmt"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/message"
)

// A whole is a queue with all its shards. The State is that of all of them together.
type whole struct {
	*check.State
	sharded *check.Sharded
}

func wholeOf(s *check.Sharded) *whole { return &whole{s.Merged(), s} }

// Breaches are those of each shard, and what is wrong between them.
func (w *whole) Breaches() (all []string) {
	for _, f := range w.sharded.Findings() {
		all = append(all, f.Text)
	}
	return all
}

// Unaccounted is the sum over all shards.
func (w *whole) Unaccounted() (missing int64, ok bool) {
	ok = true
	for _, s := range w.sharded.Shards {
		n, known := s.Unaccounted()
		missing, ok = missing+n, ok && known
	}
	return missing, ok
}

// Expect is that of all shards together.
func (w *whole) Expect(missing int64) { w.sharded.Expect(missing) }

// count is how many shards there are.
func (w *whole) count() int { return len(w.sharded.Shards) }

// shardOf is the shard that an id says; -1: there is none.
func (w *whole) shardOf(id string) int {
	for i := range w.count() {
		if id != "" && i*1024/w.count() == message.ShardIn(id) {
			return i
		}
	}
	return -1
}

// read reads the queue, nil if that is not possible now.
func (t *trial) read() *whole { return t.readQueue(queue) }

func (t *trial) readQueue(name string) *whole {
	ctx, cancel := context.WithTimeout(t.ctx, settleLimit)
	defer cancel()
	sharded, err := check.ReadShards(ctx, t.admin, "dq", name)
	if err != nil {
		return nil
	}
	return wholeOf(sharded)
}

// counts says how many messages are where.
func counts(s *whole) string {
	if s == nil {
		return "the queue cannot be read"
	}
	worst := int64(0)
	for _, e := range s.Retry {
		worst = max(worst, s.Fail[e.ID].Losses)
	}
	return fmt.Sprintf("pending %d, ready %d, unack %d, retry %d with up to %d losses, waiting %d, garbage %d",
		len(s.Pending), len(s.Ready), len(s.Unack), len(s.Retry), worst, len(s.Waiting), len(s.Garbage))
}

// readAll reads all queues, nil if that is not possible now.
func (t *trial) readAll() (all []*whole) {
	for i := range max(len(t.load.Pool), 1) {
		state := t.readQueue(queueOf(i))
		if state == nil {
			return nil
		}
		all = append(all, state)
	}
	return all
}
