package consume

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// leases has the deliveries that a consumer holds, from fetch to settlement, and renews their leases every third of a
// lease. A timer calls the renewal, while something is held.
type leases struct {
	settings  *Settings
	store     *script.Store
	lifecycle *lifecycle
	member    *member
	held      heldList

	mu       sync.Mutex     // guards the fields below
	timer    *time.Timer    // calls tick; nil: nothing has been held yet
	ticking  bool           // the timer is set, or a tick is under way
	failures int            // renewals in a row that failed
	closed   bool           // nothing is held any more
	running  sync.WaitGroup // one while ticking; close waits for it
}

// add puts deliveries that were fetched into the list of what is held.
func (l *leases) add(ds ...*delivery) {
	l.held.add(ds...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ticking || l.closed {
		return
	}
	l.ticking = true
	l.running.Add(1)
	if wait := l.settings.Lease / 3; l.timer == nil {
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
		l.timer.Reset(max(l.settings.Lease/3-time.Since(begun), 0))
	default:
		l.failures++
		l.timer.Reset(min(link.Backoff(l.failures),
			l.settings.Lease/10)) // soon after an outage the lease may be near its end
	}
}

// close ends renewals, and returns when none is under way. What is still held is not renewed any more.
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

// renew renews the leases of all that is held, once.
func (l *leases) renew() error {
	held := l.held.byLease()
	for some := range slices.Chunk(slices.Collect(maps.Keys(held)), script.MaxBatch) {
		begun := time.Now()
		got, err := l.extend(conc.Mapped(some, func(o **lease) string { return (*o).Name }), nil)
		if err != nil {
			return err
		}
		suspects := map[*lease]bool{} // and whether each is over
		for i, one := range some {
			over := got.Left[i] == 0
			if !over {
				one.began.Set(begun)
			}
			if over || one.Canceled.Load() != got.Canceled {
				suspects[one] = over
			}
		}
		if err := l.look(suspects, got.Canceled); err != nil {
			return err
		}
		for i, one := range some {
			if n := len(held[one]); got.Left[i] > n || n <= one.listed/shortenAt {
				if err := l.keep(one); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// look looks at what is held of leases that are over, or of which a message may have been canceled.
func (l *leases) look(suspects map[*lease]bool, canceled int64) error {
	if len(suspects) == 0 {
		return nil
	}
	all := slices.DeleteFunc(l.held.all(), func(d *delivery) bool { _, ok := suspects[d.lease]; return !ok })
	unsure := map[*lease]bool{} // a settlement is under way that may be void
	for ds := range slices.Chunk(all, script.MaxBatch) {
		got, err := l.extend(nil, idsOf(ds))
		if err != nil {
			return err
		}
		for i, d := range ds {
			switch there := got.There[i]; {
			case !there && !d.leaseOver(l.settings.Lease, time.Now()):
				l.lose(d, ErrCanceled)
			case !there || suspects[d.lease]: // the message may be gone because another consumer acked it
				l.lose(d, ErrDeliveryLost)
			}
			unsure[d.lease] = unsure[d.lease] || !got.There[i] && d.fate.Load() != fateLost
		}
	}
	for one := range suspects {
		if one.Canceled.Store(canceled); unsure[one] {
			one.Canceled.Store(-1) // each settlement looks at its messages
		}
	}
	return nil
}

// shortenAt is how few of the listed deliveries are held when a renewal shortens the list: one in so many. A tick
// that takes leases back looks at 500 tags, and so does whoever looks for one message, also at those that were
// settled long ago.
const shortenAt = 8

// keep lets go of what Redis keeps for this consumer and it does not know: settlements that a failover forgot or that
// were given up, and canceled messages. Otherwise renewals would keep them for as long as anything else of that fetch
// is handled. What is left is the list.
func (l *leases) keep(one *lease) error {
	held := l.held.byLease()[one]
	if held == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.lifecycle.redisCtx, l.settings.Lease/3)
	defer cancel()
	others, err := l.store.Keep(ctx, one.Name, conc.Mapped(held, func(d **delivery) string { return (*d).tag }))
	if err == nil {
		one.listed = len(held)
	}
	if others > 0 {
		l.settings.Log.Warn("delayqueue: Redis has forgotten settlements: these messages will be delivered again",
			slog.Int("messages", others))
	}
	return err
}

// extend makes one attempt at extend.
func (l *leases) extend(names, ids []string) (script.ExtendReply, error) {
	ctx, cancel := context.WithTimeout(l.lifecycle.redisCtx, l.settings.Lease/3) // then cancelOverdue looks at the leases
	defer cancel()
	return l.store.Extend(ctx, l.settings.Lease, names, ids)
}

// lose gives up a delivery that this consumer does not hold any more.
func (l *leases) lose(d *delivery, cause error) {
	if !d.claim(fateLost) {
		return
	}
	l.remove(d)
	l.settings.Log.Warn("delayqueue: a delivery is not ours any more: its handler's context ends and its result is void",
		d.attrs(), slog.Any("cause", cause))
	d.cancelHandler(cause)
}

// cancelOverdue ends the contexts of handlers whose leases have run out by this process's clock, because Redis has
// not answered. Their results count if no fetch has taken the deliveries back, except a failure that is only the end
// of the context (cutShort).
func (l *leases) cancelOverdue() {
	for _, d := range l.held.all() {
		h := d.handling.Load()
		if h == nil || h.Err() != nil || !d.leaseOver(l.settings.Lease, time.Now()) {
			continue
		}
		l.settings.Log.Warn(
			"delayqueue: the lease of a delivery is over, because Redis has not answered: its handler's context ends", d.attrs())
		h.cancel(ErrDeliveryLost)
	}
}

// remove lets go of deliveries that are settled or lost.
func (l *leases) remove(ds ...*delivery) {
	l.held.remove(ds...)
	l.member.wasAlone(ds)
	l.member.freed.Send()
}

// A lease is that of what one fetch has brought.
type lease struct {
	*script.Lease
	began  conc.AtomicTime // when it began, or a moment earlier; set by accept and leases
	listed int             // deliveries that Redis lists; set before the first is held, then by renew
}

// A heldList has the deliveries that are held. The zero value is empty. It is safe for concurrent use.
type heldList struct {
	mu    sync.Mutex
	held  []*delivery // each at its index
	bytes int         // of these
}

// heldSums are sums over deliveries.
type heldSums struct {
	deliveries int
	bytes      int // of their envelopes, and of what their handlers said (SetResult, Then)
}

func (l *heldList) add(ds ...*delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ds {
		d.index = len(l.held)
		l.held = append(l.held, d)
		l.bytes += d.bytes
	}
}

// grow adds the bytes of what a handler said to its delivery, if that is in the list.
func (l *heldList) grow(d *delivery, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.has(d) {
		d.bytes += bytes
		l.bytes += bytes
	}
}

// has reports whether a delivery is in the list, with mu held.
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
		l.bytes -= d.bytes
	}
}

// byLease are the deliveries that are held of each lease.
func (l *heldList) byLease() map[*lease][]*delivery {
	all := map[*lease][]*delivery{}
	for _, d := range l.all() {
		all[d.lease] = append(all[d.lease], d)
	}
	return all
}

func (l *heldList) all() []*delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.held)
}

func (l *heldList) totals() heldSums {
	l.mu.Lock()
	defer l.mu.Unlock()
	return heldSums{len(l.held), l.bytes}
}
