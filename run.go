package delayqueue

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/consume"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A run is one stretch of consuming a queue: a consumer for each shard, with one set of workers. It is safe for concurrent use.
type run struct {
	queue    *DelayQueue
	settings consume.Settings
	workers  *consume.Workers
	at       consume.Portion
	drains   bool          // it ends by itself (Drain)
	done     chan struct{} // closed when consuming has ended
	outages  link.Outages  // of all consumers

	ctx  context.Context // ends with stop
	end  context.CancelFunc
	look sync.WaitGroup // for the call of follow that is under way

	// Used by the call of follow that is under way.
	set    *shard.Set  // whose shards are consumed; nil: none are known
	tries  int         // while none are known
	outage link.Outage // while none are known
	told   bool        // that this process asks for another number

	mu        sync.Mutex          // guards the fields below
	consumers []*consume.Consumer // those of fewer shards are among them until they have ended
}

func newRun(q *DelayQueue, settings consume.Settings, ws *consume.Workers, at consume.Portion) *run {
	r := &run{queue: q, settings: settings, workers: ws, at: at, drains: settings.Drain != nil, done: make(chan struct{}),
		outage: link.Outage{Log: settings.Log}}
	r.ctx, r.end = context.WithCancel(context.Background())
	return r
}

// start starts a consumer for each shard, unless the run stops. Those of fewer shards give way to them.
func (r *run) start(set *shard.Set) (started []*consume.Consumer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping() {
		return nil
	}
	for _, c := range r.consumers {
		c.Stop()
	}
	r.consumers = slices.DeleteFunc(r.consumers, (*consume.Consumer).Ended)
	id := script.NewCaller().ID
	for _, s := range set.All {
		settings, at := r.settings, r.at
		if n := len(set.All); n > 1 {
			settings.ID, settings.Outages, settings.Log = id, &r.outages, settings.Log.With(slog.String("shard", s.Shard))
			settings.Limits = shard.Divide(settings.Limits, n)
			settings.FetchLimit, settings.MaxBytes = (settings.FetchLimit+n-1)/n, (settings.MaxBytes+n-1)/n
			at.Weight, at.Grouped = at.Weight/float64(n), true
			r.workers.Share()
		}
		if d := settings.Drain; d != nil {
			settings.Drain = d.ForShard()
		}
		started = append(started, consume.StartConsumer(&r.queue.producer, s, r.queue.events, settings, r.workers, at))
	}
	r.consumers = append(r.consumers, started...)
	return started
}

const (
	// followEvery is how often a run looks how many shards the queue has.
	followEvery = 10 * time.Second
	// followTime bounds a look.
	followTime = 2 * time.Second
)

// follow looks how many shards the queue has, starts consumers if there are more than before, and comes again. Between two calls it has no
// goroutine.
func (r *run) follow() {
	r.mu.Lock()
	if r.stopping() {
		r.mu.Unlock()
		return
	}
	r.look.Add(1)
	r.mu.Unlock()
	defer r.look.Done()
	ctx, cancel := context.WithTimeout(r.ctx, followTime)
	defer cancel()
	store, begun, wait := r.queue.store, time.Now(), followEvery
	now, err := store.Look(ctx)
	if r.stopping() {
		return
	}
	if r.set == nil { // else a consumer notes it
		r.outage.Report("shards", begun, err)
		r.tries++
		wait = link.Backoff(r.tries)
	}
	if err == nil {
		if wait = followEvery; r.set == nil || len(now.All) != len(r.set.All) {
			r.start(now)
		}
		r.set = now
	}
	if err == nil && store.Asked > 0 && len(now.All) != store.Asked && !r.told {
		r.told = true
		r.settings.Log.Warn("delayqueue: this process asks for another number of shards than the queue has, and uses that of the queue (WithShards)",
			slog.Int("asked", store.Asked), slog.Int("shards", len(now.All)))
	}
	again := time.AfterFunc(wait, r.follow)
	context.AfterFunc(r.ctx, func() { again.Stop() })
}

// stop begins the end of all consumers, and returns at once.
func (r *run) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.consumers {
		c.Stop()
	}
	if r.stopping() {
		return
	}
	r.end()
	if r.drains {
		return // Drain ends it
	}
	consumers := slices.Clone(r.consumers)
	go func() {
		r.look.Wait()
		for _, c := range consumers {
			<-c.Done()
		}
		close(r.done)
	}()
}

// stopping reports whether stop was called.
func (r *run) stopping() bool { return r.ctx.Err() != nil }

// all are the consumers that may not have ended.
func (r *run) all() []*consume.Consumer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.consumers)
}
