package delayqueue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// overruns are the deliveries of a consumer that have ended while their handlers run on: past their limit, abandoned by
// Shutdown, canceled or lost. If the concurrency of the queue is bounded, each keeps its place until its handler returns, also
// when the consumer has ended. Then a timer renews the places, every third of a lease; else nothing is done.
//
// A delivery that is lost or abandoned begins to be an overrun once, and ends once, in any order.
type overruns struct {
	settings *settings
	store    *store
	freed    signal      // sent when places are free; the poller receives it
	bounded  atomic.Bool // the concurrency of the queue is; changed by the poller

	mu       sync.Mutex // guards the fields below
	all      map[*delivery]overrun
	timer    *time.Timer // calls tick; nil: there was no overrun yet
	ticking  bool        // a tick is under way
	again    bool        // there is more to do at once when it ends
	failures int         // ticks in a row that failed
	release  func()      // called when there is no overrun any more; nil: the consumer has not ended
}

// An overrun is what is known of one delivery.
type overrun struct {
	begun   bool
	settles bool      // its outcome is not settled: until then it has the place of the delivery itself
	ended   time.Time // when its handler returned; zero: it runs on
}

// begin says that a delivery has been lost, or has been abandoned and has an outcome, which is settled later.
func (o *overruns) begin(d *delivery, settles bool) {
	o.change(d, func(r *overrun) bool {
		r.begun, r.settles = true, settles
		return true
	})
}

// end says that the handler of a delivery that has been lost or abandoned has returned, or will not start.
func (o *overruns) end(d *delivery) {
	o.change(d, func(r *overrun) bool {
		r.ended = time.Now()
		return true
	})
}

// lease is for how long a settlement is to keep the place of a delivery: not at all if its handler has returned.
func (o *overruns) lease(d *delivery) time.Duration {
	if d.fate.Load() != fateAbandoned || !o.bounded.Load() {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.all[d]; !r.begun || !r.ended.IsZero() {
		return 0
	}
	return o.settings.lease
}

// settled says that outcomes have been settled; those at void had no effect. If a message was canceled whose handler has
// returned since, its place is still to be freed.
func (o *overruns) settled(ds []*delivery, void []int) {
	for i, d := range ds {
		if d.fate.Load() == fateAbandoned {
			o.change(d, func(r *overrun) bool {
				r.settles = false
				return !r.ended.IsZero()
			})
		} else if o.bounded.Load() && slices.Contains(void, i) {
			o.change(d, func(r *overrun) bool {
				r.begun, r.ended = true, time.Now()
				return true
			})
		}
	}
}

// change notes something, which returns whether a tick is to be made now.
func (o *overruns) change(d *delivery, note func(*overrun) (now bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.all[d]
	now := note(&r)
	if o.all == nil {
		o.all = make(map[*delivery]overrun)
	}
	o.all[d] = r
	if bounded := o.bounded.Load(); bounded && now {
		o.soon()
	} else if !bounded && r.begun && !r.settles && !r.ended.IsZero() {
		delete(o.all, d)
	}
}

// bound says whether the concurrency of the queue is bounded.
func (o *overruns) bound(bounded bool) {
	if o.bounded.Swap(bounded) == bounded {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) > 0 {
		o.soon()
	}
}

// count is how many there are, 0 if they have no places.
func (o *overruns) count() int {
	if !o.bounded.Load() {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

// soon has a tick made now, with mu held.
func (o *overruns) soon() {
	switch {
	case o.ticking:
		o.again = true
	case o.timer == nil:
		o.timer = time.AfterFunc(0, o.tick)
	default:
		o.timer.Reset(0)
	}
}

// close says that the consumer has ended. release is called when no place is kept any more.
func (o *overruns) close(release func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.release = release; !o.bounded.Load() || len(o.all) == 0 {
		o.letGo()
	}
}

// letGo releases what is not needed any more, with mu held.
func (o *overruns) letGo() {
	o.bounded.Store(false)
	o.release()
	o.release = nil
}

// tick keeps and frees places once, and sets the timer again while there are overruns that have places.
func (o *overruns) tick() {
	o.mu.Lock()
	if o.ticking {
		o.mu.Unlock()
		return
	}
	o.ticking, o.again = true, false
	kept, over := o.split()
	o.mu.Unlock()

	err := errors.Join(o.update(0, over), o.update(o.settings.lease, kept))

	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range over {
		if err == nil || time.Since(o.all[d].ended) > o.settings.lease { // the place is free by itself then
			delete(o.all, d)
		}
	}
	o.ticking = false
	if len(over) > 0 {
		o.freed.send()
	}
	if err != nil {
		if o.failures++; o.failures == 1 {
			o.settings.log.Warn("delayqueue: the places of handlers that run on could not be kept or freed: this is tried again",
				slog.Any("error", err))
		}
		o.timer.Reset(min(backoff(o.failures), o.settings.lease/10))
		return
	}
	o.failures = 0
	o.rest()
}

// rest sets the timer after a tick, with mu held.
func (o *overruns) rest() {
	switch bounded := o.bounded.Load(); {
	case o.again:
		o.timer.Reset(0)
	case bounded && len(o.all) > 0:
		o.timer.Reset(o.settings.lease / 3)
	case o.release != nil:
		o.letGo()
	}
}

// split says whose places are to be kept, and whose handlers have returned, with mu held.
func (o *overruns) split() (kept, over []*delivery) {
	bounded := o.bounded.Load()
	for d, r := range o.all {
		switch {
		case !r.begun || r.settles:
		case r.ended.IsZero():
			kept = append(kept, d)
		case bounded:
			over = append(over, d)
		default:
			delete(o.all, d)
		}
	}
	if !bounded {
		return nil, nil
	}
	return kept, over
}

// update calls the script for some of them.
func (o *overruns) update(lease time.Duration, ds []*delivery) error {
	for some := range slices.Chunk(ds, maxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), o.settings.lease/3)
		err := o.store.overrun(ctx, lease, tagsOf(some))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
