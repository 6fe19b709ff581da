package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/go-delayqueue/delayqueue/internal/wake"
)

// A Consumer consumes a queue once, from StartConsume until Done closes. Each of its parts has the settings, and the
// parts that it uses. The comment of the package has a drawing.
type Consumer struct {
	queue     *shard.Queue  // of which its store is a shard
	settings  Settings      // a copy, which does not change
	store     *script.Store // over the library's own connections
	lifecycle *lifecycle
	member    *member // its part of the workers: what is fetched and waits for one
	poller    poller  // fetches deliveries and gives them to the workers
	leases    leases  // renews the leases of what is held
	settler   settler // sends outcomes
	notices   notices // calls the garbage handler
	losses    losses  // notes losses in the state of the queue
	units     message.UnitQuestion
	kinds     kinds // counts of what handlers did; the workers count, and the poller reports
}

// StartConsumer starts a consumer of a shard of a queue, with the portion at of the workers ws. Shutdown reports once
// on all of a queue.
func StartConsumer(q *shard.Queue, s *script.Store, ev event.Listeners, settings Settings, ws *Workers,
	at Portion) *Consumer {
	c := &Consumer{queue: q, settings: settings, store: s.ForConsumer(settings.Lease)}
	if settings.seed != 0 {
		c.store.AttemptTimeout = steppedAttempt
	}
	c.lifecycle = newLifecycle(settings.Lease, settings.Log, func() bool { return c.member.unhandled() > 0 })
	c.lifecycle.outage, c.lifecycle.shard = cmp.Or(settings.Outage, c.lifecycle.outage), s.Shard
	c.member = ws.join(at)
	c.leases = leases{settings: &c.settings, store: c.store, lifecycle: c.lifecycle, member: c.member}
	c.notices = notices{settings: &c.settings, lifecycle: c.lifecycle}
	c.notices.waiting.Read = c.notices.run
	c.losses = losses{settings: &c.settings, store: c.store, lifecycle: c.lifecycle}
	c.losses.waiting.Read = c.losses.run
	c.kinds.header = settings.KindHeader
	c.settler = settler{settings: &c.settings, store: c.store, events: ev, lifecycle: c.lifecycle, member: c.member,
		leases: &c.leases, notices: &c.notices, wakeUpsOff: &c.poller.state.wakeUpsOff, caller: script.NewCaller(),
		more: conc.NewSignal()}
	c.settler.outbox.Read = c.settler.run
	c.poller = poller{
		consumer: c, settings: &c.settings, store: c.store, events: ev, lifecycle: c.lifecycle, member: c.member,
		leases: &c.leases, settler: &c.settler, notices: &c.notices, wakeUps: wake.NewWakeListener(c.store),
		hints: wake.NewHints(), caller: &script.Caller{ID: cmp.Or(settings.ID, script.NewCaller().ID)},
		lease:      settings.Lease,
		limits:     script.AgreedLimits{RateLimits: settings.Limits, Bounded: settings.Limits != (script.RateLimits{})},
		replyBytes: script.MaxBatchBytes, nearest: math.MaxInt64, since: time.Now(),
		state: pollState{interval: min(cmp.Or(settings.FetchInterval, lookInterval), settings.Lease/3),
			moreDue: c.member.hungry},
	}
	go c.run()
	return c
}

// run polls until stop. Then it ends all parts, in the order that the comment of the package has.
func (c *Consumer) run() {
	defer context.AfterFunc(c.settings.Base, c.member.freed.Send)()

	if !c.lifecycle.stopping() { // not in StartConsumer, which is called with the queue's mu held
		c.member.logStuck(c.settings.Log)
	}
	c.poller.run()
	stopped := time.Now()
	c.lifecycle.enterPhase("the call that waits for wake-ups to end")
	c.poller.wakeUps.End()
	c.lifecycle.enterPhase("the wake-up to be handed on to other consumers")
	c.poller.passWakeOn(stopped)
	c.lifecycle.enterPhase("handlers")
	for c.member.unhandled() > 0 { // handlers finish, or their limit or Shutdown gives up on them
		<-c.member.freed
	}
	c.lifecycle.enterPhase("outcomes to be settled")
	c.settler.close()
	select {
	case <-c.settler.more: // since the poller has ended
		c.poller.passWakeOn(time.Now())
	default:
	}
	c.lifecycle.enterPhase("leases to be renewed")
	c.leases.close()
	c.lifecycle.enterPhase("a loss to be noted")
	c.losses.close()
	c.lifecycle.enterPhase("the garbage handler")
	c.notices.close()
	c.member.leave()
	c.lifecycle.drainTimer.Stop()
	c.lifecycle.endRedis()
	c.store.Release()
	close(c.lifecycle.settled)
	for c.member.givenUp() > 0 {
		<-c.member.freed
	}
	close(c.lifecycle.done)
}

// Stop begins the end of all parts, and returns at once.
func (c *Consumer) Stop() { c.lifecycle.stop() }

// Done is closed when consuming has ended.
func (c *Consumer) Done() <-chan struct{} { return c.lifecycle.done }

// Hint says that this process has sent a message, and how soon that is due. Only a poller without wake-ups needs to
// know.
func (c *Consumer) Hint(in time.Duration) {
	if c.poller.state.wakeUpsOff.Load() {
		c.poller.hints.Put(time.Now().Add(in))
	}
}

// Ended reports whether consuming has ended.
func (c *Consumer) Ended() bool { return conc.Closed(c.lifecycle.done) }

// releaseTime is how long Shutdown waits for releases to go out after ctx has ended.
const releaseTime = time.Second

// Shutdown waits until stopped consumers have ended. If ctx ends first, it gives up on their handlers, and the error
// says of each queue what it was waiting for.
func Shutdown(ctx context.Context, consumers []*Consumer) error {
	for _, c := range consumers {
		select {
		case <-c.lifecycle.done:
		case <-ctx.Done():
		}
	}
	left := slices.DeleteFunc(consumers, (*Consumer).Ended)
	whys, running := map[*shard.Queue]string{}, map[*shard.Queue]int{} // of a queue with its shards, and earlier starts
	for _, c := range left {
		whys[c.queue] = cmp.Or(whys[c.queue], "was still waiting for "+*c.lifecycle.phase.Load())
		c.lifecycle.force()
		c.member.abandonAll()
		running[c.queue] += c.member.givenUp()
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	for _, c := range left {
		if c.leases.held.totals().deliveries == 0 || c.lifecycle.cause() != nil {
			continue // nothing to release, or nobody to take it
		}
		select {
		case <-c.lifecycle.settled:
		case <-limit.Done():
		}
	}
	var errs []error
	for _, c := range left {
		why := whys[c.queue]
		if why == "" { // it was told
			continue
		}
		delete(whys, c.queue)
		if n := running[c.queue]; n > 0 {
			why = stillRunning(n)
		}
		if err := c.lifecycle.cause(); err != nil {
			why += fmt.Sprintf(" (without Redis: %v)", err)
		}
		errs = append(errs, fmt.Errorf("delayqueue: queue %q: shutdown: %s: %w", c.store.Queue, why, link.Ended(ctx)))
	}
	return errors.Join(errs...)
}

func stillRunning(n int) string { return fmt.Sprintf("%d handlers were still running", n) }
