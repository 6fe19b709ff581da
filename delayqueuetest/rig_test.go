package delayqueuetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/delayqueuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/typed"
)

// TestOrder: of due time, over all queues, also of what is sent on the way; of one instant as Advance says. Each time
// the same, whatever WithConcurrent says and however long handlers take.
func TestOrder(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T) (got []string) {
		rig := newRig(t, "a", "b")
		start := rig.Now()
		var a, b *delayqueue.DelayQueue
		handler := func(queue string) delayqueue.Handler {
			return func(ctx context.Context, msg *delayqueue.Message) error {
				got = append(got, fmt.Sprintf("%v %s:%s #%d", rig.Now().Sub(start), queue, msg.Payload, msg.Delivery))
				switch {
				case strings.HasPrefix(msg.Payload, "slow"):
					time.Sleep(150 * time.Millisecond) // longer than what was fetched may wait
				case msg.Payload == "fails" && msg.Delivery == 1:
					return errors.New("once")
				case msg.Payload == "default" && msg.Delivery == 1:
					return delayqueue.RetryAfter(2*time.Second, errors.New("once"))
				case msg.Payload == "panics" && msg.Delivery == 1:
					panic("once")
				case msg.Payload == "sends":
					send(t, b, "now")
					send(t, a, "in a second", delayqueue.WithDelay(time.Second))
					return delayqueue.Then(ctx, "then", delayqueue.WithDelay(2*time.Second))
				}
				return nil
			}
		}
		a, b = rig.Queue("a").WithHandler(handler("a")).WithConcurrent(8),
			rig.Queue("b").WithHandler(handler("b")).WithConcurrent(8)
		for _, q := range []*delayqueue.DelayQueue{b, a} {
			for _, payload := range []string{"slow 1", "slow 2", "x", "fails", "panics", "default"} {
				send(t, q, payload, delayqueue.WithDelay(2*time.Second))
			}
		}
		send(t, a, "sends", delayqueue.WithDelay(time.Second))
		send(t, b, "y", delayqueue.WithDelay(3500*time.Millisecond))
		send(t, a, "at the end", delayqueue.WithDelay(10*time.Second))
		send(t, a, "after the end", delayqueue.WithDelay(10*time.Second+time.Microsecond))
		if n := rig.Advance(10 * time.Second); n != len(got) {
			t.Errorf("it says %d, %d were handled", n, len(got))
		}
		if left := rig.Sent("a"); len(left) != 11 || left[10].Payload != "then" {
			t.Errorf("%d sent to a, the last is %+v", len(left), left[len(left)-1])
		}
		return got
	}
	first := run(t)
	want := []string{"1s a:sends #1", "1s b:now #1", "2s a:slow 1 #1", "2s a:slow 2 #1", "2s a:x #1", "2s a:fails #1",
		"2s a:panics #1", "2s a:default #1",
		"2s a:in a second #1", "2s b:slow 1 #1"}
	if len(first) != 3+6+6+2+3+3+1 || !slices.Equal(first[:len(want)], want) || !slices.Contains(first, "3.5s b:y #1") {
		t.Errorf("%d: %q", len(first), first)
	}
	for range 2 {
		if again := run(t); !slices.Equal(first, again) {
			t.Errorf("%q\n and then %q", first, again)
		}
	}
}

// TestQueuesThatCallEachOther: a handler may wait for an answer of another queue.
func TestQueuesThatCallEachOther(t *testing.T) {
	t.Parallel()
	rig := newRig(t, "front", "back")
	back := rig.Queue("back").WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		return delayqueue.SetResult(ctx, "answer to "+msg.Payload)
	})
	var got string
	front := rig.Queue("front").WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		answer, err := back.Call(ctx, msg.Payload)
		if err == nil {
			got = answer.Value
		}
		return err
	})
	send(t, front, "a question", delayqueue.WithDelay(time.Hour))
	if n := rig.Advance(time.Hour); n != 2 || got != "answer to a question" {
		t.Errorf("%d handled, %q", n, got)
	}
	rig.RequireEmpty()
}

