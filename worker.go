package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// A worker serves deliveries one after the other until none waits, or until it is replaced because its callback ran past
// its limit or past the end of Shutdown's context.
type worker struct {
	workers *workers
	index   int                      // in workers.running; guarded by workers.mu
	of      *member                  // whose delivery it has, in a pool; guarded by workers.mu
	began   time.Time                // when it got that; guarded by workers.mu
	serving atomic.Pointer[delivery] // handed to the handler; stored by the worker, read by presence and Shutdown

	// The rest is for its goroutine alone.
	handled    *member       // whose delivery has just ended
	took       time.Duration // by its handler, 0 if it did not start
	replacedOf *member       // it has been replaced, while it had a delivery of this one; nil: it has not
}

// run serves a delivery, and all that follow; nil means that another goroutine of this worker has ended.
func (w *worker) run(d *delivery) {
	left := false
	defer func() {
		if !left { // runtime.Goexit in the user's code ends this goroutine, and another takes its place
			go w.run(nil)
		}
	}()
	if d == nil {
		d = w.workers.next(w)
	}
	for ; d != nil; d = w.workers.next(w) {
		if m := d.settler.member; d.settler.lifecycle.stopping() {
			m.release(d)
			w.handled, w.took = m, 0
		} else {
			w.serve(d)
		}
	}
	left = true
}

// serve hands one delivery to the handler and settles it.
func (w *worker) serve(d *delivery) {
	settings, start := d.settler.settings, time.Now()
	limit, why := d.runLimit(settings.limit, start)
	ctx := settings.base
	if settings.handle != nil {
		early, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		d.cancel.Store(&cancel)
		ctx = early
		if limit > 0 { // a deadline of its own, which also what is made of the context ends with
			var stop context.CancelFunc
			ctx, stop = context.WithDeadlineCause(early, start.Add(limit), why)
			defer stop()
		}
		d.handling = &handling{Context: ctx, producer: d.settler.producer, retained: d.retention > 0}
		ctx = d.handling
	}
	v := verdict{err: errGoexit}
	started := false
	defer func() { w.settle(ctx, d, v, started, time.Since(start)) }()
	d.started.set(start)
	w.serving.Store(d)
	// Shutdown's context or the base context has ended, or the delivery was lost or has expired in the buffer.
	if d.settler.lifecycle.forceCtx.Err() != nil || settings.base.Err() != nil || d.fate.Load() != fateOpen ||
		d.leaseOver(settings.lease, start) || d.expiredBy(start) {
		return
	}
	started = true
	if limit > 0 {
		timer := time.AfterFunc(limit, func() {
			if d.handling != nil {
				<-ctx.Done() // as it does at this moment: what expire does must not end it another way
			}
			d.expire(ctx, limit, why)
		})
		defer timer.Stop()
	}
	v = settings.call(ctx, d)
	if limit > 0 && ctx.Err() == context.DeadlineExceeded && context.Cause(ctx) == why {
		d.expire(ctx, limit, why) // the handler may have seen the end of its context before the timer did
	}
}

var errGoexit = fmt.Errorf("%w: it ended its goroutine with runtime.Goexit", ErrPanicked)

// settle is the only way out of serve. It is deferred, because the user's code may end the
// goroutine. It gives the outcome to the settler before the worker counts as free, so that nobody sees a free
// worker whose outcome is not queued yet.
func (w *worker) settle(ctx context.Context, d *delivery, v verdict, started bool, took time.Duration) {
	w.serving.Store(nil)
	v.result, v.follows = d.handling.end()
	if !started {
		took = 0
	}
	switch {
	case d.claim(fateSettled):
		defer w.ended(d, took)
		if !started || d.settler.settings.cutShort(d, v) {
			d.settler.outbox.put(d.released())
			return
		}
		d.conclude(ctx, v)
	case d.fate.CompareAndSwap(fateLost, fateLeft): // from here on nobody replaces this worker
		d.settler.overruns.end(d)
		w.ended(d, took)
	default: // abandoned
		d.settler.overruns.end(d)
		w.replacedOf = d.settler.member
	}
}

// ended notes that a delivery has its outcome, which is still to be settled.
func (w *worker) ended(d *delivery, took time.Duration) {
	w.handled, w.took = d.settler.member, took
	d.settler.lifecycle.handed()
}

