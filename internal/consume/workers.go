package consume

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
)

// Workers handle the deliveries of one DelayQueue or Pool, over all consumers that it has started. A consumer that
// was stopped keeps the workers that its handlers have, and the next consumer gets the others. A worker has a
// goroutine only while it has a delivery.
//
// A worker whose handler runs on past its limit, or past the end of Shutdown's context, is replaced, until as many
// handlers of a queue run on as the queue may have workers. Those above take workers from that queue, and from no
// other.
type Workers struct {
	mu     sync.Mutex // guards the fields below, and those of members
	shared bool       // several consumers share the workers

	strict   bool // in the order of the queues
	size     int
	used     int       // workers that have a delivery, except those that were replaced
	running  []*worker // workers with a goroutine, also those that were replaced, each at its index
	members  []*member // of consumers that have not ended
	filled   []*member // members with something in their buffer
	hungry   []*member // members whose queues have more that is due than they hold
	weights  float64   // of the hungry together
	heaviest float64   // the largest of these
	// handlers that run on, in workers that were replaced; by the order of their queue, over all its consumers
	stuck map[int]int
	clock float64 // the highest time at which a member had something handled
	alone alone   // see alone.go

	// If several consumers share the workers:
	gap     time.Duration // between the ends of two handlers, a moving average
	endedAt time.Time     // when the last one ended, or the first one began
}

// A member is a consumer's part of the workers.
type member struct {
	Portion
	workers *Workers
	freed   conc.Signal // there may be room for more: sent by workers and leases, received by the poller

	// These are guarded by workers.mu.
	buffer  []*delivery   // fetched, not yet started
	busy    int           // deliveries that have left the buffer, until they have an outcome
	each    time.Duration // how long a delivery takes, a moving average; 0: not known yet
	counted int           // of how many deliveries that is
	careful int           // so many deliveries are handled before any is fetched ahead; see releaseStale
	turn                  // see shares.go
}

// maxWorkers is as good as no bound, and sums and products with it fit into an int everywhere.
const maxWorkers = 1 << 28

// Share says that several consumers share the workers, before the second of them joins. Once shared, workers stay so.
func (ws *Workers) Share() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !ws.shared {
		ws.shared, ws.endedAt = true, time.Now()
	}
}

// BeStrict makes the order of the queues count instead of their weights. It is called while no consumer is a member;
// handlers that run on may still have workers.
func (ws *Workers) BeStrict() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.strict = true
}

// Resize sets the number of workers.
func (ws *Workers) Resize(n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.size = min(n, maxWorkers)
}

// A Portion says how many of the workers a consumer may have.
type Portion struct {
	Weight  float64
	AtMost  int  // workers, of all consumers of the queue; 0: all
	Order   int  // of the queue in the pool
	Grouped bool // the queue has several consumers, one for each shard
}

// join makes a consumer a member of the workers.
func (ws *Workers) join(at Portion) *member {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	at.AtMost = min(cmp.Or(at.AtMost, ws.size), ws.size)
	m := &member{Portion: at, workers: ws, freed: conc.NewSignal()}
	ws.members = append(ws.members, m)
	m.setHungry(ws.shared) // until its queue has been asked
	return m
}

// quit notes that a member fetches nothing more, and releases what no worker has started.
func (m *member) quit() {
	m.withdraw()
	m.releaseBuffered()
}

// leave is the opposite of join, for a member that holds nothing any more.
func (m *member) leave() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.workers.members = without(m.workers.members, m)
}

func without(members []*member, m *member) []*member {
	if i := slices.Index(members, m); i >= 0 {
		return slices.Delete(members, i, i+1)
	}
	return members
}

// most is how many workers a member may have, with mu held. That is fewer than AtMost if too many handlers of its queue
// run on, or if other members of its queue have some.
func (m *member) most() int { return m.mostBeside(func(o *member) int { return o.busy }) }

// mostBeside is most, if counts says what another member of the queue has.
func (m *member) mostBeside(counts func(o *member) int) int {
	most := min(m.AtMost, 2*m.AtMost-m.workers.stuck[m.Order])
	if m.Grouped && m.AtMost < m.workers.size {
		for _, o := range m.workers.members {
			if o != m && o.Order == m.Order {
				most -= counts(o)
			}
		}
	}
	return max(most, 0)
}

// hasRoom reports whether the member may fetch now, or when one worker more is free, because a delivery has an
// outcome before its worker is free.
func (m *member) hasRoom() bool {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.mayFetch() && len(m.buffer)+m.busy-1 < m.most() && ws.used-1 < ws.size
}

// unhandled is how many deliveries are in the buffer or in a handler.
func (m *member) unhandled() int {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	return len(m.buffer) + m.busy
}

