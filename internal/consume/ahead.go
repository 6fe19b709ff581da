package consume

import (
	"cmp"
	"math"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file decides how many deliveries a member fetches, and when.

const (
	// maxBuffered is how long a fetched message may wait for a worker. Then it is released, because another consumer may
	// have a free worker.
	maxBuffered = 100 * time.Millisecond
	// soon is how long a fetched message should wait for a worker at most: a part of maxBuffered, because handlers vary.
	soon = maxBuffered / 4
)

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
