package delayqueue

import (
	"math"
	"time"
)

// This file decides how many deliveries each member of a Pool fetches, and when.
//
// A member fetches what its workers handle in two of its own round trips, and more of them if workers are free that no other member
// takes in a moment. While handlers are slow it fetches only for workers that are free, or will be when its fetch is answered: a
// message waits for at most maxBuffered, and other processes may have workers for it.

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
	m.asked, m.brought = min(m.wants(ahead), limit), 0
	m.fetching = true
	if ws.shared {
		m.lapses = time.Now().Add(max(ws.lapseAfter, 4*usual))
		ws.wakeNext()
	}
	return m.asked
}

// setAside counts deliveries that a fetch has brought and no handler sees. They were the member's turn: else one with a
// backlog of them would be next for as long as that lasts.
func (m *member) setAside(n int) {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.brought += n
	m.time += float64(n) * leastTime.Seconds() / m.weight
}

// lapsed says that a fetch has failed: nobody takes it into account.
func (m *member) lapsed() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.lapses = time.Time{}
	m.setHungry(false)
}

// answered says that a fetch has ended.
func (m *member) answered() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.fetching = false
	if m.asked > 0 {
		if m.expects = max(m.brought, 1); m.brought >= m.asked {
			m.expects = math.MaxInt32 // there is more
		}
	}
	m.workers.wakeNext()
}

// isNear reports whether a fetch of the member's is answered in a moment, for another one, with mu held.
func (m *member) isNear(o *member, now time.Time) bool {
	return m.rtt <= max(4*o.rtt, m.workers.lapseAfter/4, o.each/16) && !(m.fetching && now.After(m.lapses))
}

// needs is how many workers the member takes in a moment, for another one, with mu held.
func (m *member) needs(o *member, now time.Time) int {
	n := len(m.buffer)
	if m.hungry && m.isNear(o, now) {
		n += m.expects
	}
	return max(min(n, m.own()-m.busy), 0)
}

// rivals are what the other members that have something due mean for one.
type rivals struct {
	needs, first int     // workers that they take in a moment; of them, those that come before the member
	kept         int     // and of those, the ones of members with a backlog
	weights      float64 // of the near ones that have a backlog and quick handlers, and the member's
	behind       bool    // one of those is behind, and gets something in a moment
}

// others says what the other members mean for one, with mu held.
func (m *member) others(now time.Time) (r rivals) {
	r.weights = m.weight
	count := func(o *member) {
		n := o.needs(m, now)
		r.needs += n
		backlog := o.expects > maxBatch
		if n > 0 && o.before(m) {
			if r.first += n; backlog || m.workers.strict && o.rtt <= max(m.workers.lapseAfter/4, m.each/16) {
				r.kept += n
			}
		}
		if !backlog {
			return
		}
		if max(m.each, o.each) < quickHandlers && o.isNear(m, now) {
			r.weights += o.weight
			r.behind = r.behind || n > 0 && len(o.buffer) == 0 && o.timeNow()+m.lead() < m.timeNow()
		}
	}
	for _, o := range m.workers.hungry {
		if o != m {
			count(o)
		}
	}
	for _, o := range m.workers.filled {
		if o != m && !o.hungry {
			count(o)
		}
	}
	return r
}

