package delayqueue

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// A caller numbers its calls, so that a script knows a repeat of the last one. A caller
// makes one call at a time.
type caller struct {
	id     string
	arg    any // id as an argument; nil: not made yet
	n      int64
	permit *writePermit // of the attempt that is made; nil: none is needed
}

func newCaller() *caller { return &caller{id: strings.ReplaceAll(uuid.NewString(), "-", "")} }

// stale reports whether a call was refused because its caller seems to have made a later one. For a new call that means
// that another program has written into state, and that all further calls of this caller would be refused too.
func stale(err error) bool { return says(err, "DQSTALE") }

// name is its id as an argument, which is made once.
func (c *caller) name() any {
	if c.arg == nil {
		c.arg = c.id
	}
	return c.arg
}

// number is the number of its present call as an argument, which uses the permit if there is one.
func (c *caller) number() any {
	if c.permit != nil {
		return c.permit
	}
	return c.n
}

// next begins a new call. Without it, an attempt repeats the last one.
func (c *caller) next() { c.n++ }

func (c *caller) args(extra int) []any {
	return append(make([]any, 0, 2+extra), c.name(), c.number())
}

// replaceIfStale makes c a new caller if another program has overwritten what state remembers of its last call. With
// the old number all repeats would be refused, or their answers not understood.
func (c *caller) replaceIfStale(err error, log *slog.Logger) {
	if stale(err) || errors.Is(err, ErrBadReply) {
		log.Error("delayqueue: another program has changed what this queue remembers of its calls", slog.Any("error", err))
		*c = *newCaller()
		c.next()
	}
}

// processCallers are the callers of this process that make no call at the moment, of all queues, publishers and monitors.
var processCallers callerPool

// A callerPool keeps callers for the next calls, so that state has few of them to remember. It is safe for concurrent
// use.
type callerPool struct {
	mu   sync.Mutex
	free []*caller // guarded by mu; the last used last
}

// take returns the caller that was used last, or a new one.
func (p *callerPool) take() *caller {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return newCaller()
	}
	c := p.free[n-1]
	p.free = p.free[:n-1]
	return c
}

func (p *callerPool) put(c *caller) {
	c.permit = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
}

// limitedCalls lets at most maxParallelCalls calls run side by side; later ones wait. Each has a caller from processCallers.
type limitedCalls struct {
	once sync.Once
	busy chan struct{}
}

const maxParallelCalls = 16

// places holds one value for each call that is made.
func (l *limitedCalls) places() chan struct{} {
	l.once.Do(func() { l.busy = make(chan struct{}, maxParallelCalls) })
	return l.busy
}

// call calls attempt until it succeeds, fails for good, or ctx ends. All attempts have one call number, so that they have
// the effect of one.
func (l *limitedCalls) call(ctx context.Context, attempt func(c *caller) error) error {
	busy := l.places()
	select {
	case busy <- struct{}{}:
	case <-ctx.Done():
		return ended(ctx)
	}
	defer func() { <-busy }()
	c := processCallers.take()
	defer processCallers.put(c)
	c.next()
	err := repeat(ctx, math.MaxInt, func() error { return attempt(c) })
	if err != nil && stale(err) {
		*c = *newCaller()
	}
	return err
}