// put gives deliveries to the workers. Those that were set aside, which no handler sees, count for the member's time,
// because otherwise a member with a backlog of them would always be next.
func (m *member) put(ds []*delivery, setAside int) {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	m.time += float64(setAside) * leastTime.Seconds() / m.Weight
	if len(ds) == 0 {
		return
	}
	if len(m.buffer) == 0 {
		ws.filled = append(ws.filled, m)
	}
	m.buffer = append(m.buffer, ds...)
	m.notBehind(maxBehind)
	ws.fill()
}

// take takes n deliveries out of the buffer, with mu held.
func (m *member) take(n int) []*delivery {
	ds := m.buffer[:n:n]
	m.buffer = m.buffer[n:]
	m.busy += n
	if len(m.buffer) == 0 {
		m.buffer = nil
		m.workers.filled = without(m.workers.filled, m)
	}
	return ds
}

// one takes the next delivery for a free worker out of a buffer, with mu held, and returns nil if there is none that
// a worker may have.
func (ws *Workers) one() *delivery {
	if ws.used >= ws.size {
		return nil
	}
	var next *member
	for _, m := range ws.filled {
		if m.busy < m.most() && (next == nil || m.before(next)) {
			next = m
		}
	}
	if next == nil {
		return nil
	}
	ws.used++
	ws.clock = max(ws.clock, next.timeNow())
	d := next.buffer[0]
	next.buffer[0] = nil
	next.take(1)
	return d
}

// fill starts free workers for what waits in buffers, with mu held. If workers are left, it wakes a poller.
func (ws *Workers) fill() {
	for d := ws.one(); d != nil; d = ws.one() {
		ws.start(d)
	}
	ws.wakeNext()
}

// start starts a worker, with mu held.
func (ws *Workers) start(d *delivery) {
	if ws.used == 1 && ws.shared {
		ws.endedAt = time.Now()
	}
	w := &worker{workers: ws, index: len(ws.running)}
	ws.running = append(ws.running, w)
	go w.run(d)
}

// next ends the delivery of a worker, and gives it another one. nil means that the worker has left.
func (ws *Workers) next(w *worker) *delivery {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.replaced {
		w.member.countStuck(-1)
		w.member.freed.Send() // it may have left, and its consumer waits for handlers that were given up
		ws.fill()
	} else {
		ws.used--
		w.member.finish(w.took)
		d := ws.one()
		ws.wakeNext()
		if d != nil {
			return d
		}
	}
	last := len(ws.running) - 1
	ws.running[last].index = w.index
	ws.running[w.index], ws.running[last] = ws.running[last], nil
	ws.running = ws.running[:last]
	return nil
}

// replace gives up a worker whose handler runs on, and ends its delivery.
func (m *member) replace(took time.Duration) {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.used--
	m.countStuck(1)
	m.finish(took)
	ws.fill()
}

// logStuck logs it if more handlers of the member's queue run on than workers are left.
func (m *member) logStuck(log *slog.Logger) {
	m.workers.mu.Lock()
	stuck, left := m.workers.stuck[m.Order], m.most()
	m.workers.mu.Unlock()
	if stuck > left {
		log.Error("delayqueue: too many callbacks run on past their limit: "+
			"no more workers take their places until some return",
			slog.Int("running_on", stuck), slog.Int("workers", left))
	}
}

// countStuck counts handlers that run on, with mu held, and wakes all pollers, because the number of workers may have
// changed.
func (m *member) countStuck(n int) {
	ws := m.workers
	if ws.stuck == nil {
		ws.stuck = make(map[int]int)
	}
	if ws.stuck[m.Order] += n; ws.stuck[m.Order] == 0 {
		delete(ws.stuck, m.Order)
	}
	ws.divide()
	ws.wakeAll()
}

// finish counts a delivery that has an outcome, with mu held. took is how long its handler ran, 0 if it did not.
func (m *member) finish(took time.Duration) {
	if took > 0 {
		m.ended(took)
	}
	m.busy--
	m.freed.Send()
	if !m.workers.shared { // but by a later start of the queue, whose poller waits for the workers of this one
		m.workers.wakeOthers(m)
	}
	m.workers.ifQuiet()
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

// releaseStale empties the buffer if something has waited in it for too long. Then handlers are slow, and nothing is
// fetched ahead for a while.
func (m *member) releaseStale() {
	if at, ok := m.staleAt(); ok && !time.Now().Before(at) {
		m.workers.mu.Lock()
		m.careful = averageOf
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
		d.consumer.settler.settle(d.released())
		m.workers.mu.Lock()
		m.finish(0)
		m.workers.fill()
		m.workers.mu.Unlock()
	}
}
