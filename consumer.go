package delayqueue

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// bufferPatience is how long a fetched message may wait for a worker; then it is released
// to consumers that have one free.
const bufferPatience = 100 * time.Millisecond

// A run is one stretch of consuming, from StartConsume to the close of done:
//
//	loop      fetches, fills the buffer, waits for the next instant, and owns `hold`
//	workers   take from the buffer, call the handler, leave an outcome
//	settler   sends outcomes, as many as have gathered while the last call was under way
//	leaser    renews what is held every third of a lease
//	listener  waits for the wake marker
//	mourner   calls the garbage handler
//
// It stops in this order: loop (nothing more is fetched; the buffer is released), listener, workers
// (their handlers finish), settler (outcomes are out), leaser, mourner, done.
type run struct {
	settings
	store   *store
	events  *events
	fetches fetchSettings
	outage  outage
	pool    *workerPool
	buffer  mailbox[*delivery] // fetched, not yet started
	held    heldList
	outbox  mailbox[outcome]
	graves  mailbox[grave] // for the garbage handler
	listen  *listener
	callers [2]*caller // of the loop and of the settler

	quit  chan struct{} // closed by stop
	once  sync.Once
	phase atomic.Pointer[string] // of the end: what is waited for
	trial *time.Timer            // runs from stop on: ends life
	done  chan struct{}
	life  context.Context // ends when, after a stop, Redis has been away for a lease: it is not waited for any longer
	end   context.CancelFunc
	calm  context.Context // ends when Shutdown's context does: the user's code is not waited for any longer
	rush  context.CancelFunc
	free  chan struct{} // cap 1: there may be room for more
	hints hints

	workers     atomic.Int64 // that this run has; of pool
	crew        crew
	mourner     sync.WaitGroup
	unhandled   atomic.Int64 // deliveries in the buffer or in a handler
	unsettled   atomic.Int64 // deliveries fetched and not yet settled
	lastChances atomic.Int64 // of them, those that are poison if they are lost
	heldBytes   atomic.Int64 // of their envelopes
	deadline    atomic.Int64 // until when Redis has time, once the run stops and no handler runs; as instantOf counts
	deaf        atomic.Bool  // there are no wake-ups from Redis
	perMsg      atomic.Int64 // ns that handling takes, a moving average; 0: not known yet

	replyBytes int           // that the next fetch asks for; of loop
	agreed     fetchSettings // what holds for all consumers of the queue; of loop

	since  time.Time // it runs
	saidAt time.Time // it said something of itself; of loop

	// Of accept.
	known     bool      // the queue has been seen
	dropped   int       // tags, not yet in the log
	droppedAt time.Time // when some were logged last
	newer     int       // messages of a newer version, not yet in the log
	newerAt   time.Time // when some were logged last
}

func startRun(s *store, set settings, ev *events, pool *workerPool) *run {
	r := &run{
		settings: set, store: s.ofRun(set.lease), events: ev, pool: pool,
		callers: [2]*caller{newCaller(), newCaller()},
		quit:    make(chan struct{}), done: make(chan struct{}), since: time.Now(),
		free: make(chan struct{}, 1), hints: hints{rung: make(chan struct{}, 1)},
	}
	r.listen = newListener(r.store)
	r.life, r.end = context.WithCancel(context.Background())
	r.trial = time.AfterFunc(time.Hour, func() {
		if r.unhandled.Load() > 0 {
			r.trial.Reset(r.lease) // handlers are waited for, so Redis may as well be
		} else if left := r.deadline.Load() - instantOf(time.Now()); left > 0 {
			r.trial.Reset(time.Duration(left))
		} else {
			r.end()
		}
	})
	r.trial.Stop()
	r.calm, r.rush = context.WithCancel(context.Background())
	r.fetches = fetchSettings{lease: set.lease, maxLosses: set.maxLosses, garbageAge: set.garbageAge, garbageMax: set.garbageMax}
	r.agreed, r.replyBytes = r.fetches, maxBatchBytes
	r.log = set.log.With(slog.String("queue", s.queue))
	r.outage.log = r.log
	r.buffer.init()
	r.outbox.init()
	r.graves.init()
	pool.serve(r)
	go r.live()
	return r
}

// live runs everything that a run has, and ends it in order.
func (r *run) live() {
	var listening, leasing, settling sync.WaitGroup
	leased := make(chan struct{})
	listening.Go(r.listen.listen)
	leasing.Go(func() { r.renew(leased) })
	settling.Go(r.settleAll)
	r.mourner.Go(r.mourn)
	defer context.AfterFunc(r.base, r.signal)()

	r.loop()
	r.nowFor("the connection that waits for wake-ups to close")
	r.listen.close()
	listening.Wait()
	r.nowFor("the wake-up to be handed on to other consumers")
	r.handBack()
	r.empty()
	r.nowFor("handlers")
	r.pool.await(r) // handlers finish, or their limit or Shutdown gives up on them
	r.nowFor("outcomes to be settled")
	r.outbox.close()
	settling.Wait()
	r.nowFor("leases to be renewed")
	close(leased)
	leasing.Wait()
	r.nowFor("the garbage handler")
	r.graves.close()
	mourned := make(chan struct{})
	go func() { r.mourner.Wait(); close(mourned) }()
	select {
	case <-mourned:
	case <-r.calm.Done():
	}
	r.trial.Stop()
	r.end()
	r.store.release()
	close(r.done)
}

