package delayqueue

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// leases are the deliveries that a consumer holds, from fetch to settlement. It renews their leases every third of one, on
// a goroutine that lasts as long as the renewal: while nothing is held there is none, and no timer.
type leases struct {
	settings  *settings
	store     *store
	lifecycle *lifecycle
	overruns  *overruns
	held      heldList
	freed     signal // sent when the consumer holds less; the poller receives it

	mu       sync.Mutex     // guards the fields below
	timer    *time.Timer    // calls tick; nil: nothing has been held yet
	ticking  bool           // the timer is set, or a tick is under way
	failures int            // renewals in a row that failed
	closed   bool           // nothing is held any more
	running  sync.WaitGroup // one while ticking; close waits for it
}

// add takes what was fetched into the list of what is held.
func (l *leases) add(ds ...*delivery) {
	l.held.add(ds...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ticking || l.closed {
		return
	}
	l.ticking = true
	l.running.Add(1)
	if wait := l.settings.lease / 3; l.timer == nil {
		l.timer = time.AfterFunc(wait, l.tick)
	} else {
		l.timer.Reset(wait)
	}
}

// tick renews leases, and sets the timer again unless nothing is held.
func (l *leases) tick() {
	begun := time.Now()
	err := l.renew()
	l.lifecycle.report("extend", begun, err)
	if err != nil {
		l.cancelOverdue()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed || err == nil && l.held.totals().deliveries == 0:
		l.ticking, l.failures = false, 0
		l.running.Done()
	case err == nil:
		l.failures = 0
		l.timer.Reset(max(l.settings.lease/3-time.Since(begun), 0))
	default:
		l.failures++
		l.timer.Reset(min(backoff(l.failures), l.settings.lease/10)) // soon after an outage the lease may be near its end
	}
}

// close returns when no renewal is under way any more. Nothing may be held, or it is given up.
func (l *leases) close() {
	l.mu.Lock()
	l.closed = true
	if l.ticking && l.timer.Stop() {
		l.ticking = false
		l.running.Done()
	}
	l.mu.Unlock()
	l.running.Wait()
}

// renew renews what is held, once.
func (l *leases) renew() error {
	for ds := range slices.Chunk(l.held.all(), maxBatch) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(l.lifecycle.redisCtx, l.settings.lease/3) // so that the end of a lease is noticed
		states, err := l.store.extend(ctx, l.settings.lease, tagsOf(ds))
		cancel()
		if err != nil {
			return err
		}
		for i, state := range states {
			switch d := ds[i]; {
			case state == leaseRenewed:
				d.leased.set(begun)
			case state == leaseGone && !d.leaseOver(l.settings.lease, time.Now()):
				l.lose(d, ErrCanceled)
			default: // the message may be gone because another consumer acked it
				l.lose(d, ErrDeliveryLost)
			}
		}
	}
	return nil
}

// lose gives up a delivery that is not this consumer's any more.
func (l *leases) lose(d *delivery, cause error) {
	if !d.claim(fateLost) {
		return
	}
	l.overruns.begin(d, false)
	l.remove(d)
	l.settings.log.Warn("delayqueue: a delivery is not ours any more: its handler's context ends and its result is void",
		d.attrs(), slog.Any("cause", cause))
	d.cancelHandler(cause)
}

// cancelOverdue ends the contexts of handlers whose leases have run out, as far as is known here: Redis has not
// answered for so long. Their results count all the same if the leases are renewed after all.
func (l *leases) cancelOverdue() {
	for _, d := range l.held.all() {
		if !d.leaseOver(l.settings.lease, time.Now()) || d.overdue.Swap(true) || d.cancel.Load() == nil {
			continue
		}
		l.settings.log.Warn("delayqueue: the lease of a delivery is over, for Redis has not been heard: its handler's context ends", d.attrs())
		d.cancelHandler(ErrDeliveryLost)
	}
}

// remove lets go of deliveries that are settled or lost.
func (l *leases) remove(ds ...*delivery) {
	l.held.remove(ds...)
	l.freed.send()
}

// A heldList is the deliveries that are held. The zero value is empty. It is safe for concurrent use.
type heldList struct {
	mu   sync.Mutex
	held []*delivery // each at its index
	sums heldSums
}

// heldSums are sums over deliveries.
type heldSums struct {
	deliveries  int
	bytes       int // of their envelopes, and of what their handlers said (SetResult, Then)
	lastChances int // of them, those that are poison if they are lost
}

func (s *heldSums) count(d *delivery, sign int) {
	s.deliveries += sign
	s.bytes += sign * d.bytes
	if d.lastChance {
		s.lastChances += sign
	}
}

func (l *heldList) add(ds ...*delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ds {
		d.index = len(l.held)
		l.held = append(l.held, d)
		l.sums.count(d, 1)
	}
}

// grow counts more bytes for a delivery, those of what its handler said, if it is in the list.
func (l *heldList) grow(d *delivery, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.has(d) {
		d.bytes += bytes
		l.sums.bytes += bytes
	}
}

// has is for those that hold mu.
func (l *heldList) has(d *delivery) bool { return d.index < len(l.held) && l.held[d.index] == d }

// remove passes over deliveries that are not in the list.
func (l *heldList) remove(ds ...*delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ds {
		if !l.has(d) {
			continue
		}
		last := len(l.held) - 1
		l.held[last].index = d.index
		l.held[d.index], l.held[last] = l.held[last], nil
		l.held = l.held[:last]
		l.sums.count(d, -1)
	}
}

func (l *heldList) all() []*delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.held)
}

func (l *heldList) totals() heldSums {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sums
}
