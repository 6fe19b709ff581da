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
	*consumer
	serving atomic.Pointer[delivery] // handed to the handler
	gone    bool                     // its place is given up
}

// hire starts a worker that the pool has counted.
func (c *consumer) startWorker() {
	w := &worker{consumer: c}
	c.members.add(w)
	go w.work()
}

func (w *worker) work() {
	defer func() {
		w.members.remove(w)
		if !w.gone { // runtime.Goexit in the user's code ends this goroutine, not the worker
			w.startWorker()
		}
	}()
	for !w.gone {
		d, ok := w.buffer.one()
		switch {
		case !ok:
			w.gone = true
			w.slots.release(w.consumer)
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
	defer func() { w.settle(ctx, d, v, started, time.Since(start)) }() // and nothing behind it
	d.started.Store(processTime(start))
	w.serving.Store(d)
	// Shutdown is impatient, the base context has ended, or it was lost in the buffer.
	if w.forceCtx.Err() != nil || w.base.Err() != nil || d.fate.Load() != fateOpen || d.leaseOver(w.lease, start) {
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
func (w *worker) settle(ctx context.Context, d *delivery, v verdict, started bool, took time.Duration) {
	w.serving.Store(nil)
	if !started {
		took = 0
	}
	switch {
	case d.claim(fateSettled):
		if !started {
			w.outbox.put(d.releasedOutcome())
			w.finished(took)
			return
		}
		defer w.finished(took)
		if w.cutShort(d, v) {
			w.outbox.put(d.releasedOutcome())
			return
		}
		w.conclude(ctx, d, v)
	case d.fate.CompareAndSwap(fateLost, fateLeft): // from here on nobody replaces this worker
		w.finished(took)
	default: // abandoned, and its place given up
		w.gone = true
		w.slots.returned()
	}
}

// cutShort says whether a handler failed only because its context ended for no fault of the message: the base context
// ended, or the lease did, as far as was known here, and has been renewed since.
func (w *worker) cutShort(d *delivery, v verdict) bool {
	if v.err == nil || v.skip || w.base.Err() == nil && !d.overdue.Load() {
		return false
	}
	return errors.Is(v.err, context.Canceled) || errors.Is(v.err, context.DeadlineExceeded) ||
		errors.Is(v.err, ErrDeliveryLost) || w.base.Err() != nil && errors.Is(v.err, context.Cause(w.base))
}

// handled counts a delivery that has left its worker.
func (c *consumer) finished(took time.Duration) {
	if took > 0 {
		each := c.nsPerMsg.Load()
		if each == 0 {
			each = int64(took)
		}
		c.nsPerMsg.Store(max(each+(int64(took)-each)/8, 1))
	}
	if c.stopping() {
		c.extendDrain() // what it came to is still to be settled
	}
	c.unhandled.Add(-1)
	c.signal()
}

// A verdict is what a handler's result means.
type verdict struct {
	err           error // nil: an ack, or a snooze
	text          string
	skip          bool           // to garbage
	snooze        bool           // no failure
	resetFailures bool           // a snooze after which failures count anew
	delay         *time.Duration // the handler's own, of a snooze or a retry
}

// call calls the handler; a panic in it, or in its error's methods, is an error with its
// stack in the log.
func (c *consumer) call(ctx context.Context, d *delivery) (v verdict) {
	returned := false
	defer func() {
		if p := recover(); !returned { // p is nil for panic(nil), where GODEBUG allows that, and for Goexit
			c.log.Error("delayqueue: handler panicked", d.attrs(), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			v = verdict{err: fmt.Errorf("%w: %v", ErrPanicked, p)}
		}
	}()
	if c.handle == nil {
		if !c.callback(d.msg.Payload) {
			v.err = ErrNacked
		}
	} else {
		v = judge(c.handle(ctx, d.message()))
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
		return verdict{snooze: true, resetFailures: snooze.fresh, delay: &snooze.delay}
	case errors.As(err, &after):
		v.delay = &after.delay
	}
	return v
}

// conclude makes a verdict an outcome, which goes out whatever the user's functions do.
func (c *consumer) conclude(ctx context.Context, d *delivery, v verdict) {
	o := outcome{d: d, failures: d.failures, err: v.err, text: v.text}
	defer func() {
		c.outbox.put(o)
		if o.kind == outcomeRetry && !v.snooze {
			c.log.Log(context.Background(), c.failureLevel, "delayqueue: a delivery failed: the next one follows", d.attrs(), slog.Int("failures", o.failures),
				slog.Int("max_retries", d.msg.MaxRetries), slog.Duration("in", o.delay), slog.String("error", o.text))
		}
	}()
	switch {
	case v.err == nil && !v.snooze:
		return // an ack
	case v.snooze:
		o.kind, o.delay = outcomeRetry, min(*v.delay, maxDelay)
		if v.resetFailures {
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
		c.guard("retry delay function", d.attrs(), func() { o.delay = c.delayAfter(o.failures, v.err, d.message()) })
	}
	if c.onError != nil {
		c.guard("error handler", d.attrs(), func() { c.onError(ctx, d.message(), v.err) })
	}
}

// expire is what happens at the limit: a failure now, and a new worker in place of this
// one, whose callback may never return.
func (c *consumer) expire(ctx context.Context, d *delivery) {
	c.abandon(d, ErrConsumeTimeout, c.limit, func() {
		c.log.Warn("delayqueue: a handler ran past its limit: its context ends, and another worker takes its place", d.attrs(), slog.Duration("limit", c.limit))
		c.conclude(ctx, d, verdict{err: fmt.Errorf("%w of %v", ErrConsumeTimeout, c.limit)})
	})
}

// abandon ends the context of a running delivery, settles it unless it was lost, and
// replaces its worker. It says whether there was anything to abandon.
func (c *consumer) abandon(d *delivery, cause error, took time.Duration, settle func()) bool {
	ours := d.claim(fateAbandoned)
	if !ours && !d.fate.CompareAndSwap(fateLost, fateAbandoned) {
		return false
	}
	if cancel := d.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
	defer func() { // also if the user's error handler ends this goroutine
		stuck, working := c.slots.replace(c) // until now the place was ours, so the settler cannot have left
		c.finished(took)
		if working < c.concurrency && !c.stopping() {
			c.log.Error("delayqueue: too many callbacks run on past their limit: no more workers take their places until some return",
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
func (c *consumer) abandonAll() (n int) {
	c.force()
	for _, w := range c.members.all() {
		d := w.serving.Load()
		if d != nil && c.abandon(d, ErrShutdown, 0, func() { c.outbox.put(d.releasedOutcome()) }) {
			n++
		}
	}
	return n
}

// release gives back a delivery that no handler started.
func (c *consumer) release(d *delivery) {
	if d.claim(fateSettled) {
		c.outbox.put(d.releasedOutcome())
	}
	c.finished(0)
}

// lose gives up a delivery that is not ours any more.
func (c *consumer) lose(d *delivery, cause error) {
	if !d.claim(fateLost) {
		return
	}
	c.removeHeld(d)
	c.log.Warn("delayqueue: a delivery is not ours any more: its handler's context ends and its result is void", d.attrs(), slog.Any("cause", cause))
	if cancel := d.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// cutOff ends the contexts of handlers whose leases are over as far as is known here: Redis has not been heard for so
// long. Their results count all the same if the leases are renewed after all.
func (c *consumer) cancelOverdue() {
	for _, d := range c.held.all() {
		if !d.leaseOver(c.lease, time.Now()) || d.overdue.Swap(true) {
			continue
		}
		if cancel := d.cancel.Load(); cancel != nil {
			c.log.Warn("delayqueue: the lease of a delivery is over, for Redis has not been heard: its handler's context ends", d.attrs())
			(*cancel)(ErrDeliveryLost)
		}
	}
}

// guard calls a function of the user's whose panic must not end the process.
func (c *consumer) guard(what string, message slog.Attr, f func()) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("delayqueue: "+what+" panicked", message, slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
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
