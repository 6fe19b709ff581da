package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// An outcome ends a delivery.
type outcome struct {
	d        *delivery
	kind     outcomeKind
	delay    time.Duration // of outcomeRetry
	failures int           // as they are from now on
	losses   int           // in a row; a settled failure or a snooze ends the row
	text     string        // last error, as it is kept
	err      error         // last error, for the garbage handler
}

type outcomeKind int

const (
	outcomeAck outcomeKind = iota
	outcomeRetry
	outcomeReady
	outcomeGarbage
)

func (k outcomeKind) String() string {
	return [...]string{"ack", "retry", "ready", "garbage"}[k]
}

// plain outcomes, nearly all, need nothing but the tag.
func (o *outcome) plain() bool {
	return o.kind == outcomeAck && o.d.number == 1 && o.d.key == ""
}

// settleAll is the settler: what gathers while one call is under way goes out with the next.
func (c *consumer) settleAll() {
	for {
		batch := c.outbox.some(maxBatch)
		if len(batch) == 0 {
			return
		}
		plain, others := batch[:0], []outcome(nil)
		for _, o := range batch {
			if o.plain() {
				plain = append(plain, o)
			} else {
				others = append(others, o)
			}
		}
		batch = append(plain, others...)
		var done settled
		c.callers[1].next()
		err := c.untilAnswered("settle", func() (err error) {
			if done, err = c.store.settle(c.redisCtx, c.callers[1], batch, len(plain)); err != nil {
				c.renewCaller(1, err)
			}
			return err
		}, func(n int, err error) bool { return !errors.Is(err, ErrBadReply) || n < optionalAttempts })
		c.logTrimmed(done.trimmed)
		c.finish(batch, done.void, err)
	}
}

// settled lets go of deliveries whose outcomes are out.
func (c *consumer) finish(batch []outcome, void []int, err error) {
	ds := make([]*delivery, len(batch))
	for i := range batch {
		ds[i] = batch[i].d
	}
	c.removeHeld(ds...)
	if err != nil {
		c.log.Error("delayqueue: gave up settling: those of these messages that are not settled will be delivered again when their leases have run out",
			slog.Any("error", err), attrsOf(ds))
		return
	}
	if c.events.on() {
		c.tellSettled(batch, void)
	}
	late := make([]*delivery, 0, len(void))
	for _, i := range void {
		late = append(late, batch[i].d)
		batch[i].err = nil
	}
	if len(late) > 0 {
		c.log.Warn("delayqueue: settlements came too late and changed nothing: the deliveries were lost or the messages canceled",
			slog.Int("messages", len(late)), attrsOf(late))
	}
	var gone []deadLetterNotice
	for i := range batch {
		if o := &batch[i]; o.kind == outcomeGarbage && o.err != nil {
			gone = append(gone, deadLetterNotice{o.d.message(), o.failures, o.err})
		}
	}
	c.addNotices(gone...)
}

