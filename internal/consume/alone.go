package consume

import "time"

// This file lets one delivery be handled alone: that of a message on its last chance, which is poison if it is lost
// once more. So no other message that kills this process makes poison of it.
//
// The poller whose fetch met such a message asks for the workers. From then on no member fetches anything else, and
// when all handlers have returned, the poller fetches that message by its name. Members fetch again when its handler
// has returned. Both are waited for at most a lease, so a handler that runs on for longer is beside it.

// An alone is the state of that. Its zero value: nobody asks. It is guarded by workers.mu.
type alone struct {
	by    *member   // nil: nobody
	has   bool      // the message has been fetched
	until time.Time // for how long the others are waited for, then the message
}

// becomesAlone asks for the workers, and reports whether the member may fetch its message on its last chance now.
func (m *member) becomesAlone(lease time.Duration) bool {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.mayFetch() {
		ws.alone = alone{by: m, until: time.Now().Add(lease)}
	}
	return ws.alone.by == m && (ws.isQuiet() || ws.alone.isOver() && ws.used < ws.size)
}

// isAlone notes that the message was fetched, and is waited for; or, if it was not there any more, that others may
// fetch.
func (m *member) isAlone(fetched bool, lease time.Duration) {
	ws := m.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.alone = (alone{}); fetched {
		ws.alone = alone{by: m, has: true, until: time.Now().Add(lease)}
	}
	ws.wakeAll()
}

// staysBeside is the end of becomesAlone for a member that fetches nothing more.
func (m *member) staysBeside() {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	m.letsGo()
}

// letsGo lets the others fetch, if they wait for the member, with mu held.
func (m *member) letsGo() {
	if m.workers.alone.by == m {
		m.workers.alone = alone{}
		m.workers.wakeAll()
	}
}

// mayFetch reports whether members may fetch, with mu held.
func (ws *Workers) mayFetch() bool {
	if ws.alone.has && (ws.isQuiet() || ws.alone.isOver()) {
		ws.alone = alone{}
	}
	return ws.alone.by == nil
}

func (a *alone) isOver() bool { return !time.Now().Before(a.until) }

// isQuiet reports whether nothing is handled, and nothing else is being fetched, with mu held.
func (ws *Workers) isQuiet() bool {
	for _, m := range ws.members {
		if len(m.buffer) > 0 || m.fetching && m.asked > 0 {
			return false
		}
	}
	return ws.taken == 0
}

// ifQuiet wakes the pollers if one of them waits until nothing is handled, with mu held.
func (ws *Workers) ifQuiet() {
	if ws.alone.by != nil && ws.isQuiet() {
		ws.wakeAll()
	}
}

// wakeAll wakes all pollers, with mu held.
func (ws *Workers) wakeAll() {
	for _, m := range ws.members {
		m.freed.Send()
	}
}
