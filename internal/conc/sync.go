// Package conc has the small tools of concurrency that the engine shares: a signal, an unbounded mailbox between
// goroutines, an instant of the monotonic clock, a count for the log, and a timeout that many calls share.
//
// It imports the standard library alone. Each value owns its own state, and its comment says which methods are safe
// for concurrent use. No code of a user is called here, and no goroutine lives longer than the value that started it:
// a mailbox's reader starts with the first item, and ends when there has been none for a second or two. Nothing in it
// knows of messages or of Redis.
package conc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Signal says that something has changed. Signals that nobody has received yet are one.
type Signal chan struct{}

// NewSignal makes a Signal, which nobody has sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// A SharedTimeout makes contexts that end after some time, which is always the same, or up to a hundredth later.
// Contexts that are made within that hundredth are one, because a context for each send is a fifth of what a send
// costs this process. It is safe for concurrent use.
type SharedTimeout struct {
	mu    sync.Mutex // guards the fields below
	ctx   context.Context
	until time.Time // ctx is shared until then
}

func (p *SharedTimeout) Context(d time.Duration) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.After(p.until) {
		shared := d / 100
		ctx, cancel := context.WithTimeout(context.Background(), shared+d)
		context.AfterFunc(ctx, cancel)
		p.ctx, p.until = sharedContext{ctx}, now.Add(shared)
	}
	return p.ctx
}

type sharedContext struct{ context.Context }

// IsShared says whether a SharedTimeout has made ctx.
func IsShared(ctx context.Context) bool {
	_, ok := ctx.(sharedContext)
	return ok
}

// processStart is where AtomicTime counts from. A step of the wall clock does not move it.
var processStart = time.Now()

// An AtomicTime is an instant of the monotonic clock. Its zero value is processStart.
type AtomicTime struct{ ns atomic.Int64 }

func (t *AtomicTime) Set(at time.Time) { t.ns.Store(int64(at.Sub(processStart))) }

// Age is how long before now the instant was, negative if it is later than now.
func (t *AtomicTime) Age(now time.Time) time.Duration {
	return now.Sub(processStart) - time.Duration(t.ns.Load())
}

// Mapped returns what f makes of each item.
func Mapped[T, U any](items []T, f func(*T) U) []U {
	all := make([]U, len(items))
	for i := range items {
		all[i] = f(&items[i])
	}
	return all
}

// A MinuteCount adds up a number that is logged at most once a minute.
type MinuteCount struct {
	n      int
	Logged time.Time
}

// Add adds n, and returns the number to log now. 0 means that it is too early.
func (c *MinuteCount) Add(n int, now time.Time) int {
	if c.n += n; c.n <= 0 || now.Sub(c.Logged) < time.Minute {
		return 0
	}
	n, c.n, c.Logged = c.n, 0, now
	return n
}

// Closed reports whether a channel to which nothing is sent is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