// tellSettled tells what became of deliveries.
func (c *consumer) tellSettled(batch []outcome, void []int) {
	ids := map[EventCode][]string{}
	for i := range batch {
		o := &batch[i]
		if slices.Contains(void, i) {
			continue
		}
		if o.kind == outcomeAck {
			ids[AckEvent] = append(ids[AckEvent], o.d.id)
		}
		if o.failures > o.d.failures {
			ids[NackEvent] = append(ids[NackEvent], o.d.id)
			if o.kind == outcomeRetry {
				ids[RetryEvent] = append(ids[RetryEvent], o.d.id)
			}
		}
		if o.kind == outcomeGarbage {
			ids[FinalFailedEvent] = append(ids[FinalFailedEvent], o.d.id)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(ids)) {
		c.events.tell(code, len(ids[code]), ids[code]...)
	}
}

// A grave is a message for the garbage handler.
type deadLetterNotice struct {
	msg      *Message
	failures int
	err      error
}

// maxGraves is how many messages may wait for the garbage handler.
const maxNotices = 1000

// bury says that messages are in garbage. It waits for nobody.
func (c *consumer) addNotices(gone ...deadLetterNotice) {
	for _, g := range gone {
		c.log.Error("delayqueue: gave up on a message: it is in garbage", g.msg.attrs(), slog.Int("failures", g.failures), slog.Any("error", g.err))
	}
	if c.onGarbage == nil {
		return
	}
	if n := c.notices.putAtMost(maxNotices, gone...); n > 0 {
		c.log.Warn("delayqueue: the garbage handler is too slow: it is not told of some messages, which are in garbage all the same", slog.Int("messages", n))
	}
}

// buryPoison passes on a message that became poison in a fetch.
func (c *consumer) addPoisonNotice(dead deadMessage) {
	err := ErrPoison
	record, perr := parseFail(dead.fail)
	e, eerr := decodeEnvelope(dead.envelope)
	if dead.envelope == "" { // there was no room for it in the reply
		eerr = nil
	}
	if broken := errors.Join(perr, eerr); broken != nil {
		err = fmt.Errorf("%w (%w)", err, broken)
	}
	msg := e.message(dead.id, max(record.delivery-1, 1), record.failures)
	c.events.tell(FinalFailedEvent, 1, dead.id)
	c.addNotices(deadLetterNotice{&msg, record.failures, err})
}

// mourn calls the garbage handler, for one message after the other.
func (c *consumer) notify() {
	over := false
	defer func() {
		if !over { // the user's function has ended this goroutine
			c.notifying.Go(c.notify)
		}
	}()
	for {
		g, ok := c.notices.one()
		if !ok || c.forceCtx.Err() != nil {
			over = true
			return
		}
		c.guard("garbage handler", g.msg.attrs(), func() { c.onGarbage(c.base, g.msg, g.err) })
	}
}

// renew is the leaser: every third of a lease it renews what is held.
func (c *consumer) renewLeases(quit <-chan struct{}) {
	wait := c.lease / 3
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for attempt := 0; ; {
		select {
		case <-quit:
			return
		case <-timer.C:
		}
		begun := time.Now()
		err := c.renewAll()
		attempt++
		if err == nil || c.redisCtx.Err() == nil {
			c.outage.report("extend", begun, err)
		}
		if err == nil {
			attempt = 0
			timer.Reset(wait)
			continue
		}
		c.cancelOverdue()
		timer.Reset(min(backoff(attempt), c.lease/10)) // soon after an outage the lease may be near its end
	}
}

// renewAll renews what is held.
func (c *consumer) renewAll() error {
	for ds := range slices.Chunk(c.held.all(), maxBatch) {
		asked := time.Now()
		ctx, cancel := context.WithTimeout(c.redisCtx, c.lease/3) // so that the end of a lease is noticed
		answers, err := c.store.extend(ctx, c.lease, ds)
		cancel()
		if err != nil {
			return err
		}
		for i, answer := range answers {
			switch d := ds[i]; {
			case answer == leaseRenewed:
				d.leased.Store(processTime(asked))
			case answer == leaseGone && !d.leaseOver(c.lease, time.Now()):
				c.lose(d, ErrCanceled)
			default: // of those that are gone, another consumer may have acked it
				c.lose(d, ErrDeliveryLost)
			}
		}
	}
	return nil
}

// hold notes that the run holds deliveries.
func (c *consumer) addHeld(ds []*delivery) {
	c.held.add(ds)
	c.unsettled.Add(int64(len(ds)))
	for _, d := range ds {
		c.heldBytes.Add(int64(d.size))
		if d.lastAttempt {
			c.lastAttempts.Add(1)
		}
	}
}

// letGo notes that the run holds deliveries no more.
func (c *consumer) removeHeld(ds ...*delivery) {
	c.held.remove(ds...)
	c.unsettled.Add(-int64(len(ds)))
	for _, d := range ds {
		c.heldBytes.Add(-int64(d.size))
		if d.lastAttempt {
			c.lastAttempts.Add(-1)
		}
	}
	c.signal()
}

// heldList is what a run holds, from fetch to settlement.
type heldList struct {
	mu    sync.Mutex
	first *delivery
	n     int
}

func (l *heldList) add(ds []*delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ds {
		d.next = l.first
		if l.first != nil {
			l.first.prev = d
		}
		l.first = d
	}
	l.n += len(ds)
}

// remove lets go of deliveries; one that is not in the list is passed over.
func (l *heldList) remove(ds ...*delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ds {
		if d.prev == nil && l.first != d {
			continue
		}
		if d.prev != nil {
			d.prev.next = d.next
		} else {
			l.first = d.next
		}
		if d.next != nil {
			d.next.prev = d.prev
		}
		d.prev, d.next = nil, nil
		l.n--
	}
}

func (l *heldList) all() []*delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	ds := make([]*delivery, 0, l.n)
	for d := l.first; d != nil; d = d.next {
		ds = append(ds, d)
	}
	return ds
}

// outage logs the beginning and the end of a time without Redis, once each, whoever notices.
type outage struct {
	log     *slog.Logger
	mu      sync.Mutex
	failing map[string]time.Time // calls that fail, each since its first failure
	since   time.Time            // of the outage that is in the log; zero when there is none
	last    error                // of the call that failed last
}

// outageAfter is how long a call fails before that is an outage: it may be a connection of the
// pool that has been dead for a while, or two.
const outageAfter = 150 * time.Millisecond

// over says whether every call works, as far as is known.
func (o *outage) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.failing) == 0
}

// cause is why a call that fails does so, nil if every call works.
func (o *outage) cause() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failing) == 0 {
		return nil
	}
	return o.last
}

// report takes the result of an attempt at a call that began at begun.
func (o *outage) report(call string, begun time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		delete(o.failing, call)
		if len(o.failing) == 0 && !o.since.IsZero() {
			o.log.Info("delayqueue: working with Redis again", slog.Duration("outage", time.Since(o.since)))
			o.since = time.Time{}
		}
		return
	}
	o.last = err
	if o.failing == nil {
		o.failing = make(map[string]time.Time)
	}
	since, ok := o.failing[call]
	if !ok {
		since = begun
		o.failing[call] = since
	}
	if o.since.IsZero() && time.Since(since) >= outageAfter {
		o.since = since
		o.log.Error("delayqueue: cannot work with Redis, will go on trying", slog.String("call", call), slog.Any("error", err))
	}
}
