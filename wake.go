package delayqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// A wakeListener waits for the wake marker of one queue, on a connection that it may share with other queues (wakeLine).
//
// It takes the marker only on request, one marker for each, so that a consumer without a free
// worker leaves markers to others. The poller is the other end of its channels.
type wakeListener struct {
	store *store

	taken       chan serverTime // cap 1: the instant of a marker that was taken
	failed      chan error      // cap 1: the connection failed, perhaps with a marker on it
	unsupported chan error      // cap 1: this server or client cannot block; the error says why
	answered    atomic.Int64    // how often waiting worked, marker or not; written by the line, read by the poller

	// Guarded by mu of the link's wakeLines.
	line     *wakeLine // nil before the first request, and when it has left
	asking   bool      // a marker is to be taken for it
	suspect  bool      // a call on its key, and perhaps on others, was refused: it is asked for alone
	refusals int       // in a row, of calls on its key alone
	resumeAt time.Time // not before then, after a refusal
}

func newWakeListener(s *store) *wakeListener {
	return &wakeListener{
		store: s, taken: make(chan serverTime, 1), failed: make(chan error, 1), unsupported: make(chan error, 1),
	}
}

// ask requests one marker. The next request is made when that has come, at the earliest.
func (l *wakeListener) ask() {
	if l.store.link == nil {
		l.unsupported <- fmt.Errorf("%w: %T", errNoNode, l.store.cli)
		return
	}
	lines := &l.store.link.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if l.line == nil {
		lines.join(l)
	}
	l.asking = true
	if call := l.line.call; call == nil {
		l.line.changed.send()
	} else if !slices.Contains(call.listeners, l) {
		l.line.interrupt(l.store)
	}
}

// leavePatience is how long close waits for a call to be interrupted. Then it closes the connection.
const leavePatience = 250 * time.Millisecond

// close takes no marker any more: when it returns no call takes one for this listener.
func (l *wakeListener) close() {
	if l.store.link == nil {
		return
	}
	lines := &l.store.link.lines
	lines.mu.Lock()
	w := l.line
	if w == nil {
		lines.mu.Unlock()
		return
	}
	call := w.call
	if call != nil && !slices.Contains(call.listeners, l) {
		call = nil
	}
	if last := lines.leave(l); last {
		w.end()
		lines.mu.Unlock()
		<-w.ended
		return
	}
	if call != nil {
		w.interrupt(l.store)
	}
	lines.mu.Unlock()
	if call == nil {
		return
	}
	select {
	case <-call.answered:
	case <-time.After(leavePatience):
		w.dropIn(call)
		<-call.answered
	}
}

// drop closes the connection, if it is older than an instant; the next one may lead to another server.
func (l *wakeListener) drop(before time.Time) {
	lines := &l.store.link.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if w := l.line; w != nil && w.connectedAt.Before(before) && w.call != nil && slices.Contains(w.call.listeners, l) {
		w.drop()
	}
}

// retry ends a wait after failures: Redis is back.
func (l *wakeListener) retry() {
	if l.store.link == nil {
		return
	}
	lines := &l.store.link.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if w := l.line; w != nil {
		l.resumeAt = time.Time{}
		w.retryNow.send()
		w.changed.send()
	}
}

// refused handles the answer to a call on this listener's key alone, which was refused, with lines.mu held.
func (l *wakeListener) refused(err error) {
	if refusesBlocking(err) {
		l.asking = false
		l.unsupported <- err
		return
	}
	l.refusals++
	l.resumeAt = time.Now().Add(wakeBackoff(l.refusals))
	l.fail(err)
}

func (l *wakeListener) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

// wakeBackoff is how long to wait after the nth failure in a row. It grows to two minutes, for the server may have no
// room for another connection.
func wakeBackoff(n int) time.Duration {
	if n <= wakeUpsOffAfter {
		return backoff(n)
	}
	d := min(time.Second<<min(n-wakeUpsOffAfter, 10), 2*time.Minute)
	return d/2 + rand.N(d/2+1)
}

// movedOn reports whether a server answered that it does not hold the queue, or not yet: then another one does.
func movedOn(err error) bool {
	return says(err, "MOVED", "ASK", "READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN")
}

// refusesBlocking reports whether a server answered that it does not offer BZPOPMIN, or not to this user.
func refusesBlocking(err error) bool {
	return says(err, "NOPERM", "unknown command", "unsupported command", "command not")
}

// hints tell the poller when a message is due that this process sent. They are used while there are no wake-ups.
type hints chan time.Time // cap 1: the earliest that was not received yet

func newHints() hints { return make(hints, 1) }

func (h hints) put(at time.Time) {
	for {
		select {
		case h <- at:
			return
		case waiting := <-h:
			if waiting.Before(at) {
				at = waiting
			}
		}
	}
}
