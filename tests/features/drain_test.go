package features

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// drain drains a queue to its end, and returns how many deliveries were handled.
func drainIn(f *face.Fixture, q *delayqueue.DelayQueue) int {
	f.T.Helper()
	n, err := q.Drain(queuetest.Within(f.T, queuetest.Patience))
	f.Must(err)
	return n
}

// TestDrainHandlesWhatIsDue: also what its handlers send and what fails and comes at once, and nothing that is due
// later. It leaves no consumer, no goroutine and no lease.
func TestDrainHandlesWhatIsDue(t *testing.T) {
	t.Parallel()
	face.OnServers(t, func(t *testing.T, f *face.Fixture) {
		var got queuetest.Tally
		q := f.Queue(nil).WithConcurrent(4).WithNackRedeliveryDelay(0)
		q.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			switch n := got.Add(msg.Payload); {
			case msg.Payload == "fails" && n < 3:
				return errors.New("not yet")
			case msg.Payload == "sends":
				f.Send(q, "sent")
				return delayqueue.Then(ctx, "follows")
			case msg.Payload == "snoozes" && n == 1:
				return delayqueue.Snooze(time.Hour)
			}
			return nil
		})
		if n := drainIn(f, q); n != 0 {
			t.Errorf("%d of an empty queue", n)
		}
		const many = 50
		for i := range many {
			f.Send(q, strconv.Itoa(i))
		}
		later := f.Send(q, "later", delayqueue.WithDelay(time.Hour))
		for _, payload := range []string{"fails", "sends", "snoozes"} {
			f.Send(q, payload)
		}
		n := 0
		count := face.Goroutines(t, func() { n = drainIn(f, q) })
		if want := many + 3 + 3 + 1; n != want {
			t.Errorf("%d deliveries, want %d", n, want)
		}
		queuetest.Eventually(t, "no goroutine is left", func() bool { return count() == 0 })
		s := f.Check()
		if len(s.Messages) != 2 || s.Where(later.ID) != "pending" || len(s.Retry) != 1 || len(s.Consumers) != 0 {
			t.Errorf("%s", s.Dump())
		}
		if n := drainIn(f, q); n != 0 {
			t.Errorf("%d of a queue with nothing due", n)
		}
		f.Send(q, "again")
		if n := drainIn(f, q); n != 1 {
			t.Errorf("the second time: %d", n)
		}
	})
}

// TestDrainCountsGroupsAndCallbacks: a group is one delivery.
func TestDrainCountsGroupsAndCallbacks(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var got queuetest.Tally
	q := f.Queue(func(payload string) bool { return got.Add(payload) > 1 || payload != "bad" }).WithNackRedeliveryDelay(0)
	for _, part := range []string{"a", "b", "c"} {
		f.Send(q, part, delayqueue.WithKey("g", delayqueue.Append))
	}
	f.Send(q, "bad")
	if n := drainIn(f, q); n != 3 {
		t.Errorf("%d deliveries, want 3", n)
	}
	if _, total := got.Counts(); total != 5 {
		t.Errorf("%d calls, want 5", total)
	}
	f.CheckEmpty()
}

