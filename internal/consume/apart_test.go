package consume

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// TestApartIfNear: messages are read by a call of their own only if the server is known to be near.
func TestApartIfNear(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	for trip, want := range map[time.Duration]int{0: 0, 200 * time.Microsecond: 2 * leastFetch, 5 * time.Millisecond: 0} {
		var y yielding
		if trip > 0 {
			y.answered(begun, message.ServerTime(begun.UnixMicro()), begun.Add(trip), 10, 10)
		}
		if got := y.apart(); got != want {
			t.Errorf("after a round trip of %v: from %d messages on, want %d", trip, got, want)
		}
	}
}
