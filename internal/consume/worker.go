package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A worker serves deliveries one after the other until none waits, or until it is replaced because its callback ran
// past its limit or past the end of Shutdown's context.
type worker struct {
	workers *Workers
	index   int                      // in workers.running; guarded by workers.mu
	serving atomic.Pointer[delivery] // handed to the handler; stored by the worker, read by presence and Shutdown

	// The rest is for its goroutine alone.
	member   *member       // whose delivery has just ended
	took     time.Duration // by its handler, 0 if it did not start
	replaced bool
}

// run serves a delivery, and those that follow. nil means that this goroutine takes the place of one that the user's
// code has ended.
func (w *worker) run(d *delivery) {
	left := false
	defer func() {
		if !left { // runtime.Goexit in the user's code ends this goroutine
			go w.run(nil)
		}
	}()
	if d == nil {
		d = w.workers.next(w)
	}
	for ; d != nil; d = w.workers.next(w) {
		w.serve(d)
	}
	left = true
}

// serve hands one delivery to the handler and settles it.
func (w *worker) serve(d *delivery) {
	settings, start := &d.consumer.settings, time.Now()
	limit, why := d.runLimit(settings.Limit, start)
	ctx := settings.Base
	if settings.Handle != nil {
		early, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		ctx = early
		if limit > 0 { // a deadline, which contexts that are made of this one inherit
			var stop context.CancelFunc
			ctx, stop = context.WithDeadlineCause(early, start.Add(limit), why)
			defer stop()
		}
		h := &handling{Context: ctx, cancel: cancel, retained: d.retention > 0,
			id: d.msg.ID, key: d.msg.Key, lane: d.msg.Lane}
		d.handling.Store(h)
		ctx = h
	}
	v := Verdict{Err: errGoexit}
	started := false
	defer func() { w.settle(ctx, d, v, started, time.Since(start)) }()
	d.started.Set(start)
	w.serving.Store(d)
	// The consumer stops, the base context has ended, or the delivery was lost or has expired in the buffer.
	if d.consumer.lifecycle.stopping() || settings.Base.Err() != nil || d.fate.Load() != fateOpen ||
		d.leaseOver(settings.Lease, time.Now()) || d.expiredBy(start) {
		return
	}
	started = true
	if limit > 0 {
		timer := time.AfterFunc(limit, func() {
			if settings.Handle != nil {
				<-ctx.Done() // its deadline is now: expire must not end it for another cause
			}
			d.expire(ctx, limit, why)
		})
		defer timer.Stop()
	}
	if settings.OnError != nil && d.losses > 0 { // nobody has told of the loss, because its consumer was dead or cut off
		told := make(chan struct{})
		go func() { // whose end by runtime.Goexit is none of the delivery
			defer close(told)
			settings.guard("error handler", d.attrs(), func() { settings.OnError(ctx, d.message(), ErrDeliveryLost) })
		}()
		if <-told; d.fate.Load() != fateOpen { // its time was over meanwhile
			return
		}
	}
	v = settings.call(ctx, d)
	if limit > 0 && ctx.Err() == context.DeadlineExceeded && context.Cause(ctx) == why {
		d.expire(ctx, limit, why) // the handler may have seen the end of its context before the timer did
	}
}

var errGoexit = fmt.Errorf("%w: it ended its goroutine with runtime.Goexit", ErrPanicked)

// settle is the only way out of serve. It is deferred, because the user's code may end the goroutine. It gives the
// outcome to the settler before the worker counts as free, so that no free worker has an outcome that is not queued
// yet.
func (w *worker) settle(ctx context.Context, d *delivery, v Verdict, started bool, took time.Duration) {
	w.serving.Store(nil)
	v.result, v.follows = d.handling.Load().end()
	if w.member, w.took = d.consumer.member, took; !started {
		w.took = 0
	}
	if !d.claim(fateSettled) {
		// From here on nobody replaces the worker of a lost delivery.
		w.replaced = !d.fate.CompareAndSwap(fateLost, fateLeft)
	} else if !started || d.consumer.settings.cutShort(ctx, v) {
		d.consumer.settler.put(d.released())
	} else {
		d.conclude(ctx, v)
	}
}

