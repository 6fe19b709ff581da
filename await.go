package delayqueue

import (
	"context"
	"slices"
	"sync"
	"time"
)

// This file waits for calls of the user's client, which may take longer than anybody can wait.

const (
	// awaitGrace is for f to say why it has not come further.
	awaitGrace = 5 * time.Millisecond
	// awaiterIdle is how long a goroutine stays for another call.
	awaiterIdle = 50 * time.Millisecond
)

// errUnanswered ends what is not waited for any longer; what it was doing is not known.
var errUnanswered = &timeoutError{}

// await runs f and does not wait for it any longer than ctx lives.
func await(ctx context.Context, f func() error) error {
	w := awaiters.take()
	w.calls <- f
	select {
	case err := <-w.result:
		awaiters.put(w)
		return err
	case <-ctx.Done():
	}
	close(w.calls) // this is its last
	timer := time.NewTimer(awaitGrace)
	defer timer.Stop()
	select {
	case err := <-w.result:
		return err
	case <-timer.C:
		return errUnanswered
	}
}

// An awaiter is a goroutine that runs one call after the other: to begin one for each costs twice as much.
type awaiter struct {
	calls  chan func() error
	result chan error
}

// awaiters are the goroutines that have nothing to do, the last used last.
var awaiters awaiterPool

type awaiterPool struct {
	mu   sync.Mutex
	idle []*awaiter
}

func (p *awaiterPool) take() *awaiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return w
	}
	w := &awaiter{calls: make(chan func() error), result: make(chan error, 1)}
	go w.run(p)
	return w
}

func (p *awaiterPool) put(w *awaiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, w)
}

// remove says whether w was idle.
func (p *awaiterPool) remove(w *awaiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := slices.Index(p.idle, w)
	if n < 0 {
		return false
	}
	p.idle = slices.Delete(p.idle, n, n+1)
	return true
}

// run runs calls until there have been none for a while.
func (w *awaiter) run(p *awaiterPool) {
	idle := time.NewTimer(awaiterIdle)
	defer idle.Stop()
	for {
		select {
		case f, more := <-w.calls:
			if !more {
				return
			}
			w.result <- withoutPanic(f)
			idle.Reset(awaiterIdle)
		case <-idle.C:
			if p.remove(w) {
				return
			}
			idle.Reset(awaiterIdle)
		}
	}
}

func withoutPanic(f func() error) (err error) {
	defer contain(&err)
	return f()
}
