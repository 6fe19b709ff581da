package delayqueue

import (
	"math"
	"time"
)

// This file decides from which member of a Pool a free worker takes a delivery; ahead.go has it fetched in time. A DelayQueue
// by itself is the only member, and gets all.
//
// A free worker takes a delivery that has been fetched, if there is one. In a strict pool it takes that of the first member in the
// order. By weight it takes that of a member that has less than its share of the workers, if there is one, and among
// several that of the member whose deliveries have taken the least time for its weight (C. A. Waldspurger, W. E. Weihl,
// "Stride Scheduling", 1995). No worker is kept free for a member whose fetch takes longer than a moment, or brings little: a
// worker is free for no longer than one round trip while another member has something for it.
//
// A member is hungry if more is due in its queue than it holds, or nobody knows yet, and nothing but the want of a worker
// keeps it from taking that: neither its own limits nor a server that does not answer. The hungry members divide the workers by
// weight: those are their shares.

const (
	// leastTime is what a delivery counts for at least: it costs the process so much beside its handler.
	leastTime = 100 * time.Microsecond
	// Of handlers that are quicker than quickHandlers, workers are no bound, but fetches are. So those are what is shared: a
	// member that is ahead waits for the fetch of a near one that is behind.
	quickHandlers = time.Millisecond
	// lapseAfter is how long others take a fetch into account, or four times what the fetches of its member usually take: its
	// server may be away.
	lapseAfter = 20 * time.Millisecond
)

// A turn says when a member is next. It is guarded by workers.mu.
type turn struct {
	hungry   bool
	fetching bool          // a fetch is under way
	lapses   time.Time     // when nobody takes that into account any more
	asked    int           // for how many
	brought  int           // by it
	expects  int           // what the next one is likely to bring
	rtt      time.Duration // how long they usually take
	part     float64       // how many workers are its own while it is hungry
	share    int           // the same, rounded up
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

// notBefore lets a member be behind by so many deliveries for each of its share at most, with mu held: what it did not use
// before is not made up for.
func (m *member) notBefore(deliveries float64) {
	ws := m.workers
	behind := max(deliveries*m.lead(), min(deliveries, 2)*m.rtt.Seconds()*float64(ws.size)/max(ws.weights, m.weight))
	m.time += max(ws.clock-behind-m.timeNow(), 0)
}

// divide divides the workers among the hungry members, with mu held. What one may not have because of its AtMost is for the others.
func (ws *workers) divide() {
	left, weights := float64(ws.size), 0.0
	for _, m := range ws.hungry {
		m.part = -1
		weights += m.weight
	}
	ws.weights = weights
	for again := true; again; {
		again = false
		for _, m := range ws.hungry {
			if most := float64(m.most()); m.part < 0 && most < left*m.weight/weights {
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

// own is a member's share, or what that would be if it were hungry, with mu held.
func (m *member) own() int {
	switch ws := m.workers; {
	case ws.strict || !ws.shared:
		return m.most()
	case !m.hungry:
		return min(int(math.Ceil(float64(ws.size)*m.weight/(ws.weights+m.weight))), m.most())
	}
	return m.share
}

// cost is what a delivery of the member counts for, in seconds / weight, with mu held.
func (m *member) cost() float64 { return max(m.each, leastTime).Seconds() / m.weight }

// timeNow is the member's time with that of the handlers that run, with mu held.
func (m *member) timeNow() float64 { return m.time + float64(m.busy)*m.cost() }

// lead is how far members may be apart because they take several deliveries at once, with mu held.
func (m *member) lead() float64 {
	return (m.weight*float64(m.workers.size)/max(m.workers.weights, m.weight) + 1) * m.cost()
}

// before reports whether a free worker takes the member's delivery rather than another one's, with mu held.
func (m *member) before(o *member) bool {
	if m.workers.strict {
		return m.order < o.order
	}
	if over := m.busy >= m.own(); over != (o.busy >= o.own()) {
		return !over
	}
	a, b := m.timeNow(), o.timeNow()
	return a < b || a == b && m.order < o.order
}

// mayTake reports whether a free worker may take the member's delivery, with mu held. Beyond its share a member takes no worker
// that another one with a backlog takes in a moment, and none once its handlers have begun to hang.
func (m *member) mayTake() bool {
	ws := m.workers
	if !ws.strict && float64(m.busy+1) <= m.part || len(ws.hungry) == 0 || len(ws.hungry) == 1 && m.hungry {
		return true
	}
	now := time.Now()
	return (m.busy < m.own() || !m.hangs(now)) && ws.size-ws.taken > m.others(now).kept
}

// hangs reports whether none of the member's handlers has returned for much longer than they take, with mu held.
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
		m.slower /= 2
		if took > ws.each { // the longer ones have workers for more of the time
			ws.each += (took - ws.each) / 4
		}
		ws.each += (took - ws.each) / 16
	}
}
