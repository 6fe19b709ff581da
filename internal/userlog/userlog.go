// Package userlog contains the log of a user: whatever its handler does, nothing but its records suffers. It imports
// the standard library alone.
//
// A handler is the user's code. It may panic, end its goroutine (a test's handler calls t.FailNow), hang, or call the
// library. So each method of it runs in a goroutine that the log owns, one call after the other, and never in a
// goroutine that has other work or holds a lock. Whoever logs waits until the record is written, so that records are
// in order and none is lost when the process ends. If that takes longer than maxWait the handler hangs: from then on
// nobody waits, until it goes on.
package userlog

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxWait is how long whoever logs waits for a record to be written.
	maxWait = time.Second
	// maxRecords is how many records wait for a handler that hangs. More are dropped and counted.
	maxRecords = 1000
)

// Contain makes a contained logger of the user's. It calls no code of the user.
func Contain(log *slog.Logger) *slog.Logger {
	if _, contained := log.Handler().(*handler); contained {
		return log
	}
	return slog.New(&handler{owner: &owner{wait: maxWait}, user: log.Handler()})
}

// A handler is a handler of the user, or one that is to be made of another.
type handler struct {
	owner *owner
	from  *handler                           // that it is made of; nil: it is the user's
	make  func(of slog.Handler) slog.Handler // calls the user's code

	user slog.Handler // nil: not made yet; of the owner's goroutine, unless from is nil
}

// Enabled is always true, because the user's handler is asked in the owner's goroutine.
func (h *handler) Enabled(context.Context, slog.Level) bool { return true }

// Handle returns an error if the record is lost, or may be.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	return h.owner.write(&record{handler: h, ctx: ctx, record: r, done: make(chan struct{})})
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{owner: h.owner, from: h, make: func(of slog.Handler) slog.Handler { return of.WithAttrs(attrs) }}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{owner: h.owner, from: h, make: func(of slog.Handler) slog.Handler { return of.WithGroup(name) }}
}

// made is the user's handler, in the owner's goroutine. If the user's code does not make it, it is the one that it
// was to be made of.
func (h *handler) made() (user slog.Handler) {
	if h.user != nil {
		return h.user
	}
	h.user = h.from.made() // if what follows panics, or ends this goroutine
	defer func() {
		_ = recover()
		user = h.user
	}()
	if made := h.make(h.user); made != nil {
		h.user = made
	}
	return h.user
}

type record struct {
	handler *handler
	ctx     context.Context
	record  slog.Record
	err     error // set before done is closed
	done    chan struct{}
}

// An owner is the one who calls the user's handler. Its goroutine runs while there are records.
type owner struct {
	wait time.Duration // maxWait, but for tests

	mu      sync.Mutex // guards the fields below
	waiting []*record
	dropped int
	running bool
	hangs   bool // a record took longer than wait, and the handler has not returned since
}

func (o *owner) write(r *record) error {
	o.mu.Lock()
	if len(o.waiting) == maxRecords {
		o.dropped++
		o.mu.Unlock()
		return fmt.Errorf("the log's handler hangs, and %d records wait for it", maxRecords)
	}
	o.waiting = append(o.waiting, r)
	if !o.running {
		o.running = true
		go o.run()
	}
	hangs := o.hangs
	o.mu.Unlock()
	if hangs {
		return nil
	}
	timer := time.NewTimer(o.wait)
	defer timer.Stop()
	select {
	case <-r.done:
		return r.err
	case <-timer.C:
		o.mu.Lock()
		o.hangs = true
		o.mu.Unlock()
		return nil
	}
}

// run writes records until there are none.
func (o *owner) run() {
	over := false
	defer func() {
		if !over { // the user's code has ended this goroutine
			go o.run()
		}
	}()
	for r := o.next(); r != nil; r = o.next() {
		o.handle(r)
	}
	over = true
}

// next takes a record; nil: there is none, and run ends.
func (o *owner) next() *record {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		o.running, o.waiting = false, nil
		return nil
	}
	r := o.waiting[0]
	if n := o.dropped; n > 0 {
		o.dropped = 0
		lost := slog.NewRecord(time.Now(), slog.LevelWarn,
			"delayqueue: the log's handler was too slow: records are missing before this one", 0)
		lost.AddAttrs(slog.Int("records", n))
		return &record{handler: r.handler, ctx: context.Background(), record: lost, done: make(chan struct{})}
	}
	o.waiting[0], o.waiting = nil, o.waiting[1:]
	return r
}

// handle calls the user's handler. A panic loses the record.
func (o *owner) handle(r *record) {
	r.err = fmt.Errorf("the log's handler has ended its goroutine")
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("the log's handler panicked: %v", p)
		}
		o.mu.Lock()
		o.hangs = false
		o.mu.Unlock()
		close(r.done)
	}()
	var err error
	if user := r.handler.made(); user.Enabled(r.ctx, r.record.Level) {
		err = user.Handle(r.ctx, r.record)
	}
	r.err = err
}