// cutShort reports whether a handler failed only because its context ended: the base context has ended, or the lease
// has run out by this process's clock. Such a delivery goes back.
func (s *Settings) cutShort(ctx context.Context, v Verdict) bool {
	if v.Err == nil || v.SkipRetry || s.Base.Err() == nil && context.Cause(ctx) != ErrDeliveryLost {
		return false
	}
	return errors.Is(v.Err, context.Canceled) || errors.Is(v.Err, context.DeadlineExceeded) ||
		errors.Is(v.Err, ErrDeliveryLost) || s.Base.Err() != nil && errors.Is(v.Err, context.Cause(s.Base))
}

// call calls the handler. A panic in it, or in a method of its error, becomes an error that names the place, and the
// stack is logged.
func (s *Settings) call(ctx context.Context, d *delivery) (v Verdict) {
	returned := false
	defer func() {
		if returned { // without recover, which is slow
			return
		}
		p := recover() // nil for panic(nil), where GODEBUG allows that, and for Goexit
		s.Log.Error("delayqueue: handler panicked", d.attrs(), slog.Any("panic", p),
			slog.String("stack", string(debug.Stack())))
		v = Verdict{Err: fmt.Errorf("%w: %v%s", ErrPanicked, p, panicPlace())}
	}()
	if s.Handle == nil {
		if !CallEach(s.Callback, &d.msg, func() bool { return d.fate.Load() != fateOpen }) {
			v.Err = ErrNacked
		}
	} else {
		v = s.Handle(ctx, d.message())
	}
	returned = true
	return v
}

// panicPlace is where the panic began for which the caller, a deferred function, was called: " (folder/file.go:12)";
// "" if there is none.
func panicPlace() string {
	stack := make([]uintptr, 64)
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack)])
	panicked := false
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		panicked = panicked || frame.Function == "runtime.gopanic"
		if panicked && !strings.HasPrefix(frame.Function, "runtime.") {
			dir, file := path.Split(filepath.ToSlash(frame.File))
			return fmt.Sprintf(" (%s:%d)", path.Join(path.Base(dir), file), frame.Line)
		}
	}
	return ""
}

