package consume

import (
	"slices"
	"time"
)

// This file lets one delivery be handled alone: that of a message on its last chance, which is poison if it is lost
// once more. So no other message that kills this process makes poison of it.
//
// The poller whose fetch met such a message asks for the workers. From then on no member fetches anything else, and
// when all handlers have returned, the poller fetches that message by its name. Members fetch again when it has been
// settled. Both are waited for at most a lease, and for a handler that runs on for longer than that nobody waits again.
// Afterwards all fetch for as long as that took before somebody asks again, so it takes at most half of the time. If
// the process stops before it has the message, the message is due again two leases after it was named. So a name is
// good for a wait that begins within a lease.

// An alone is the state of that. Its zero value: nobody asks. It is guarded by workers.mu.
type alone struct {
	by     *member   // nil: nobody
	has    string    // tag of the message once it has been fetched; "": not yet
	since  time.Time // when by asked
	until  time.Time // for how long the others are waited for, then the message
	waited time.Time // handlers that began before it have been waited for
	rests  time.Time // nobody asks before it
}

// becomesAlone asks for the workers, and reports whether the member may fetch its message on its last chance now, and
// if not, after what time to call again at the latest; 0: the message was named too long ago.
func (m *member) becomesAlone(lease, named time.Duration) (now bool, in time.Duration) {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	a := &ws.alone
	if ws.mayFetch() {
		if named > lease {
			return false, 0
		}
		if rest := time.Until(a.rests); rest > 0 || m.busy >= m.most() {
			return false, max(rest, lease/100)
		}
		a.by, a.since, a.until = m, time.Now(), time.Now().Add(lease)
	}
	mine := a.by == m && a.has == ""
	over := mine && a.isOver() && ws.used < ws.size
	if over {
		a.waited = a.since
	}
	if !mine || !over && !ws.isQuiet() {
		return false, max(time.Until(a.until), lease/100)
	}
	return true, 0
}

// wantsName reports whether the member could ask now.
func (m *member) wantsName() bool {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	return m.workers.alone.by == nil && time.Until(m.workers.alone.rests) <= 0
}

// isAlone notes that the message of a tag was fetched, and is waited for; or, with "", that none was, so that others
// may fetch for a while.
func (m *member) isAlone(tag string, lease time.Duration) {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	a := &ws.alone
	if tag == "" {
		m.letsGo(lease / 10)
		return
	}
	if a.by != m {
		a.by, a.since = m, time.Now()
	}
	a.has, a.until = tag, time.Now().Add(lease)
	time.AfterFunc(lease, func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.mayFetch()
	})
}

// wasAlone lets the others fetch if they wait for one of these deliveries, which have been settled or lost.
func (m *member) wasAlone(ds []*delivery) {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.alone.by == m && slices.ContainsFunc(ds, func(d *delivery) bool { return d.tag == ws.alone.has }) {
		ws.end(0)
	}
}

// letsGo lets the others fetch, if they wait for the member to fetch its message, with mu held.
func (m *member) letsGo(rest time.Duration) {
	if a := &m.workers.alone; a.by == m && a.has == "" {
		m.workers.end(rest)
	}
}

// end lets all members fetch, for as long as that was not so, and at least for rest, with mu held.
func (ws *Workers) end(rest time.Duration) {
	a := &ws.alone
	ws.alone = alone{waited: a.waited, rests: time.Now().Add(max(rest, time.Since(a.since)))}
	ws.wakeAll()
}

// mayFetch reports whether members may fetch, with mu held.
func (ws *Workers) mayFetch() bool {
	if ws.alone.has != "" && ws.alone.isOver() {
		ws.alone.waited = time.Now()
		ws.end(0)
	}
	return ws.alone.by == nil
}

func (a *alone) isOver() bool { return !time.Now().Before(a.until) }

// isQuiet reports whether nothing is handled but by handlers that have been waited for, and nothing else is being
// fetched by a member whose server answers, with mu held.
func (ws *Workers) isQuiet() bool {
	for _, m := range ws.members {
		if len(m.buffer) > 0 || m.asked > 0 {
			return false
		}
	}
	if ws.used == 0 || ws.alone.waited.IsZero() {
		return ws.used == 0
	}
	now, old := time.Now(), 0
	for _, w := range ws.running {
		if d := w.serving.Load(); d != nil && !d.isReplaced() && d.started.Age(now) > now.Sub(ws.alone.waited) {
			old++
		}
	}
	return ws.used <= old
}

// ifQuiet wakes the poller that waits until nothing is handled, with mu held.
func (ws *Workers) ifQuiet() {
	if m := ws.alone.by; m != nil && ws.alone.has == "" && ws.isQuiet() {
		m.freed.Send()
	}
}

// wakeAll wakes all pollers, with mu held.
func (ws *Workers) wakeAll() { ws.wakeOthers(nil) }

// wakeOthers wakes all pollers but a member's, with mu held.
func (ws *Workers) wakeOthers(m *member) {
	for _, o := range ws.members {
		if o != m {
			o.freed.Send()
		}
	}
}
