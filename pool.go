package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/consume"
)

// A Share is a queue's part in a Pool.
type Share struct {
	// Queue has its own handler, retries, lease and limits, and may be on a client or server of its own.
	Queue *DelayQueue

	// Weight is the queue's part of the workers, in relation to the weights of the other queues that have something due.
	// Default (0): 1. A strict pool does not use it.
	Weight int

	// AtMost bounds how many workers the queue may have, also while other workers are free. If handlers run for minutes,
	// it keeps workers for the other queues. Default 0: no bound.
	AtMost int
}

// A Pool is several queues that share one set of workers. While more is due than the workers get through, the workers
// are divided among the queues that have something due: by weight, or in the order of the queues (Strict). Workers
// that one queue does not use are free for the others. All methods are safe for concurrent use.
//
// By weight, a queue of weight 6 beside queues of 3 and 1 has six tenths of the workers. A worker that cannot be
// divided, such as the only worker of three queues, takes turns: six of ten deliveries are those of that queue. A
// handler that runs is not interrupted, so workers that a queue had while the others were idle come back as its
// handlers return (AtMost).
//
// A queue in a pool cannot be started alone: StartConsume and Run panic. Its StopConsume and Shutdown stop it alone,
// until the pool was stopped and started again. When the pool has ended, a queue leaves it by a start of its own, or
// for another pool. From then on StartConsume and Run of the pool panic. Trouble of one queue (its server is away, a
// key is of a wrong type, the queue is paused, a handler panics) does not hold up the others. WithConcurrent of a
// queue does not count in a pool.
type Pool struct {
	shares  []Share
	workers consume.Workers

	mu      sync.Mutex // guards the fields below; locked before those of queues
	current *poolRun   // the last one that was started, nil before the first
	left    string     // the name of a queue that has left the pool; "": none
}

// A poolRun is one stretch of consuming all queues of a pool.
type poolRun struct {
	runs    []*consume.Run
	settled chan struct{} // closed when all of them have ended but for handlers that Shutdown gave up on
	done    chan struct{} // closed when these have returned, too
}

// NewPool makes a pool of so many workers for these queues. It panics if there is no worker or no queue, if a Weight
// or AtMost is negative, and if a queue is nil, given twice, in another pool that has not ended, or consuming.
func NewPool(workers int, shares ...Share) *Pool {
	refuse := func(format string, args ...any) { panic("delayqueue: NewPool: " + fmt.Sprintf(format, args...)) }
	if workers < 1 {
		refuse("%d workers: a pool needs at least 1", workers)
	}
	if len(shares) == 0 {
		refuse("a pool needs at least 1 queue")
	}
	p := &Pool{shares: slices.Clone(shares)}
	if p.workers.Resize(workers); len(shares) > 1 {
		p.workers.Share()
	}
	for i := range p.shares {
		s := &p.shares[i]
		if s.Queue == nil {
			refuse("share %d: the queue must not be nil", i+1)
		}
		s.Queue.made()
		name := s.Queue.store.Queue
		switch {
		case slices.ContainsFunc(p.shares[:i], func(o Share) bool { return o.Queue == s.Queue }):
			refuse("queue %q is there twice", name)
		case s.Weight < 0:
			refuse("queue %q: Weight %d: must be at least 1; 0 means 1", name, s.Weight)
		case s.AtMost < 0:
			refuse("queue %q: AtMost %d: must not be negative; 0 means no bound", name, s.AtMost)
		}
		s.Weight = max(s.Weight, 1)
	}
	for i, s := range p.shares {
		s.Queue.leavePool()
		if why := s.Queue.enter(p); why != "" {
			for _, o := range p.shares[:i] {
				o.Queue.enter(nil)
			}
			refuse("queue %q %s", s.Queue.store.Queue, why)
		}
	}
	return p
}

// enter puts the queue into a pool, or returns why it cannot; nil takes the queue out again.
func (q *DelayQueue) enter(p *Pool) (why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case p != nil && q.pool != nil:
		return "is in another pool"
	case q.consuming():
		return "is consuming: stop it first"
	}
	q.pool = p
	return ""
}

// leavePool takes the queue out of a pool that has ended.
func (q *DelayQueue) leavePool() {
	q.mu.Lock()
	p := q.pool
	q.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pool == p && p.current != nil && p.current.ended() {
		q.pool, p.left = nil, q.store.Queue
	}
}

