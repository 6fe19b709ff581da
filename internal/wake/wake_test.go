package wake

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestHints: of those that nobody has received yet, the earliest is kept.
func TestHints(t *testing.T) {
	h, now := NewHints(), time.Now()
	for _, in := range []time.Duration{2, 1, 3} {
		h.Put(now.Add(in))
	}
	if at := <-h; !at.Equal(now.Add(1)) {
		t.Errorf("the earliest is %v after now", at.Sub(now))
	}
	h.Put(now)
	queuetest.Receive(t, "one after that", h)
}
