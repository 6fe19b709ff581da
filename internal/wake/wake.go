package wake

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// A WakeListener waits for the wake marker of one queue, on a connection that queues may share (wakeLine).
//
// It takes one marker for each request, so that a consumer without a free worker leaves markers to others. A poller
// receives from its channels.
type WakeListener struct {
	store *script.Store
	lines *wakeLines // of its link

	Taken       chan message.ServerTime // cap 1: the instant of a marker that was taken
	Failed      chan error              // cap 1: the connection failed, perhaps with a marker on it
	Unsupported chan error              // cap 1: this server or client cannot block; the error says why
	Answered    atomic.Int64            // how often waiting worked, marker or not; written by the line, read by the poller

	// Guarded by lines.mu.
	line     *wakeLine // nil before the first request, and after End
	asking   bool      // a marker is to be taken
	suspect  bool      // a call on its key, and perhaps on others, was refused: the next call is on its key alone
	refusals int       // in a row, of calls on its key alone
	resumeAt time.Time // after a refusal, when the next call may be made
}

func NewWakeListener(s *script.Store) *WakeListener {
	l := &WakeListener{
		store: s, Taken: make(chan message.ServerTime, 1), Failed: make(chan error, 1), Unsupported: make(chan error, 1),
		lines: new(wakeLines),
	}
	if s.Link != nil {
		l.lines = linesOf(s.Link)
	}
	return l
}

// Ask requests one marker. The next request is made when the marker has come, or later.
func (l *WakeListener) Ask() {
	if l.store.Link == nil {
		l.Unsupported <- fmt.Errorf("%w: %T", link.ErrNoNode, l.store.Cli)
		return
	}
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	if l.line == nil {
		l.lines.join(l)
	}
	l.asking = true
	if call := l.line.call; call == nil {
		l.line.changed.Send()
	} else if !slices.Contains(call.listeners, l) {
		l.line.interrupt(l.store)
	}
}

// leavePatience is how long End waits until a call has ended. Then it closes the connection. Only tests change it.
var leavePatience = 250 * time.Millisecond

// End ends the requests. When it returns, the server gives no marker to this listener, unless the connection had to
// be cut: the server did not answer, or the user's Dialer made a connection that cannot be closed in one direction.
func (l *WakeListener) End() {
	l.lines.mu.Lock()
	w := l.line
	if w == nil {
		l.lines.mu.Unlock()
		return
	}
	call := w.call
	var over chan struct{}
	switch last := l.lines.leave(l); {
	case last:
		w.end()
		over = w.ended
	case call != nil && slices.Contains(call.listeners, l):
		w.interrupt(l.store)
		over = call.answered
	}
	l.lines.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-time.After(leavePatience):
		w.dropIn(call)
		<-over
	}
}

// Drop closes the connection if it is older than an instant. The next connection may lead to another server.
func (l *WakeListener) Drop(before time.Time) {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	if w := l.line; w != nil && w.connectedAt.Before(before) && w.call != nil && slices.Contains(w.call.listeners, l) {
		w.drop()
	}
}

// Retry ends a wait after failures, because Redis is back.
func (l *WakeListener) Retry() {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	if w := l.line; w != nil {
		l.resumeAt = time.Time{}
		w.retryNow.Send()
		w.changed.Send()
	}
}

// refused handles the answer to a call on this listener's key alone, which was refused, with lines.mu held.
func (l *WakeListener) refused(err error) {
	if refusesBlocking(err) {
		l.asking = false
		l.Unsupported <- err
		return
	}
	l.refusals++
	l.resumeAt = time.Now().Add(wakeBackoff(l.refusals))
	l.fail(err)
}

func (l *WakeListener) fail(err error) {
	select {
	case l.Failed <- err:
	default:
	}
}

// WakeUpsOffAfter is how often in a row a WakeListener may fail before its consumer goes on without wake-ups.
const WakeUpsOffAfter = 5

// wakeBackoff is how long to wait after the nth failure in a row. It grows to two minutes, because the server may
// have no room for another connection.
func wakeBackoff(n int) time.Duration {
	if n <= WakeUpsOffAfter {
		return link.Backoff(n)
	}
	d := min(time.Second<<min(n-WakeUpsOffAfter, 10), 2*time.Minute)
	return d/2 + rand.N(d/2+1)
}

// MovedOn reports whether a server answered that it does not hold the queue, or does not hold it yet.
func MovedOn(err error) bool {
	return link.Says(err, "MOVED", "ASK", "READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN")
}

// refusesBlocking reports whether a server answered that it does not offer BZPOPMIN, or not to this user.
func refusesBlocking(err error) bool {
	return link.Says(err, "NOPERM", "unknown command", "unsupported command", "command not")
}

// wakeLines has the lines of one link. The zero value has none.
type wakeLines struct {
	mu        sync.Mutex // guards the fields below, and those of lines and listeners
	all       []*wakeLine
	noUnblock bool // the server, or a proxy, refuses CLIENT ID or CLIENT UNBLOCK
}

// linesOf are the lines of a link.
func linesOf(l *link.Link) *wakeLines {
	return l.Beside(func() any { return new(wakeLines) }).(*wakeLines)
}

// join puts a listener on a line, with mu held: on one of its own while there are fewer than maxWakeLines.
func (ls *wakeLines) join(l *WakeListener) {
	_, shared := l.store.Cli.(*redis.Client)
	if shared && len(ls.all) == maxWakeLines {
		l.line = slices.MinFunc(ls.all, func(a, b *wakeLine) int { return len(a.listeners) - len(b.listeners) })
		l.line.listeners = append(l.line.listeners, l)
		return
	}
	w := &wakeLine{lines: ls, changed: conc.NewSignal(), retryNow: conc.NewSignal(), ended: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.listeners = []*WakeListener{l}
	if shared {
		ls.all = append(ls.all, w)
	} else {
		w.alone = l.store.Link
	}
	l.line = w
	go w.run()
}

// leave takes a listener off its line, with mu held, and says whether it was the last.
func (ls *wakeLines) leave(l *WakeListener) (last bool) {
	w := l.line
	w.listeners = slices.DeleteFunc(w.listeners, func(other *WakeListener) bool { return other == l })
	l.line, l.asking = nil, false
	if last = len(w.listeners) == 0; last {
		ls.all = slices.DeleteFunc(ls.all, func(other *wakeLine) bool { return other == w })
	}
	return last
}

// Hints tell a poller without wake-ups when messages are due that this process has sent.
type Hints chan time.Time // cap 1: the earliest instant that was not received yet

func NewHints() Hints { return make(Hints, 1) }

func (h Hints) Put(at time.Time) {
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
