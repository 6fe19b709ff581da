package delayqueue

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A consumer is one stretch of consuming a queue, from StartConsume to the end of lifecycle. What belongs to the queue:
//
//	poller   fetches, fills the workers' buffer, waits for the next instant
//	wakeUps  waits for the wake marker
//	leases   renews what is held, every third of a lease
//	settler  sends outcomes, as many as have gathered while the last call was under way
//	notices  calls the garbage handler
//
// Each is a goroutine, and each part says beside its fields who writes and who reads them. What belongs to its workers:
//
//	workers  take from the buffer, call the handler, leave an outcome to the settler
type consumer struct {
	set     settings // does not change
	store   *store   // over the library's own connections
	life    *lifecycle
	outage  outage
	poller  poller
	wakeUps *wakeListener
	leases  leases
	settler settler
	notices notices
	workers workers
}

func startConsumer(s *store, set settings, ev *events, slots *workerSlots) *consumer {
	c := &consumer{set: set, store: s.ofRun(set.lease)}
	c.set.log = set.log.With(slog.String("queue", s.queue))
	c.outage.log = c.set.log
	c.life = newLifecycle(set.lease, func() bool { return c.workers.unhandled.Load() > 0 })
	c.wakeUps = newWakeListener(c.store)
	freed := newSignal()
	c.leases = leases{set: &c.set, store: c.store, life: c.life, outage: &c.outage, freed: freed}
	c.notices = notices{set: &c.set, life: c.life}
	c.settler = settler{
		set: &c.set, store: c.store, life: c.life, outage: &c.outage, events: ev,
		leases: &c.leases, notices: &c.notices, caller: newCaller(),
	}
	c.workers = workers{set: &c.set, life: c.life, slots: slots, settler: &c.settler, freed: freed}
	asked := fetchSettings{lease: set.lease, maxLosses: set.maxLosses, garbageAge: set.garbageAge, garbageMax: set.garbageMax}
	c.poller = poller{
		set: &c.set, store: c.store, life: c.life, outage: &c.outage, events: ev,
		workers: &c.workers, leases: &c.leases, settler: &c.settler, notices: &c.notices, wakeUps: c.wakeUps,
		freed: freed, hints: hints{changed: newSignal()}, caller: newCaller(),
		settings: asked, agreed: asked, replyBytes: maxBatchBytes, since: time.Now(),
		state: pollState{interval: min(set.fetchInterval, set.lease/3), wakeUps: true},
	}
	c.workers.buffer.init()
	c.settler.outbox.init()
	c.notices.waiting.init()
	slots.assign(&c.workers)
	go c.run()
	return c
}

// run runs all parts, and ends them in order: nothing more is fetched, handlers finish, their outcomes are settled,
// leases are renewed until then, and the garbage handler is told.
func (c *consumer) run() {
	var listening, leasing, settling sync.WaitGroup
	settled := make(chan struct{})
	listening.Go(c.wakeUps.run)
	leasing.Go(func() { c.leases.run(settled) })
	settling.Go(c.settler.run)
	c.notices.running.Go(c.notices.run)
	defer context.AfterFunc(c.set.base, c.poller.freed.send)()

	c.poller.run()
	c.life.enterPhase("the connection that waits for wake-ups to close")
	c.wakeUps.close()
	listening.Wait()
	c.life.enterPhase("the wake-up to be handed on to other consumers")
	c.poller.passWakeOn()
	c.workers.releaseBuffered()
	c.life.enterPhase("handlers")
	c.workers.slots.await(&c.workers) // handlers finish, or their limit or Shutdown gives up on them
	c.life.enterPhase("outcomes to be settled")
	c.settler.outbox.close()
	settling.Wait()
	c.life.enterPhase("leases to be renewed")
	close(settled)
	leasing.Wait()
	c.life.enterPhase("the garbage handler")
	c.notices.close()
	c.life.drainTimer.Stop()
	c.life.endRedis()
	c.store.release()
	close(c.life.done)
}

// stop begins the end.
func (c *consumer) stop() {
	c.life.stop()
	c.workers.buffer.close() // idle workers leave
}

// ended says whether consuming has ended.
func (c *consumer) ended() bool { return closed(c.life.done) }
