package delayqueuetest_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// TestBubble: in a bubble of testing/synctest all clocks are one, and what the code under test does by itself at some time is
// noticed.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newRig(t, "q")
		start := time.Now()
		var at []time.Duration
		q := rig.Queue("q").WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			at = append(at, time.Since(start))
			if msg.Payload == "hangs" {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(time.Minute)
			return nil
		})
		if err := q.SendScheduleMsg("a", time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		send(t, q, "b", delayqueue.WithDelay(time.Hour), delayqueue.WithDeadline(time.Now().Add(61*time.Minute+time.Second)))
		send(t, q, "hangs", delayqueue.WithDelay(2*time.Hour), delayqueue.WithTimeout(10*time.Minute), delayqueue.WithRetryCount(0))
		go func() {
			time.Sleep(3 * time.Hour)
			if err := q.SendDelayMsg("c", 0); err != nil {
				t.Error(err)
			}
		}()
		n := rig.Advance(3 * time.Hour)
		want := []time.Duration{time.Hour, 61 * time.Minute, 2 * time.Hour, 3 * time.Hour}
		if n != len(want) || !slices.Equal(at, want) {
			t.Errorf("%d handled at %v, want %v", n, at, want)
		}
		if got := rig.Garbage("q"); len(got) != 2 || !got[0].At.Equal(start.Add(61*time.Minute+time.Second)) ||
			!got[1].At.Equal(start.Add(130*time.Minute)) || rig.Now().Sub(start) != 181*time.Minute {
			t.Errorf("at %v: %+v", rig.Now().Sub(start), got)
		}
	})
}
