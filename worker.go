package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// A delivery is one message in the hands of this run.
type delivery struct {
	tag      string
	id       string
	key      string
	number   int
	failures int
	losses   int
	ttl      time.Duration
	msg      Message
	broken   error // why it cannot be handled

	fetched time.Time
	fate    atomic.Int32
	running atomic.Bool                             // its handler has been started
	cancel  atomic.Pointer[context.CancelCauseFunc] // set once its handler is about to start

	prev, next *delivery // in heldList
}

// The fate of a delivery changes once from open; whoever changes it does what follows from
// it, so nothing is settled twice.
const (
	fateOpen      = iota
	fateSettled   // it has an outcome, which goes to the settler
	fateLost      // it is not ours any more; what the handler says is void
	fateAbandoned // it has an outcome, and its callback runs on in a worker that was replaced
)

func (d *delivery) claim(fate int32) bool { return d.fate.CompareAndSwap(fateOpen, fate) }

func (d *delivery) end(cause error) {
	if cancel := d.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

func (d *delivery) attrs() slog.Attr {
	return slog.Group("message", slog.String("id", d.id), slog.Int("delivery", d.number))
}

// decode makes deliveries of what a fetch brought.
func (r *run) decode(got *fetched, at time.Time) []*delivery {
	all := make([]delivery, len(got.tags))
	ds := make([]*delivery, len(got.tags))
	fails := got.fails
	for i, tag := range got.tags {
		d := &all[i]
		ds[i] = d
		var record failRecord
		var bad [3]error
		d.tag, d.fetched = tag, at
		d.id, d.number, bad[0] = splitTag(tag)
		if strings.Contains(tag, ":") && len(fails) > 0 {
			if fails[0] != "" {
				record, bad[1] = parseFail(fails[0])
			}
			fails = fails[1:]
		}
		var e envelope
		e, bad[2] = decodeEnvelope(got.envelopes[i])
		d.broken = errors.Join(bad[:]...)
		d.key, d.ttl, d.failures, d.losses = e.key, e.ttl, record.failures, record.losses
		d.msg = e.message(d.id, d.number, record.failures)
	}
	return ds
}

func (e *envelope) message(id string, number, failures int) Message {
	return Message{
		ID: id, Key: e.key, Payload: e.payload, Headers: e.headers, Due: time.UnixMicro(e.due),
		Delivery: number, Failures: failures, Retries: e.retries,
	}
}

// unfit settles a delivery that no handler should see, and says so.
func (r *run) unfit(d *delivery, now int64) bool {
	o := outcome{d: d, kind: outcomeGarbage, failures: d.failures, losses: d.losses}
	switch late := time.Duration(now-d.msg.Due.UnixMicro()) * time.Microsecond; {
	case errors.Is(d.broken, errNewerVersion):
		o.kind, o.delay = outcomeRetry, 5*time.Second+rand.N(5*time.Second)
		o.text = d.broken.Error()
		r.log.Warn("delayqueue: set aside a message that only a newer version of this library can read", d.attrs(), slog.Any("error", d.broken))
	case d.broken != nil:
		o.err = d.broken
		r.log.Error("delayqueue: a broken message goes to garbage: another program writes to this queue", d.attrs(), slog.Any("error", d.broken))
	case d.ttl > 0 && d.number == 1 && late > d.ttl:
		o.err = fmt.Errorf("%w: %v past due, its limit is %v", ErrExpired, late, d.ttl)
	default:
		return false
	}
	if o.err != nil {
		o.text = errorText(o.err)
	}
	r.unhandled.Add(-1)
	if d.claim(fateSettled) {
		r.outbox.put(o)
	}
	return true
}

// work is a worker: it serves deliveries one after the other until the buffer is closed, or
// until it is replaced because its callback outlived its limit. A worker that is replaced
// leaves its place in r.workers to its successor.
func (r *run) work() {
	over := false
	defer func() {
		if !over { // runtime.Goexit in a handler ends this goroutine, not the worker
			go r.work()
		}
	}()
	for {
		d, ok := r.buffer.one()
		if !ok {
			over = true
			r.workers.Done()
			return
		}
		if r.stopping() {
			r.release(d)
			continue
		}
		if !r.serve(d) {
			over = true
			return
		}
	}
}

// serve hands one delivery to the handler and settles it. It returns false if this worker
// has been replaced.
func (r *run) serve(d *delivery) (mine bool) {
	ctx := r.base
	if r.handle != nil {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		d.cancel.Store(&cancel)
	}
	d.running.Store(true)
	if r.shut.Load() { // it was taken before the stop, and Shutdown's patience is over
		r.release(d)
		return true
	}
	if d.fate.Load() != fateOpen { // lost or intercepted while it waited in the buffer
		r.handled(0)
		return true
	}
	if r.limit > 0 {
		timer := time.AfterFunc(r.limit, func() { r.expire(ctx, d) })
		defer timer.Stop()
	}
	start := time.Now()
	err := errGoexit
	defer func() {
		switch {
		case d.fate.Load() == fateOpen && d.claim(fateSettled):
			r.outbox.put(r.decide(ctx, d, err))
		case d.fate.Load() == fateAbandoned:
			r.abandoned.Add(-1)
			r.signal()
			return
		}
		r.handled(time.Since(start))
		mine = true
	}()
	err = r.call(ctx, d)
	return
}

var errGoexit = fmt.Errorf("%w: it ended its goroutine with runtime.Goexit", ErrPanicked)

// handled counts a delivery that has left its worker.
func (r *run) handled(took time.Duration) {
	if took > 0 {
		each := r.perMsg.Load()
		if each == 0 {
			each = int64(took)
		}
		r.perMsg.Store(max(each+(int64(took)-each)/8, 1))
	}
	r.unhandled.Add(-1)
	r.signal()
}

// call calls the user's code; a panic is an error with its stack in the log.
func (r *run) call(ctx context.Context, d *delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("delayqueue: handler panicked", d.attrs(), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("%w: %v", ErrPanicked, p)
		}
	}()
	if r.handle == nil {
		if !r.callback(d.msg.Payload) {
			return ErrNacked
		}
		return nil
	}
	msg := d.msg // the handler's own
	msg.Headers = maps.Clone(msg.Headers)
	return r.handle(ctx, &msg)
}