// TestServerTime: what goes by the server's clock goes by the rig's.
func TestServerTime(t *testing.T) {
	t.Parallel()
	rig := newRig(t, "q")
	start, ctx := rig.Now(), context.Background()
	var at []time.Duration
	q := rig.Queue("q").WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		at = append(at, rig.Now().Sub(start))
		if msg.Payload == "throttle" && msg.Delivery == 1 {
			return delayqueue.Throttle(time.Hour, errors.New("too many requests"))
		}
		return errors.New("no")
	}).WithNackRedeliveryDelay(time.Hour).WithGarbageRetention(24*time.Hour, 0)
	m := ops.Of(delayqueue.NewMonitor("q", rig.Client()))
	step := func(what string, d time.Duration, want ...time.Duration) {
		t.Helper()
		at, start = nil, rig.Now()
		if rig.Advance(d); !slices.Equal(at, want) {
			t.Errorf("%s: handled at %v, want %v", what, at, want)
		}
	}
	send(t, q, "deadline", delayqueue.WithDeadline(rig.Now().Add(90*time.Minute)))
	step("a deadline", 3*time.Hour, 0, time.Hour)
	if got := rig.Garbage("q"); len(got) != 1 || !strings.Contains(got[0].LastError, delayqueue.ErrExpired.Error()) {
		t.Errorf("after the deadline: %+v", got)
	}
	testkit.Must(t, m.PauseUntil(ctx, rig.Now().Add(time.Hour)))
	send(t, q, "paused", delayqueue.WithRetryCount(0))
	send(t, q, "expires", delayqueue.WithMsgTTL(time.Minute))
	step("a pause", 2*time.Hour, time.Hour)
	_, err := m.SetLimits(ctx, ops.Limits{Rate: 1, Per: time.Minute, Burst: 1})
	testkit.Must(t, err)
	for range 3 {
		send(t, q, "rated", delayqueue.WithRetryCount(0))
	}
	step("a rate", time.Hour, 0, time.Minute, 2*time.Minute)
	_, err = m.SetLimits(ctx, ops.Limits{})
	testkit.Must(t, err)
	send(t, q, "throttle", delayqueue.WithRetryCount(0))
	send(t, q, "behind it", delayqueue.WithRetryCount(0))
	step("a throttle", 2*time.Hour, 0, time.Hour, time.Hour)
	if got := rig.Garbage("q"); len(got) != 8 {
		t.Errorf("%d garbage", len(got))
	}
	step("garbage ages", 25*time.Hour)
	rig.RequireEmpty()
	if sent := rig.Sent("q"); len(sent) != 8 || sent[0].State != delayqueue.StateGone {
		t.Errorf("%d sent: %+v", len(sent), sent)
	}
}

// TestTimeLimitOfAHandler: that is real time.
func TestTimeLimitOfAHandler(t *testing.T) {
	t.Parallel()
	rig := newRig(t, "q")
	var causes []error
	q := rig.Queue("q").WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
		<-ctx.Done()
		causes = append(causes, context.Cause(ctx))
		return ctx.Err()
	}).WithRetryDelays(time.Hour)
	send(t, q, "hangs", delayqueue.WithTimeout(20*time.Millisecond), delayqueue.WithRetryCount(1))
	if n := rig.Advance(time.Hour); n != 2 || len(rig.Garbage("q")) != 1 {
		t.Errorf("%d handled, garbage %+v", n, rig.Garbage("q"))
	}
}

// TestSent: everything that was sent, in order, as it was last sent or as it is.
func TestSent(t *testing.T) {
	t.Parallel()
	rig := newRig(t, "q")
	rig.Queue("q").WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		if msg.Payload == "bad" {
			return delayqueue.ErrSkipRetry
		}
		return nil
	})
	pub := delayqueue.NewPublisher("q", rig.Client())
	send(t, pub, "handled")
	send(t, pub, "before", delayqueue.WithKey("r", delayqueue.Replace), delayqueue.WithDelay(time.Hour))
	send(t, pub, "after", delayqueue.WithKey("r", delayqueue.Replace), delayqueue.WithDelay(2*time.Hour))
	send(t, pub, "bad")
	send(t, pub, "kept", delayqueue.WithRetention(time.Hour))
	taken := send(t, pub, "taken out", delayqueue.WithDelay(time.Hour))
	if _, err := pub.Intercept(context.Background(), taken.ID); err != nil {
		t.Fatal(err)
	}
	rig.Advance(0)
	got := rig.Sent("q")
	want := []struct {
		payload string
		state   delayqueue.State
	}{{"handled", delayqueue.StateGone}, {"after", delayqueue.StatePending}, {"bad", delayqueue.StateGarbage},
		{"kept", delayqueue.StateDone}, {"taken out", delayqueue.StateGone}}
	if len(got) != len(want) {
		t.Fatalf("%d sent, want %d", len(got), len(want))
	}
	for i, w := range want {
		if got[i].Payload != w.payload || got[i].State != w.state {
			t.Errorf("%d is %q, %v, want %q, %v", i, got[i].Payload, got[i].State, w.payload, w.state)
		}
	}
	if n := len(rig.Sent("nobody")); n != 0 {
		t.Errorf("%d sent to nobody", n)
	}
}

