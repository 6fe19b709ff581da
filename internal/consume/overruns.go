package consume

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// overruns are the deliveries of a consumer that have ended while their handlers run on: past their limit, abandoned by Shutdown, canceled
// or lost. If the concurrency of the queue is bounded, each overrun keeps its place until its handler returns, also when the consumer has
// ended. Then a timer renews the places, every third of a lease. Otherwise overruns have no places, and nothing is done.
//
// A delivery that is lost or abandoned begins to be an overrun once, and ends once, in any order.
type overruns struct {
	*Consumer
	bounded atomic.Bool // the concurrency of the queue is bounded; changed by the poller

	mu       sync.Mutex // guards the fields below
	all      map[*delivery]overrun
	timer    *time.Timer // calls tick; nil: there was no overrun yet
	ticking  bool        // a tick is under way
	again    bool        // there is more to do at once when it ends
	failures int         // ticks in a row that failed
	release  func()      // called when no overrun has a place any more; nil: the consumer has not ended
}

// An overrun is what is known of one delivery.
type overrun struct {
	begun   bool
	settles bool      // its outcome is not settled yet: until then the delivery itself has a place
	ended   time.Time // when its handler returned; zero: it runs on
}

// begin notes that a delivery has been lost, or has been abandoned. An abandoned one settles: it has an outcome, which is settled later.
func (o *overruns) begin(d *delivery, settles bool) {
	o.change(d, func(r *overrun) bool {
		r.begun, r.settles = true, settles
		return true
	})
}

// end notes that the handler of a lost or abandoned delivery has returned, or will not start.
func (o *overruns) end(d *delivery) {
	o.change(d, func(r *overrun) bool {
		r.ended = time.Now()
		return true
	})
}

// lease is for how long a settlement keeps the place of a delivery, and 0 if its handler has returned.
func (o *overruns) lease(d *delivery) time.Duration {
	if d.fate.Load() != fateAbandoned || !o.bounded.Load() {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.all[d]; !r.begun || !r.ended.IsZero() {
		return 0
	}
	return o.settings.Lease
}

// settled notes that outcomes have been settled. Those at void had no effect: if such a message was canceled, and its handler has returned
// since, its place is still to be freed.
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

// change calls note, which changes what is known of a delivery, and returns whether a tick is to be made now.
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

// bound notes whether the concurrency of the queue is bounded.
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

// close notes that the consumer has ended. It calls release when no place is kept any more.
func (o *overruns) close(release func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.release = release; !o.bounded.Load() || len(o.all) == 0 {
		o.letGo()
	}
}

// letGo calls release, with mu held.
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
	before := o.failures
	o.mu.Unlock()

	err := errors.Join(o.update(0, over), o.update(o.settings.Lease, kept))
	if err != nil && before == 0 { // not under mu: a log may wait
		o.settings.Log.Warn("delayqueue: the places of handlers that run on could not be kept or freed: this is tried again",
			slog.Any("error", err))
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range over {
		if err == nil || time.Since(o.all[d].ended) > o.settings.Lease { // the place is free by itself then
			delete(o.all, d)
		}
	}
	o.ticking = false
	if len(over) > 0 {
		o.freed.Send()
	}
	if err != nil {
		o.failures++
		o.timer.Reset(min(link.Backoff(o.failures), o.settings.Lease/10))
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
		o.timer.Reset(o.settings.Lease / 3)
	case o.release != nil:
		o.letGo()
	}
}

// split returns the deliveries that keep their places, and those whose places are free because their handlers have returned, with mu held.
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

// update keeps the places of deliveries for a lease, or frees them with a lease of 0.
func (o *overruns) update(lease time.Duration, ds []*delivery) error {
	for some := range slices.Chunk(ds, script.MaxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), o.settings.Lease/3)
		err := o.store.Overrun(ctx, lease, tagsOf(some))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