// CallEach calls a bare callback, for a group once for each part, and reports whether all parts are consumed. When
// the delivery is over, because it was lost or cut off, the callback gets no more parts.
func CallEach(callback func(string) bool, msg *message.Delivered, over func() bool) (consumed bool) {
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

// expire ends a delivery whose handler has run for as long as it may. If why is ErrExpired, that is until the
// message's deadline. The delivery is a failure now, and a new worker replaces the one whose handler may never
// return.
func (d *delivery) expire(ctx context.Context, limit time.Duration, why error) {
	v := Verdict{Err: fmt.Errorf("%w of %v", ErrConsumeTimeout, limit)}
	if why == ErrExpired {
		v = Verdict{Err: d.pastDeadline(nil), SkipRetry: true}
	}
	d.abandon(fateAbandoned, why, limit, func() {
		d.consumer.settings.Log.Warn(
			"delayqueue: a handler ran past its limit: its context ends, and another worker takes its place", d.attrs(),
			slog.Duration("limit", limit), slog.Any("cause", why))
		d.conclude(ctx, v)
	})
}

// abandon ends the context of a running delivery, settles the delivery unless it was lost, and replaces its worker.
// It returns false if the delivery has ended already.
func (d *delivery) abandon(fate int32, cause error, took time.Duration, settle func()) bool {
	ours := d.claim(fate)
	if !ours && !d.fate.CompareAndSwap(fateLost, fate) {
		return false
	}
	d.handling.Load().end()
	d.cancelHandler(cause)
	defer func() { // also if the user's error handler ends this goroutine
		d.consumer.member.replace(took) // until now the delivery was unhandled, so the settler cannot have left
		if !d.consumer.lifecycle.stopping() {
			d.consumer.member.logStuck(d.consumer.settings.Log)
		}
	}()
	if ours {
		settle()
	}
	return true
}

// abandonAll ends the contexts of all running handlers, and releases their messages.
func (m *member) abandonAll() {
	for _, d := range m.serving() {
		d.abandon(fateGivenUp, ErrShutdown, 0, func() { d.consumer.settler.put(d.released()) })
	}
}

// givenUp is how many handlers run on that Shutdown has given up on.
func (m *member) givenUp() int {
	return len(slices.DeleteFunc(m.serving(), func(d *delivery) bool { return d.fate.Load() != fateGivenUp }))
}

// serving is the deliveries that handlers have.
func (m *member) serving() (ds []*delivery) {
	m.workers.mu.Lock()
	defer m.workers.mu.Unlock()
	for _, w := range m.workers.running {
		if d := w.serving.Load(); d != nil && d.consumer.member == m {
			ds = append(ds, d)
		}
	}
	return ds
}

// A handling is one call of a handler. It is the context that the handler gets, so that SetResult and Then find it.
type handling struct {
	context.Context
	cancel   context.CancelCauseFunc // ends it
	retained bool                    // the message is kept once it is acked, with its result

	id, key, lane string // of the message

	mu          sync.Mutex // guards the fields below
	ended       bool
	result      string
	follows     []*script.SendMessage // what is sent if the delivery is acked
	followBytes int                   // of their envelopes
}

type handlingKey struct{}

// Value finds the handling itself, also from contexts that are made of it.
func (h *handling) Value(key any) any {
	if key == (handlingKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// HandlingOf is the handling of a handler's context, and nil of any other context.
func HandlingOf(ctx context.Context) *handling {
	h, _ := ctx.Value(handlingKey{}).(*handling)
	return h
}

// say calls f, which notes what a handler says, if the handler runs. h may be nil.
func (h *handling) say(f func() error) error {
	if h == nil {
		return ErrNotHandling
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.pastLimit() {
		return ErrNotHandling
	}
	return f()
}

// Ended is ErrNotHandling if the handler does not run. h may be nil.
func (h *handling) Ended() error { return h.say(func() error { return nil }) }

// Of returns the names of the message that is handled.
func (h *handling) Of() (id, key, lane string) { return h.id, h.key, h.lane }

// SetResult notes a result, if the message is kept. h may be nil.
func (h *handling) SetResult(value string) error {
	return h.say(func() error {
		if h.retained {
			h.result = value
		}
		return nil
	})
}

// What may follow one message.
const (
	maxFollows     = 100
	maxFollowBytes = 1 << 20
)

// errTooMuchFollows: the face has one name for it and for a payload that is too large.
var errTooMuchFollows = fmt.Errorf("%w: at most 100 messages follow one message, of 1 MB together", ErrPayloadTooLarge)

// Follow notes a message that is sent if the delivery is acked. h may be nil.
func (h *handling) Follow(m *script.SendMessage) error {
	return h.say(func() error {
		if len(h.follows) == maxFollows || h.followBytes+len(m.Text) > maxFollowBytes {
			return errTooMuchFollows
		}
		h.follows, h.followBytes = append(h.follows, m), h.followBytes+len(m.Text)
		return nil
	})
}

// pastLimit reports whether the context has ended by its deadline. The delivery is over then, a moment before the
// worker notes it.
func (h *handling) pastLimit() bool {
	cause := context.Cause(h.Context)
	return cause == ErrConsumeTimeout || cause == ErrExpired
}

// end refuses what the handler says from now on, and returns what it said. The handling does not keep that, because the
// user's code may keep the context. h may be nil.
func (h *handling) end() (result string, follows []*script.SendMessage) {
	if h == nil {
		return "", nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	result, follows = h.result, h.follows
	h.ended, h.result, h.follows = true, "", nil
	return result, follows
}
