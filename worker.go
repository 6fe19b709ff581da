package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// A worker serves deliveries one after the other until the buffer is closed, or until it is
// replaced, because its callback outlived its limit or Shutdown's patience.
type worker struct {
	*run
	serving atomic.Pointer[delivery] // handed to the handler
	over    bool                     // its place is given up
}

// hire starts a worker that the pool has counted.
func (r *run) hire() {
	w := &worker{run: r}
	r.crew.add(w)
	go w.work()
}

func (w *worker) work() {
	defer func() {
		w.crew.remove(w)
		if !w.over { // runtime.Goexit in the user's code ends this goroutine, not the worker
			w.hire()
		}
	}()
	for !w.over {
		d, ok := w.buffer.one()
		switch {
		case !ok:
			w.over = true
			w.pool.leave(w.run)
		case w.stopping():
			w.release(d)
		default:
			w.serve(d)
		}
	}
}

// serve hands one delivery to the handler and settles it.
func (w *worker) serve(d *delivery) {
	ctx := w.base
	if w.handle != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		d.cancel.Store(&cancel)
	}
	start := time.Now()
	v := verdict{err: errGoexit}
	started := false
	defer func() { w.leave(ctx, d, v, started, time.Since(start)) }() // and nothing behind it
	d.started.Store(instantOf(start))
	w.serving.Store(d)
	// Shutdown is impatient, the base context has ended, or it was lost in the buffer.
	if w.calm.Err() != nil || w.base.Err() != nil || d.fate.Load() != fateOpen || d.over(w.lease, start) {
		return
	}
	started = true
	if w.limit > 0 {
		timer := time.AfterFunc(w.limit, func() { w.expire(ctx, d) })
		defer timer.Stop()
	}
	v = w.call(ctx, d)
}

var errGoexit = fmt.Errorf("%w: it ended its goroutine with runtime.Goexit", ErrPanicked)

// leave is the one way out of serve. It is deferred, because the user's code may end the
// goroutine. It settles before it counts, so that nobody sees a free worker whose outcome is
// not queued yet.
func (w *worker) leave(ctx context.Context, d *delivery, v verdict, started bool, took time.Duration) {
	w.serving.Store(nil)
	if !started {
		took = 0
	}
	switch {
	case d.claim(fateSettled):
		if !started {
			w.outbox.put(d.released())
			w.handled(took)
			return
		}
		defer w.handled(took)
		if w.cutShort(d, v) {
			w.outbox.put(d.released())
			return
		}
		w.conclude(ctx, d, v)
	case d.fate.CompareAndSwap(fateLost, fateLeft): // from here on nobody replaces this worker
		w.handled(took)
	default: // abandoned, and its place given up
		w.over = true
		w.pool.returned()
	}
}

// cutShort says whether a handler failed only because its context ended for no fault of the message: the base context
// ended, or the lease did, as far as was known here, and has been renewed since.
func (w *worker) cutShort(d *delivery, v verdict) bool {
	if v.err == nil || v.skip || w.base.Err() == nil && !d.cutOff.Load() {
		return false
	}
	return errors.Is(v.err, context.Canceled) || errors.Is(v.err, context.DeadlineExceeded) ||
		errors.Is(v.err, ErrDeliveryLost) || w.base.Err() != nil && errors.Is(v.err, context.Cause(w.base))
}

// handled counts a delivery that has left its worker.
func (r *run) handled(took time.Duration) {
	if took > 0 {
		each := r.perMsg.Load()
		if each == 0 {
			each = int64(took)
		}
		r.perMsg.Store(max(each+(int64(took)-each)/8, 1))
	}
	if r.stopping() {
		r.goOn() // what it came to is still to be settled
	}
	r.unhandled.Add(-1)
	r.signal()
}

// A verdict is what a handler's result means.
type verdict struct {
	err    error // nil: an ack, or a snooze
	text   string
	skip   bool           // to garbage
	snooze bool           // no failure
	fresh  bool           // a snooze after which failures count anew
	delay  *time.Duration // the handler's own, of a snooze or a retry
}

