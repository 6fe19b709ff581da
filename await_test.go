package delayqueue

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A call that nobody waits for any longer, or that panics, does not reach into those that come after it.
func TestAwait(t *testing.T) {
	failure := errors.New("failure")
	gone, cancel := context.WithCancel(ctxB)
	release := make(chan struct{})
	cancel()
	if err := await(gone, func() error { <-release; return failure }); !errors.Is(err, errUnanswered) {
		t.Fatalf("await of a call that hangs: %v", err)
	}
	close(release)
	for range 100 {
		if err := await(ctxB, func() error { return nil }); err != nil {
			t.Fatalf("await after a call that was given up: %v", err)
		}
	}
	if err := await(ctxB, func() error { panic("hook") }); err == nil {
		t.Fatal("await of a call that panics: no error")
	}
	if err := await(ctxB, func() error { return failure }); !errors.Is(err, failure) {
		t.Fatalf("await: %v, want the call's error", err)
	}
}

// Goroutines that wait for calls end when none come.
func TestAwaitRunnersEnd(t *testing.T) {
	var p runnerPool
	r := p.take()
	r.calls <- func() error { return nil }
	<-r.result
	p.put(r)
	eventually(t, "the idle goroutine ends", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.idle) == 0
	})
	late := p.take()
	time.AfterFunc(2*runnerIdle, func() { late.calls <- func() error { return nil } })
	if err := <-late.result; err != nil { // it is taken, so it stays
		t.Fatal(err)
	}
	close(late.calls)
}
