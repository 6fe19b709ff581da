package consume

import (
	"math"
	"time"
)

// This file decides from which member of a Pool a free worker takes a delivery. ahead.go has deliveries fetched in time. A DelayQueue by itself
// is the only member, and gets all workers.
//
// A free worker takes a delivery that has been fetched, if there is one. In a strict pool, it takes the delivery of the first member in the
// order. By weight, members with less than their share of the workers come first. Among several, the member comes first whose deliveries
// have taken the least time for its weight (C. A. Waldspurger, W. E. Weihl, "Stride Scheduling", 1995). No worker is kept free for a member
// whose fetch takes long, or brings little.
//
// A member is hungry if its queue has more that is due than it holds, or may have, and only the want of a worker keeps it from fetching. It is
// not hungry if its own limits keep it from fetching, or a server that does not answer. The hungry members divide the workers by weight.
// What each gets is its share.

const (
	// leastTime is how much time a delivery counts for at least, because it costs the process that much beside its handler.
	leastTime = 100 * time.Microsecond
	// If handlers are quicker than quickHandlers, not workers are scarce but fetches. So fetches are shared: a member that is ahead waits
	// for the fetch of a near member that is behind.
	quickHandlers = time.Millisecond
)

// LapseAfter is how long other members take a fetch into account, or four times what the fetches of its member usually take. After that
// its server may be away. Only tests change it.
var LapseAfter = 20 * time.Millisecond

// A turn says when a member is next. It is guarded by workers.mu.
type turn struct {
	hungry   bool
	fetching bool          // a fetch is under way
	silent   bool          // an attempt at it has failed
	lapses   time.Time     // when nobody takes that fetch into account any more
	asked    int           // deliveries that the fetch asked for
	brought  int           // deliveries that it brought
	expects  int           // deliveries that the next fetch is likely to bring
	rtt      time.Duration // how long fetches usually take
	part     float64       // how many workers are the member's while it is hungry
	share    int           // part, rounded up
	returned time.Time     // when a handler of its own returned last, or the first one began
	time     float64       // seconds / weight that its handlers took
}

// setHungry notes whether a member is hungry, with mu held.
func (m *member) setHungry(hungry bool) {
	if m.hungry == hungry {
		return
	}
	ws := m.workers
	m.hungry = hungry
	if hungry {
		m.notBefore(0)
		ws.hungry = append(ws.hungry, m)
	} else {
		ws.hungry = without(ws.hungry, m)
	}
	ws.divide()
	ws.fill()
}

// notBefore bounds how far a member is behind, by so many deliveries for each worker of its share, with mu held. Workers that a member did not
// use before are not made up for.
func (m *member) notBefore(deliveries float64) {
	ws := m.workers
	behind := max(deliveries*m.lead(), min(deliveries, 2)*m.rtt.Seconds()*float64(ws.size)/max(ws.weights, m.weight))
	m.time += max(ws.clock-behind-m.timeNow(), 0)
}

// divide divides the workers among the hungry members, with mu held. Workers that a member may not have because of AtMost go to the others.
func (ws *Workers) divide() {
	left, weights := float64(ws.size), 0.0
	for _, m := range ws.hungry {
		m.part = -1
		weights += m.weight
	}
	ws.weights = weights
	for again := true; again; {
		again = false
		for _, m := range ws.hungry {
			if most := m.atMostNow(); m.part < 0 && most < left*m.weight/weights {
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

// atMostNow is how many workers a hungry member may have, with mu held. Those of one queue divide its AtMost.
func (m *member) atMostNow() float64 {
	ws := m.workers
	if !m.grouped || m.atMost >= ws.size {
		return float64(m.most())
	}
	hungry, has := 0, m.busy
	for _, o := range ws.hungry {
		if o.order == m.order {
			hungry++
		}
	}
	return max(float64(min(m.atMost, m.most()+has))/float64(max(hungry, 1)), float64(min(has, m.atMost)))
}

// own is a member's share, with mu held. If the member is not hungry, own is what its share would be.
func (m *member) own() int {
	switch ws := m.workers; {
	case ws.strict || !ws.shared:
		return m.most()
	case !m.hungry:
		return min(int(math.Ceil(float64(ws.size)*m.weight/(ws.weights+m.weight))), m.most())
	}
	return m.share
}

// cost is how much time a delivery of the member counts for, in seconds / weight, with mu held.
func (m *member) cost() float64 { return max(m.each, leastTime).Seconds() / m.weight }

// timeNow is the member's time with that of the handlers that run, with mu held.
func (m *member) timeNow() float64 { return m.time + float64(m.busy)*m.cost() }

// lead is how far members may be apart because they take several deliveries at once, with mu held.
func (m *member) lead() float64 {
	return (m.weight*float64(m.workers.size)/max(m.workers.weights, m.weight) + 1) * m.cost()
}

// before reports whether a free worker takes the member's delivery rather than o's, with mu held.
func (m *member) before(o *member) bool {
	if m.workers.strict && m.order != o.order {
		return m.order < o.order
	}
	if over := m.busy >= m.own(); over != (o.busy >= o.own()) {
		return !over
	}
	a, b := m.timeNow(), o.timeNow()
	return a < b || a == b && m.order < o.order
}

// mayTake reports whether a free worker may take the member's delivery, with mu held. Beyond its share, a member takes no worker that another
// member with a backlog needs in a moment, and no worker at all if its handlers hang.
func (m *member) mayTake() bool {
	ws := m.workers
	if !ws.strict && float64(m.busy+1) <= m.part || len(ws.hungry) == 0 || len(ws.hungry) == 1 && m.hungry {
		return true
	}
	now := time.Now()
	return (m.busy < m.own() || !m.hangs(now)) && ws.size-ws.taken > m.others(now).kept
}

// hangs reports whether no handler of the member has returned for much longer than handlers usually take, with mu held.
func (m *member) hangs(now time.Time) bool {
	return m.busy > 0 && m.each > 0 && now.Sub(m.returned) > 4*m.each+quickHandlers
}

// ended notes that a handler of the member has returned, with mu held.
func (m *member) ended(took time.Duration) {
	ws := m.workers
	m.time += max(took, leastTime).Seconds() / m.weight
	if ws.shared {
		m.returned = time.Now()
		ws.endedAt = m.returned
		if !m.grouped { // what waits for a shard's slow handler would have waited in a queue that has no shards
			m.slower /= 2
		}
		if took > ws.each { // the longer ones have workers for more of the time
			ws.each += (took - ws.each) / 4
		}
		ws.each += (took - ws.each) / 16
	}
}
