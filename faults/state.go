package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

// read reads the queue, nil if that is not possible now.
func (t *trial) read() *check.State { return t.readQueue(queue) }

func (t *trial) readQueue(name string) *check.State {
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
	defer cancel()
	state, err := check.Read(ctx, t.admin, "dq", name)
	if err != nil {
		return nil
	}
	return state
}

// counts says how many messages are where.
func counts(s *check.State) string {
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
func (t *trial) readAll() (all []*check.State) {
	for i := range max(len(t.load.Pool), 1) {
		state := t.readQueue(queueOf(i))
		if state == nil {
			return nil
		}
		all = append(all, state)
	}
	return all
}
