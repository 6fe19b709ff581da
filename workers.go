package delayqueue

import (
	"sync"
	"sync/atomic"
	"time"
)

// maxBuffered is how long a fetched message may wait for a worker; then it is released to consumers that have one free.
const maxBuffered = 100 * time.Millisecond

// workers handle the deliveries of one consumer.
type workers struct {
	settings  *settings
	lifecycle *lifecycle
	slots     *workerSlots
	freed     signal // sent when there may be room for more; the poller receives it

	buffer    mailbox[*delivery] // fetched, not yet started; put by the poller, taken by workers
	running   set[*worker]       // those with a goroutine, also if they have been replaced; read by presence and Shutdown
	active    atomic.Int64       // workers that have a slot; written by slots, read by the poller
	unhandled atomic.Int64       // deliveries in the buffer or in a handler; read by the poller and lifecycle
	nsEach    atomic.Int64       // how long a delivery takes, a moving average; 0: not known yet; read by the poller
}

// room is how many deliveries the workers have room for.
func (ws *workers) room(rtt time.Duration) int {
	return roomOf(int(ws.active.Load()), int(ws.unhandled.Load()), time.Duration(ws.nsEach.Load()), rtt)
}

// roomOf is one delivery for each free worker, and twice as many as all workers handle in a round trip, so that the
// buffer lasts while the next fetch is under way. If handlers are slow compared with the network, or with how long a
// delivery may wait in the buffer, nothing is fetched ahead.
func roomOf(workers, unhandled int, each, rtt time.Duration) int {
	ahead := 0
	if each > 0 && each < maxBuffered/2 {
		ahead = int(min(int64(workers)*int64(rtt)/int64(each), maxBatch/2))
	}
	if workers == 0 || unhandled >= workers+ahead {
		return 0
	}
	return workers + 2*ahead - unhandled
}

// put gives deliveries to the workers.
func (ws *workers) put(ds []*delivery) {
	ws.unhandled.Add(int64(len(ds)))
	ws.buffer.put(ds...)
}

// staleAt is when the delivery that has waited longest in the buffer is to be released.
func (ws *workers) staleAt() (at time.Time, ok bool) {
	d, ok := ws.buffer.first()
	if ok {
		at = d.fetched.Add(maxBuffered)
	}
	return at, ok
}

// releaseStale empties the buffer if something has waited in it for too long. Handlers are slow then, and nothing is
// fetched ahead for a while.
func (ws *workers) releaseStale() {
	if at, ok := ws.staleAt(); ok && !time.Now().Before(at) {
		ws.nsEach.Store(int64(maxBuffered))
		ws.releaseBuffered()
	}
}

// releaseBuffered releases what no worker has started.
func (ws *workers) releaseBuffered() {
	for _, d := range ws.buffer.all() {
		ws.release(d)
	}
}

// release gives back a delivery that no handler started.
func (ws *workers) release(d *delivery) {
	d.settler.settle(d.released())
	ws.finished(0)
}

// finished counts a delivery that has left the workers. took is how long its handler ran, 0 if it did not.
func (ws *workers) finished(took time.Duration) {
	if took > 0 {
		each := ws.nsEach.Load()
		if each == 0 {
			each = int64(took)
		}
		ws.nsEach.Store(max(each+(int64(took)-each)/8, 1))
	}
	if ws.lifecycle.stopping() {
		ws.lifecycle.extendDrain() // its outcome is still to be settled
	}
	ws.unhandled.Add(-1)
	ws.freed.send()
}

// workerSlots bound the workers of all consumers of one DelayQueue together. A consumer that was stopped keeps its slots
// until its handlers return, and the consumer that follows gets the slots that become free.
//
// A worker whose callback runs on past its limit, or past the end of Shutdown's context, is replaced, unless twice
// WithConcurrent callbacks are under way.
type workerSlots struct {
	mu    sync.Mutex
	left  sync.Cond // a worker has left its slot
	owner *workers  // those that get free slots
	used  int       // slots in use
	stuck int       // callbacks that run on, in workers that were replaced
}

// assign gives slots to these workers from now on.
func (s *workerSlots) assign(ws *workers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = ws
	s.fill()
}

// fill starts as many workers as there are slots for, with mu held.
func (s *workerSlots) fill() {
	ws := s.owner
	if ws.lifecycle.stopping() { // its consumer may be waiting until they have all left
		return
	}
	for s.used < ws.settings.concurrency && s.used+s.stuck < 2*ws.settings.concurrency {
		s.used++
		ws.active.Add(1)
		ws.start()
		ws.freed.send()
	}
}

// release gives up the slot of a worker. runsOn is 1 if its callback runs on, else 0. It says how many callbacks do and
// how many slots are in use.
func (s *workerSlots) release(ws *workers, runsOn int) (stuck, used int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.stuck += runsOn
	ws.active.Add(-1)
	s.left.Broadcast()
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

// await waits until these workers, which were stopped, have no slot.
func (s *workerSlots) await(ws *workers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left.L == nil {
		s.left.L = &s.mu
	}
	for ws.active.Load() > 0 {
		s.left.Wait()
	}
}