// in says whether the queue is in a pool.
func (q *DelayQueue) in(p *Pool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pool == p
}

// Strict makes the order of the queues count instead of their weights: a free worker takes a message of the first
// queue that has one fetched. So a message of the first queue gets the next worker that becomes free after it was
// fetched, and a backlog of the first queue holds up all others. Strict panics while the pool consumes.
func (p *Pool) Strict() *Pool {
	p.made()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && !conc.Closed(p.current.done) {
		panic("delayqueue: Strict while consuming: call it before StartConsume, or stop the pool first, and wait until it " +
			"has ended")
	}
	p.workers.BeStrict()
	return p
}

func (p *Pool) made() {
	if p == nil || p.shares == nil {
		panic("delayqueue: this Pool was not made by NewPool")
	}
}

// StartConsume begins to consume all queues, and returns a channel that closes when consuming has ended for all of
// them, after StopConsume or Shutdown. While the pool consumes, a further call returns the same channel. A stopped
// pool starts anew. StartConsume panics if a queue has no callback or handler.
func (p *Pool) StartConsume() (done <-chan struct{}) { return p.start().done }

func (p *Pool) start() *poolRun {
	p.made()
	p.mu.Lock()
	r := p.current
	p.mu.Unlock()
	if r != nil && !r.stopping() {
		return r
	}
	// not under mu: the user's code may call this pool
	settings := conc.Mapped(p.shares, func(s *Share) consume.Settings { return s.Queue.composed("StartConsume") })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil && !p.current.stopping() {
		return p.current
	}
	if p.left != "" {
		panic(fmt.Sprintf("delayqueue: queue %q has left this Pool: make another one", p.left))
	}
	r = &poolRun{settled: make(chan struct{}), done: make(chan struct{})}
	for i, s := range p.shares {
		at := consume.Portion{Weight: float64(s.Weight), AtMost: s.AtMost, Order: i}
		r.runs = append(r.runs, s.Queue.startWith(settings[i], &p.workers, at))
	}
	go func() {
		for _, one := range r.runs {
			<-one.Settled
		}
		close(r.settled)
		for _, one := range r.runs {
			<-one.Done
		}
		close(r.done)
	}()
	p.current = r
	return r
}

// stopping reports whether all queues stop, or have ended.
func (r *poolRun) stopping() bool {
	return !slices.ContainsFunc(r.runs, func(one *consume.Run) bool { return !one.Stopping() })
}

// ended reports whether consuming has ended for all queues.
func (r *poolRun) ended() bool {
	return !slices.ContainsFunc(r.runs, func(one *consume.Run) bool {
		return !one.Stopping() || slices.ContainsFunc(one.All(), func(c *consume.Consumer) bool { return !c.Ended() })
	})
}

// StopConsume is DelayQueue.StopConsume for all queues of the pool.
func (p *Pool) StopConsume() { p.stopAll() }

// stopAll stops, and returns the consumers that may not have ended, also those of runs before the pool.
func (p *Pool) stopAll() (all []*consume.Consumer) {
	p.made()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shares {
		if s.Queue.in(p) {
			all = append(all, s.Queue.stopAll()...)
		}
	}
	return all
}

// Shutdown is DelayQueue.Shutdown for all queues of the pool. It also waits for consuming that a queue began alone
// before it entered the pool. With a context of a handler of one of the queues it stops the pool and returns an error
// at once.
func (p *Pool) Shutdown(ctx context.Context) error {
	consumers := p.stopAll()
	if err := p.ownHandler(ctx, "Shutdown"); err != nil {
		return err
	}
	return consume.Shutdown(ctx, consumers)
}

// ownHandler returns an error if ctx belongs to a handler of this pool, because that handler would wait for itself.
func (p *Pool) ownHandler(ctx context.Context, call string) error {
	for _, s := range p.shares {
		if err := s.Queue.ownHandler(ctx, call); err != nil {
			return err
		}
	}
	return nil
}

// Run is DelayQueue.Run for all queues of the pool.
func (p *Pool) Run(ctx context.Context) error {
	p.made()
	if err := p.ownHandler(ctx, "Run"); err != nil {
		return err
	}
	r := p.start()
	select {
	case <-ctx.Done():
		for _, one := range r.runs {
			one.Stop()
		}
	case <-r.settled:
	}
	var errs []error
	for _, one := range r.runs {
		errs = append(errs, one.Wait())
	}
	return errors.Join(errs...)
}
