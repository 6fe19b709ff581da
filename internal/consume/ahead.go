package consume

import (
	"math"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file decides how many deliveries each member of a Pool fetches, and when.
//
// A member fetches what its workers handle in two of its own round trips. It counts on more workers if some are free that no other member needs in
// a moment. While handlers are slow, it fetches only for workers that are free, or will be free when the fetch is answered. A fetched
// message waits for at most maxBuffered, because other processes may have workers for it.

// room is how many deliveries a member may ask for. limit is how many its queue has room for, and hungry says whether more is due there. rtt is
// how long fetches take, and 0 if nothing is fetched ahead.
func (m *member) room(limit int, hungry bool, rtt time.Duration) int {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.setHungry(hungry && limit > 0)
	return min(m.wants(rtt), limit)
}

// ask is room, and notes that a fetch for that many begins, which ends with answered. ahead is the rtt of room, and usual is how long fetches take.
func (m *member) ask(limit int, hungry bool, ahead, usual time.Duration) int {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	m.setHungry(hungry && limit > 0)
	m.rtt = usual
	m.asked, m.brought = min(m.wants(ahead), limit), 0
	m.fetching, m.silent = true, false
	if ws.shared {
		m.lapses = time.Now().Add(max(ws.lapseAfter, 4*usual))
		ws.wakeNext()
	}
	return m.asked
}

// setAside counts deliveries that a fetch has brought and no handler sees. They count for the member's time, because otherwise a member with a
// backlog of them would always be next.
func (m *member) setAside(n int) {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.brought += n
	m.time += float64(n) * leastTime.Seconds() / m.weight
}

// lapsed notes that an attempt at a fetch has failed. Other members do not take that fetch into account, nor wait for a message that the member
// wants to fetch alone.
func (m *member) lapsed() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.lapses, m.silent = time.Time{}, true
	m.setHungry(false)
	m.letsGo(0)
}

// answered notes that a fetch has ended.
func (m *member) answered() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.fetching = false
	m.workers.ifQuiet()
	if m.asked > 0 {
		if m.expects = max(m.brought, 1); m.brought >= m.asked {
			m.expects = math.MaxInt32 // there is more
		}
	}
	m.workers.wakeNext()
}

// isNear reports whether fetches of the member are quick enough for o to wait for them, with mu held.
func (m *member) isNear(o *member, now time.Time) bool {
	return m.rtt <= max(4*o.rtt, m.workers.lapseAfter/4, o.each/16) && !(m.fetching && now.After(m.lapses))
}

// needs is how many workers the member takes in a moment, as o sees it, with mu held.
func (m *member) needs(o *member, now time.Time) int {
	n := len(m.buffer)
	if m.hungry && m.isNear(o, now) {
		n += m.expects
	}
	return max(min(n, m.own()-m.busy), 0)
}

// rivals sums up the other members that have something due.
type rivals struct {
	needs   int     // workers that they take in a moment
	first   int     // workers that those take that come before the member
	kept    int     // workers that those take that come before the member and have a backlog
	weights float64 // of the member, and of near ones with a backlog and quick handlers
	behind  bool    // one of these is behind, and gets something in a moment
}

// others sums up the other members, with mu held.
func (m *member) others(now time.Time) (r rivals) {
	r.weights = m.weight
	count := func(o *member) {
		n := o.needs(m, now)
		r.needs += n
		backlog := o.expects > script.MaxBatch
		sibling := m.grouped && o.order == m.order // shards of one queue share no fetches, and keep no worker free for each other
		if n > 0 && o.before(m) {
			if r.first += n; !sibling && (backlog || m.workers.strict && o.rtt <= max(m.workers.lapseAfter/4, m.each/16)) {
				r.kept += n
			}
		}
		if !backlog || sibling {
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
	if !ws.mayFetch() {
		return 0
	}
	has, free := m.busy+len(m.buffer), max(ws.size-ws.taken, 0)
	if !ws.shared {
		may := min(free+m.busy, m.most())
		return roomOf(may, has, aheadOf(float64(may), m.each+m.slower, rtt, maxAhead))
	}
	if 2*m.atMost <= ws.stuck[m.order] { // its queue has no worker left, though others have
		return 0
	}
	now := time.Now()
	each, r := ws.eachNow(now), m.others(now)
	left := free - r.needs
	switch {
	case !m.hungry: // a look: one delivery shows that there is more
		return max(min(left-len(m.buffer), 1), 0)
	case r.behind && !ws.strict:
		return 0
	}
	part, most := m.part, int(script.MaxBatch/2*m.weight/r.weights)
	if ws.strict {
		if part, most = m.leftInOrder(now), script.MaxBatch/2; part == 0 {
			return 0
		}
	}
	workers := min(max(int(math.Ceil(part-1e-9)), m.busy+max(left, 0)), m.most())
	switch { // so that the member has a delivery when its turn comes, unless nothing is fetched ahead
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

// leftInOrder is how many workers the members before this one leave it, with mu held. Shards of the same queue that have something due divide them.
func (m *member) leftInOrder(now time.Time) float64 {
	left, shards := m.workers.size, 1
	for _, o := range m.workers.members {
		switch {
		case o.order < m.order:
			left -= o.busy + o.needs(m, now)
		case o != m && o.order == m.order && o.hungry:
			shards++
		}
	}
	return float64(max(left, 0)) / float64(shards)
}

// ahead is how many deliveries so many workers of the member handle during a fetch, with mu held. each is how long deliveries of all members take.
func (m *member) ahead(workers float64, each, rtt time.Duration, most int) int {
	own := m.each + m.slower
	if workers < 1 { // the next free worker may be another member's
		own, rtt = max(own, each), min(rtt, maxBuffered*2/5)
	}
	if m.each == 0 || float64(own) >= min(workers, 1)*float64(maxBuffered/2) {
		return 0
	}
	n := aheadOf(workers, m.each+m.slower, rtt, most)
	if rtt > m.each/16 {
		n = max(n, 1) // otherwise a small share would lose a round trip for each delivery
	}
	return n
}

// eachNow is how long handlers take at present, with mu held.
func (ws *Workers) eachNow(now time.Time) time.Duration {
	each := max(ws.each, leastTime)
	if ws.used > 0 {
		each = max(each, now.Sub(ws.endedAt))
	}
	return each
}

// soon is how many workers become free in time for what the member fetches, and how many of those are its own, with mu held. The time is a round
// trip and, if handlers are quick and it is the member's turn, what a delivery may wait in the buffer.
func (ws *Workers) soon(m *member, now time.Time, each, rtt time.Duration) (all, own int) {
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
		if w.of == nil {
			continue // it began before the workers were shared
		}
		if left := w.of.each - now.Sub(w.began); w.of.each > 0 && left > -wait && left < rtt+min(rtt, wait) {
			if all++; w.of == m {
				own++
			}
		}
	}
	return all, own
}

// wakeNext wakes the poller of the member from which a free worker would take next, if its buffer is empty and it may fetch, with mu held.
func (ws *Workers) wakeNext() {
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
		next.freed.Send()
	case turn.wants(turn.rtt) > 0:
		turn.freed.Send()
	case !ws.looks: // what the members leave to others may not come
		ws.looks = true
		time.AfterFunc(ws.lapseAfter, func() {
			ws.mu.Lock()
			defer ws.mu.Unlock()
			ws.looks = false
			ws.fill()
		})
	}
}