// TestDrainRefuses: where the queue is consumed already.
func TestDrainRefuses(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	within, began, release := make(chan error, 1), make(chan struct{}), make(chan struct{})
	var q *delayqueue.DelayQueue
	q = f.Queue(nil).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
		_, err := q.Drain(ctx)
		within <- err
		close(began)
		<-release
		return nil
	})
	f.Send(q, "x")
	ended := make(chan error, 1)
	go func() {
		_, err := q.Drain(context.Background())
		ended <- err
	}()
	queuetest.Receive(t, "the handler runs", began)
	if err := <-within; err == nil || !strings.Contains(err.Error(), "own handlers") {
		t.Errorf("in a handler: %v", err)
	}
	if _, err := q.Drain(context.Background()); !errors.Is(err, delayqueue.ErrWrongState) {
		t.Errorf("while it drains: %v", err)
	}
	for call, f := range map[string]func(){
		"StartConsume": func() { q.StartConsume() }, "Run": func() { _ = q.Run(context.Background()) },
		"WithConcurrent": func() { q.WithConcurrent(2) }, "NewPool": func() {
			delayqueue.NewPool(1, delayqueue.Share{Queue: q})
		},
	} {
		if queuetest.PanicText(f) == "" {
			t.Errorf("%s does not panic", call)
		}
	}
	close(release)
	f.Must(queuetest.Receive(t, "it ends", ended))
	q.StartConsume()
	if _, err := q.Drain(context.Background()); !errors.Is(err, delayqueue.ErrWrongState) ||
		!strings.HasPrefix(err.Error(), `delayqueue: queue "`+f.Name+`": `) {
		t.Errorf("while it consumes: %v", err)
	}
	f.Must(q.Shutdown(queuetest.WithTimeout(t)))
	delayqueue.NewPool(1, delayqueue.Share{Queue: q})
	if _, err := q.Drain(context.Background()); !errors.Is(err, delayqueue.ErrWrongState) {
		t.Errorf("in a pool: %v", err)
	}
	if queuetest.PanicText(func() { _, _ = f.Queue(nil).Drain(context.Background()) }) == "" {
		t.Error("without a callback it does not panic")
	}
}

