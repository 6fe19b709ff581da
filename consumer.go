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

// room is how many deliveries to ask for now: one for each free worker, plus what all of
// them get through in a round trip, twice, so that the buffer lasts while the next
// fetch is under way. For handlers that are slow against the network, or against the time
// that a message may wait in the buffer, that is nothing.
func (r *run) room(rtt time.Duration) int {
	n := r.concurrency
	if int(r.abandoned.Load()) >= n {
		return 0 // as many callbacks run on past their limit as there are workers
	}
	extra := 0
	if each := r.perMsg.Load(); each > 0 && each < int64(bufferPatience/2) {
		extra = int(min(int64(n)*int64(rtt)/each, maxBatch/2))
	}
	unhandled := int(r.unhandled.Load())
	if unhandled >= n+extra {
		return 0
	}
	room := n + 2*extra - unhandled
	room = min(room, n+4*maxBatch-int(r.unsettled.Load()))
	if r.fetchLimit > 0 {
		room = min(room, r.fetchLimit-int(r.unsettled.Load()))
	}
	return max(min(room, maxBatch), 0)
}

// loop fetches while there is work, and else waits for the next instant.
func (r *run) loop() {
	l := looper{run: r, tick: min(r.fetchInterval, r.lease/3), wake: time.NewTimer(0), blocking: true}
	defer l.wake.Stop()
	l.look(false)
	for !r.stopping() {
		l.wait()
	}
	for _, d := range r.buffer.all() {
		r.release(d)
	}
}

// handBack sets the alarm for others, for this run may have taken a marker that it will not
// serve, or the connection that was just closed had one on it. Without Redis others have
// their tick.
//
// Twice: while the server has not seen yet that the listener's connection is closed, it may give
// the marker to that. When it has answered the first call it has.
func (r *run) handBack() {
	for _, rearm := range []bool{false, true} {
		if !r.outage.over() {
			return
		}
		got, asked, err := r.fetch(ask{rearm: rearm, says: sayLeaving})
		if err != nil {
			return
		}
		r.accept(&got, asked, time.Now())
	}
}

// looper is the state of loop.
type looper struct {
	*run
	tick     time.Duration
	wake     *time.Timer
	blocking bool  // the listener works
	asked    bool  // the listener is at it
	drops    int   // how often its connection failed since it last worked
	worked   int64 // listener.worked, as it was then

	lastLook time.Time
	rtt      time.Duration // of fetches, a moving average
	more     bool          // more is due now, or may be
	hold     int64         // instant (server's, unix us) that this run serves: it took the marker; 0: none
	server   int64         // server's clock, unix us, …
	local    time.Time     // … at this instant here
}

// until is how long it is until an instant of the server's clock; the clocks are compared
// only to wait, and the server decides again what is due.
func (l *looper) until(instant int64) time.Duration {
	return time.Duration(instant-l.server)*time.Microsecond - time.Since(l.local)
}

// wait lets one thing happen.
func (l *looper) wait() {
	room := l.room(l.rtt)
	if room > 0 && l.more {
		l.look(false)
		return
	}
	if room > 0 && l.blocking && !l.asked {
		l.asked = true
		l.listen.ask <- struct{}{}
	}
	if room == 0 && l.hold != 0 && l.blocking {
		l.look(true) // it has no worker for the instant: the alarm is for another
		return
	}
	pause := time.Until(l.lastLook.Add(l.tick))
	if l.hold != 0 && room > 0 {
		pause = min(pause, l.until(l.hold))
	}
	waiting, waits := l.buffer.first()
	if waits {
		pause = min(pause, time.Until(waiting.fetched.Add(bufferPatience)))
	}
	l.wake.Reset(max(pause, 0))
	select {
	case <-l.quit:
	case <-l.free:
	case <-l.wake.C:
		if waiting, waits = l.buffer.first(); waits && time.Since(waiting.fetched) >= bufferPatience {
			l.perMsg.Store(int64(bufferPatience)) // handlers are slow now: no fetching ahead
			for _, d := range l.buffer.all() {
				l.release(d)
			}
		}
		if time.Since(l.lastLook) >= l.tick || l.hold != 0 && l.until(l.hold) <= 0 {
			l.look(false)
		}
	case l.hold = <-l.listen.rung: // whatever was held before: the marker taken last is the latest word
		l.asked = false
		l.hear(true, nil)
	case err := <-l.listen.lost:
		if worked := l.listen.worked.Load(); worked != l.worked {
			l.worked, l.drops = worked, 0
		}
		if l.drops++; l.drops >= deafAfter { // although fetches go through
			l.hear(false, err)
		}
		l.look(true)
	case err := <-l.listen.off:
		l.hear(false, err)
		l.look(false)
	case <-l.hints.rung:
		if at := l.hints.take(); !at.IsZero() && !l.blocking {
			instant := l.server + at.Sub(l.local).Microseconds()
			if l.hold == 0 || instant < l.hold {
				l.hold = instant
			}
		}
	}
}

// deafAfter is how often in a row the listener may fail while fetches go through.
const deafAfter = 5

// hear notes whether there are wake-ups from Redis, and says so when there are none.
func (l *looper) hear(works bool, err error) {
	if works == l.blocking {
		return
	}
	l.blocking = works
	l.deaf.Store(!works)
	if !works {
		l.log.Warn("delayqueue: this Redis or client cannot wait for wake-ups: messages that other processes send are seen at the next look",
			slog.Duration("interval", l.tick), slog.Any("error", err))
	}
}

// look fetches once: the tick.
func (l *looper) look(rearm bool) {
	want := l.room(l.rtt)
	got, asked, err := l.fetch(ask{want: want, rearm: rearm, says: l.says(time.Now())})
	now := time.Now()
	l.lastLook = now
	if err != nil {
		return // stopping
	}
	rtt := now.Sub(asked)
	if l.rtt == 0 {
		l.rtt = rtt
	}
	l.rtt += (rtt - l.rtt) / 8
	l.server, l.local = got.now, asked.Add(rtt/2)
	l.more = got.next != 0 && got.next <= got.now
	switch {
	case !l.blocking:
		l.hold = got.next
	case rearm:
		l.hold = 0
	case got.next != l.hold:
		l.hold = 0 // served, or superseded by a marker that another takes
	}
	l.accept(&got, asked, now)
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
