package delayqueue

import (
	"math"
	"time"
)

// This file decides which member of a Pool gets a worker that is free. A DelayQueue by itself is the only member, and gets
// all.
//
// A member is hungry if more is due in its queue than it holds, or nobody knows yet, and nothing but the want of a
// worker keeps it from taking that: not its own limits, nor a server that does not answer. In a strict pool a member
// may take something only while none before it is hungry. Else workers are divided among the hungry members by their
// weights. What does not come out even goes in turns: a member's pass grows by 1/weight with each delivery that it asks
// for, and the lowest pass is next (C. A. Waldspurger, W. E. Weihl, "Stride Scheduling", 1995).
//
// Seats are taken before the fetch, for all that it asks for, and given up after it, but for those that it brought.

// lapseAfter is how long a fetch may take until its seats are given up, and nobody waits for its queue any longer: its
// server may be away. A queue whose fetches usually take long has three times that, up to maxLapse: else it would never
// have a worker for what they bring.
const (
	lapseAfter = 100 * time.Millisecond
	maxLapse   = time.Second
)

// quickHandlers are those for which it is no matter that all workers are busy: each queue may fetch ahead.
const quickHandlers = time.Millisecond

// A turn says when a member is next. It is guarded by workers.mu.
type turn struct {
	hungry   bool
	fetching bool        // a fetch is under way
	waits    bool        // it was refused more because of another's fetch
	share    int         // how many workers are its own while it is hungry
	pass     float64     // in units of deliveries / weight
	lapse    *time.Timer // of its fetch; nil before the first one in a pool of several
}

// room is how many deliveries a member may ask for; limit is what its queue has room for, and hungry whether more is due
// there.
func (m *member) room(limit int, hungry bool, rtt time.Duration) int {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.setHungry(hungry && limit > 0)
	return min(m.grant(rtt), limit)
}

// ask takes seats for a fetch, which brought and answered give up again. It returns for how many deliveries. ahead is how
// long the fetch takes for which another one is made ahead, and usual how long fetches take.
func (m *member) ask(limit int, hungry bool, ahead, usual time.Duration) int {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	m.setHungry(hungry && limit > 0)
	m.asked = min(m.grant(ahead), limit)
	ws.held += m.asked
	ws.clock = max(ws.clock, m.pass)
	m.pass += float64(m.asked) / m.weight
	m.fetching = true
	if ws.shared {
		if after := max(ws.lapseAfter, min(3*usual, maxLapse)); m.lapse == nil {
			m.lapse = time.AfterFunc(after, m.lapsed)
		} else {
			m.lapse.Reset(after)
		}
	}
	ws.wakeNext()
	return m.asked
}

// brought counts deliveries that a fetch has brought, with mu held.
func (m *member) brought(n int) {
	beyond := max(n-m.asked, 0) // their seats were given up
	m.asked -= n - beyond
	m.workers.held += beyond
	m.pass += float64(beyond) / m.weight
}

// setAside counts deliveries that a fetch has brought and no handler sees. They were the member's turn: else one with a
// backlog of them would be next for as long as that lasts.
func (m *member) setAside(n int) {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.pass += float64(n) / m.weight
}

// lapsed gives up the seats of a fetch that has failed, or takes long.
func (m *member) lapsed() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	if m.fetching {
		m.setHungry(false)
		m.giveUp()
	}
}

// answered gives up the seats of a fetch for what it has not brought.
func (m *member) answered() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.fetching = false
	if m.lapse != nil {
		m.lapse.Stop()
	}
	m.giveUp()
}

// giveUp gives up seats that were taken, with mu held.
func (m *member) giveUp() {
	ws := m.workers
	ws.held -= m.asked
	m.pass -= float64(m.asked) / m.weight
	m.asked = 0
	for _, o := range ws.hungry {
		if o.waits {
			o.waits = false
			o.freed.send()
		}
	}
	ws.wakeNext()
}

// setHungry notes whether a member is hungry, with mu held.
func (m *member) setHungry(hungry bool) {
	if m.hungry == hungry {
		return
	}
	ws := m.workers
	m.hungry = hungry
	if hungry { // what it did not use before is not made up for
		m.pass = max(m.pass, ws.clock)
		ws.hungry = append(ws.hungry, m)
	} else {
		ws.hungry = without(ws.hungry, m)
	}
	ws.divide()
	if !hungry {
		ws.wakeNext()
	}
}