func (r *run) nowFor(what string) { r.phase.Store(&what) }

// waitsFor is what the end of the run waits for.
func (r *run) waitsFor() string {
	if what := r.phase.Load(); what != nil {
		return "was still waiting for " + *what
	}
	return "was still waiting for a fetch to be answered"
}

// stop begins the end. When all handlers have finished, Redis has one lease to take what is
// to be settled, and another one after each answer.
func (r *run) stop() {
	r.once.Do(func() {
		r.goOn()
		r.trial.Reset(r.lease)
		close(r.quit)
		r.buffer.close() // idle workers leave
	})
}

// goOn gives Redis another lease.
func (r *run) goOn() { r.deadline.Store(instantOf(time.Now()) + int64(r.lease)) }

func (r *run) stopping() bool {
	select {
	case <-r.quit:
		return true
	default:
		return false
	}
}

// ended says whether done is closed.
func (r *run) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// signal says that there may be room for more.
func (r *run) signal() {
	select {
	case r.free <- struct{}{}:
	default:
	}
}

// untilAnswered repeats an attempt until it succeeds, the run's life is over, or nobody wants it
// any more, which the beginning of a stop may decide.
func (r *run) untilAnswered(what string, attempt func() error, wanted func(n int, err error) bool) error {
	for n := 1; ; n++ {
		begun := time.Now()
		err := attempt()
		if r.life.Err() == nil || err == nil {
			r.outage.report(what, begun, err)
		}
		if err == nil {
			r.goOn()
			return nil
		}
		if !wanted(n, err) || !r.pause(backoff(n)) || !wanted(n, err) {
			return err
		}
	}
}

// pause waits d, and says whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// pause waits d, or until a stop begins, and says whether the run's life goes on.
func (r *run) pause(d time.Duration) bool {
	if r.stopping() {
		return pause(r.life, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.quit: // life goes on for a while
	}
	return true
}

// trimmed logs that garbage was deleted for want of room.
func (r *run) trimmed(messages int) {
	if messages > 0 {
		r.log.Warn("delayqueue: deleted garbage for want of room", slog.Int("messages", messages))
	}
}

// accept takes in what a fetch brought that was asked for and answered at these instants.
func (r *run) accept(got *fetched, asked, at time.Time) {
	if got.lost > 0 {
		r.log.Warn("delayqueue: leases ran out: their consumers died or were cut off", slog.Int("messages", got.lost), slog.Int("poison", len(got.dead)))
	}
	if got.first == 1 && r.known {
		r.log.Error("delayqueue: keys of this queue have vanished: a flush, an eviction policy other than noeviction, or a failover that lost them")
		r.events.tell(VanishedEvent, 1)
	}
	r.events.tell(VanishedEvent, got.dropped)
	r.known = true
	r.agree(got.agreed)
	if r.dropped += got.dropped; r.dropped > 0 && at.Sub(r.droppedAt) >= time.Minute {
		r.log.Error("delayqueue: dropped tags without a message: another program, or an eviction policy, deletes from this queue", slog.Int("tags", r.dropped))
		r.dropped, r.droppedAt = 0, at
	}
	r.trimmed(got.trimmed)
	r.events.tell(LostEvent, got.lost)
	for _, dead := range got.dead {
		r.buryPoison(dead)
	}
	for _, h := range got.held {
		r.notReceived(h, at)
	}
	if len(got.tags) == 0 {
		return
	}
	ds := r.decode(got, asked, at)
	r.hold(ds)
	r.unhandled.Add(int64(len(ds)))
	if r.events.on() {
		ids := idsOf(ds)
		r.events.tell(ReadyEvent, len(ids), ids...)
		r.events.tell(DeliveredEvent, len(ids), ids...)
	}
	fit := ds[:0]
	for _, d := range ds {
		if r.unfit(d, got.now) {
			continue
		}
		fit = append(fit, d)
	}
	if r.newer > 0 && at.Sub(r.newerAt) >= time.Minute {
		r.log.Warn("delayqueue: set aside messages that only a newer version of this library can read", slog.Int("times", r.newer))
		r.newer, r.newerAt = 0, at
	}
	r.buffer.put(fit...)
}

// agree notes what holds for all consumers of the queue, and says so where it is not what this one asked for.
func (r *run) agree(all fetchSettings) {
	if all != r.agreed && all != r.fetches {
		r.log.Warn("delayqueue: other consumers of this queue have other settings: the most that one of them asks for holds for all",
			slog.Group("this", r.fetches.attrs()...), slog.Group("all", all.attrs()...))
	}
	r.agreed = all
}

func (f fetchSettings) attrs() []any {
	return []any{slog.Duration("lease", f.lease), slog.Int("max_losses", f.maxLosses),
		slog.Duration("garbage_age", f.garbageAge), slog.Int("garbage_max", f.garbageMax)}
}
