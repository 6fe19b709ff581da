package delayqueuetest_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestBubble: in a bubble of testing/synctest all clocks are one, and what the code under test does by itself at some
// time is noticed.
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
		testkit.Must(t, q.SendScheduleMsg("a", time.Now().Add(time.Hour)))
		send(t, q, "b", delayqueue.WithDelay(time.Hour), delayqueue.WithDeadline(time.Now().Add(61*time.Minute+time.Second)))
		send(t, q, "hangs", delayqueue.WithDelay(2*time.Hour), delayqueue.WithTimeout(10*time.Minute),
			delayqueue.WithRetryCount(0))
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

// TestBeside: another queue is handled beside a handler that has run for two seconds, and after any number of quicker
// ones.
func TestBeside(t *testing.T) {
	for takes, want := range map[time.Duration]int64{300 * time.Millisecond: 10, 5 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			rig := newRig(t, "first", "second")
			var begun, before atomic.Int64
			first := rig.Queue("first").WithHandler(func(context.Context, *delayqueue.Message) error {
				begun.Add(1)
				time.Sleep(takes)
				return nil
			})
			second := rig.Queue("second").WithHandler(func(context.Context, *delayqueue.Message) error {
				before.Store(begun.Load())
				return nil
			})
			for range 10 {
				send(t, first, "x")
			}
			send(t, second, "x")
			if n := rig.Advance(0); n != 11 || before.Load() != want {
				t.Errorf("handlers of %v: %d handled; the other queue's after %d, want %d", takes, n, before.Load(), want)
			}
		})
	}
}
