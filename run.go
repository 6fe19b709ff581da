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

	mu        sync.Mutex          // guards the fields below
	consumers []*consume.Consumer // those of shards that were made more are among them until they have ended
	stopped   chan struct{}       // closed by stop
}

func newRun(q *DelayQueue, settings consume.Settings, ws *consume.Workers, at consume.Portion) *run {
	return &run{queue: q, settings: settings, workers: ws, at: at, drains: settings.Drain != nil, done: make(chan struct{}),
		stopped: make(chan struct{})}
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

// follow looks how many shards the queue has, and starts consumers for more than there are. It ends the run after stop. set are the
// shards that are consumed; nil: none are known.
func (r *run) follow(set *shard.Set) {
	outage := link.Outage{Log: r.settings.Log}
	asked := r.queue.store.Asked
	for n, told := 1, false; !r.stopping(); n++ {
		ctx, cancel := context.WithTimeout(context.Background(), followTime)
		begun := time.Now()
		now, err := r.queue.store.Look(ctx)
		cancel()
		if set == nil { // else a consumer says so
			outage.Report("shards", begun, err)
		}
		wait := followEvery
		switch {
		case err == nil && (set == nil || len(now.All) != len(set.All)):
			r.start(now)
			set = now
		case err != nil && set == nil:
			wait = link.Backoff(n)
		}
		if err == nil && asked > 0 && len(now.All) != asked && !told {
			told = true
			r.settings.Log.Warn("delayqueue: this process asks for another number of shards than the queue has, and uses that of the queue (WithShards)",
				slog.Int("asked", asked), slog.Int("shards", len(now.All)))
		}
		select {
		case <-r.stopped:
		case <-time.After(wait):
		}
	}
	for _, c := range r.all() {
		<-c.Done()
	}
	close(r.done)
}

// stop begins the end of all consumers, and returns at once.
func (r *run) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopping() {
		close(r.stopped)
	}
	for _, c := range r.consumers {
		c.Stop()
	}
}

// stopping reports whether stop was called.
func (r *run) stopping() bool {
	select {
	case <-r.stopped:
		return true
	default:
		return false
	}
}

// all are the consumers that may not have ended.
func (r *run) all() []*consume.Consumer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.consumers)
}
