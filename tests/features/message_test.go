package features

import (
	"math"
	"testing"

	"github.com/go-delayqueue/delayqueue"
)

func TestStateString(t *testing.T) {
	for s, want := range map[delayqueue.State]string{delayqueue.StateGone: "gone", delayqueue.StatePending: "pending", delayqueue.StateReady: "ready",
		delayqueue.StateUnack: "unack", delayqueue.StateRetry: "retry",
		delayqueue.StateGarbage: "garbage", delayqueue.StateDone: "done", delayqueue.StateWaiting: "waiting",
		8: "State(8)", -1: "State(-1)", math.MaxInt: "State(9223372036854775807)"} {
		if got := s.String(); got != want {
			t.Errorf("%d is %q, want %q", int(s), got, want)
		}
	}
	var zero delayqueue.InterceptResult
	if zero.State != delayqueue.StateGone || zero.Intercepted {
		t.Errorf("the zero value is %+v", zero)
	}
}
