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

// A consumer is one stretch of consuming, from StartConsume to the close of done:
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
type consumer struct {
	settings
	store   *store
	events  *events
	fetches fetchSettings
	outage  outage
	slots   *workerSlots
	buffer  mailbox[*delivery] // fetched, not yet started
	held    heldList
	outbox  mailbox[outcome]
	notices mailbox[deadLetterNotice] // for the garbage handler
	wakeUps *wakeListener
	callers [2]*caller // of the loop and of the settler

	quit       chan struct{} // closed by stop
	once       sync.Once
	phase      atomic.Pointer[string] // of the end: what is waited for
	drainTimer *time.Timer            // runs from stop on: ends life
	done       chan struct{}
	redisCtx   context.Context // ends when, after a stop, Redis has been away for a lease: it is not waited for any longer
	endRedis   context.CancelFunc
	forceCtx   context.Context // ends when Shutdown's context does: the user's code is not waited for any longer
	force      context.CancelFunc
	freed      chan struct{} // cap 1: there may be room for more
	hints      hints

	workers       atomic.Int64 // that this run has; of pool
	members       workerSet
	notifying     sync.WaitGroup
	unhandled     atomic.Int64 // deliveries in the buffer or in a handler
	unsettled     atomic.Int64 // deliveries fetched and not yet settled
	lastAttempts  atomic.Int64 // of them, those that are poison if they are lost
	heldBytes     atomic.Int64 // of their envelopes
	redisDeadline atomic.Int64 // until when Redis has time, once the run stops and no handler runs; as instantOf counts
	wakeUpsOff    atomic.Bool  // there are no wake-ups from Redis
	nsPerMsg      atomic.Int64 // ns that handling takes, a moving average; 0: not known yet

	nextReplyBytes int           // that the next fetch asks for; of loop
	agreed         fetchSettings // what holds for all consumers of the queue; of loop

	since      time.Time // it runs
	presenceAt time.Time // it said something of itself; of loop

	// Of accept.
	seenQueue       bool      // the queue has been seen
	unloggedDropped int       // tags, not yet in the log
	droppedLoggedAt time.Time // when some were logged last
	unloggedNewer   int       // messages of a newer version, not yet in the log
	newerLoggedAt   time.Time // when some were logged last
}

func startConsumer(s *store, set settings, ev *events, slots *workerSlots) *consumer {
	c := &consumer{
		settings: set, store: s.ofRun(set.lease), events: ev, slots: slots,
		callers: [2]*caller{newCaller(), newCaller()},
		quit:    make(chan struct{}), done: make(chan struct{}), since: time.Now(),
		freed: make(chan struct{}, 1), hints: hints{changed: make(chan struct{}, 1)},
	}
	c.wakeUps = newWakeListener(c.store)
	c.redisCtx, c.endRedis = context.WithCancel(context.Background())
	c.drainTimer = time.AfterFunc(time.Hour, func() {
		if c.unhandled.Load() > 0 {
			c.drainTimer.Reset(c.lease) // handlers are waited for, so Redis may as well be
		} else if left := c.redisDeadline.Load() - processTime(time.Now()); left > 0 {
			c.drainTimer.Reset(time.Duration(left))
		} else {
			c.endRedis()
		}
	})
	c.drainTimer.Stop()
	c.forceCtx, c.force = context.WithCancel(context.Background())
	c.fetches = fetchSettings{lease: set.lease, maxLosses: set.maxLosses, garbageAge: set.garbageAge, garbageMax: set.garbageMax}
	c.agreed, c.nextReplyBytes = c.fetches, maxBatchBytes
	c.log = set.log.With(slog.String("queue", s.queue))
	c.outage.log = c.log
	c.buffer.init()
	c.outbox.init()
	c.notices.init()
	slots.assign(c)
	go c.run()
	return c
}

// live runs everything that a run has, and ends it in order.
func (c *consumer) run() {
	var listening, leasing, settling sync.WaitGroup
	leased := make(chan struct{})
	listening.Go(c.wakeUps.run)
	leasing.Go(func() { c.renewLeases(leased) })
	settling.Go(c.settleAll)
	c.notifying.Go(c.notify)
	defer context.AfterFunc(c.base, c.signal)()

	c.pollLoop()
	c.enterPhase("the connection that waits for wake-ups to close")
	c.wakeUps.close()
	listening.Wait()
	c.enterPhase("the wake-up to be handed on to other consumers")
	c.passWakeOn()
	c.releaseBuffered()
	c.enterPhase("handlers")
	c.slots.await(c) // handlers finish, or their limit or Shutdown gives up on them
	c.enterPhase("outcomes to be settled")
	c.outbox.close()
	settling.Wait()
	c.enterPhase("leases to be renewed")
	close(leased)
	leasing.Wait()
	c.enterPhase("the garbage handler")
	c.notices.close()
	mourned := make(chan struct{})
	go func() { c.notifying.Wait(); close(mourned) }()
	select {
	case <-mourned:
	case <-c.forceCtx.Done():
	}
	c.drainTimer.Stop()
	c.endRedis()
	c.store.release()
	close(c.done)
}