// TestDrainInTrouble: what waiting mends is waited for until the context ends, and what it does not is returned.
func TestDrainInTrouble(t *testing.T) {
	t.Parallel()
	t.Run("a key of another type", func(t *testing.T) {
		t.Parallel()
		f := face.New(t)
		q := f.Queue(func(string) bool { return true })
		f.Send(q, "x")
		ready := f.Key("ready")
		queuetest.Must(t, f.Cli.Set(context.Background(), ready, "mine", 0).Err())
		n, err := q.Drain(context.Background())
		if n != 0 || !errors.Is(err, delayqueue.ErrWrongType) || strings.Count(err.Error(), "delayqueue") != 1 {
			t.Errorf("%d, %v", n, err)
		}
		queuetest.Must(t, f.Cli.Del(context.Background(), ready).Err())
		if n := drainIn(f, q); n != 1 {
			t.Errorf("%d handled after it", n)
		}
	})
	t.Run("a server that is away", func(t *testing.T) {
		t.Parallel()
		f, server := face.OwnServer(t)
		q := f.Queue(func(string) bool { return true })
		f.Send(q, "x")
		server.Pause()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		n, err := q.Drain(ctx)
		if n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
		server.Resume()
		if n := drainIn(f, q); n != 1 {
			t.Errorf("%d handled after it", n)
		}
	})
	t.Run("a base context that has ended", func(t *testing.T) {
		t.Parallel()
		f := face.New(t)
		q := f.Queue(func(string) bool { return true }).WithBaseContext(queuetest.Over())
		f.Send(q, "x")
		if n, err := q.Drain(context.Background()); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// TestDrainWithCallbacksThatRunOn: they keep no message from being handled, and Drain waits for none of them at its
// end.
func TestDrainWithCallbacksThatRunOn(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	release := make(chan struct{})
	var handled sync.Map
	q := f.Queue(func(payload string) bool {
		if payload == "hangs" {
			<-release
		}
		handled.Store(payload, true)
		return true
	})
	f.Send(q, "hangs", delayqueue.WithRetryCount(0), delayqueue.WithTimeout(20*time.Millisecond))
	f.Send(q, "after")
	if n := drainIn(f, q); n != 2 {
		t.Errorf("%d handled", n)
	}
	if _, ok := handled.Load("after"); !ok {
		t.Error("what came after it was not handled")
	}
	close(release)
	if s := f.Check(); len(s.Garbage) != 1 || len(s.Messages) != 1 {
		t.Errorf("%s", s.Dump())
	}
}

// TestDrainEndsWithShutdown: it does not wait for a callback that Shutdown has given up on.
func TestDrainEndsWithShutdown(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	begun, hang := make(chan struct{}), make(chan struct{})
	q := f.Queue(func(string) bool { close(begun); <-hang; return true })
	f.Send(q, "hangs")
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	ended := make(chan error, 1)
	go func() {
		_, err := q.Drain(ctx)
		ended <- err
	}()
	queuetest.Receive(t, "the callback", begun)
	cancel()
	over, end := context.WithCancel(queuetest.CtxB)
	end()
	if err := q.Shutdown(over); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := queuetest.Receive(t, "the end of Drain", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain: %v", err)
	}
	close(hang)
}

// TestDrainAfterADeath: what a killed program held comes to the runs after it, also on its last chance.
func TestDrainAfterADeath(t *testing.T) {
	t.Parallel()
	for _, maxLosses := range []int{3, 2} {
		server := miniredis.RunT(t)
		f := face.On(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
		now := time.Now()
		var got []int
		q := f.Queue(nil).WithMaxLosses(maxLosses).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			got = append(got, msg.Delivery)
			return nil
		})
		server.SetTime(now)
		info := f.Send(q, "x")
		f.Lost(info.ID, 10*time.Second)
		runs := 0
		for ; len(got) == 0 && runs < 3; runs++ {
			now = now.Add(time.Hour)
			server.SetTime(now)
			drainIn(f, q)
		}
		if !slices.Equal(got, []int{2}) {
			t.Errorf("WithMaxLosses(%d), after %d runs: deliveries %v, want the second", maxLosses, runs, got)
		}
		f.CheckEmpty()
	}
}

// TestDrainLeavesWhatIsPutOff: a pause, a limit and a throttle put off what is due, and what another consumer holds
// is its own.
func TestDrainLeavesWhatIsPutOff(t *testing.T) {
	t.Parallel()
	face.OnServers(t, func(t *testing.T, f *face.Fixture) {
		ctx := context.Background()
		var throttles atomic.Bool
		q := f.Queue(nil).WithFetchLimit(1).WithHandler(func(context.Context, *delayqueue.Message) error {
			if throttles.Load() {
				return delayqueue.Throttle(time.Hour, errors.New("too many requests"))
			}
			return nil
		})
		step := func(what string, want int) {
			t.Helper()
			if n := drainIn(f, q); n != want {
				t.Errorf("%s: %d deliveries, want %d", what, n, want)
			}
		}
		limit := func(l script.RateLimits) {
			t.Helper()
			_, err := f.Calls().SetLimits(ctx, script.NewCaller(), l)
			queuetest.Must(t, err)
		}
		for i := range 8 {
			f.Send(q, strconv.Itoa(i))
		}
		f.Pause(message.Forever)
		step("paused", 0)
		f.Pause(0)
		limit(script.RateLimits{Rate: 2, Per: time.Hour, Burst: 2})
		step("two an hour", 2)
		if c, err := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).Counts(ctx); err != nil || !c.Limited || c.Ready != 6 {
			t.Errorf("%+v, %v", c, err)
		}
		limit(script.RateLimits{Concurrency: 1})
		other, err := f.Calls().Fetch(ctx, &script.Caller{ID: "other", N: 1},
			script.FetchRequest{Want: 1, Settings: &script.FetchSettings{Lease: time.Minute, MaxLosses: 3}})
		if err != nil || len(other.Tags) != 1 {
			t.Fatal(other, err)
		}
		step("the place is another's", 0)
		limit(script.RateLimits{})
		throttles.Store(true)
		step("throttled", 1)
		step("while it is throttled", 0)
		if s := f.Check(); len(s.Unack) != 1 || s.Unack[0].ID != other.Tags[0] {
			t.Errorf("%s", s.Dump())
		}
	})
}
