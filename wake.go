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

// A wakeListener waits for the wake marker on a connection of its own. In the client's pool a
// blocking call would outlive its context, and other calls would lack its connection. Closing the connection
// interrupts the call.
//
// It takes the marker only on request, one marker for each, so that a consumer without a free
// worker leaves markers to others. The poller is the other end of its channels.
type wakeListener struct {
	store  *store
	ctx    context.Context // ends with close
	cancel context.CancelFunc

	requests    chan struct{}   // cap 1: take one marker
	retryNow    signal          // Redis is back
	taken       chan serverTime // cap 1: the instant of a marker that was taken
	failed      chan error      // cap 1: the connection failed, perhaps with a marker on it
	unsupported chan error      // cap 1: this server or client cannot block; the error says why
	answered    atomic.Int64    // how often waiting worked, marker or not; written by run, read by the poller

	mu          sync.Mutex
	conn        *redis.Client // nil while there is none, or after close; made by run, closed by anybody
	connectedAt time.Time     // of conn; of run alone
}

func newWakeListener(s *store) *wakeListener {
	l := &wakeListener{
		store: s, requests: make(chan struct{}, 1), retryNow: newSignal(),
		taken: make(chan serverTime, 1), failed: make(chan error, 1), unsupported: make(chan error, 1),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// close interrupts the listener for good.
func (l *wakeListener) close() {
	l.cancel() // ends a dial, and the question who holds the queue
	l.drop()
}

// drop closes the connection; the next one may lead to another server.
func (l *wakeListener) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close() // a connection that is thrown away has nothing to tell
		l.conn = nil
	}
}

// run serves requests until close.
func (l *wakeListener) run() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.requests:
		}
		if !l.serve() {
			return
		}
	}
}

// serve waits until it has taken one marker; false means that it never will.
func (l *wakeListener) serve() bool {
	for failures := 0; ; {
		at, err := l.take()
		switch {
		case err == nil:
			l.answered.Add(1)
			l.taken <- at
			return true
		case l.ctx.Err() != nil:
			return false
		case errors.Is(err, redis.Nil): // none came in time
			l.answered.Add(1)
			failures = 0
			continue
		case errors.Is(err, errNoNode) || refusesBlocking(err):
			l.unsupported <- err
			return false
		}
		l.drop()
		select {
		case l.failed <- err:
		default:
		}
		failures++
		select {
		case <-l.ctx.Done():
			return false
		case <-l.retryNow:
			failures = 0
		case <-time.After(wakeBackoff(failures)):
		}
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

// take waits for one marker, and returns the instant that it stands for. The error redis.Nil means that none came in time.
func (l *wakeListener) take() (serverTime, error) {
	conn, err := l.dial()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(l.ctx, wakeBlock+wakeGrace)
	defer cancel()
	cmd := redis.NewZWithKeyCmd(ctx, "bzpopmin", &l.store.keys.wake, int64(wakeBlock/time.Second))
	if err := conn.Process(ctx, cmd); err != nil {
		if errors.Is(err, redis.Nil) && time.Since(l.connectedAt) > wakeAge {
			l.drop()
		}
		return 0, err
	}
	return serverTime(cmd.Val().Score), nil // whole us, which a double holds
}

// dial returns the connection, and makes it if there is none.
func (l *wakeListener) dial() (*redis.Client, error) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, attemptTimeout)
	defer cancel()
	conn, err := l.store.dedicated(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.conn, l.connectedAt = conn, time.Now()
	l.mu.Unlock()
	if l.ctx.Err() != nil { // close may have seen none
		l.drop()
		return nil, redis.ErrClosed
	}
	// The first call makes the connection, which must take less time than BZPOPMIN may.
	var answer redis.Error
	if err := conn.Time(ctx).Err(); err != nil && !errors.As(err, &answer) {
		return nil, err
	}
	return conn, nil
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
