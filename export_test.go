package delayqueue

import (
	"time"

	"github.com/go-delayqueue/delayqueue/internal/consume"
)

// Tests of the face are package delayqueue_test. These methods show them what no user sees.

// Current is the consumer of the latest run, nil before the first.
func (q *DelayQueue) Current() *consume.Consumer { return q.current().All()[0] }

// Unhurried makes no call fail because the machine is slow.
func (q *DelayQueue) Unhurried() { q.store.AttemptTimeout = time.Hour }

// Unhurried makes a queue wait for another one's fetch however long that takes.
func (p *Pool) Unhurried(workers int) { p.workers.ShareAmong(len(p.shares), workers, time.Hour) }

// Awaits says what becomes of the messages that are awaited.
type Awaits struct {
	Callers int
	Looked  bool // for the first message
	Looks   bool // the goroutine runs
	LastErr error
}

func (s *steerer) Awaits() Awaits {
	l := &s.looker
	l.mu.Lock()
	defer l.mu.Unlock()
	return Awaits{Callers: l.n, Looked: len(l.waiting) > 0 && l.waiting[0].next.After(l.waiting[0].begun),
		Looks: l.end != nil || len(l.waiting) > 0, LastErr: l.lastErr}
}
