package script

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/google/uuid"
)

// A Caller numbers its calls, so that a script knows a repeat of the last one. A caller
// makes one call at a time.
type Caller struct {
	ID     string
	arg    any // id as an argument; nil: not made yet
	N      int64
	Permit *WritePermit // of the attempt that is made; nil: none is needed
}

func NewCaller() *Caller { return &Caller{ID: strings.ReplaceAll(uuid.NewString(), "-", "")} }

// Stale reports whether a call was refused because its caller seems to have made a later one. For a new call that means
// that another program has written into state, and that all further calls of this caller would be refused too.
func Stale(err error) bool { return link.Says(err, "DQSTALE") }

// name is its id as an argument, which is made once.
func (c *Caller) name() any {
	if c.arg == nil {
		c.arg = c.ID
	}
	return c.arg
}

// number is the number of its present call as an argument, which uses the permit if there is one.
func (c *Caller) number() any {
	if c.Permit != nil {
		return c.Permit
	}
	return c.N
}

// lease is the name of the lease of what its present call hands out.
func (c *Caller) lease() string { return c.ID + ":" + strconv.FormatInt(c.N, 10) }

// Next begins a new call. Without it, an attempt repeats the last one.
func (c *Caller) Next() { c.N++ }

func (c *Caller) args(extra int) []any {
	return append(make([]any, 0, 2+extra), c.name(), c.number())
}

// ReplaceIfStale makes c a new caller if another program has overwritten what state remembers of its last call. With
// the old number all repeats would be refused, or their answers not understood.
func (c *Caller) ReplaceIfStale(err error, log *slog.Logger) {
	if Stale(err) || errors.Is(err, ErrBadReply) {
		log.Error("delayqueue: another program has changed what this queue remembers of its calls", slog.Any("error", err))
		*c = *NewCaller()
		c.Next()
	}
}

// ProcessCallers are the callers of this process that make no call at the moment, of all queues, publishers and
// monitors.
var ProcessCallers callerPool

// A callerPool keeps callers for the next calls, so that state has few of them to remember. It is safe for concurrent
// use.
type callerPool struct {
	mu   sync.Mutex
	free []*Caller // guarded by mu; the last used last
}

// Take returns the caller that was used last, or a new one.
func (p *callerPool) Take() *Caller {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return NewCaller()
	}
	c := p.free[n-1]
	p.free = p.free[:n-1]
	return c
}

func (p *callerPool) Put(c *Caller) {
	c.Permit = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
}

// LimitedCalls lets at most maxParallelCalls calls run side by side; later ones wait. Each has a caller from
// ProcessCallers.
type LimitedCalls struct {
	once sync.Once
	busy chan struct{} // one value for each call that is made
}

const maxParallelCalls = 16

// Call calls attempt until it succeeds, fails for good, or ctx ends. All attempts have one call number, so that they
// have the effect of one.
func (l *LimitedCalls) Call(ctx context.Context, attempt func(c *Caller) error) error {
	l.once.Do(func() { l.busy = make(chan struct{}, maxParallelCalls) })
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return link.Ended(ctx)
	}
	defer func() { <-l.busy }()
	c := ProcessCallers.Take()
	defer ProcessCallers.Put(c)
	c.Next()
	err := link.Repeat(ctx, func() error { return attempt(c) })
	if err != nil && Stale(err) {
		*c = *NewCaller()
	}
	return err
}

// Once is LimitedCalls.Call for an attempt that has a result.
func Once[T any](ctx context.Context, l *LimitedCalls, attempt func(c *Caller) (T, error)) (got T, err error) {
	err = l.Call(ctx, func(c *Caller) (err error) {
		got, err = attempt(c)
		return err
	})
	return got, err
}

// A WritePermit permits one attempt at a call to be written to a connection, until it is revoked. Whoever revokes it
// before it was used knows that the attempt had no effect and will have none, however late it gets a connection.
// It is safe for concurrent use.
type WritePermit struct {
	state atomic.Int32
	Call  int64 // number of the call
}

const (
	permitUnused = iota
	permitUsed
	permitRevoked
)

// Revoke revokes the permit unless it was used, and says whether it is revoked now.
func (p *WritePermit) Revoke() bool {
	return p.state.CompareAndSwap(permitUnused, permitRevoked) || p.state.Load() == permitRevoked
}

func (p *WritePermit) String() string { return strconv.FormatInt(p.Call, 10) }

// MarshalBinary makes the number of the call out of the permit, which is an argument of the command, and uses it.
// go-redis calls it when it writes the command to a connection. It returns ErrRevoked if the permit is revoked. The
// permit may be used again.
func (p *WritePermit) MarshalBinary() ([]byte, error) {
	if p.state.CompareAndSwap(permitUnused, permitUsed) || p.state.Load() == permitUsed {
		return strconv.AppendInt(nil, p.Call, 10), nil
	}
	return nil, link.ErrRevoked
}