func (c *consumer) enterPhase(what string) { c.phase.Store(&what) }

// waitsFor is what the end of the run waits for.
func (c *consumer) waitingFor() string {
	if what := c.phase.Load(); what != nil {
		return "was still waiting for " + *what
	}
	return "was still waiting for a fetch to be answered"
}

// stop begins the end. When all handlers have finished, Redis has one lease to take what is
// to be settled, and another one after each answer.
func (c *consumer) stop() {
	c.once.Do(func() {
		c.extendDrain()
		c.drainTimer.Reset(c.lease)
		close(c.quit)
		c.buffer.close() // idle workers leave
	})
}

// goOn gives Redis another lease.
func (c *consumer) extendDrain() { c.redisDeadline.Store(processTime(time.Now()) + int64(c.lease)) }

func (c *consumer) stopping() bool {
	select {
	case <-c.quit:
		return true
	default:
		return false
	}
}

// ended says whether done is closed.
func (c *consumer) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// signal says that there may be room for more.
func (c *consumer) signal() {
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// untilAnswered repeats an attempt until it succeeds, the run's life is over, or nobody wants it
// any more, which the beginning of a stop may decide.
func (c *consumer) untilAnswered(what string, attempt func() error, wanted func(n int, err error) bool) error {
	for n := 1; ; n++ {
		begun := time.Now()
		err := attempt()
		if c.redisCtx.Err() == nil || err == nil {
			c.outage.report(what, begun, err)
		}
		if err == nil {
			c.extendDrain()
			return nil
		}
		if !wanted(n, err) || !c.sleep(backoff(n)) || !wanted(n, err) {
			return err
		}
	}
}

// pause waits d, and says whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
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
func (c *consumer) sleep(d time.Duration) bool {
	if c.stopping() {
		return sleep(c.redisCtx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.quit: // life goes on for a while
	}
	return true
}

// trimmed logs that garbage was deleted for want of room.
func (c *consumer) logTrimmed(messages int) {
	if messages > 0 {
		c.log.Warn("delayqueue: deleted garbage for want of room", slog.Int("messages", messages))
	}
}

// accept takes in what a fetch brought that was asked for and answered at these instants.
func (c *consumer) accept(got *fetched, asked, at time.Time) {
	if got.lost > 0 {
		c.log.Warn("delayqueue: leases ran out: their consumers died or were cut off", slog.Int("messages", got.lost), slog.Int("poison", len(got.dead)))
	}
	if got.first == 1 && c.seenQueue {
		c.log.Error("delayqueue: keys of this queue have vanished: a flush, an eviction policy other than noeviction, or a failover that lost them")
		c.events.tell(VanishedEvent, 1)
	}
	c.events.tell(VanishedEvent, got.dropped)
	c.seenQueue = true
	c.agree(got.agreed)
	if c.unloggedDropped += got.dropped; c.unloggedDropped > 0 && at.Sub(c.droppedLoggedAt) >= time.Minute {
		c.log.Error("delayqueue: dropped tags without a message: another program, or an eviction policy, deletes from this queue", slog.Int("tags", c.unloggedDropped))
		c.unloggedDropped, c.droppedLoggedAt = 0, at
	}
	c.logTrimmed(got.trimmed)
	c.events.tell(LostEvent, got.lost)
	for _, dead := range got.dead {
		c.addPoisonNotice(dead)
	}
	for _, h := range got.held {
		c.countNotReceived(h, at)
	}
	if len(got.tags) == 0 {
		return
	}
	ds := c.decode(got, asked, at)
	c.addHeld(ds)
	c.unhandled.Add(int64(len(ds)))
	if c.events.on() {
		ids := idsOf(ds)
		c.events.tell(ReadyEvent, len(ids), ids...)
		c.events.tell(DeliveredEvent, len(ids), ids...)
	}
	fit := ds[:0]
	for _, d := range ds {
		if c.unfit(d, got.now) {
			continue
		}
		fit = append(fit, d)
	}
	if c.unloggedNewer > 0 && at.Sub(c.newerLoggedAt) >= time.Minute {
		c.log.Warn("delayqueue: set aside messages that only a newer version of this library can read", slog.Int("times", c.unloggedNewer))
		c.unloggedNewer, c.newerLoggedAt = 0, at
	}
	c.buffer.put(fit...)
}

// agree notes what holds for all consumers of the queue, and says so where it is not what this one asked for.
func (c *consumer) agree(all fetchSettings) {
	if all != c.agreed && all != c.fetches {
		c.log.Warn("delayqueue: other consumers of this queue have other settings: the most that one of them asks for holds for all",
			slog.Group("this", c.fetches.attrs()...), slog.Group("all", all.attrs()...))
	}
	c.agreed = all
}

func (f fetchSettings) attrs() []any {
	return []any{slog.Duration("lease", f.lease), slog.Int("max_losses", f.maxLosses),
		slog.Duration("garbage_age", f.garbageAge), slog.Int("garbage_max", f.garbageMax)}
}