// TestSentAndGone: of a message that was handled, Sent says all that a Monitor said of it before.
func TestSentAndGone(t *testing.T) {
	t.Parallel()
	rig := newRig(t, "q")
	q := rig.Queue("q").WithHandler(acks)
	m := ops.Of(delayqueue.NewMonitor("q", rig.Client()))
	ids := []string{
		send(t, q, "plain").ID,
		send(t, q, "all", delayqueue.WithKey("k"), delayqueue.WithHeader("h", "v"), delayqueue.WithRetryCount(7),
			delayqueue.WithMsgTTL(time.Hour),
			delayqueue.WithLane("l", 5), delayqueue.WithDeadline(rig.Now().Add(2*time.Hour)),
			delayqueue.WithTimeout(time.Minute), delayqueue.WithDelay(time.Second)).ID,
		send(t, q, "a", delayqueue.WithKey("group", delayqueue.Append)).ID,
	}
	send(t, q, "b", delayqueue.WithKey("group", delayqueue.Append))
	var before []*ops.MessageStatus
	for _, id := range ids {
		status, err := m.Get(context.Background(), id)
		testkit.Must(t, err)
		status.State, status.At = delayqueue.StateGone, time.Time{}
		before = append(before, status)
	}
	if n := rig.Advance(time.Second); n != len(ids) {
		t.Errorf("%d handled", n)
	}
	if got := rig.Sent("q"); !reflect.DeepEqual(got, before) {
		t.Errorf("sent:\n%+v\n%+v\n%+v\nbefore:\n%+v\n%+v\n%+v", got[0], got[1], got[2], before[0], before[1], before[2])
	}
}

// TestUnknownKind: the hour of typed/ is one of the rig.
func TestUnknownKind(t *testing.T) {
	t.Parallel()
	rig := newRig(t, "q")
	q := rig.Queue("q").WithHandler(typed.NewMux().WithLogger(slog.New(slog.DiscardHandler)).Handler)
	if _, err := typed.Kind[int]("nobody's").Send(context.Background(), q, 1); err != nil {
		t.Fatal(err)
	}
	if rig.Advance(59 * time.Minute); len(rig.Garbage("q")) != 0 {
		t.Errorf("garbage before an hour: %+v", rig.Garbage("q"))
	}
	rig.Advance(2 * time.Minute)
	if got := rig.Garbage("q"); len(got) != 1 || !strings.Contains(got[0].LastError, typed.ErrUnknownKind.Error()) {
		t.Errorf("after an hour: %+v", got)
	}
}

// TestClock: one that starts at an instant, and rigs with other prefixes beside the usual one.
func TestClock(t *testing.T) {
	t.Parallel()
	start := time.Date(2031, 3, 30, 1, 30, 0, 0, time.UTC)
	rig := delayqueuetest.NewAt(t, start)
	q := rig.Queue("q", delayqueue.UseCustomPrefix("mine")).
		WithHandler(func(context.Context, *delayqueue.Message) error { return delayqueue.ErrSkipRetry })
	testkit.Must(t, q.SendScheduleMsg("x", start.Add(24*time.Hour)))
	if n := rig.AdvanceTo(start.Add(24*time.Hour - time.Microsecond)); n != 0 {
		t.Errorf("%d before it is due", n)
	}
	if n := rig.Advance(time.Microsecond); n != 1 || !rig.Now().Equal(start.Add(24*time.Hour)) {
		t.Errorf("%d when it is due, at %v", n, rig.Now())
	}
	if sent, garbage := rig.Sent("q"), rig.Garbage("q"); len(sent) != 1 || len(garbage) != 1 ||
		!sent[0].Due.Equal(rig.Now()) ||
		!garbage[0].At.Equal(rig.Now()) {
		t.Errorf("%+v, %+v", sent, garbage)
	}
}
