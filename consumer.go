package delayqueue

import (
	"context"
	"fmt"
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
	handle  Handler // middleware around handler or callback; nil for a bare callback
	outage  outage
	buffer  mailbox[*delivery] // fetched, not yet started
	held    heldList
	outbox  mailbox[outcome]
	graves  mailbox[grave] // for the garbage handler
	listen  *listener
	callers [2]*caller // of the loop and of the settler

	quit  chan struct{} // closed by stop
	once  sync.Once
	trial *time.Timer // runs from stop on: ends life
	done  chan struct{}
	life  context.Context // ends when, after a stop, Redis has been away for a lease: it is not waited for any longer
	end   context.CancelFunc
	calm  context.Context // ends when Shutdown's context does: the user's code is not waited for any longer
	rush  context.CancelFunc
	free  chan struct{} // cap 1: there may be room for more
	hints hints

	workers     sync.WaitGroup
	crew        crew
	mourner     sync.WaitGroup
	unhandled   atomic.Int64 // deliveries in the buffer or in a handler
	unsettled   atomic.Int64 // deliveries fetched and not yet settled
	lastChances atomic.Int64 // of them, those that are poison if they are lost
	abandoned   atomic.Int64 // callbacks that run on after their limit
	deadline    atomic.Int64 // unix ns until which Redis has time, once the run stops and no handler runs
	deaf        atomic.Bool  // there are no wake-ups from Redis
	perMsg      atomic.Int64 // ns that handling takes, a moving average; 0: not known yet

	since  time.Time // it runs
	saidAt time.Time // it said something of itself; of loop

	// Of accept.
	known     bool      // the queue has been seen
	dropped   int       // tags, not yet in the log
	droppedAt time.Time // when some were logged last
}

func startRun(s *store, set settings, ev *events) *run {
	r := &run{
		settings: set, store: s, events: ev,
		listen:  newListener(s),
		callers: [2]*caller{newCaller(), newCaller()},
		quit:    make(chan struct{}), done: make(chan struct{}), since: time.Now(),
		free: make(chan struct{}, 1), hints: hints{rung: make(chan struct{}, 1)},
	}
	r.life, r.end = context.WithCancel(context.Background())
	r.trial = time.AfterFunc(time.Hour, func() {
		if r.unhandled.Load() > 0 {
			r.trial.Reset(r.lease) // handlers are waited for, so Redis may as well be
		} else if left := time.Until(time.Unix(0, r.deadline.Load())); left > 0 {
			r.trial.Reset(left)
		} else {
			r.end()
		}
	})
	r.trial.Stop()
	r.calm, r.rush = context.WithCancel(context.Background())
	r.fetches = fetchSettings{lease: set.lease, maxLosses: set.maxLosses, garbageAge: set.garbageAge, garbageMax: set.garbageMax}
	r.log = set.log.With(slog.String("queue", s.queue))
	r.outage.log = r.log
	r.buffer.init()
	r.outbox.init()
	r.graves.init()
	r.handle = set.handler
	if r.handle == nil && (len(set.middleware) > 0 || set.limit > 0) {
		r.handle = func(_ context.Context, msg *Message) error {
			if !set.callback(msg.Payload) {
				return ErrNacked
			}
			return nil
		}
	}
	for i := len(set.middleware) - 1; i >= 0; i-- {
		if r.handle = set.middleware[i](r.handle); r.handle == nil {
			panic(fmt.Sprintf("delayqueue: queue %q: middleware %d returned a nil Handler", s.queue, i+1))
		}
	}
	for range set.concurrency {
		r.workers.Add(1)
		r.hire()
	}
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

	r.loop()
	r.listen.close()
	listening.Wait()
	r.handBack()
	r.buffer.close() // idle workers leave; loop has released what they had not started
	r.workers.Wait() // handlers finish, or their limit or Shutdown gives up on them
	r.outbox.close()
	settling.Wait()
	close(leased)
	leasing.Wait()
	r.graves.close()
	mourned := make(chan struct{})
	go func() { r.mourner.Wait(); close(mourned) }()
	select {
	case <-mourned:
	case <-r.calm.Done():
	}
	r.trial.Stop()
	r.end()
	close(r.done)
}

// stop begins the end. When all handlers have finished, Redis has one lease to take what is
// to be settled, and another one after each answer.
func (r *run) stop() {
	r.once.Do(func() {
		r.goOn()
		r.trial.Reset(r.lease)
		close(r.quit)
	})
}

// goOn gives Redis another lease.
func (r *run) goOn() { r.deadline.Store(time.Now().Add(r.lease).UnixNano()) }

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

// fetch repeats one call until Redis answers, or until a lease after the run stopped: then
// what it may have handed out is lost anyway. asked is when the attempt began that was answered.
func (r *run) fetch(a ask) (got fetched, asked time.Time, err error) {
	r.callers[0].next()
	a.holds = r.lastChances.Load() > 0
	err = r.untilAnswered("fetch", func() (err error) {
		asked = time.Now()
		got, err = r.store.fetch(r.life, r.callers[0], a, &r.fetches)
		return err
	})
	return got, asked, err
}

// untilAnswered repeats an attempt until it succeeds or the run's life is over.
func (r *run) untilAnswered(what string, attempt func() error) error {
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
		if !pause(r.life, backoff(n)) {
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

// accept takes in what a fetch brought that was asked for and answered at these instants.
func (r *run) accept(got *fetched, asked, at time.Time) {
	if got.lost > 0 {
		r.log.Warn("delayqueue: leases ran out: their consumers died or were cut off", slog.Int("messages", got.lost), slog.Int("poison", len(got.dead)))
	}
	if got.first == 1 && r.known {
		r.log.Error("delayqueue: keys of this queue have vanished: a flush, an eviction policy other than noeviction, or a failover that lost them")
	}
	r.known = true
	if r.dropped += got.dropped; r.dropped > 0 && at.Sub(r.droppedAt) >= time.Minute {
		r.log.Error("delayqueue: dropped tags without a message: another program, or an eviction policy, deletes from this queue", slog.Int("tags", r.dropped))
		r.dropped, r.droppedAt = 0, at
	}
	if got.trimmed > 0 {
		r.log.Warn("delayqueue: deleted garbage for want of room", slog.Int("messages", got.trimmed))
	}
	r.events.tell(LostEvent, got.lost)
	for _, dead := range got.dead {
		r.bury(dead)
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
	r.buffer.put(fit...)
}
