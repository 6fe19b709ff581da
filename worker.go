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

// A worker serves deliveries one after the other until the buffer is closed, or until it is
// replaced because its callback ran past its limit or past the end of Shutdown's context.
type worker struct {
	workers *workers
	serving atomic.Pointer[delivery] // handed to the handler; stored by the worker, read by presence and Shutdown
	gone    bool                     // its slot is given up; of its goroutine alone
}

// start starts a worker that has a slot.
func (ws *workers) start() {
	w := &worker{workers: ws}
	ws.running.add(w)
	go w.run()
}

func (w *worker) run() {
	ws := w.workers
	defer func() {
		ws.running.remove(w)
		if !w.gone { // runtime.Goexit in the user's code ends this goroutine, and another takes over its slot
			ws.start()
		}
	}()
	for !w.gone {
		d, ok := ws.buffer.one()
		switch {
		case !ok:
			w.gone = true
			ws.slots.release(ws, 0)
		case ws.lifecycle.stopping():
			ws.release(d)
		default:
			w.serve(d)
		}
	}
}

// serve hands one delivery to the handler and settles it.
func (w *worker) serve(d *delivery) {
	settings := d.settler.settings
	ctx := settings.base
	if settings.handle != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		d.handling = &handling{Context: ctx, producer: d.settler.producer, retained: d.retention > 0}
		ctx = d.handling
		d.cancel.Store(&cancel)
	}
	start := time.Now()
	v := verdict{err: errGoexit}
	started := false
	defer func() { w.settle(ctx, d, v, started, time.Since(start)) }()
	d.started.set(start)
	w.serving.Store(d)
	// Shutdown's context or the base context has ended, or the delivery was lost or has expired in the buffer.
	if w.workers.lifecycle.forceCtx.Err() != nil || settings.base.Err() != nil || d.fate.Load() != fateOpen || d.leaseOver(settings.lease, start) || d.expiredBy(start) {
		return
	}
	started = true
	if limit, why := d.runLimit(settings.limit, start); limit > 0 {
		timer := time.AfterFunc(limit, func() { w.workers.expire(ctx, d, limit, why) })
		defer timer.Stop()
	}
	v = settings.call(ctx, d)
}

var errGoexit = fmt.Errorf("%w: it ended its goroutine with runtime.Goexit", ErrPanicked)

// settle is the only way out of serve. It is deferred, because the user's code may end the
// goroutine. It gives the outcome to the settler before it counts the worker as free, so that nobody sees a free
// worker whose outcome is not queued yet.
func (w *worker) settle(ctx context.Context, d *delivery, v verdict, started bool, took time.Duration) {
	ws := w.workers
	w.serving.Store(nil)
	v.result, v.follows = d.handling.end()
	if !started {
		took = 0
	}
	switch {
	case d.claim(fateSettled):
		defer ws.finished(took)
		if !started || d.settler.settings.cutShort(d, v) {
			d.settler.outbox.put(d.released())
			return
		}
		d.conclude(ctx, v)
	case d.fate.CompareAndSwap(fateLost, fateLeft): // from here on nobody replaces this worker
		ws.finished(took)
	default: // abandoned, and its slot given up
		w.gone = true
		ws.slots.returned()
	}
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
func (ws *workers) expire(ctx context.Context, d *delivery, limit time.Duration, why error) {
	v := verdict{err: fmt.Errorf("%w of %v", ErrConsumeTimeout, limit)}
	if why == ErrExpired {
		v = verdict{err: d.pastDeadline(nil), skipRetry: true}
	}
	ws.abandon(d, why, limit, func() {
		d.settler.settings.log.Warn("delayqueue: a handler ran past its limit: its context ends, and another worker takes its place", d.attrs(),
			slog.Duration("limit", limit), slog.Any("cause", why))
		d.conclude(ctx, v)
	})
}

// abandon ends the context of a running delivery, settles it unless it was lost, and
// replaces its worker. It returns false if the delivery has ended already.
func (ws *workers) abandon(d *delivery, cause error, took time.Duration, settle func()) bool {
	ours := d.claim(fateAbandoned)
	if !ours && !d.fate.CompareAndSwap(fateLost, fateAbandoned) {
		return false
	}
	d.handling.end()
	d.cancelHandler(cause)
	defer func() { // also if the user's error handler ends this goroutine
		stuck, used := ws.slots.release(ws, 1) // until now the slot was ours, so the settler cannot have left
		ws.finished(took)
		if used < ws.settings.concurrency && !ws.lifecycle.stopping() {
			ws.settings.log.Error("delayqueue: too many callbacks run on past their limit: no more workers take their places until some return",
				slog.Int("running_on", stuck), slog.Int("workers", used))
		}
	}()
	if ours {
		settle()
	}
	return true
}

// abandonAll ends the contexts of all running handlers, releases their messages, and returns how many there were.
func (ws *workers) abandonAll() (n int) {
	ws.lifecycle.force()
	for _, w := range ws.running.all() {
		d := w.serving.Load()
		if d != nil && ws.abandon(d, ErrShutdown, 0, func() { d.settler.outbox.put(d.released()) }) {
			n++
		}
	}
	return n
}
