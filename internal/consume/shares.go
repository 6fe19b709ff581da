package consume

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file decides from which member of a Pool a free worker takes a delivery, and how many deliveries a member
// fetches, and when. A DelayQueue by itself is the only member, and gets all workers.
//
// A member is hungry if its queue has more that is due than it holds, or may have, and only the want of a worker keeps
// it from fetching. It is not hungry if its own limits keep it from fetching, or a server that does not answer. The
// hungry members divide the workers by weight, or in their order. What each gets is its share.
//
// A free worker takes a delivery that has been fetched. In a strict pool, it takes the delivery of the first member in
// the order. By weight, it takes the delivery of the member whose deliveries have taken the least time for its weight
// (C. A. Waldspurger, W. E. Weihl, "Stride Scheduling", 1995).

const (
	// leastTime is how much time a delivery counts for at least, because it costs the process that much beside its
	// handler.
	leastTime = 100 * time.Microsecond
	// maxBehind bounds how far a member is behind because others had its share, for example while its fetches took long.
	maxBehind = time.Second
	// averageOf is of how many deliveries an average is. If one handler in some hundred is slow, a shorter average would
	// forget that between two of them, and what was fetched ahead would be released for each.
	averageOf = 64
	// maxBuffered is how long a fetched message may wait for a worker. Then it is released, because another consumer may
	// have a free worker.
	maxBuffered = 100 * time.Millisecond
	// soon is how long a fetched message should wait for a worker at most: a part of maxBuffered, because handlers vary.
	soon = maxBuffered / 4
)

// A turn says when a member is next. It is guarded by workers.mu.
type turn struct {
	hungry bool
	asked  int     // deliveries that a fetch asks for which is under way, and of which no attempt has failed
	part   float64 // how many workers are the member's while it is hungry
	time   float64 // seconds / weight that its handlers took
}

// setHungry notes whether a member is hungry, with mu held.
func (m *member) setHungry(hungry bool) {
	if m.hungry == hungry {
		return
	}
	ws := m.workers
	m.hungry = hungry
	if hungry {
		m.notBehind(0) // workers that it did not use before are not made up for
		ws.hungry = append(ws.hungry, m)
	} else {
		ws.hungry = without(ws.hungry, m)
	}
	ws.divide()
	ws.fill()
}

// divide divides the workers among the hungry members, with mu held.
func (ws *Workers) divide() {
	ws.weights, ws.heaviest = 0, 0
	for _, m := range ws.hungry {
		ws.weights, ws.heaviest = ws.weights+m.Weight, max(ws.heaviest, m.Weight)
	}
	if !ws.strict {
		divideAmong(ws.hungry, float64(ws.size))
		return
	}
	byOrder := func(a, b *member) int { return cmp.Compare(a.Order, b.Order) }
	inOrder := slices.SortedFunc(slices.Values(ws.hungry), byOrder)
	for left := float64(ws.size); len(inOrder) > 0; {
		n := 1
		for n < len(inOrder) && inOrder[n].Order == inOrder[0].Order { // shards of one queue
			n++
		}
		left = divideAmong(inOrder[:n], left)
		inOrder = inOrder[n:]
	}
}

// divideAmong divides so many workers among members by weight, with mu held, and returns how many are left. Workers
// that a member may not have because of AtMost go to the others.
func divideAmong(members []*member, left float64) float64 {
	weights, open := 0.0, len(members)
	for _, m := range members {
		m.part = -1
		weights += m.Weight
	}
	for again := true; again; {
		again = false
		for _, m := range members {
			if most := m.atMostNow(); m.part < 0 && most < left*m.Weight/weights {
				m.part, again = most, true
				left -= most
				weights -= m.Weight
				open--
			}
		}
	}
	if open == 0 {
		return left
	}
	for _, m := range members {
		if m.part < 0 {
			m.part = left * m.Weight / weights
		}
	}
	return 0
}

// atMostNow is how many workers a hungry member may have, with mu held. Those of one queue divide its AtMost.
func (m *member) atMostNow() float64 {
	ws := m.workers
	if !m.Grouped || m.AtMost >= ws.size {
		return float64(m.most())
	}
	hungry, has := 0, m.busy
	for _, o := range ws.hungry {
		if o.Order == m.Order {
			hungry++
		}
	}
	return max(float64(min(m.AtMost, m.most()+has))/float64(max(hungry, 1)), float64(min(has, m.AtMost)))
}

// share is how many workers are the member's, with mu held. If the member is not hungry, share is what it would be.
func (m *member) share() float64 {
	switch ws := m.workers; {
	case m.hungry:
		return m.part
	case ws.strict || !ws.shared:
		return float64(m.most())
	default:
		return min(float64(ws.size)*m.Weight/(ws.weights+m.Weight), float64(m.most()))
	}
}

// cost is how much time a delivery of the member counts for, in seconds / weight, with mu held.
func (m *member) cost() float64 { return max(m.each, leastTime).Seconds() / m.Weight }

// timeNow is the member's time with that of the handlers that run, with mu held.
func (m *member) timeNow() float64 { return m.time + float64(m.busy)*m.cost() }

// before reports whether a free worker takes the member's delivery rather than o's, with mu held.
func (m *member) before(o *member) bool {
	if m.workers.strict && m.Order != o.Order {
		return m.Order < o.Order
	}
	a, b := m.timeNow(), o.timeNow()
	return a < b || a == b && m.Order < o.Order
}

// notBehind bounds how far a member is behind by what the workers do in so much time, with mu held.
func (m *member) notBehind(most time.Duration) {
	ws := m.workers
	behind := most.Seconds() * float64(ws.size) / max(ws.weights, m.Weight)
	m.time += max(ws.clock-behind-m.timeNow(), 0)
}

