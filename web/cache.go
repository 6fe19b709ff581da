package web

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// How many values are kept, and how long all their keys may be: a queue's name stands in them, and anybody can make
// one up.
const (
	cacheMost = 1000
	cacheKeys = 1 << 20 // bytes
)

// A cache keeps what was read from Redis for some seconds, so that many open pages cost what one costs.
type cache struct {
	mu   sync.Mutex
	kept map[string]*cached
	keys int // bytes of them
}

// A cached value is read, or being read.
type cached struct {
	until time.Time     // with the cache's lock
	ready chan struct{} // closed when the rest is there
	value any
	err   error
}

// shared returns what get has returned for this key, not longer than keep ago. Who asks while it is read waits for
// the same. get has a context of its own: it goes on for the others if the one who asked first has gone. Beside
// ErrMissingShards there is a value.
func shared[T any](ctx context.Context, h *Handler, key string, keep time.Duration,
	get func(context.Context) (T, error)) (none T, err error) {
	if err := h.work.enter(""); err != nil {
		return none, err
	}
	c, mine := h.cache.take(key)
	if !mine {
		h.work.leave("")
	} else {
		go func() {
			defer h.work.leave("")
			h.read(c, func(ctx context.Context) (any, error) { return get(ctx) })
			h.cache.keep(c, keep)
		}()
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		return none, context.DeadlineExceeded
	}
	if c.err != nil && !errors.Is(c.err, delayqueue.ErrMissingShards) {
		return none, c.err
	}
	return c.value.(T), c.err
}

// take finds a value, or notes that the caller reads it.
func (c *cache) take(key string) (one *cached, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.kept[key]; one != nil && (one.until.IsZero() || time.Now().Before(one.until)) {
		return one, false
	}
	if c.kept == nil || len(c.kept) >= cacheMost || c.keys+len(key) > cacheKeys { // who waits for one has it in hand
		c.kept, c.keys = map[string]*cached{}, 0
	}
	if c.kept[key] == nil {
		c.keys += len(key)
	}
	one = &cached{ready: make(chan struct{})}
	c.kept[key] = one
	return one, true
}

// keep notes until when a value counts. Errors are asked for anew, once a second.
func (c *cache) keep(one *cached, keep time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.err != nil {
		keep = time.Second
	}
	one.until = time.Now().Add(keep)
}

// forget lets who asks next for this key read anew.
func (c *cache) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept[key] != nil {
		delete(c.kept, key)
		c.keys -= len(key)
	}
}

var errPanic = errors.New("something went wrong: the log of the service says what")

func (h *Handler) read(c *cached, get func(context.Context) (any, error)) {
	ctx, cancel := h.within(h.done)
	defer cancel()
	defer close(c.ready)
	defer func() {
		if bad := recover(); bad != nil {
			h.panicked(bad)
			c.err = errPanic
		}
	}()
	c.value, c.err = get(ctx)
}
