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
type wakeListener struct {
	store       *store
	requests    chan struct{} // cap 1: take one marker
	retryNow    chan struct{} // cap 1: Redis is back
	taken       chan int64    // cap 1: the instant of a marker that was taken
	unsupported chan error    // cap 1: this server or client cannot block; the error says why
	failed      chan error    // cap 1: the connection failed, perhaps with a marker on it
	answered    atomic.Int64  // how often waiting worked, marker or not
	ctx         context.Context
	cancel      context.CancelFunc
	mu          sync.Mutex
	conn        *redis.Client // nil while there is none, or after close
	connectedAt time.Time     // of conn; of listen
}

func newWakeListener(s *store) *wakeListener {
	ctx, cancel := context.WithCancel(context.Background())
	return &wakeListener{
		store: s, ctx: ctx, cancel: cancel,
		requests: make(chan struct{}, 1), retryNow: make(chan struct{}, 1), taken: make(chan int64, 1), unsupported: make(chan error, 1), failed: make(chan error, 1),
	}
}

// close interrupts the listener for good.
func (l *wakeListener) close() {
	l.cancel() // ends a dial, and the question who holds the queue, which is asked with mu held
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close() // a connection that is thrown away has nothing to tell
		l.conn = nil
	}
}

// listen serves ask until close.
func (l *wakeListener) run() {
	for failures := 0; ; {
		select {
		case <-l.ctx.Done():
			return
		case <-l.requests:
		}
		for {
			at, err := l.take()
			if err == nil {
				failures = 0
				l.answered.Add(1)
				l.taken <- at
				break
			}
			select {
			case <-l.ctx.Done():
				return
			default:
			}
			if errors.Is(err, redis.Nil) {
				failures = 0
				l.answered.Add(1)
				continue
			}
			if errors.Is(err, errNoNode) || refusesBlocking(err) {
				l.unsupported <- err
				return
			}
			l.drop()
			select {
			case l.failed <- err:
			default:
			}
			failures++
			select {
			case <-l.ctx.Done():
				return
			case <-l.retryNow:
				failures = 0
			case <-time.After(wakeBackoff(failures)):
			}
		}
	}
}

// listenBackoff is how long to wait after the nth failure in a row: up to two minutes while fetches go through,
// for there may be no room for another connection.
func wakeBackoff(n int) time.Duration {
	if n <= wakeUpsOffAfter {
		return backoff(n)
	}
	d := min(time.Second<<min(n-wakeUpsOffAfter, 10), 2*time.Minute)
	return d/2 + rand.N(d/2+1)
}

// retry has the listener try again at once.
func (l *wakeListener) retry() {
	select {
	case l.retryNow <- struct{}{}:
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
func (l *wakeListener) take() (int64, error) {
	conn, err := l.dial()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(l.ctx, wakeBlock+wakeGrace)
	defer cancel()
	at, err := l.store.popWake(ctx, conn, wakeBlock)
	if errors.Is(err, redis.Nil) && time.Since(l.connectedAt) > wakeAge {
		l.drop()
	}
	return at, err
}

// dial returns the connection, and makes it if there is none.
func (l *wakeListener) dial() (*redis.Client, error) {
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
	l.conn, l.connectedAt = conn, time.Now()
	l.mu.Unlock()
	// BZPOPMIN may take its time, but making a connection may not.
	var answer redis.Error
	if err := conn.Time(ctx).Err(); err != nil && !errors.As(err, &answer) {
		return nil, err
	}
	return conn, nil
}

// drop closes a connection that failed; the next one may lead to another server.
func (l *wakeListener) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close() // it failed already
		l.conn = nil
	}
}

// hints tell a run without wake-ups when something is due that this process itself sent.
type hints struct {
	mu      sync.Mutex
	at      time.Time
	changed chan struct{} // cap 1
}

func (h *hints) put(at time.Time) {
	h.mu.Lock()
	if h.at.IsZero() || at.Before(h.at) {
		h.at = at
	}
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
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
	if c := q.current(); c != nil && c.wakeUpsOff.Load() {
		c.hints.put(time.Now().Add(in))
	}
}
