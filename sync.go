package delayqueue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file holds small parts without a subject of their own.

// A signal says that something has changed. Several that nobody has received yet are one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// A set is safe for concurrent use.
type set[T comparable] struct {
	mu    sync.Mutex
	items map[T]struct{}
	n     atomic.Int32
}

func (s *set[T]) add(item T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == nil {
		s.items = make(map[T]struct{})
	}
	s.items[item] = struct{}{}
	s.n.Store(int32(len(s.items)))
}

func (s *set[T]) remove(item T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.items, item)
	s.n.Store(int32(len(s.items)))
}

// size takes no lock.
func (s *set[T]) size() int { return int(s.n.Load()) }

func (s *set[T]) all() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.items))
}

// A sharedTimeout makes contexts that end after some time, which is always the same, or up to a hundredth later. Contexts
// that are made within that hundredth are one: to make one for each send is a fifth of what a send costs this process.
// It is safe for concurrent use.
type sharedTimeout struct {
	mu    sync.Mutex // guards the fields below
	ctx   context.Context
	until time.Time // ctx is shared until then
}

func (p *sharedTimeout) context(d time.Duration) context.Context {
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

// isShared says whether a sharedTimeout has made ctx.
func isShared(ctx context.Context) bool {
	_, ok := ctx.(sharedContext)
	return ok
}

// processStart is where the process's monotonic clock begins, which no step of the wall clock moves.
var processStart = time.Now()

// An atomicTime is an instant of the monotonic clock. Its zero value is processStart.
type atomicTime struct{ ns atomic.Int64 }

func (t *atomicTime) set(at time.Time) { t.ns.Store(int64(at.Sub(processStart))) }

// age is how long ago it was at now, negative if it is later.
func (t *atomicTime) age(now time.Time) time.Duration {
	return now.Sub(processStart) - time.Duration(t.ns.Load())
}

// mapped is what f makes of each item.
func mapped[T, U any](items []T, f func(*T) U) []U {
	all := make([]U, len(items))
	for i := range items {
		all[i] = f(&items[i])
	}
	return all
}
