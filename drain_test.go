package delayqueue

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
	"github.com/redis/go-redis/v9"
)

// onServers runs a test of a queue on a real server and on the embedded one.
func onServers(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Run("redis-server", func(t *testing.T) { t.Parallel(); test(t, newFixture(t)) })
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, fixtureOn(t, redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})))
	})
}

// drain drains a queue to its end, and returns how many deliveries were handled.
func (f *fixture) drain(q *DelayQueue) int {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := q.Drain(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

// TestDrainHandlesWhatIsDue: also what its handlers send and what fails and comes at once, and nothing that is due later. It
// leaves no consumer, no goroutine and no lease.
func TestDrainHandlesWhatIsDue(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, f *fixture) {
		var got tally
		q := f.queue(nil).WithConcurrent(4).WithNackRedeliveryDelay(0)
		q.WithHandler(func(ctx context.Context, msg *Message) error {
			switch n := got.add(msg.Payload); {
			case msg.Payload == "fails" && n < 3:
				return errors.New("not yet")
			case msg.Payload == "sends":
				f.send(q, "sent")
				return Then(ctx, "follows")
			case msg.Payload == "snoozes" && n == 1:
				return Snooze(time.Hour)
			}
			return nil
		})
		if n := f.drain(q); n != 0 {
			t.Errorf("%d of an empty queue", n)
		}
		const many = 50
		for i := range many {
			f.send(q, strconv.Itoa(i))
		}
		later := f.send(q, "later", WithDelay(time.Hour))
		for _, payload := range []string{"fails", "sends", "snoozes"} {
			f.send(q, payload)
		}
		n := 0
		count := goroutines(t, func() { n = f.drain(q) })
		if want := many + 3 + 3 + 1; n != want {
			t.Errorf("%d deliveries, want %d", n, want)
		}
		settledDown(t, q.current())
		eventually(t, "no goroutine is left", func() bool { return count() == 0 })
		s := f.check()
		if len(s.Messages) != 2 || s.Where(later.ID) != "pending" || len(s.Retry) != 1 || len(s.Consumers) != 0 {
			t.Errorf("%s", s.Dump())
		}
		if n := f.drain(q); n != 0 {
			t.Errorf("%d of a queue with nothing due", n)
		}
		f.send(q, "again")
		if n := f.drain(q); n != 1 {
			t.Errorf("the second time: %d", n)
		}
	})
}

// TestDrainCountsGroupsAndCallbacks: a group is one delivery.
func TestDrainCountsGroupsAndCallbacks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var got tally
	q := f.queue(func(payload string) bool { return got.add(payload) > 1 || payload != "bad" }).WithNackRedeliveryDelay(0)
	for _, part := range []string{"a", "b", "c"} {
		f.send(q, part, WithKey("g", Append))
	}
	f.send(q, "bad")
	if n := f.drain(q); n != 3 {
		t.Errorf("%d deliveries, want 3", n)
	}
	if _, total := got.counts(); total != 5 {
		t.Errorf("%d calls, want 5", total)
	}
	f.checkEmpty()
}

