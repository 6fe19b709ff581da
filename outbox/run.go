package outbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
)

// ErrRunning: Run was called while this Box runs.
var ErrRunning = errors.New("outbox: the box runs already")

// Run relays rows to Redis until ctx ends, and returns nil then. Run it on every replica: for each queue one of them
// relays, and if that one dies, another one goes on within some five seconds. While the database or Redis is away, it
// tries again, and the log has a line a minute. The error is ErrRunning, or wraps ErrShards: then the log has a line,
// the other queues of the Box are relayed all the same, and Run returns when ctx ends or none is left.
func (b *Box) Run(ctx context.Context) error {
	if !b.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer b.running.Store(false)
	errs := make([]error, len(b.relays))
	var all sync.WaitGroup
	hears, end := context.WithCancel(ctx)
	var heard sync.WaitGroup
	for _, relays := range b.byClient() {
		heard.Go(func() { subscribe(hears, relays) })
	}
	for i, r := range b.relays {
		all.Go(func() {
			if errs[i] = r.run(ctx); errs[i] != nil {
				b.log.Error(errs[i].Error(), slog.String("queue", r.name))
			}
		})
	}
	all.Wait()
	end()
	heard.Wait()
	return errors.Join(errs...)
}

func (b *Box) refusals() []func(Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.refused)
}

func (b *Box) listeners() []func(string, int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.healed)
}