// ended notes that a handler of the member has returned, with mu held.
func (m *member) ended(took time.Duration) {
	m.time += max(took, leastTime).Seconds() / m.Weight
	m.counted = min(m.counted+1, averageOf)
	m.each = max(m.each+(took-m.each)/time.Duration(m.counted), 1)
	m.careful = max(m.careful-1, 0)
	if ws := m.workers; ws.shared {
		now := time.Now()
		gap := now.Sub(ws.endedAt)
		ws.gap, ws.endedAt = cmp.Or(ws.gap, gap), now
		ws.gap += (gap - ws.gap) / averageOf
	}
}

// wants is how many deliveries the member may fetch, with mu held. That is one for each of its workers that is free or
// will soon be, and twice what these workers handle during a fetch, which takes rtt. So the buffer lasts while the
// next fetch is under way. Nothing is fetched ahead if rtt is 0, if handlers are slow, or after a release.
func (m *member) wants(rtt time.Duration) int {
	ws := m.workers
	if !ws.mayFetch() {
		return 0
	}
	share := m.share()
	workers := roundUp(share)
	if free, wait := m.prospects(); !ws.shared || wait >= soon {
		ofQueue := m.mostBeside(func(o *member) int { return o.busy + len(o.buffer) + o.asked })
		workers = max(min(workers, m.busy+free, ofQueue), 0)
	}
	ahead := 0
	most := max(int(script.MaxBatch*m.Weight/max(ws.heaviest, m.Weight)), 1) // members share fetches, too
	if rtt > 0 && m.each > 0 && m.each < maxBuffered/2 && m.careful == 0 {
		rate := min(share, float64(workers)) / m.each.Seconds()
		ahead = int(min(rate*rtt.Seconds(), float64(most)))
		if ws.shared && m.isQuick() && rate*soon.Seconds() > 1 {
			// a worker that becomes free finds something of each member
			ahead = max(ahead, min(workers, int(share)), 1)
		}
	}
	has := m.busy + len(m.buffer)
	if has >= workers+ahead {
		return 0
	}
	return min(workers+2*ahead-has, most)
}

// prospects is how many workers are free for the member, with mu held, and how long it is until one takes what the
// member fetches now. No worker is free for it that other members need for what they have fetched, are fetching, or
// may fetch first.
func (m *member) prospects() (free int, wait time.Duration) {
	ws := m.workers
	free, wait = ws.size-ws.used, ws.gap
	if ws.used > 0 {
		wait = max(wait, time.Since(ws.endedAt))
	}
	consider := func(o *member) {
		before := o.hungry && o.before(m)
		if before && !ws.strict { // its turns come first until as much of its time has passed
			behind := (m.timeNow() - o.timeNow()) * o.Weight / float64(ws.size)
			wait += max(time.Duration(behind*float64(time.Second)), ws.gap)
		}
		if m.isQuick() {
			return // the worker will be free again in a moment
		}
		needs := len(o.buffer) + o.asked
		if before {
			needs = ws.size
		}
		free -= max(min(needs, roundUp(o.share())-o.busy), 0)
	}
	for _, o := range ws.hungry {
		if o != m {
			consider(o)
		}
	}
	for _, o := range ws.filled {
		if o != m && !o.hungry {
			consider(o)
		}
	}
	return free, wait
}

// isQuick reports whether a worker that handles a delivery of the member is free again soon, with mu held. A member
// whose deliveries are not known yet counts as the others.
func (m *member) isQuick() bool { return cmp.Or(m.each, m.workers.gap) < soon }

func roundUp(workers float64) int { return int(math.Ceil(workers - 1e-9)) }

// room is how many deliveries a member may ask for. limit is how many its queue has room for, and hungry says whether
// more is due there. rtt is how long fetches take, and 0 if nothing is fetched ahead. open says whether there is room,
// or a worker of another member may become free for this one.
func (m *member) room(limit int, hungry bool, rtt time.Duration) (n int, open bool) {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.setHungry(hungry && limit > 0)
	n = min(m.wants(rtt), limit)
	return n, n > 0 || limit > 0 && m.workers.shared && m.busy+len(m.buffer) < m.most()
}

// ask is room, and notes that a fetch for that many begins, which ends with endFetch.
func (m *member) ask(limit int, hungry bool, rtt time.Duration) int {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.setHungry(hungry && limit > 0)
	m.asked = min(m.wants(rtt), limit)
	m.workers.wakeNext()
	return m.asked
}

// withdraw notes that the member gets nothing for now, because an attempt at a fetch has failed, or nothing more is
// fetched. Other members do not take its fetch into account any more, nor wait for a message that it wants to fetch
// alone.
func (m *member) withdraw() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.asked = 0
	m.setHungry(false)
	m.letsGo(0)
}

// endFetch notes that a fetch has ended.
func (m *member) endFetch() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.asked = 0
	m.workers.ifQuiet()
	m.workers.wakeNext()
}

// wakeNext wakes the poller of the member whose turn is next among those that have fetched nothing, if it may fetch,
// with mu held.
func (ws *Workers) wakeNext() {
	if !ws.shared {
		return
	}
	var next *member
	for _, m := range ws.hungry {
		may := m.asked == 0 && len(m.buffer) == 0 && m.busy < min(roundUp(m.share()), m.most())
		if may && (next == nil || m.before(next)) {
			next = m
		}
	}
	if next != nil && next.wants(0) > 0 {
		next.freed.Send()
	}
}
