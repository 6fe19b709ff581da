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
	id   string
	n    int64
	gate *gate // of the send that is made; nil lets everything pass
}

func newCaller() *caller { return &caller{id: strings.ReplaceAll(uuid.NewString(), "-", "")} }

// stale tells the refusal of a call whose caller seems to have made a later one. Of a new call that says that somebody
// else has written into state, and all that follow would be refused too.
func stale(err error) bool { return says(err, "DQSTALE") }

// next begins a call that is new; without it, the last one is repeated.
func (c *caller) next() { c.n++ }

func (c *caller) args(extra int) []any {
	return append(make([]any, 0, 2+extra), c.id, c.n)
}

// replaceIfStale makes it a new caller if another program has written into state what its last call was, or what the
// answer was: a repeat under the old number would be refused, or not be understood, for ever.
func (c *caller) replaceIfStale(err error, log *slog.Logger) {
	if stale(err) || errors.Is(err, ErrBadReply) {
		log.Error("delayqueue: another program has changed what this queue remembers of its calls", slog.Any("error", err))
		*c = *newCaller()
		c.next()
	}
}

// processCallers are those of all queues, publishers and monitors of this process that make no call just now.
var processCallers callerPool

// A callerPool keeps callers for whoever makes a call next, so that state has few of them to remember. It is safe
// for concurrent use.
type callerPool struct {
	mu   sync.Mutex
	free []*caller
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
	c.gate = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
}

// callers lets calls that may run side by side have callers, callersMax at a time; who comes later waits.
type callers struct {
	once sync.Once
	busy chan struct{}
}

const callersMax = 16

// places holds one value for each call that is made.
func (cs *callers) places() chan struct{} {
	cs.once.Do(func() { cs.busy = make(chan struct{}, callersMax) })
	return cs.busy
}

// call calls attempt until it succeeds, fails for good, or ctx ends. All attempts have one call number, so that they have
// the effect of one.
func (cs *callers) call(ctx context.Context, attempt func(c *caller) error) error {
	busy := cs.places()
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
