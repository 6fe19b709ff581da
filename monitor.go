package delayqueue

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A Monitor looks at a queue without taking part in it. It is safe for concurrent use.
type Monitor struct {
	store *store
}

// NewMonitor makes a Monitor for the queue of this name. It panics as NewQueue does.
func NewMonitor(name string, cli redis.UniversalClient, opts ...QueueOption) *Monitor {
	s := newSending("NewMonitor", name, cli, opts)
	return &Monitor{store: s.store}
}

// counts says how many messages of a queue are where. What is due counts as ready
// wherever it waits, so pending and retry hold only what is not yet due.
type counts struct {
	pending, ready, unack, retry, garbage int64
}

// counts is one script call of O(log n).
func (m *Monitor) counts(ctx context.Context) (counts, error) {
	c, err := m.store.counts(ctx)
	if err != nil {
		return counts{}, fmt.Errorf("delayqueue: queue %q: counts: %w", m.store.queue, err)
	}
	return c, nil
}

// GetPendingCount returns how many messages are not yet due; those that wait for a retry do not count.
func (m *Monitor) GetPendingCount(ctx context.Context) (int64, error) {
	c, err := m.counts(ctx)
	return c.pending, err
}

// GetReadyCount returns how many messages are due and not yet handed out.
func (m *Monitor) GetReadyCount(ctx context.Context) (int64, error) {
	c, err := m.counts(ctx)
	return c.ready, err
}

// GetProcessingCount returns how many messages are being handled.
func (m *Monitor) GetProcessingCount(ctx context.Context) (int64, error) {
	c, err := m.counts(ctx)
	return c.unack, err
}
