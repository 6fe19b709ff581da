package delayqueue

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// wakeBlock is how long one BZPOPMIN waits, and wakeGrace how late its answer may be: then a connection
	// that is half open is noticed.
	wakeBlock = 10 * time.Second
	wakeGrace = 2 * time.Second
	// wakeAge is how old a connection gets that brings nothing: it may lead to a primary that has been replaced.
	wakeAge = time.Minute
)

// A listener waits for the wake marker on a connection of its own: in the client's pool a
// blocking call would outlive its context and starve other callers. Closing the connection
// is what interrupts it.
//
// It takes the marker only when it is asked to, one marker for each time, so that a
// consumer without a free worker leaves markers to others.
type listener struct {
	store  *store
	ask    chan struct{} // cap 1: take one marker
	again  chan struct{} // cap 1: Redis is back
	rung   chan int64    // cap 1: the instant of a marker that was taken
	off    chan error    // cap 1: this server or client cannot block; the error says why
	lost   chan error    // cap 1: the connection failed, perhaps with a marker on it
	worked atomic.Int64  // how often waiting worked, marker or not
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	conn   *redis.Client // nil while there is none, or after close
	born   time.Time     // of conn; of listen
}

func newListener(s *store) *listener {
	ctx, cancel := context.WithCancel(context.Background())
	return &listener{
		store: s, ctx: ctx, cancel: cancel,
		ask: make(chan struct{}, 1), again: make(chan struct{}, 1), rung: make(chan int64, 1), off: make(chan error, 1), lost: make(chan error, 1),
	}
}

// close interrupts the listener for good.
func (l *listener) close() {
	l.cancel() // ends a dial, and the question who holds the queue, which is asked with mu held
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close() // a connection that is thrown away has nothing to tell
		l.conn = nil
	}
}

// listen serves ask until close.
func (l *listener) listen() {
	for failures := 0; ; {
		select {
		case <-l.ctx.Done():
			return
		case <-l.ask:
		}
		for {
			at, err := l.take()
			if err == nil {
				failures = 0
				l.worked.Add(1)
				l.rung <- at
				break
			}
			select {
			case <-l.ctx.Done():
				return
			default:
			}
			if errors.Is(err, redis.Nil) {
				failures = 0
				l.worked.Add(1)
				continue
			}
			if errors.Is(err, errNoNode) || refusesBlocking(err) {
				l.off <- err
				return
			}
			l.drop()
			select {
			case l.lost <- err:
			default:
			}
			failures++
			select {
			case <-l.ctx.Done():
				return
			case <-l.again:
				failures = 0
			case <-time.After(listenBackoff(failures)):
			}
		}
	}
}

// listenBackoff is how long to wait after the nth failure in a row: up to two minutes while fetches go through,
// for there may be no room for another connection.
func listenBackoff(n int) time.Duration {
	if n <= deafAfter {
		return backoff(n)
	}
	d := min(time.Second<<min(n-deafAfter, 10), 2*time.Minute)
	return d/2 + rand.N(d/2+1)
}

// retry has the listener try again at once.
func (l *listener) retry() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// movedOn tells the answers of a server that does not hold the queue, or not yet: another one does.
func movedOn(err error) bool {
	return says(err, "MOVED", "ASK", "READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN")
}

// refusesBlocking tells a host that does not offer BZPOPMIN from one that is in trouble.
func refusesBlocking(err error) bool {
	return says(err, "NOPERM", "unknown command", "unsupported command", "command not")
}

// take waits for one marker; redis.Nil means that none came in time.
func (l *listener) take() (int64, error) {
	conn, err := l.dial()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(l.ctx, wakeBlock+wakeGrace)
	defer cancel()
	at, err := l.store.popWake(ctx, conn, wakeBlock)
	if errors.Is(err, redis.Nil) && time.Since(l.born) > wakeAge {
		l.drop()
	}
	return at, err
}

// dial returns the connection, and makes it if there is none.
func (l *listener) dial() (*redis.Client, error) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, attemptTime)
	defer cancel()
	conn, err := l.store.single(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		_ = conn.Close() // never used
		return nil, redis.ErrClosed
	}
	l.conn, l.born = conn, time.Now()
	l.mu.Unlock()
	// BZPOPMIN may take its time, but making a connection may not.
	var answer redis.Error
	if err := conn.Time(ctx).Err(); err != nil && !errors.As(err, &answer) {
		return nil, err
	}
	return conn, nil
}

// drop closes a connection that failed; the next one may lead to another server.
func (l *listener) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close() // it failed already
		l.conn = nil
	}
}

// hints tell a run without wake-ups when something is due that this process itself sent.
type hints struct {
	mu   sync.Mutex
	at   time.Time
	rung chan struct{} // cap 1
}

func (h *hints) put(at time.Time) {
	h.mu.Lock()
	if h.at.IsZero() || at.Before(h.at) {
		h.at = at
	}
	h.mu.Unlock()
	select {
	case h.rung <- struct{}{}:
	default:
	}
}

// take returns the earliest instant since the last take, or none.
func (h *hints) take() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.at
	h.at = time.Time{}
	return at
}

// hint passes on how soon something is due that this value has just sent.
func (q *DelayQueue) hint(in time.Duration) {
	if r := q.current(); r != nil && r.deaf.Load() {
		r.hints.put(time.Now().Add(in))
	}
}
