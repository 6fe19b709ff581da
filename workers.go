package delayqueue

import (
	"math"
	"slices"
	"sync"
	"time"
)

// maxBuffered is how long a fetched message may wait for a worker; then it is released to consumers that have one free.
const maxBuffered = 100 * time.Millisecond

// workers handle the deliveries of one DelayQueue or Pool, over all consumers that it has started: one that was stopped
// keeps those that its handlers have, and the one that follows gets the others. A worker has a goroutine only while it
// has a delivery.
//
// A worker whose callback runs on past its limit, or past the end of Shutdown's context, is replaced, unless twice as
// many callbacks of its queue are under way as that may have workers. Then the queue has fewer, and other queues do not.
type workers struct {
	shared     bool          // several queues have them; does not change
	lapseAfter time.Duration // as the constant; does not change

	mu      sync.Mutex // guards the fields below, and those of members
	strict  bool       // in the order of the queues
	size    int
	used    int         // workers that have a delivery, but for those that were replaced
	running []*worker   // those with a goroutine, also if they have been replaced, each at its index
	members []*member   // of consumers that have not ended
	filled  []*member   // of them, those with something in their buffer
	hungry  []*member   // of them, those of which more is due than they hold
	taken   int         // deliveries that have left the buffers, until they have an outcome
	weights float64     // of the hungry
	stuck   map[int]int // callbacks that run on, in workers that were replaced; by the order of their queue, over all its consumers
	clock   float64     // the highest time at which a member had something handled

	// In a pool of several queues:
	each    time.Duration // how long a delivery takes, a moving average
	endedAt time.Time     // when the last one ended, or the first one began
	looks   bool          // wakeNext looks again
}

// A member is a consumer's part of the workers.
type member struct {
	workers *workers
	freed   signal // sent when there may be room for more; the poller receives it
	weight  float64
	atMost  int // workers; see most
	order   int // in the pool

	// These are guarded by workers.mu.
	buffer []*delivery   // fetched, not yet started
	busy   int           // deliveries that have left the buffer, until they have an outcome
	each   time.Duration // how long a delivery takes, a moving average; 0: not known yet
	slower time.Duration // to be added, for what is fetched ahead; see releaseStale
	turn                 // see shares.go
}

func (ws *workers) resize(n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.size = n
}

// join makes a consumer one of those that share the workers, of which it may have atMost, 0: all.
func (ws *workers) join(freed signal, weight, atMost, order int) *member {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if atMost == 0 {
		atMost = ws.size
	}
	m := &member{workers: ws, freed: freed, weight: float64(weight), atMost: min(atMost, ws.size), order: order}
	m.share, m.expects = m.most(), math.MaxInt32
	ws.members = append(ws.members, m)
	m.setHungry(ws.shared) // until its queue has been asked
	return m
}

// quit says that a member takes nothing more, and releases what no worker has started.
func (m *member) quit() {
	m.workers.mu.Lock()
	m.setHungry(false)
	m.workers.mu.Unlock()
	m.releaseBuffered()
}

// leave is the opposite of join, for a member that holds nothing any more.
func (m *member) leave() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.workers.members = without(m.workers.members, m)
}

// without returns a list without one item, whose order may change.
func without[T comparable](items []T, item T) []T {
	i := slices.Index(items, item)
	if i < 0 {
		return items
	}
	last := len(items) - 1
	items[i] = items[last]
	clear(items[last:])
	return items[:last]
}

// most is how many workers a member may have, with mu held: fewer than atMost where too many of its queue's callbacks run
// on.
func (m *member) most() int { return max(min(m.atMost, 2*m.atMost-m.workers.stuck[m.order]), 0) }

// unhandled is how many deliveries are in the buffer or in a handler.
func (m *member) unhandled() int {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	return len(m.buffer) + m.busy
}

// put gives deliveries to the workers.
func (m *member) put(ds []*delivery) {
	if len(ds) == 0 {
		return
	}
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(m.buffer) == 0 {
		ws.filled = append(ws.filled, m)
	}
	m.buffer = append(m.buffer, ds...)
	m.brought += len(ds)
	m.notBefore(8)
	ws.fill()
}

// take takes n deliveries out of the buffer, with mu held.
func (m *member) take(n int) []*delivery {
	ds := m.buffer[:n:n]
	m.buffer = m.buffer[n:]
	m.busy += n
	m.workers.taken += n
	if len(m.buffer) == 0 {
		m.buffer = nil
		m.workers.filled = without(m.workers.filled, m)
	}
	return ds
}

// next takes the delivery that is to be handled next out of the buffer, with mu held.
func (m *member) next() *delivery {
	m.workers.clock = max(m.workers.clock, m.timeNow())
	if m.busy == 0 && m.workers.shared {
		m.returned = time.Now()
	}
	d := m.buffer[0]
	m.buffer[0] = nil
	m.take(1)
	return d
}

// one takes the delivery for a worker that is free, nil if there is none that it may have, with mu held.
func (ws *workers) one() *delivery {
	if ws.used >= ws.size {
		return nil
	}
	var next *member
	for _, m := range ws.filled {
		if m.busy < m.most() && (next == nil || m.before(next)) {
			next = m
		}
	}
	if next == nil || ws.shared && !next.mayTake() {
		return nil
	}
	return next.next()
}

