package delayqueue

import (
	"math"
	"time"
)

// This file decides which member of a Pool gets a worker that is free. A DelayQueue by itself is the only member, and gets
// all.
//
// A member is hungry if more is due in its queue than it holds, or nobody knows yet, and nothing but the want of a
// worker keeps it from taking that: not its own limits, nor a server that does not answer. Each hungry member has a share
// of the workers, by its weight, but no more than its fetches keep busy. Beyond its share a member takes nothing of
// another's: workers whose handlers begin to hang would not come back.
//
// A worker that is free is for the hungry member that has had the fewest deliveries for its weight (C. A. Waldspurger, W. E.
// Weihl, "Stride Scheduling", 1995) and has not its share; in a strict pool, for the first in the order. If that has
// fetched nothing yet the worker waits for its fetch, unless it can handle another's delivery meanwhile. Beyond that,
// members fetch ahead what their shares handle during a fetch, and ask nobody.

// lapseAfter is how long a fetch may take until no worker waits for it any longer: its server may be away. A queue whose
// fetches usually take long has three times that, up to maxLapse: else it would never have a worker for what they bring.
const (
	lapseAfter = 100 * time.Millisecond
	maxLapse   = time.Second
)

// Of handlers that are quicker than quickHandlers, workers are no bound, but fetches are. So those are what is shared: a
// queue that is ahead waits for the fetch of another, if that takes quickFetch at most, or four times its own.
const (
	quickHandlers = time.Millisecond
	quickFetch    = 5 * time.Millisecond
)

// A turn says when a member is next. It is guarded by workers.mu.
type turn struct {
	hungry   bool
	fetching bool          // a fetch is under way
	seats    int           // workers that wait for it
	rtt      time.Duration // how long it usually takes
	spent    time.Duration // in the last some hundred handlers
	ended    int           // how many those are
	feeds    float64       // how many workers its fetches keep busy, at most all
	part     float64       // how many workers are its own while it is hungry
	share    int           // the same, rounded up
	pass     float64       // deliveries / weight
	lapse    *time.Timer   // of its fetch; nil before the first one in a pool of several
}

// room is how many deliveries a member may ask for; limit is what its queue has room for, and hungry whether more is due
// there. rtt is how long the fetch takes for which another one is made ahead.
func (m *member) room(limit int, hungry bool, rtt time.Duration) int {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.setHungry(hungry && limit > 0)
	return min(m.wants(rtt), limit)
}

// ask is room for a fetch that begins, until answered. usual is how long fetches take.
func (m *member) ask(limit int, hungry bool, ahead, usual time.Duration) int {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	m.setHungry(hungry && limit > 0)
	m.rtt = usual
	if feeds := m.feedsNow(); feeds != m.feeds {
		m.feeds = feeds
		ws.divide()
	}
	n := min(m.wants(ahead), limit)
	m.seats = max(min(m.mayHave()-m.busy-len(m.buffer), n), 0)
	ws.taken += m.seats
	m.fetching = true
	if ws.shared {
		if after := max(ws.lapseAfter, min(3*usual, maxLapse)); m.lapse == nil {
			m.lapse = time.AfterFunc(after, m.lapsed)
		} else {
			m.lapse.Reset(after)
		}
	}
	ws.wakeNext()
	return n
}

// setAside counts deliveries that a fetch has brought and no handler sees. They were the member's turn: else one with a
// backlog of them would be next for as long as that lasts.
func (m *member) setAside(n int) {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.pass += float64(n) / m.weight
}

// lapsed says that a fetch has failed, or takes long: nobody waits for it.
func (m *member) lapsed() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	if m.fetching {
		m.leaveSeats()
		m.setHungry(false)
		m.workers.fill()
	}
}

// answered says that a fetch has ended.
func (m *member) answered() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.fetching = false
	if m.lapse != nil {
		m.lapse.Stop()
	}
	m.leaveSeats()
	m.workers.fill()
}

// leaveSeats gives up the workers that wait for a fetch, with mu held.
func (m *member) leaveSeats() {
	m.workers.taken -= m.seats
	m.seats = 0
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
	ws.fill()
}

// divide divides the workers among the hungry members, with mu held. What one may not have because of its AtMost, or
// cannot keep busy, is for the others.
func (ws *workers) divide() {
	left, weights := float64(ws.size), 0.0
	for _, m := range ws.hungry {
		if m.part = -1; ws.strict {
			m.part = float64(m.most())
			continue
		}
		weights += m.weight
	}
	ws.weights = weights
	for again := true; again; {
		again = false
		for _, m := range ws.hungry {
			if most := min(float64(m.most()), m.feeds); m.part < 0 && most < left*m.weight/weights {
				m.part, again = most, true
				left -= most
				weights -= m.weight
			}
		}
	}
	for _, m := range ws.hungry {
		if m.part < 0 {
			m.part = left * m.weight / weights
		}
		m.share = int(math.Ceil(m.part - 1e-9))
	}
}

