package consume

import (
	"cmp"
	"slices"
	"time"
)

// This file decides from which member of a Pool a free worker takes a delivery. ahead.go has deliveries fetched in
// time. A DelayQueue by itself is the only member, and gets all workers.
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