// divide divides the workers among the hungry members, with mu held. What one may not have because of its AtMost is for
// the others.
func (ws *workers) divide() {
	left, weights := float64(ws.size), 0.0
	for _, m := range ws.hungry {
		if m.share = -1; ws.strict {
			m.share = m.most()
			continue
		}
		weights += m.weight
	}
	for again := true; again; {
		again = false
		for _, m := range ws.hungry {
			if m.share < 0 && float64(m.most()) < left*m.weight/weights {
				m.share, again = m.most(), true
				left -= float64(m.most())
				weights -= m.weight
			}
		}
	}
	for _, m := range ws.hungry {
		if m.share < 0 {
			m.share = min(int(math.Ceil(left*m.weight/weights-1e-9)), m.most())
		}
	}
}

// takes is how many workers a member has, or will have when its fetch is answered, with mu held. What it has fetched ahead
// waits for one of those.
func (m *member) takes() int {
	if m.hungry {
		return max(m.busy, min(m.holds(), m.share))
	}
	return m.holds()
}

// free is how many workers nobody has, with mu held.
func (ws *workers) free() int {
	n := ws.size - ws.held
	for _, m := range ws.hungry {
		n += m.holds() - m.takes()
	}
	return max(n, 0)
}

// grant is how many deliveries a member may ask for, with mu held.
func (m *member) grant(rtt time.Duration) int {
	ws := m.workers
	free := ws.free()
	if ws.strict {
		return m.grantInOrder(free)
	}
	if !ws.shared {
		return roomOf(min(m.takes()+free, m.most(), ws.size), m.holds(), m.each, rtt, maxBatch/2)
	}
	if !m.hungry { // this is a look: one delivery shows that there is more
		if ws.nextHungry() != nil || free == 0 || m.holds() >= m.most() {
			return 0
		}
		return 1
	}
	weights, quick, others := 0.0, true, ws.held
	for _, o := range ws.hungry {
		weights += o.weight
		quick = quick && o.each > 0 && o.each < quickHandlers
		others -= o.holds()
	}
	lead := float64(ws.size)/weights + 1/m.weight
	m.pass = max(m.pass, ws.clock-8*lead) // nor is what it could not use while it was hungry
	for _, o := range ws.hungry {
		if o == m || o.asked == 0 && !o.mayTake() {
			continue
		}
		if o.pass+lead < m.pass {
			m.waits = true
			return 0
		}
		if o.asked == 0 && o.pass < m.pass {
			free = 0
		}
	}
	if quick && others < ws.size { // the workers will be free in a moment
		free = m.share
	}
	most := float64(maxBatch/2) * m.weight / weights
	if wait := time.Duration(m.share) * rtt; m.each > 0 && wait < m.each && wait > m.each/16 {
		rtt = m.each/time.Duration(max(m.share, 1)) + 1 // one is fetched ahead, or a small share would lose each round trip
	}
	return roomOf(min(m.takes()+free, m.share), m.holds(), m.each, rtt, max(int(most), 1))
}

// grantInOrder is grant in a strict pool. Nothing is fetched ahead.
func (m *member) grantInOrder(free int) int {
	for _, o := range m.workers.hungry {
		if o.order < m.order && o.holds() < o.most() {
			return 0
		}
	}
	if !m.hungry && m.workers.shared {
		free = min(free, 1)
	}
	return max(min(free, m.most()-m.holds()), 0)
}

// mayTake reports whether a member would take a free worker at once, with mu held.
func (m *member) mayTake() bool { return m.hungry && !m.fetching && m.holds() < m.share }

// nextHungry is the member that is to take a free worker, nil if none would, with mu held.
func (ws *workers) nextHungry() *member {
	var next *member
	for _, m := range ws.hungry {
		if m.mayTake() && (next == nil || m.before(next)) {
			next = m
		}
	}
	return next
}

func (m *member) before(o *member) bool {
	if m.workers.strict {
		return m.order < o.order
	}
	return m.pass < o.pass
}

// wakeNext wakes the poller of the member that is to take a free worker, with mu held.
func (ws *workers) wakeNext() {
	if len(ws.hungry) == 0 || ws.free() == 0 {
		return
	}
	if m := ws.nextHungry(); m != nil {
		m.freed.send()
	}
}

// handledBefore reports whether what is in the buffer of a member is handled before that of another one, with mu held:
// in the order in which it was asked for, as it were.
func (m *member) handledBefore(o *member) bool {
	if m.workers.strict {
		return m.order < o.order
	}
	return m.start() < o.start()
}

// start is the member's pass before what is in its buffer.
func (m *member) start() float64 { return m.pass - float64(len(m.buffer)+m.asked)/m.weight }

// open reports whether a worker may become free for a member before one of its own does.
func (m *member) open() bool {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return m.holds() < m.most() && (ws.held > m.holds() || ws.shared && len(ws.hungry) > 0)
}