// wants is how many deliveries a member may ask for, with mu held.
func (m *member) wants(rtt time.Duration) int {
	ws := m.workers
	has, free := m.busy+len(m.buffer), max(ws.size-ws.taken, 0)
	if !ws.shared {
		may := min(free+m.busy, m.most())
		return roomOf(may, has, aheadOf(float64(may), m.each+m.slower, rtt, maxBatch/2))
	}
	now := time.Now()
	each, r := ws.eachNow(now), m.others(now)
	left := free - r.needs
	switch {
	case !m.hungry: // this is a look: one delivery shows that there is more
		return max(min(left-len(m.buffer), 1), 0)
	case r.behind && !ws.strict:
		return 0
	}
	part, most := m.part, int(maxBatch/2*m.weight/r.weights)
	if ws.strict {
		if part, most = m.leftInOrder(now), maxBatch/2; part == 0 {
			return 0
		}
	}
	workers := min(max(int(math.Ceil(part-1e-9)), m.busy+max(left, 0)), m.most())
	switch { // so that it has one when its turn comes; unless what is fetched ahead counts
	case rtt == 0:
	case part < 1:
		workers = max(workers, m.busy+1)
	case part < float64(ws.size) && each < maxBuffered/2:
		workers = max(workers, m.busy) + 1
	}
	all, own := ws.soon(m, now, each, rtt)
	ahead := m.ahead(max(part, float64(m.busy)), each, rtt, max(most, 1))
	want := workers + 2*ahead - (has - own)
	if want <= ahead/2 {
		return 0
	}
	if part < 1 || each >= maxBuffered/2 || want == 1 {
		want = min(want, free+all-r.first-len(m.buffer))
	}
	return max(want, 0)
}

// leftInOrder is how many workers the members before this one leave it, with mu held.
func (m *member) leftInOrder(now time.Time) float64 {
	left := m.workers.size
	for _, o := range m.workers.members {
		if o.order < m.order {
			left -= o.busy + o.needs(m, now)
		}
	}
	return float64(max(left, 0))
}

// ahead is how many deliveries so many workers of the member handle during a fetch, with mu held; each is what those of all
// members take.
func (m *member) ahead(workers float64, each, rtt time.Duration, most int) int {
	own := m.each + m.slower
	if workers < 1 { // the next worker may be one of another
		own, rtt = max(own, each), min(rtt, maxBuffered*2/5)
	}
	if m.each == 0 || float64(own) >= min(workers, 1)*float64(maxBuffered/2) {
		return 0
	}
	n := aheadOf(workers, m.each+m.slower, rtt, most)
	if rtt > m.each/16 {
		n = max(n, 1) // or a small share would lose each round trip
	}
	return n
}

// eachNow is how long handlers take at present, with mu held.
func (ws *workers) eachNow(now time.Time) time.Duration {
	each := max(ws.each, leastTime)
	if ws.used > 0 {
		each = max(each, now.Sub(ws.endedAt))
	}
	return each
}

// soon is how many workers become free in time for what the member fetches, and how many of those are its own, with mu held:
// while that takes its round trip and, if handlers are quick and it is the member's turn, while it may wait in the buffer.
func (ws *workers) soon(m *member, now time.Time, each, rtt time.Duration) (all, own int) {
	const wait = maxBuffered / 2
	if each < wait {
		if turn := (m.timeNow() - ws.clock) * ws.weights / float64(ws.size); !ws.strict && turn > wait.Seconds()/2 {
			return 0, 0
		}
		return int(float64(ws.size) * float64(wait+rtt) / float64(each)), 0
	}
	if rtt < each/16 {
		return 0, 0
	}
	for _, w := range ws.running {
		if left := w.of.each - now.Sub(w.began); w.of.each > 0 && left > -wait && left < rtt+min(rtt, wait) {
			if all++; w.of == m {
				own++
			}
		}
	}
	return all, own
}

// wakeNext wakes the poller of the member from which a free worker would take next, if that has nothing in its buffer and may
// fetch, with mu held.
func (ws *workers) wakeNext() {
	if !ws.shared {
		return
	}
	var next, turn *member
	for _, m := range ws.hungry {
		if !m.fetching && len(m.buffer) == 0 {
			if next == nil || m.before(next) {
				next = m
			}
			if turn == nil || !ws.strict && m.timeNow() < turn.timeNow() {
				turn = m
			}
		}
	}
	switch {
	case next == nil:
	case next.wants(next.rtt) > 0:
		next.freed.send()
	case turn.wants(turn.rtt) > 0:
		turn.freed.send()
	case !ws.looks: // what it leaves to others may not come, and a handler may return soon
		ws.looks = true
		time.AfterFunc(ws.lapseAfter, func() {
			ws.mu.Lock()
			defer ws.mu.Unlock()
			ws.looks = false
			ws.fill()
		})
	}
}
