package delayqueue

import (
	"context"
	"slices"
	"sync"
	"time"
)

// This file waits for calls that may not end when their contexts do.

const (
	// awaitGrace is how long await waits, after its context has ended, for f to say why it was not done.
	awaitGrace = 5 * time.Millisecond
	// runnerIdle is how long a goroutine waits for another call.
	runnerIdle = 50 * time.Millisecond
)

// errUnanswered is of a call that is not waited for any longer. Whether it was carried out is not known.
var errUnanswered = &timeoutError{}

// await calls f, in another goroutine, and waits for it until ctx ends.
func await(ctx context.Context, f func() error) error {
	r := runners.take()
	r.calls <- f
	select {
	case err := <-r.result:
		runners.put(r)
		return err
	case <-ctx.Done():
	}
	close(r.calls) // this is its last
	timer := time.NewTimer(awaitGrace)
	defer timer.Stop()
	select {
	case err := <-r.result:
		return err
	case <-timer.C:
		return errUnanswered
	}
}

// A callRunner is a goroutine that makes one call after the other: a new goroutine for each costs twice as much.
type callRunner struct {
	calls  chan func() error // closes after its last call
	result chan error
}

// runners are the idle goroutines of all queues.
var runners runnerPool

// A runnerPool is safe for concurrent use.
type runnerPool struct {
	mu   sync.Mutex
	idle []*callRunner // guarded by mu; the last used last
}

func (p *runnerPool) take() *callRunner {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		r := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return r
	}
	r := &callRunner{calls: make(chan func() error), result: make(chan error, 1)}
	go r.run(p)
	return r
}

func (p *runnerPool) put(r *callRunner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, r)
}

// remove takes a callRunner out, and says whether it was idle.
func (p *runnerPool) remove(r *callRunner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := slices.Index(p.idle, r)
	if n < 0 {
		return false
	}
	p.idle = slices.Delete(p.idle, n, n+1)
	return true
}

// run makes calls until there has been none for runnerIdle.
func (r *callRunner) run(p *runnerPool) {
	idle := time.NewTimer(runnerIdle)
	defer idle.Stop()
	for {
		select {
		case f, more := <-r.calls:
			if !more {
				return
			}
			r.result <- withoutPanic(f)
			idle.Reset(runnerIdle)
		case <-idle.C:
			if p.remove(r) {
				return
			}
			idle.Reset(runnerIdle)
		}
	}
}

func withoutPanic(f func() error) (err error) {
	defer contain(&err)
	return f()
}
