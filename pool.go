package delayqueue

import (
	"maps"
	"slices"
	"sync"
)

// A workerPool bounds the workers of all runs of one queue together: a run that was stopped has
// its workers until their handlers return, and the one that follows it gets what they leave.
//
// A worker whose callback runs on, past its limit or Shutdown's patience, is replaced as long as
// no more than twice WithConcurrent callbacks are under way.
type workerPool struct {
	mu      sync.Mutex
	left    sync.Cond // a worker has
	run     *run      // who gets workers
	working int       // workers of all runs
	stuck   int       // callbacks that run on, in workers that were replaced
}

// serve gives workers to a run from now on.
func (p *workerPool) serve(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left.L = &p.mu
	p.run = r
	p.fill()
}

// fill hires as many workers as may be, with mu held.
func (p *workerPool) fill() {
	r := p.run
	if r.stopping() { // it needs no more, and may be waiting for those that it has to leave
		return
	}
	for p.working < r.concurrency && p.working+p.stuck < 2*r.concurrency {
		p.working++
		r.workers.Add(1)
		r.hire()
		r.signal()
	}
}

// leave gives up the place of a worker of r.
func (p *workerPool) leave(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(r)
	p.fill()
}

func (p *workerPool) give(r *run) {
	p.working--
	r.workers.Add(-1)
	p.left.Broadcast()
}

// replace gives up the place of a worker of r whose callback runs on, and says how many do and
// how many workers there are.
func (p *workerPool) replace(r *run) (stuck, working int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck++
	p.give(r)
	p.fill()
	return p.stuck, p.working
}

// returned says that a callback that ran on has returned.
func (p *workerPool) returned() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck--
	p.fill()
}

// await waits until a run that was stopped has no worker.
func (p *workerPool) await(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r.workers.Load() > 0 {
		p.left.Wait()
	}
}

// crew is the goroutines of a run's workers, those that run on after their replacement included.
type crew struct {
	mu      sync.Mutex
	members map[*worker]struct{}
}

func (c *crew) add(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members == nil {
		c.members = make(map[*worker]struct{})
	}
	c.members[w] = struct{}{}
}

func (c *crew) remove(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.members, w)
}

func (c *crew) all() []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.members))
}
