package consume

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A Run is one stretch of consuming a queue: a consumer for each shard, with one set of workers. It is safe for
// concurrent use.
type Run struct {
	Settled chan struct{} // closed when consuming has ended but for handlers that Shutdown gave up on
	Done    chan struct{} // closed when these have returned, too

	queue    *shard.Queue
	events   event.Listeners
	settings Settings
	workers  *Workers
	at       Portion

	ctx context.Context // ends with Stop
	end context.CancelFunc

	asking sync.WaitGroup // for the question how many shards there are

	mu        sync.Mutex  // guards the fields below
	consumers []*Consumer // those of another number of shards are among them until they have ended
	unfollow  func() bool // ends the wait for another number of shards
}

// NewRun makes a run without a consumer. The others are those of StartConsumer.
func NewRun(q *shard.Queue, ev event.Listeners, settings Settings, ws *Workers, at Portion) *Run {
	r := &Run{Settled: make(chan struct{}), Done: make(chan struct{}), queue: q, events: ev,
		settings: settings, workers: ws, at: at, unfollow: func() bool { return true }}
	r.settings.Outage = &link.Outage{Log: settings.Log}
	r.ctx, r.end = context.WithCancel(context.Background())
	return r
}

// Drains reports whether the run ends by itself, when nothing is due.
func (r *Run) Drains() bool { return r.settings.Drains }

// Begin consumes the shards, as soon as it is known how many there are.
func (r *Run) Begin() {
	if set := r.queue.Known(); set != nil {
		r.start(set)
		return
	}
	r.asking.Go(func() {
		_ = link.Retry(r.ctx, nil, func() error {
			begun := time.Now()
			set, err := r.queue.Ask(r.ctx, 0)
			if r.ctx.Err() == nil {
				r.settings.Outage.Report("shards", "", begun, err)
			}
			if err == nil {
				r.start(set)
			}
			return err
		}, func(int, error) bool { return true })
	})
}

// start starts a consumer for each shard, unless the run stops. Those of another number of shards give way to them.
func (r *Run) start(set *shard.Set) (started []*Consumer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Stopping() {
		return nil
	}
	for _, c := range r.consumers {
		c.Stop()
	}
	r.consumers = slices.DeleteFunc(r.consumers, (*Consumer).Ended)
	r.unfollow()
	if !r.Drains() {
		r.unfollow = context.AfterFunc(set.Replaced, func() { r.start(r.queue.Known()) })
	}
	id := script.NewCaller().ID
	for _, s := range set.All {
		settings, at := r.settings, r.at
		if n := len(set.All); n > 1 {
			settings.ID, settings.Log = id, settings.Log.With(slog.String("shard", s.Shard))
			settings.Limits, _ = shard.Divide(settings.Limits, n) // a rate too slow to be set is one all the same
			for _, most := range []*int{&settings.FetchLimit, &settings.MaxBytes, &settings.GarbageMax, &settings.DoneMax} {
				*most = *most/n + min(*most%n, 1) // 0 stays: no bound
			}
			at.Weight, at.Grouped = at.Weight/float64(n), true
			r.workers.Share()
		}
		started = append(started, StartConsumer(r.queue, s, r.events, settings, r.workers, at))
	}
	r.consumers = append(r.consumers, started...)
	return started
}

// Stop begins the end of all consumers, and returns at once.
func (r *Run) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.consumers {
		c.Stop()
	}
	if r.Stopping() {
		return
	}
	r.end()
	r.unfollow()
	if r.Drains() {
		return // Drain ends it
	}
	consumers := slices.Clone(r.consumers)
	go func() {
		r.asking.Wait()
		for _, c := range consumers {
			<-c.lifecycle.settled
		}
		close(r.Settled)
		for _, c := range consumers {
			<-c.Done()
		}
		close(r.Done)
	}()
}

// Stopping reports whether Stop was called.
func (r *Run) Stopping() bool { return r.ctx.Err() != nil }

// Wait waits for Settled. The error says of how many handlers that run on.
func (r *Run) Wait() error {
	<-r.Settled
	n := 0
	for _, c := range r.All() {
		n += c.member.givenUp()
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("delayqueue: queue %q: run: %s: %w", r.queue.Queue, stillRunning(n), ErrShutdown)
}

// All are the consumers that may not have ended.
func (r *Run) All() []*Consumer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.consumers)
}

// Find returns the shards, as soon as they are known. It ends with the run, too.
func (r *Run) Find(ctx context.Context) (*shard.Set, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	return r.queue.Reach(ctx)
}

// Drain handles what is due in each shard. done is false if the run was stopped.
func (r *Run) Drain(ctx context.Context, set *shard.Set) (done bool, err error) {
	started := r.start(set)
	done = len(started) > 0
	defer context.AfterFunc(ctx, r.Stop)()
	for _, c := range started {
		<-c.lifecycle.settled // not for handlers that Shutdown has given up on
		p := &c.poller
		if done = done && p.drainDone; err == nil && p.drainErr != nil {
			r.Stop() // the others go on for as long as there is something to do
			err = p.drainErr
		} else if err == nil && !p.drainDone && ctx.Err() != nil {
			err = link.WithLast(link.Ended(ctx), c.lifecycle.cause())
		}
	}
	return done, err
}

// Drained ends a run that drains.
func (r *Run) Drained() {
	r.Stop()
	close(r.Settled)
	close(r.Done)
}
