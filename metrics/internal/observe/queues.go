// Package observe is what promqueue and otelqueue share: it reads queues and watches handlers.
package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/outbox"
)

// DefaultTimeout is below any scrape timeout that is usual (Prometheus's own default is 10 s, many set 5 s): a page
// that comes too late says nothing, and so not that the queue cannot be read.
const DefaultTimeout = 3 * time.Second

// Queues are those whose state is read. It is safe for concurrent use.
type Queues struct {
	Timeout time.Duration // of one Read; 0: DefaultTimeout
	Logger  *slog.Logger  // nil: slog.Default

	mu        sync.Mutex
	list      []*queue
	schedules map[string]Scheduler // by the name of their queue
	boxes     []*box
}

type queue struct {
	monitor *ops.Queue
	down    bool // as it was last logged
	past    past
}

// A Reading is the state of one queue, or of its outbox.
type Reading struct {
	Queue     string
	Up        bool          // if not, nothing else is known
	Outbox    *outbox.Stats // nil: this is the state of the queue; else all that follows is unset
	Counts    ops.Counts
	Consumers []ops.Consumer
	Deleted   bool           // somebody has deleted the queue, and it is not there again
	Missing   int            // shards that do not answer; all else is of the others
	Stuck     map[string]int // schedules that are not sent, by reason; nil: not known

	Countdowns float64 // messages that wait for the ack of a dead one; less than 0: not known
}

// Text is what others wrote, as UTF-8: one that is none makes an exporter refuse all that it has.
func Text(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

// Add adds queues. It panics if one of that name is there already.
func (q *Queues) Add(monitors ...*delayqueue.Monitor) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range monitors {
		for _, other := range q.list {
			if other.monitor.Name() == m.Name() {
				panic(fmt.Sprintf("delayqueue: Watch: queue %q is watched already: "+
					"give queues of one name but several prefixes metrics of their own", m.Name()))
			}
		}
		q.list = append(q.list, &queue{monitor: ops.Of(m)})
	}
}

// AddSchedules adds the schedules of a queue, which is to be added, too.
func (q *Queues) AddSchedules(s Scheduler) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.schedules == nil {
		q.schedules = map[string]Scheduler{}
	}
	q.schedules[s.Name()] = s
}

// Remove removes the queue of this name, if it is there.
func (q *Queues) Remove(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.schedules, name)
	q.list = slices.DeleteFunc(slices.Clone(q.list), func(one *queue) bool { return one.monitor.Name() == name })
}

// Read reads all queues and outboxes at once and returns after the timeout at the latest.
func (q *Queues) Read(ctx context.Context) []Reading {
	timeout := q.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	q.mu.Lock()
	list := q.list[:len(q.list):len(q.list)]
	q.mu.Unlock()
	readings := make([]Reading, len(list))
	var wg sync.WaitGroup
	for i, one := range list {
		wg.Go(func() { readings[i] = q.read(ctx, one) })
	}
	ofOutboxes := q.readOutboxes(ctx)
	wg.Wait()
	return append(readings, ofOutboxes...)
}

func (q *Queues) log() *slog.Logger {
	if q.Logger == nil {
		return slog.Default()
	}
	return q.Logger
}

// count reads what is known beside schedules and countdowns. Both calls are made at once, because one that waits for a
// shard takes all the time there is. A queue that is not there, not yet or no more, is as empty as one that is.
func (r *Reading) count(ctx context.Context, m *ops.Queue) (there bool, err error) {
	consumers := make(chan error, 1)
	go func() {
		var err error
		r.Consumers, err = m.Consumers(ctx)
		consumers <- err
	}()
	r.Counts, err = m.Counts(ctx)
	there = !errors.Is(err, delayqueue.ErrNoQueue)
	for _, err := range []error{err, <-consumers} {
		var missing *shard.MissingError
		switch {
		case errors.As(err, &missing):
			r.Missing = missing.Of - missing.Answered
		case err != nil && !errors.Is(err, delayqueue.ErrNoQueue):
			return there, err
		}
	}
	return there, nil
}

func (q *Queues) read(ctx context.Context, one *queue) Reading {
	r := Reading{Queue: one.monitor.Name(), Countdowns: -1}
	there, err := r.count(ctx, one.monitor)
	if r.Up = err == nil; r.Up {
		q.noteGone(ctx, one, &r, there)
	}
	q.mu.Lock()
	changed := one.down == r.Up
	one.down = !r.Up
	schedules := q.schedules[one.monitor.Name()]
	q.mu.Unlock()
	if r.Up && schedules != nil {
		if stuck, err := schedules.Stuck(ctx); err == nil { // else they take too long, or may not be read: the queue is up
			r.Stuck = stuck
		}
	}
	if r.Up {
		if stuck, err := health.Countdowns(ctx, one.monitor, &r.Counts); err == nil { // as above
			r.Countdowns = float64(len(stuck))
		}
	}
	switch {
	case !changed:
	case r.Up:
		q.log().Info("delayqueue: metrics: the queue can be read again", slog.String("queue", r.Queue))
	default:
		q.log().Warn("delayqueue: metrics: the queue cannot be read", slog.String("queue", r.Queue),
			slog.Any("error", err))
	}
	return r
}