// cutShort reports whether a handler failed only because its context ended, and not because of the message: the base
// context has ended, or the lease seemed to have run out and was renewed after all.
func (s *settings) cutShort(d *delivery, v verdict) bool {
	if v.err == nil || v.skipRetry || s.base.Err() == nil && !d.overdue.Load() {
		return false
	}
	return errors.Is(v.err, context.Canceled) || errors.Is(v.err, context.DeadlineExceeded) ||
		errors.Is(v.err, ErrDeliveryLost) || s.base.Err() != nil && errors.Is(v.err, context.Cause(s.base))
}

// call calls the handler. A panic in it, or in a method of its error, becomes an error, with the
// stack in the log.
func (s *settings) call(ctx context.Context, d *delivery) (v verdict) {
	returned := false
	defer func() {
		if p := recover(); !returned { // p is nil for panic(nil), where GODEBUG allows that, and for Goexit
			s.log.Error("delayqueue: handler panicked", d.attrs(), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			v = verdict{err: fmt.Errorf("%w: %v", ErrPanicked, p)}
		}
	}()
	if s.handle == nil {
		if !callEach(s.callback, &d.msg, func() bool { return d.fate.Load() != fateOpen }) {
			v.err = ErrNacked
		}
	} else {
		v = judge(s.handle(ctx, d.message()))
	}
	returned = true
	return v
}

// callEach calls a bare callback, of a group with each part in turn, and reports whether all of them are consumed. Once the
// delivery is over, because it was lost or cut off, it gets no more of them.
func callEach(callback CallbackFunc, msg *Message, over func() bool) (consumed bool) {
	if msg.Parts == nil {
		return callback(msg.Payload)
	}
	consumed = true
	for _, part := range msg.Parts {
		if over() {
			return false
		}
		consumed = callback(part) && consumed
	}
	return consumed
}

// expire ends a delivery whose handler has run for as long as it may, which is up to the message's deadline if why is
// ErrExpired: it is a failure now, and a new worker replaces the one whose callback may never return.
func (d *delivery) expire(ctx context.Context, limit time.Duration, why error) {
	v := verdict{err: fmt.Errorf("%w of %v", ErrConsumeTimeout, limit)}
	if why == ErrExpired {
		v = verdict{err: d.pastDeadline(nil), skipRetry: true}
	}
	d.abandon(why, limit, func() {
		d.settler.settings.log.Warn("delayqueue: a handler ran past its limit: its context ends, and another worker takes its place", d.attrs(),
			slog.Duration("limit", limit), slog.Any("cause", why))
		d.conclude(ctx, v)
	})
}

// abandon ends the context of a running delivery, settles it unless it was lost, and
// replaces its worker. It returns false if the delivery has ended already.
func (d *delivery) abandon(cause error, took time.Duration, settle func()) bool {
	ours := d.claim(fateAbandoned)
	if !ours && !d.fate.CompareAndSwap(fateLost, fateAbandoned) {
		return false
	}
	d.handling.end()
	d.cancelHandler(cause)
	defer func() { // also if the user's error handler ends this goroutine
		lifecycle, m := d.settler.lifecycle, d.settler.member
		lifecycle.handed()
		stuck, left := m.replace(took) // until now the delivery was unhandled, so the settler cannot have left
		if !lifecycle.stopping() {
			d.settler.settings.logStuck(stuck, left)
		}
	}()
	if ours {
		d.settler.overruns.begin(d, true)
		settle()
	}
	return true
}

// logStuck logs that there are fewer workers than there should be.
func (s *settings) logStuck(stuck, left int) {
	if stuck > left {
		s.log.Error("delayqueue: too many callbacks run on past their limit: no more workers take their places until some return",
			slog.Int("running_on", stuck), slog.Int("workers", left))
	}
}

// abandonAll ends the contexts of all running handlers, releases their messages, and returns how many there were.
func (m *member) abandonAll() (n int) {
	for _, d := range m.serving() {
		if d.abandon(ErrShutdown, 0, func() { d.settler.outbox.put(d.released()) }) {
			n++
		}
	}
	return n
}

// serving is what is in the hands of handlers.
func (m *member) serving() (ds []*delivery) {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	for _, w := range m.workers.running {
		if d := w.serving.Load(); d != nil && d.settler.member == m {
			ds = append(ds, d)
		}
	}
	return ds
}
