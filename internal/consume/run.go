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

// A Run is one stretch of consuming a queue: a consumer for each shard, with one set of workers. It is safe for concurrent use.
type Run struct {
	Settled chan struct{} // closed when consuming has ended but for handlers that Shutdown gave up on
	Done    chan struct{} // closed when these have returned, too

	owner    any
	queue    *shard.Queue
	events   event.Listeners
	settings Settings
	workers  *Workers
	at       Portion
	outage   link.Outage // of all consumers, and of looks

	ctx  context.Context // ends with Stop
	end  context.CancelFunc
	look sync.WaitGroup // for the call of follow that is under way

	// Used by the call of follow that is under way.
	set   *shard.Set // whose shards are consumed; nil: none are known
	tries int        // while none are known
	told  bool       // that this process asks for another number

	mu        sync.Mutex  // guards the fields below
	consumers []*Consumer // those of fewer shards are among them until they have ended
	again     *time.Timer // of the next call of follow; nil: none
}

// NewRun makes a run without a consumer. owner and the others are those of StartConsumer.
func NewRun(owner any, q *shard.Queue, ev event.Listeners, settings Settings, ws *Workers, at Portion) *Run {
	r := &Run{Settled: make(chan struct{}), Done: make(chan struct{}), owner: owner, queue: q, events: ev,
		settings: settings, workers: ws, at: at, outage: link.Outage{Log: settings.Log}}
	r.ctx, r.end = context.WithCancel(context.Background())
	return r
}

// Drains reports whether the run ends by itself, when nothing is due.
func (r *Run) Drains() bool { return r.settings.Drain != nil }

// Begin consumes the shards that are known, and others when they are. A process that asks for no number takes the first shard for the only one
// until it knows.
func (r *Run) Begin() {
	set := r.queue.Known()
	if set == nil && r.queue.Asked <= 1 {
		set = r.queue.First()
	}
	if r.set = set; set != nil {
		r.start(set)
	}
	go r.follow()
}

// start starts a consumer for each shard, unless the run stops. Those of fewer shards give way to them.
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
	id := script.NewCaller().ID
	for _, s := range set.All {
		settings, at := r.settings, r.at
		if n := len(set.All); n > 1 {
			settings.Sharded, settings.ID, settings.Outage, settings.Log = true, id, &r.outage, settings.Log.With(slog.String("shard", s.Shard))
			settings.Limits, _ = shard.Divide(settings.Limits, n) // a rate too slow to be set is one all the same
			for _, most := range []*int{&settings.FetchLimit, &settings.MaxBytes, &settings.GarbageMax, &settings.DoneMax} {
				*most = *most/n + min(*most%n, 1) // 0 stays: no bound
			}
			at.Weight, at.Grouped = at.Weight/float64(n), true
			r.workers.Share()
		}
		if d := settings.Drain; d != nil {
			settings.Drain = d.ForShard()
		}
		started = append(started, StartConsumer(r.owner, s, r.events, settings, r.workers, at))
	}
	r.consumers = append(r.consumers, started...)
	return started
}

// followEvery is how often a run looks how many shards the queue has.
const followEvery = 10 * time.Second

// followTime bounds a look. If the first shard does not answer in time, others are asked.
func followTime() time.Duration { return 2*link.AttemptTimeout + time.Second }

// follow looks how many shards the queue has, starts consumers if there are more than before, and comes again. Between two calls it has no
// goroutine.
func (r *Run) follow() {
	r.mu.Lock()
	if r.Stopping() {
		r.mu.Unlock()
		return
	}
	r.look.Add(1)
	r.mu.Unlock()
	defer r.look.Done()
	ctx, cancel := context.WithTimeout(r.ctx, followTime())
	defer cancel()
	begun, wait, asked := time.Now(), followEvery, r.queue.Asked
	look := r.queue.LookAside
	if r.set == nil {
		look = r.queue.Look
	}
	now, err := look(ctx)
	if r.Stopping() {
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
	if err == nil && asked > 0 && len(now.All) != asked && !r.told {
		r.told = true
		r.settings.Log.Warn("delayqueue: this process asks for another number of shards than the queue has, and uses that of the queue (WithShards): "+
			"a queue gets no fewer, and grows only to a multiple, while it is not paused and has no limits of ops.Queue.SetLimits",
			slog.Int("asked", asked), slog.Int("shards", len(now.All)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.Stopping() {
		r.again = time.AfterFunc(wait, r.follow)
	}
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
	if r.again != nil {
		r.again.Stop()
	}
	if r.Drains() {
		return // Drain ends it
	}
	consumers := slices.Clone(r.consumers)
	go func() {
		r.look.Wait()
		for _, c := range consumers {
			<-c.Settled()
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
		n += len(c.lifecycle.behind.running())
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
		<-c.Done()
		d := c.Drained()
		if done = done && d.Done; err == nil && d.Err != nil {
			r.Stop() // the others go on for as long as there is something to do
			err = d.Err
		} else if err == nil && !d.Done && ctx.Err() != nil {
			err = link.WithLast(link.Ended(ctx), c.Outage())
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
