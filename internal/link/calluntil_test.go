package link

import (
	"context"
	"errors"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestAwait: of a call, its error, a panic as an error, and that nobody waits for it any longer.
func TestAwait(t *testing.T) {
	failure := errors.New("failure")
	gone, cancel := context.WithCancel(queuetest.CtxB)
	release := make(chan struct{})
	cancel()
	if err := callUntil(gone, func() error { <-release; return failure }); !errors.Is(err, errUnanswered) {
		t.Fatalf("a call that hangs: %v", err)
	}
	close(release)
	if err := callUntil(queuetest.CtxB, func() error { panic("hook") }); err == nil {
		t.Fatal("a call that panics: no error")
	}
	if err := callUntil(queuetest.CtxB, func() error { return failure }); !errors.Is(err, failure) {
		t.Fatalf("callUntil: %v, want the call's error", err)
	}
}
