package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// A consumer is one stretch of consuming a queue, from StartConsume until lifecycle.done closes. These parts belong to
// the queue. The poller is a goroutine, and so are the others while they have something to do:
//
//	poller   fetches deliveries and gives them to the workers; waits until there is more
//	wakeUps  has the wake marker waited for, on a connection that is shared with other queues
//	leases   renews what is held, every third of a lease
//	overruns keeps the places of handlers that run on after their deliveries have ended
//	settler  sends outcomes, as many as have gathered during its last call
//	notices  calls the garbage handler
//
// The workers handle what the poller gives them, and know of the queue only what a delivery carries. Several queues may share
// them (Pool), so a consumer has a part of them:
//
//	member   what is fetched and waits for a worker, and how much the workers have room for
type consumer struct {
	settings  settings // a copy, which does not change
	store     *store   // over the library's own connections
	lifecycle *lifecycle
	poller    poller
	wakeUps   *wakeListener
	leases    leases
	overruns  overruns
	settler   settler
	notices   notices
	member    *member
}

func startConsumer(p *producer, settings settings, join func(freed signal) *member) *consumer {
	s, ev := p.store, p.events
	c := &consumer{settings: settings, store: s.forConsumer(settings.lease)}
	if settings.drain != nil && settings.drain.stepped {
		c.store.attemptTimeout = steppedAttempt
	}
	c.settings.log = settings.log.With(slog.String("queue", s.queue))
	c.lifecycle = newLifecycle(settings.lease, c.settings.log, func() bool { return c.member.unhandled() > 0 })
	c.wakeUps = newWakeListener(c.store)
	freed := newSignal()
	c.member = join(freed)
	c.leases = leases{settings: &c.settings, store: c.store, lifecycle: c.lifecycle, overruns: &c.overruns, freed: freed}
	c.overruns = overruns{settings: &c.settings, store: c.store, freed: freed}
	c.overruns.bounded.Store(settings.limits.Concurrency > 0)
	c.notices = notices{settings: &c.settings, lifecycle: c.lifecycle}
	c.notices.waiting.read = c.notices.run
	c.settler = settler{
		settings: &c.settings, store: c.store, lifecycle: c.lifecycle, events: ev,
		leases: &c.leases, overruns: &c.overruns, notices: &c.notices, member: c.member, producer: p, caller: newCaller(),
		joint: make(chan *jointCall),
	}
	c.settler.outbox.read = c.settler.run
	c.poller = poller{
		settings: &c.settings, store: c.store, lifecycle: c.lifecycle, events: ev,
		member: c.member, leases: &c.leases, overruns: &c.overruns, settler: &c.settler, notices: &c.notices, wakeUps: c.wakeUps,
		freed: freed, hints: newHints(), caller: newCaller(),
		agreed: settings.fetchSettings, limits: agreedLimits{Limits: settings.limits, bounded: settings.limits != (Limits{})},
		replyBytes: maxBatchBytes, since: time.Now(),
		state: pollState{interval: min(cmp.Or(settings.fetchInterval, tickInterval), settings.lease/3), wakeUps: true,
			moreDue: c.member.workers.shared},
	}
	go c.run()
	return c
}

// run polls until stop. Then it ends all parts in this order: nothing more is fetched, handlers finish, their
// outcomes are settled, leases are no longer renewed, and the garbage handler has been told.
func (c *consumer) run() {
	defer context.AfterFunc(c.settings.base, c.poller.freed.send)()

	c.settings.logStuck(c.member.stuck()) // here, for startConsumer is called with the queue's mu held
	c.poller.run()
	begun := time.Now()
	c.lifecycle.enterPhase("the call that waits for wake-ups to end")
	c.wakeUps.close()
	c.lifecycle.enterPhase("the wake-up to be handed on to other consumers")
	c.poller.passWakeOn(begun)
	c.lifecycle.enterPhase("handlers")
	c.member.await() // handlers finish, or their limit or Shutdown gives up on them
	c.lifecycle.enterPhase("outcomes to be settled")
	c.settler.close()
	c.lifecycle.enterPhase("leases to be renewed")
	c.leases.close()
	c.lifecycle.enterPhase("the garbage handler")
	c.notices.close()
	c.member.leave()
	c.lifecycle.drainTimer.Stop()
	c.lifecycle.endRedis()
	c.overruns.close(c.store.release)
	close(c.lifecycle.done)
}

// stop begins the end of all parts, and returns at once.
func (c *consumer) stop() { c.lifecycle.stop() }

// ended reports whether consuming has ended.
func (c *consumer) ended() bool { return closed(c.lifecycle.done) }

// releaseTime is how long Shutdown waits for releases to go out after ctx has ended.
const releaseTime = time.Second

// shutdown waits until consumers have ended, which were stopped. When ctx ends first it gives up on their handlers, and
// says of each queue what it was waiting for.
func shutdown(ctx context.Context, consumers []*consumer) error {
	for _, c := range consumers {
		select {
		case <-c.lifecycle.done:
		case <-ctx.Done():
		}
	}
	left := slices.DeleteFunc(consumers, (*consumer).ended)
	whys := make([]string, len(left))
	running := map[*producer]int{}
	for i, c := range left {
		whys[i] = c.lifecycle.waitingFor()
		c.lifecycle.force()
		running[c.settler.producer] += c.member.abandonAll()
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	for _, c := range left {
		if c.leases.held.totals().deliveries == 0 || c.lifecycle.outage.cause() != nil {
			continue // nothing to release, or nobody to take it
		}
		select {
		case <-c.lifecycle.done:
		case <-limit.Done():
		}
	}
	var errs []error
	told := map[*producer]bool{}
	for i, c := range left {
		p := c.settler.producer
		if told[p] { // the queue was started more than once
			continue
		}
		told[p] = true
		if n := running[p]; n > 0 {
			whys[i] = fmt.Sprintf("%d handlers were still running", n)
		}
		if err := c.lifecycle.outage.cause(); err != nil {
			whys[i] += fmt.Sprintf(" (without Redis: %v)", err)
		}
		errs = append(errs, fmt.Errorf("delayqueue: queue %q: shutdown: %s: %w", c.store.queue, whys[i], ended(ctx)))
	}
	return errors.Join(errs...)
}