// expire is what happens at the limit: a failure now, and a new worker in place of this
// one, whose callback may never return.
func (r *run) expire(ctx context.Context, d *delivery) {
	if d.claim(fateAbandoned) {
		r.replace(d, ErrConsumeTimeout)
		r.outbox.put(r.decide(ctx, d, fmt.Errorf("%w of %v", ErrConsumeTimeout, r.limit)))
	} else if d.fate.CompareAndSwap(fateLost, fateAbandoned) {
		r.replace(d, ErrConsumeTimeout)
	}
}

// replace starts a worker in place of that of a delivery just abandoned.
func (r *run) replace(d *delivery, cause error) {
	r.abandoned.Add(1)
	d.end(cause)
	go r.work()
	r.handled(0)
}

// abandonAll ends the contexts of all running handlers, releases their messages, and
// returns how many there were.
func (r *run) abandonAll() int {
	n := 0
	r.shut.Store(true)
	for _, d := range r.held.all() {
		if !d.running.Load() {
			continue
		}
		if d.claim(fateAbandoned) {
			n++
			r.replace(d, ErrShutdown)
			r.outbox.put(outcome{d: d, kind: outcomeReady, failures: d.failures, losses: d.losses})
		} else if d.fate.CompareAndSwap(fateLost, fateAbandoned) {
			n++
			r.replace(d, ErrShutdown)
		}
	}
	return n
}

// release gives back a delivery that no handler started.
func (r *run) release(d *delivery) {
	r.handled(0)
	if d.claim(fateSettled) {
		r.outbox.put(outcome{d: d, kind: outcomeReady, failures: d.failures, losses: d.losses})
	}
}

// lose gives up a delivery that is not ours any more.
func (r *run) lose(d *delivery, cause error) {
	if !d.claim(fateLost) {
		return
	}
	r.held.remove(d)
	r.unsettled.Add(-1)
	r.signal()
	r.log.Warn("delayqueue: a delivery is not ours any more: its handler's context ends and its result is void", d.attrs(), slog.Any("cause", cause))
	d.end(cause)
}

// decide turns what a handler returned into an outcome.
func (r *run) decide(ctx context.Context, d *delivery, err error) outcome {
	o := outcome{d: d, failures: d.failures}
	var snooze *snoozeError
	if err == nil {
		return o // an ack
	}
	if errors.As(err, &snooze) && !errors.Is(err, ErrSkipRetry) {
		o.kind, o.delay = outcomeRetry, min(snooze.delay, maxDelay)
		return o
	}
	o.err, o.text = err, errorText(err)
	o.failures++
	if r.onError != nil {
		r.guard("error handler", d.id, func() { r.onError(ctx, &d.msg, err) })
	}
	if errors.Is(err, ErrSkipRetry) || o.failures > d.msg.Retries {
		o.kind = outcomeGarbage
		return o
	}
	o.kind = outcomeRetry
	var after *retryAfterError
	if errors.As(err, &after) {
		o.delay = min(after.delay, maxDelay)
		return o
	}
	r.guard("retry delay function", d.id, func() { o.delay = r.delayAfter(o.failures, err, &d.msg) })
	return o
}

// guard calls a function of the user's whose panic must not end the process.
func (r *run) guard(what, id string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("delayqueue: "+what+" panicked", slog.String("id", id), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	f()
}

// errorText is what is kept of an error with the message: valid UTF-8, at most maxErrorText bytes.
func errorText(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return text
}