// call calls the handler; a panic in it, or in its error's methods, is an error with its
// stack in the log.
func (r *run) call(ctx context.Context, d *delivery) (v verdict) {
	returned := false
	defer func() {
		if p := recover(); !returned { // p is nil for panic(nil), where GODEBUG allows that, and for Goexit
			r.log.Error("delayqueue: handler panicked", d.attrs(), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			v = verdict{err: fmt.Errorf("%w: %v", ErrPanicked, p)}
		}
	}()
	if r.handle == nil {
		if !r.callback(d.msg.Payload) {
			v.err = ErrNacked
		}
	} else {
		v = judge(r.handle(ctx, d.message()))
	}
	returned = true
	return v
}

// judge reads a handler's error.
func judge(err error) (v verdict) {
	if err == nil {
		return v
	}
	v.err, v.text, v.skip = err, errorText(err), errors.Is(err, ErrSkipRetry)
	var snooze *snoozeError
	var after *retryAfterError
	switch {
	case v.skip:
	case errors.As(err, &snooze):
		return verdict{snooze: true, fresh: snooze.fresh, delay: &snooze.delay}
	case errors.As(err, &after):
		v.delay = &after.delay
	}
	return v
}

// conclude makes a verdict an outcome, which goes out whatever the user's functions do.
func (r *run) conclude(ctx context.Context, d *delivery, v verdict) {
	o := outcome{d: d, failures: d.failures, err: v.err, text: v.text}
	defer func() {
		r.outbox.put(o)
		if o.kind == outcomeRetry && !v.snooze {
			r.log.Log(context.Background(), r.failureLevel, "delayqueue: a delivery failed: the next one follows", d.attrs(), slog.Int("failures", o.failures),
				slog.Int("max_retries", d.msg.MaxRetries), slog.Duration("in", o.delay), slog.String("error", o.text))
		}
	}()
	switch {
	case v.err == nil && !v.snooze:
		return // an ack
	case v.snooze:
		o.kind, o.delay = outcomeRetry, min(*v.delay, maxDelay)
		if v.fresh {
			o.failures = 0
		}
		return
	}
	if o.text == "" {
		o.text = cmp.Or(errorText(v.err), fmt.Sprintf("%T", v.err))
	}
	o.failures++
	if v.skip || o.failures > d.msg.MaxRetries {
		o.kind = outcomeGarbage
	} else if o.kind = outcomeRetry; v.delay != nil {
		o.delay = min(*v.delay, maxDelay)
	} else {
		o.delay = defaultDelay(o.failures)
		r.guard("retry delay function", d.attrs(), func() { o.delay = r.delayAfter(o.failures, v.err, d.message()) })
	}
	if r.onError != nil {
		r.guard("error handler", d.attrs(), func() { r.onError(ctx, d.message(), v.err) })
	}
}

// expire is what happens at the limit: a failure now, and a new worker in place of this
// one, whose callback may never return.
func (r *run) expire(ctx context.Context, d *delivery) {
	r.abandon(d, ErrConsumeTimeout, r.limit, func() {
		r.log.Warn("delayqueue: a handler ran past its limit: its context ends, and another worker takes its place", d.attrs(), slog.Duration("limit", r.limit))
		r.conclude(ctx, d, verdict{err: fmt.Errorf("%w of %v", ErrConsumeTimeout, r.limit)})
	})
}

// abandon ends the context of a running delivery, settles it unless it was lost, and
// replaces its worker. It says whether there was anything to abandon.
func (r *run) abandon(d *delivery, cause error, took time.Duration, settle func()) bool {
	ours := d.claim(fateAbandoned)
	if !ours && !d.fate.CompareAndSwap(fateLost, fateAbandoned) {
		return false
	}
	if cancel := d.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
	defer func() { // also if the user's error handler ends this goroutine
		stuck, working := r.pool.replace(r) // until now the place was ours, so the settler cannot have left
		r.handled(took)
		if working < r.concurrency && !r.stopping() {
			r.log.Error("delayqueue: too many callbacks run on past their limit: no more workers take their places until some return",
				slog.Int("running_on", stuck), slog.Int("workers", working))
		}
	}()
	if ours {
		settle()
	}
	return true
}

// abandonAll ends the contexts of all running handlers, releases their messages, and
// returns how many there were.
func (r *run) abandonAll() (n int) {
	r.rush()
	for _, w := range r.crew.all() {
		d := w.serving.Load()
		if d != nil && r.abandon(d, ErrShutdown, 0, func() { r.outbox.put(d.released()) }) {
			n++
		}
	}
	return n
}

// release gives back a delivery that no handler started.
func (r *run) release(d *delivery) {
	if d.claim(fateSettled) {
		r.outbox.put(d.released())
	}
	r.handled(0)
}

// lose gives up a delivery that is not ours any more.
func (r *run) lose(d *delivery, cause error) {
	if !d.claim(fateLost) {
		return
	}
	r.letGo(d)
	r.log.Warn("delayqueue: a delivery is not ours any more: its handler's context ends and its result is void", d.attrs(), slog.Any("cause", cause))
	if cancel := d.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// cutOff ends the contexts of handlers whose leases are over as far as is known here: Redis has not been heard for so
// long. Their results count all the same if the leases are renewed after all.
func (r *run) cutOff() {
	for _, d := range r.held.all() {
		if !d.over(r.lease, time.Now()) || d.cutOff.Swap(true) {
			continue
		}
		if cancel := d.cancel.Load(); cancel != nil {
			r.log.Warn("delayqueue: the lease of a delivery is over, for Redis has not been heard: its handler's context ends", d.attrs())
			(*cancel)(ErrDeliveryLost)
		}
	}
}

// guard calls a function of the user's whose panic must not end the process.
func (r *run) guard(what string, message slog.Attr, f func()) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("delayqueue: "+what+" panicked", message, slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	f()
}

// errorText is what is kept of an error with the message: valid UTF-8, at most maxErrorText bytes.
func errorText(err error) string {
	text := strings.ToValidUTF8(fmt.Sprint(err), "\uFFFD")
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return text
}
