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
type workerSlots struct {
	mu       sync.Mutex
	freed    sync.Cond // a worker has
	consumer *consumer // who gets workers
	used     int       // workers of all runs
	stuck    int       // callbacks that run on, in workers that were replaced
}

// serve gives workers to a run from now on.
func (s *workerSlots) assign(c *consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed.L = &s.mu
	s.consumer = c
	s.fill()
}

// fill hires as many workers as may be, with mu held.
func (s *workerSlots) fill() {
	c := s.consumer
	if c.stopping() { // it needs no more, and may be waiting for those that it has to leave
		return
	}
	for s.used < c.concurrency && s.used+s.stuck < 2*c.concurrency {
		s.used++
		c.workers.Add(1)
		c.startWorker()
		c.signal()
	}
}

// leave gives up the place of a worker of r.
func (s *workerSlots) release(c *consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(c)
	s.fill()
}

func (s *workerSlots) free(c *consumer) {
	s.used--
	c.workers.Add(-1)
	s.freed.Broadcast()
}

// replace gives up the place of a worker of r whose callback runs on, and says how many do and
// how many workers there are.
func (s *workerSlots) replace(c *consumer) (stuck, working int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck++
	s.free(c)
	s.fill()
	return s.stuck, s.used
}

// returned says that a callback that ran on has returned.
func (s *workerSlots) returned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck--
	s.fill()
}

// await waits until a run that was stopped has no worker.
func (s *workerSlots) await(c *consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c.workers.Load() > 0 {
		s.freed.Wait()
	}
}

// crew is the goroutines of a run's workers, those that run on after their replacement included.
type workerSet struct {
	mu      sync.Mutex
	members map[*worker]struct{}
}

func (s *workerSet) add(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members == nil {
		s.members = make(map[*worker]struct{})
	}
	s.members[w] = struct{}{}
}

func (s *workerSet) remove(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, w)
}

func (s *workerSet) all() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.members))
}