// TestDrainRefuses: where the queue is consumed already.
func TestDrainRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	within, began, release := make(chan error, 1), make(chan struct{}), make(chan struct{})
	var q *DelayQueue
	q = f.queue(nil).WithHandler(func(ctx context.Context, _ *Message) error {
		_, err := q.Drain(ctx)
		within <- err
		close(began)
		<-release
		return nil
	})
	f.send(q, "x")
	ended := make(chan error, 1)
	go func() {
		_, err := q.Drain(context.Background())
		ended <- err
	}()
	receive(t, "the handler runs", began)
	if err := <-within; err == nil || !strings.Contains(err.Error(), "own handlers") {
		t.Errorf("in a handler: %v", err)
	}
	if _, err := q.Drain(context.Background()); !errors.Is(err, ErrConsuming) {
		t.Errorf("while it drains: %v", err)
	}
	for call, f := range map[string]func(){
		"StartConsume": func() { q.StartConsume() }, "Run": func() { _ = q.Run(context.Background()) },
		"WithConcurrent": func() { q.WithConcurrent(2) }, "NewPool": func() { NewPool(1, Share{Queue: q}) },
	} {
		if !panics(f) {
			t.Errorf("%s does not panic", call)
		}
	}
	close(release)
	if err := receive(t, "it ends", ended); err != nil {
		t.Error(err)
	}
	q.StartConsume()
	if _, err := q.Drain(context.Background()); !errors.Is(err, ErrConsuming) ||
		!strings.HasPrefix(err.Error(), `delayqueue: queue "`+f.name+`": `) {
		t.Errorf("while it consumes: %v", err)
	}
	q.StopConsume()
	receive(t, "it stops", q.current().lifecycle.done)
	NewPool(1, Share{Queue: q})
	if _, err := q.Drain(context.Background()); !errors.Is(err, ErrConsuming) {
		t.Errorf("in a pool: %v", err)
	}
	if !panics(func() { _, _ = f.queue(nil).Drain(context.Background()) }) {
		t.Error("without a callback it does not panic")
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// TestDrainLeavesWhatIsPutOff: a pause, a limit and a throttle put off what is due, and what another consumer holds is its own.
func TestDrainLeavesWhatIsPutOff(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, f *fixture) {
		ctx := context.Background()
		var throttles atomic.Bool
		q := f.queue(nil).WithFetchLimit(1).WithHandler(func(context.Context, *Message) error {
			if throttles.Load() {
				return Throttle(time.Hour, errors.New("too many requests"))
			}
			return nil
		})
		m := NewMonitor(f.name, f.cli)
		step := func(what string, want int) {
			t.Helper()
			if n := f.drain(q); n != want {
				t.Errorf("%s: %d deliveries, want %d", what, n, want)
			}
		}
		limit := func(l Limits) {
			t.Helper()
			_, err := m.SetLimits(ctx, l)
			must(t, err)
		}
		for i := range 8 {
			f.send(q, strconv.Itoa(i))
		}
		must(t, m.Pause(ctx))
		step("paused", 0)
		must(t, m.Resume(ctx))
		limit(Limits{Rate: 2, Per: time.Hour, Burst: 2})
		step("two an hour", 2)
		if c, err := m.Counts(ctx); err != nil || !c.Limited || c.Ready != 6 {
			t.Errorf("%+v, %v", c, err)
		}
		limit(Limits{Concurrency: 1})
		other, err := f.calls().fetch(ctx, newCaller(), fetchRequest{want: 1, settings: &q.settings.fetchSettings})
		if err != nil || len(other.tags) != 1 {
			t.Fatal(other, err)
		}
		step("the place is another's", 0)
		limit(Limits{})
		throttles.Store(true)
		step("throttled", 1)
		step("while it is throttled", 0)
		if s := f.check(); len(s.Unack) != 1 || s.Unack[0].ID != other.tags[0] {
			t.Errorf("%s", s.Dump())
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDrainIsStopped: by its context and by StopConsume, gracefully.
func TestDrainIsStopped(t *testing.T) {
	t.Parallel()
	for how, c := range map[string]struct {
		stop func(q *DelayQueue, cancel func())
		want error
	}{
		"by its context":  {func(_ *DelayQueue, cancel func()) { cancel() }, context.Canceled},
		"by StopConsume":  {func(q *DelayQueue, _ func()) { q.StopConsume() }, ErrStopped},
		"before it began": {nil, context.Canceled},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var q *DelayQueue
			q = f.queue(nil).WithHandler(func(ctx context.Context, _ *Message) error {
				c.stop(q, cancel)
				receive(t, "the stop has begun", q.current().lifecycle.stopped)
				return ctx.Err()
			})
			for range 3 {
				f.send(q, "x")
			}
			want := 1
			if c.stop == nil {
				cancel()
				want = 0
			}
			n, err := q.Drain(ctx)
			if n != want || !errors.Is(err, c.want) {
				t.Errorf("%d handled, %v", n, err)
			}
			if s := f.check(); len(s.Messages) != 3-want || len(s.Unack) != 0 {
				t.Errorf("%s", s.Dump())
			}
		})
	}
}

// TestDrainInTrouble: what waiting mends is waited for until the context ends, and what it does not is returned.
func TestDrainInTrouble(t *testing.T) {
	t.Parallel()
	t.Run("a key of another type", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		q := f.queue(func(string) bool { return true })
		f.send(q, "x")
		ready := q.store.keys.ready
		must(t, f.cli.Set(context.Background(), ready, "mine", 0).Err())
		n, err := q.Drain(context.Background())
		if n != 0 || !errors.Is(err, ErrWrongType) || strings.Count(err.Error(), "delayqueue") != 1 {
			t.Errorf("%d, %v", n, err)
		}
		must(t, f.cli.Del(context.Background(), ready).Err())
		if n := f.drain(q); n != 1 {
			t.Errorf("%d handled after it", n)
		}
	})
	t.Run("a server that is away", func(t *testing.T) {
		t.Parallel()
		f, server := ownServer(t)
		q := f.queue(func(string) bool { return true })
		f.send(q, "x")
		server.Pause()
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		n, err := q.Drain(ctx)
		if n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
		server.Resume()
		if n := f.drain(q); n != 1 {
			t.Errorf("%d handled after it", n)
		}
	})
	t.Run("a base context that has ended", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		q := f.queue(func(string) bool { return true }).WithBaseContext(canceled)
		f.send(q, "x")
		if n, err := q.Drain(context.Background()); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// TestDrainLosesReplies: each delivery is one all the same.
func TestDrainLosesReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var lost atomic.Int64
	cli := f.client()
	loseReplies(t, cli, 3, &lost)
	var got tally
	q := f.queueOn(cli, func(payload string) bool { got.add(payload); return true }).WithConcurrent(2)
	for i := range 40 {
		f.send(q, strconv.Itoa(i))
	}
	n := f.drain(q)
	distinct, total := got.counts()
	if n != total || distinct != 40 || lost.Load() == 0 {
		t.Errorf("it says %d, %d of %d messages were handled %d times, %d replies were lost", n, distinct, 40, total, lost.Load())
	}
	f.checkEmpty()
}

// TestDrainWithCallbacksThatRunOn: they keep no message from being handled, and Drain waits for none of them at its end.
func TestDrainWithCallbacksThatRunOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	release := make(chan struct{})
	var handled sync.Map
	q := f.queue(func(payload string) bool {
		if payload == "hangs" {
			<-release
		}
		handled.Store(payload, true)
		return true
	})
	f.send(q, "hangs", WithRetryCount(0), WithTimeout(20*time.Millisecond))
	f.send(q, "after")
	if n := f.drain(q); n != 2 {
		t.Errorf("%d handled", n)
	}
	if _, ok := handled.Load("after"); !ok {
		t.Error("what came after it was not handled")
	}
	close(release)
	settledDown(t, q.current())
	if s := f.check(); len(s.Garbage) != 1 || len(s.Messages) != 1 {
		t.Errorf("%s", s.Dump())
	}
}

// TestDrainAfterADeath: what a killed program held comes to the runs after it.
func TestDrainAfterADeath(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	now := time.Now()
	var got []int
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error { got = append(got, msg.Delivery); return nil })
	server.SetTime(now)
	f.send(q, "x")
	dead, err := f.calls().fetch(context.Background(), newCaller(), fetchRequest{want: 1, settings: &q.settings.fetchSettings})
	if err != nil || len(dead.tags) != 1 {
		t.Fatal(dead, err)
	}
	runs := 0
	for ; len(got) == 0 && runs < 3; runs++ {
		now = now.Add(time.Hour)
		server.SetTime(now)
		f.drain(q)
	}
	if !slices.Equal(got, []int{2}) {
		t.Errorf("after %d runs: deliveries %v, want the second", runs, got)
	}
	f.checkEmpty()
}
