package delayqueuetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/delayqueuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

func acks(context.Context, *delayqueue.Message) error { return nil }

// TestFailures: each says what is wrong and what to do.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(rig *delayqueuetest.Rig)
		says []string
	}{
		"a queue that is started": {func(rig *delayqueuetest.Rig) {
			q := rig.Queue("q").WithHandler(acks)
			done := q.StartConsume()
			defer func() { q.StopConsume(); <-done }()
			rig.Advance(0)
		}, []string{`queue "q"`, "started", "leave that out"}},
		"a queue in a pool": {func(rig *delayqueuetest.Rig) {
			delayqueue.NewPool(1, delayqueue.Share{Queue: rig.Queue("q").WithHandler(acks)})
			rig.Advance(0)
		}, []string{`queue "q"`, "Pool"}},
		"no handler": {func(rig *delayqueuetest.Rig) {
			rig.Queue("q")
			rig.Advance(0)
		}, []string{`queue "q"`, "WithHandler", "Publisher"}},
		"again for ever": {func(rig *delayqueuetest.Rig) {
			q := rig.Queue("q").WithHandler(func(context.Context, *delayqueue.Message) error { return delayqueue.Snooze(0) })
			send(t, q, "poll")
			rig.Advance(time.Hour)
		}, []string{`queue "q"`, "100 messages", `"poll"`, "no delay"}},
		"backwards":   {func(rig *delayqueuetest.Rig) { rig.Advance(-1) }, []string{"forward"}},
		"to the past": {func(rig *delayqueuetest.Rig) { rig.AdvanceTo(rig.Now().Add(-1)) }, []string{"forward"}},
		"twice":       {func(rig *delayqueuetest.Rig) { rig.Add(rig.Queue("q")) }, []string{`queue "q"`, "twice"}},
		"another Redis": {func(rig *delayqueuetest.Rig) {
			other := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			defer other.Close()
			rig.Add(delayqueue.NewQueue("q", other, nil))
		}, []string{`queue "q"`, "Client()"}},
		"a deadline by another clock": {func(rig *delayqueuetest.Rig) {
			send(t, rig.Queue("q").WithHandler(acks), "x", delayqueue.WithDeadline(time.Now().Add(10*time.Second)))
			rig.Advance(0)
			rig.RequireEmpty("q")
		}, []string{"message expired", "the rig's clock is ", "give the code rig.Now"}},
		"not empty": {func(rig *delayqueuetest.Rig) {
			q := rig.Queue("q").WithRetryDelays(time.Minute).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
				if msg.Payload == "garbage" {
					return delayqueue.ErrSkipRetry
				}
				return errors.New("it is closed")
			})
			send(t, q, "garbage")
			send(t, q, "waits", delayqueue.WithKey("k"))
			rig.Advance(time.Second)
			send(t, q, "later", delayqueue.WithDelay(time.Hour))
			send(t, q, "now")
			send(t, q, "turn", delayqueue.WithLane("l"), delayqueue.WithDelay(time.Hour))
			send(t, q, "behind", delayqueue.WithLane("l"), delayqueue.WithDelay(2*time.Hour), delayqueue.WithKey("b"),
				delayqueue.WithCountdown(3))
			rig.RequireEmpty("other", "q")
		}, []string{
			`queue "q": ready "now"`, `queue "q": pending "later", due in 1h0m0s`,
			`queue "q": retry "waits" key "k", due in 59s, failures 1 of 4: "it is closed"`,
			`queue "q": waiting "behind" key "b", due in 2h0m0s, in lane "l", waits for 3 of 3 acks`,
			`queue "q": garbage "garbage", for 1s, failures 1 of 4: "skip retry"`,
		}},
		"not empty, many": {func(rig *delayqueuetest.Rig) {
			for range 30 {
				send(t, delayqueue.NewPublisher("q", rig.Client()), "x")
			}
			rig.RequireEmpty()
		}, []string{"… and 10 more"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Has(t, failureOf(t, c.do), append(c.says, "delayqueuetest: ")...)
		})
	}
}

// TestEmpty: what is done does not count, nor do other queues if some are named.
func TestEmpty(t *testing.T) {
	t.Parallel()
	rig := newRig(t, "q")
	q := rig.Queue("q").WithHandler(acks)
	send(t, q, "x", delayqueue.WithRetention(time.Hour))
	send(t, delayqueue.NewPublisher("other", rig.Client()), "x")
	rig.Advance(0)
	rig.RequireEmpty("q")
	rig.RequireEmpty("q", "never heard of")
}

// TestAdvanceWithinAHandler: that fails, and nothing hangs.
func TestAdvanceWithinAHandler(t *testing.T) {
	t.Parallel()
	rig := newRig(t, "q")
	q := rig.Queue("q")
	q.WithHandler(func(context.Context, *delayqueue.Message) error { rig.Advance(time.Hour); return nil })
	send(t, q, "x", delayqueue.WithRetryCount(0))
	rig.Advance(0)
	got := rig.Garbage("q")
	if len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	testkit.Has(t, got[0].LastError, "a handler cannot move the clock")
}