// open reports whether a worker may become free for a member before one of its own does.
func (m *member) open() bool {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	return m.workers.shared && m.busy+len(m.buffer) < m.most()
}

// fill starts workers for what waits, with mu held, and has what others are for fetched.
func (ws *workers) fill() {
	for d := ws.one(); d != nil; d = ws.one() {
		ws.start(d)
	}
	ws.wakeNext()
}

// start starts a worker, with mu held.
func (ws *workers) start(d *delivery) {
	if ws.used++; ws.used == 1 && ws.shared {
		ws.endedAt = time.Now()
	}
	w := &worker{workers: ws, index: len(ws.running)}
	w.begin(d)
	ws.running = append(ws.running, w)
	go w.run(d)
}

// begin notes when the worker gets a delivery, with mu held.
func (w *worker) begin(d *delivery) {
	if w.workers.shared {
		w.of, w.began = d.settler.member, time.Now()
	}
}

// next ends what a worker had, and gives it another delivery. nil means that the worker has left.
func (ws *workers) next(w *worker) *delivery {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if m := w.handled; m != nil {
		w.handled = nil
		m.finish(w.took)
	}
	if m := w.replacedOf; m != nil {
		m.countStuck(-1)
		ws.fill()
	} else {
		ws.used--
		if d := ws.one(); d != nil {
			ws.used++
			w.begin(d)
			ws.wakeNext()
			return d
		}
		ws.wakeNext()
	}
	last := len(ws.running) - 1
	ws.running[last].index = w.index
	ws.running[w.index], ws.running[last] = ws.running[last], nil
	ws.running = ws.running[:last]
	return nil
}

// replace gives up a worker whose callback runs on, and ends what it had. It says how many callbacks run on, and how
// many workers there are left.
func (m *member) replace(took time.Duration) (stuck, left int) {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.used--
	m.countStuck(1)
	m.finish(took)
	ws.fill()
	return ws.stuck[m.order], m.most()
}

// stuck says how many callbacks of the member's queue run on, and how many workers that leaves it.
func (m *member) stuck() (stuck, left int) {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	return m.workers.stuck[m.order], m.most()
}

// countStuck counts callbacks that run on, with mu held, and tells all members: the number of workers may have changed.
func (m *member) countStuck(n int) {
	ws := m.workers
	if ws.stuck == nil {
		ws.stuck = make(map[int]int)
	}
	if ws.stuck[m.order] += n; ws.stuck[m.order] == 0 {
		delete(ws.stuck, m.order)
	}
	ws.divide()
	for _, o := range ws.members {
		o.freed.send()
	}
}

// finish counts a delivery that has an outcome, with mu held. took is how long its handler ran, 0 if it did not.
func (m *member) finish(took time.Duration) {
	if took > 0 {
		if m.each == 0 {
			m.each = took
		}
		m.each = max(m.each+(took-m.each)/8, 1)
		m.slower -= (m.slower + 7) / 8
		m.ended(took)
	}
	m.busy--
	m.workers.taken--
	m.freed.send()
}

// staleAt is when the delivery that has waited longest in the buffer is to be released.
func (m *member) staleAt() (at time.Time, ok bool) {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	if len(m.buffer) == 0 {
		return at, false
	}
	return m.buffer[0].fetched.Add(maxBuffered), true
}

// releaseStale empties the buffer if something has waited in it for too long. Handlers are slow then, and nothing is
// fetched ahead for a while.
func (m *member) releaseStale() {
	if at, ok := m.staleAt(); ok && !time.Now().Before(at) {
		m.workers.mu.Lock()
		m.slower = maxBuffered
		m.workers.mu.Unlock()
		m.releaseBuffered()
	}
}

// releaseBuffered releases what no worker has started.
func (m *member) releaseBuffered() {
	m.workers.mu.Lock()
	ds := m.take(len(m.buffer))
	m.workers.mu.Unlock()
	for _, d := range ds {
		m.release(d)
		m.workers.mu.Lock()
		m.finish(0)
		m.workers.fill()
		m.workers.mu.Unlock()
	}
}

// release gives back a delivery that no handler started.
func (m *member) release(d *delivery) {
	d.settler.settle(d.released())
	d.settler.lifecycle.handed()
}

// await waits until nothing is in the buffer or in a handler, after the poller has ended.
func (m *member) await() {
	for m.unhandled() > 0 {
		<-m.freed
	}
}

// roomOf is one delivery for each worker, and twice ahead, so that the buffer lasts while the next fetch is under way.
func roomOf(workers, unhandled, ahead int) int {
	if unhandled >= workers+ahead {
		return 0
	}
	return workers + 2*ahead - unhandled
}

// aheadOf is how many deliveries workers handle in a round trip, most at most. If handlers are slow compared with the
// network, or with how long a delivery may wait in the buffer, it is 0.
func aheadOf(workers float64, each, rtt time.Duration, most int) int {
	if each <= 0 || each >= maxBuffered/2 {
		return 0
	}
	return int(min(workers*float64(rtt)/float64(each), float64(most)))
}