// mayHave is how many workers a member may have now, its own included, with mu held: n, those that no other member has,
// less what is for another before it. Beyond its share it leaves the other hungry members theirs: kept.
func (m *member) mayHave() int {
	ws := m.workers
	n, most := ws.size-ws.taken+m.busy+m.seats, m.most()
	soon, kept := 0, 0.0
	for _, o := range ws.hungry {
		if o == m {
			continue
		}
		lacks := max(o.share-o.busy-o.seats, 0)
		switch {
		case m.waitsFor(o): // which is behind, and answered in a moment
			return 0
		case m.isSooner(o): // it may use those that wait for the fetch of o: they are back when that is answered
			n += o.seats
			if o.each > 0 { // else nobody knows what o needs
				kept += max(o.part-float64(o.busy), 0)
			}
		case o.before(m): // what o lacks of its share is for o first
			n -= lacks
		default: // it is for m first, but only up to the share of m
			kept += max(o.part-float64(o.busy+o.seats), 0)
		}
		if o.isSooner(m) && m.before(o) {
			// These are back when the fetch of m is answered, so m asks for them now: else two whose fetches take turns would
			// keep it from its share.
			soon += o.busy + o.seats
		}
	}
	within, beyond := min(n+soon, m.own()), n-int(math.Ceil(kept-1e-9)) // its share
	return min(most, max(within, beyond))
}

// isSooner reports whether a handler of the member returns before a fetch of another one is answered, with mu held.
func (m *member) isSooner(o *member) bool {
	return !m.workers.strict && m.each > 0 && m.each < max(o.rtt, quickHandlers)
}

// waitsFor reports whether a member that is ahead of another one waits for its fetch, with mu held: both have quick
// handlers. In a strict pool it does not: the other one leaves the worker to it.
func (m *member) waitsFor(o *member) bool {
	return !m.workers.strict && len(o.buffer) == 0 && o.busy < o.share && o.pass+m.lead() < m.pass && m.each < quickHandlers &&
		o.each > 0 && o.each < quickHandlers && o.rtt <= max(quickFetch, 4*m.rtt)
}

// lead is how far members may be apart because they take several deliveries at once, with mu held.
func (m *member) lead() float64 {
	return float64(m.workers.size)/max(m.workers.weights, m.weight) + 1/m.weight
}

// wants is how many deliveries a member may ask for, with mu held.
func (m *member) wants(rtt time.Duration) int {
	ws := m.workers
	may, has := m.mayHave(), m.busy+len(m.buffer)
	switch {
	case !ws.shared:
		return roomOf(may, has, aheadOf(float64(may), m.each+m.slower, rtt, maxBatch/2))
	case !m.hungry: // this is a look: one delivery shows that there is more
		if ws.first() != nil {
			return 0
		}
		return max(min(may-has, 1), 0)
	case ws.strict:
		return roomOf(may, has, 0)
	}
	return roomOf(max(may, m.busy), has, m.ahead(rtt))
}

// ahead is how many deliveries a member fetches ahead, with mu held.
func (m *member) ahead(rtt time.Duration) int {
	each := m.each + m.slower
	if m.part < 1 { // its next worker may be one of another
		for _, o := range m.workers.hungry {
			each = max(each, o.each)
		}
	}
	if m.each == 0 || float64(each) >= min(m.part, 1)*float64(maxBuffered/2) {
		return 0
	}
	most := maxBatch / 2.0
	if m.each < quickHandlers {
		most *= m.weight / m.workers.weights
	}
	n := aheadOf(m.part, m.each+m.slower, rtt, max(int(most), 1))
	if rtt > m.each/16 {
		n = max(n, 1) // or a small share would lose each round trip
	}
	return n
}

// feedsNow is feeds by what is known of the member's handlers and fetches, with mu held.
func (m *member) feedsNow() float64 {
	all := float64(m.workers.size)
	if m.ended == 0 || m.rtt == 0 {
		return all
	}
	each := m.spent / time.Duration(m.ended)
	if each >= maxBuffered/2 { // nothing is fetched ahead
		return all
	}
	return min(all, 1+maxBatch/2*float64(max(each, quickHandlers))/float64(m.rtt))
}

// first is the member that is to take a free worker, nil if none would, with mu held.
func (ws *workers) first() *member {
	var first *member
	for _, m := range ws.hungry {
		if !m.fetching && m.busy+len(m.buffer) < m.share && (first == nil || m.before(first)) {
			first = m
		}
	}
	return first
}

// before reports whether a free worker is for the member rather than for another one, with mu held.
func (m *member) before(o *member) bool {
	if m.workers.strict || m.pass == o.pass {
		return m.order < o.order
	}
	return m.pass < o.pass
}

// wakeNext wakes the poller of the member that is to take a free worker, with mu held.
func (ws *workers) wakeNext() {
	if !ws.shared {
		return
	}
	if m := ws.first(); m != nil && m.mayHave() > m.busy+len(m.buffer) {
		m.freed.send()
	}
}

// over reports whether a member has its share, with mu held.
func (m *member) over() bool { return m.busy >= m.own() }

// own is a member's share, or what that would be if it were hungry, with mu held.
func (m *member) own() int {
	if ws := m.workers; !m.hungry {
		if ws.strict || !ws.shared {
			return m.most()
		}
		return int(math.Ceil(float64(ws.size) * m.weight / (ws.weights + m.weight)))
	}
	return m.share
}

// open reports whether a worker may become free for a member before one of its own does.
func (m *member) open() bool {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return m.busy+len(m.buffer) < m.most() && (ws.taken > m.busy+m.seats || ws.shared && len(ws.hungry) > 0)
}
