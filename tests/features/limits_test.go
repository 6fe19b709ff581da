package features

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// TestRateLimit: 600 messages at 100 a second through three consumers: never more than the rate allows, none asks in
// vain but at its ticks, and all come.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const messages, rate, burst = 600, 100, 10
	face.Several(f, messages)
	var handled atomic.Int64
	var book queuetest.Ledger
	begun := time.Now()
	for range 3 {
		cli := f.Client()
		t.Cleanup(link.Interpose(cli, book.Hook(script.FetchScript.SHA)))
		q := f.QueueOn(cli, func(string) bool { handled.Add(1); return true }).WithConcurrent(16).
			WithRateLimit(rate, time.Second, burst)
		unhurried(q).StartConsume() // the reply to a repeat does not say when the first attempt handed out
	}
	queuetest.Reaches(t, "messages are handled", messages, func() int { return int(handled.Load()) })
	took := time.Since(begun)
	n := book.Keeps(t, burst, rate, time.Second)
	if ideal := 5900 * time.Millisecond; n != messages || took < ideal {
		t.Errorf("%d handed out in %v, want %d and at least %v", n, took, messages, ideal)
	}
	// A consumer may come a moment too early, by how far it misjudges the server's clock.
	seldomInVain(t, &book, messages/2+5*int(took/time.Second+1))
}

// seldomInVain bounds how many fetches bring nothing. A consumer that has nothing to do looks once a second.
func seldomInVain(t *testing.T, book *queuetest.Ledger, most int) {
	t.Helper()
	all, vain := book.Fetches(), 0
	for _, fetch := range all {
		if fetch.N == 0 {
			vain++
		}
	}
	if vain > most {
		t.Errorf("%d of %d fetches were in vain, want at most %d", vain, len(all), most)
	}
}

// TestQueueConcurrency: 200 messages through four consumers of eight workers: never more than five at a time, and all
// come.
func TestQueueConcurrency(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const messages, most = 200, 5
	face.Several(f, messages)
	var handled, running, over atomic.Int64
	var book queuetest.Ledger
	for range 4 {
		cli := f.Client()
		t.Cleanup(link.Interpose(cli, book.Hook(script.FetchScript.SHA)))
		q := f.QueueOn(cli, func(string) bool {
			if running.Add(1) > most {
				over.Add(1)
			}
			time.Sleep(20 * time.Millisecond)
			running.Add(-1)
			handled.Add(1)
			return true
		}).WithConcurrent(8).WithQueueConcurrency(most)
		unhurried(q).StartConsume()
	}
	begun := time.Now()
	queuetest.Reaches(t, "messages are handled", messages, func() int {
		if n := len(f.Held()); n > most {
			t.Fatalf("%d are with consumers, want at most %d", n, most)
		}
		return int(handled.Load())
	})
	if over.Load() > 0 {
		t.Errorf("more than %d at a time, %d times", most, over.Load())
	}
	seldomInVain(t, &book, messages/2+6*int(time.Since(begun)/time.Second+1))
}

// TestQueueConcurrencyWithoutWakeUps: a consumer over a client of an unknown kind says that it cannot wait for
// wake-ups, and notices the places that it frees itself.
func TestQueueConcurrencyWithoutWakeUps(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	face.Several(f, 20)
	var handled atomic.Int64
	q := face.NoTick(f.QueueOn(queuetest.UnknownClient{UniversalClient: f.Cli}, func(string) bool {
		handled.Add(1)
		return true
	})).WithQueueConcurrency(2)
	begun := testkit.Worked()
	q.StartConsume()
	queuetest.Reaches(t, "messages are handled", 20, func() int { return int(handled.Load()) })
	if took := testkit.Worked() - begun; took > 100*time.Second { // 2 at a tick would take 200 s
		t.Errorf("that took %v", took)
	}
	f.Log.Says(t, f.ShardCount(), "cannot wait for wake-ups")
}

// TestAnyNumberOfWorkers: the largest number that there is means no bound, for a queue and for a pool.
func TestAnyNumberOfWorkers(t *testing.T) {
	t.Parallel()
	f, other := face.New(t), face.New(t)
	var handled atomic.Int64
	count := func(string) bool { handled.Add(1); return true }
	q := f.Queue(count).WithConcurrent(math.MaxInt)
	face.Several(f, 20)
	done := q.StartConsume()
	f.Drained()
	q.StopConsume()
	queuetest.Receive(t, "consuming ends", done)
	p := delayqueue.NewPool(math.MaxInt, delayqueue.Share{Queue: q},
		delayqueue.Share{Queue: other.Queue(count), AtMost: math.MaxInt})
	face.Several(f, 20)
	face.Several(other, 20)
	p.StartConsume()
	f.Drained()
	other.Drained()
	p.StopConsume()
	if n := handled.Load(); n != 60 {
		t.Errorf("%d were handled", n)
	}
}

// TestThrottle: what a handler says of the whole queue uses up no retry, and holds for all consumers.
func TestThrottle(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const pause = time.Second
	var book queuetest.Ledger
	var throttled, handled atomic.Int64
	infos := make(chan delayqueue.Message, 10)
	for range 2 {
		cli := f.Client()
		t.Cleanup(link.Interpose(cli, book.Hook(script.FetchScript.SHA)))
		unhurried(f.QueueOn(cli, nil)).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			if msg.Payload == "429" && msg.Delivery == 1 {
				throttled.Add(1)
				return fmt.Errorf("the partner says: %w", delayqueue.Throttle(pause, queuetest.ErrBoom))
			}
			infos <- *msg
			handled.Add(1)
			return nil
		}).StartConsume()
	}
	info := f.Send(f.Queue(nil), "429", delayqueue.WithRetryCount(0))
	queuetest.Eventually(t, "it waits", func() bool { return f.Where(info.ID) == "retry" })
	if fail := f.Check().Fail[info.ID]; fail.Error != "boom" || fail.Failures != 0 {
		t.Errorf("%+v", fail)
	}
	f.Send(f.Queue(nil), "other")
	queuetest.Reaches(t, "both are handled", 2, func() int { return int(handled.Load()) })
	var first int64 // when the first of them was handed out
	for _, h := range book.Fetches() {
		if h.N == 0 {
			continue
		}
		if first == 0 {
			first = h.At
		} else if h.At < first+pause.Microseconds() {
			t.Errorf("handed out after %v", time.Duration(h.At-first)*time.Microsecond)
		}
	}
	for range 2 {
		if msg := queuetest.Receive(t, "a message", infos); msg.Failures != 0 {
			t.Errorf("%s has failed %d times", msg.Payload, msg.Failures)
		}
	}
	f.Log.Says(t, 1, "a handler throttles the queue", "for=1s", "error=boom")
}

// TestLimitsDiffer: the least that any consumer asks for holds, and the log names both; what a Monitor sets goes
// before it.
func TestLimitsDiffer(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	f.Queue(func(string) bool { return true }).WithQueueConcurrency(2).StartConsume()
	queuetest.Eventually(t, "it has asked", func() bool { return f.Check().Fields["limits"] != "" })
	f.Queue(func(string) bool { return true }).WithQueueConcurrency(3).StartConsume()
	const warning = "other limits hold for this queue"
	queuetest.Eventually(t, "a warning", func() bool {
		return f.Log.Count(warning, `this="3 at a time"`, `all="2 at a time"`) == 1
	})
	if before, err := m.SetLimits(queuetest.CtxB, ops.Limits{Concurrency: 7}); err != nil || before != (ops.Limits{}) {
		t.Errorf("%v, %v", before, err)
	}
	queuetest.Eventually(t, "both know", func() bool { return f.Log.Count(warning, `all="7 at a time"`, "set=true") == 2 })
	if before, err := m.SetLimits(queuetest.CtxB, ops.Limits{}); err != nil || before != (ops.Limits{Concurrency: 7}) {
		t.Errorf("%v, %v", before, err)
	}
	queuetest.Eventually(t, "it holds no more", func() bool {
		return f.Log.Count("are those that this consumer asks for", `this="2 at a time"`) == 1 &&
			f.Log.Count(warning, `all="2 at a time"`, "set=false") == 2
	})
}

// TestPlacesAreRefilled: while messages wait for a place, a consumer fetches for those that it frees as soon as they
// are settled. So a place needs two round trips for a message, without a wake-up.
func TestPlacesAreRefilled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ places, messages, most int }{
		"one":   {1, 60, 2*60 + 25}, // calls
		"eight": {8, 240, 240/2 + 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n, trips int
			for round := range 3 { // a machine that stands still makes more of them: the best counts
				if n, trips = placesOverALine(t, round, c.places, c.messages); n != c.messages || trips <= c.most {
					break
				}
			}
			if n != c.messages || trips > c.most {
				t.Errorf("%d in %d calls, want %d in %d at most", n, trips, c.messages, c.most)
			}
		})
	}
}

// placesOverALine has messages handled, and returns how many were handed out and in how many calls.
func placesOverALine(t *testing.T, round, places, messages int) (n, trips int) {
	f := face.New(t)
	f = &face.Fixture{Base: f.Named(fmt.Sprint(f.Name, round))}
	var book queuetest.Ledger
	var all atomic.Int64
	cli := f.Client()
	t.Cleanup(link.Interpose(cli, book.Hook(script.FetchScript.SHA)))
	t.Cleanup(link.Interpose(cli, queuetest.TripHook(func(_ []redis.Cmder, next func() error) error {
		all.Add(1)
		const way = 10 * time.Millisecond // to the server, and the same back
		time.Sleep(way)
		defer time.Sleep(way)
		return next()
	})))
	q := unhurried(face.NoTick(f.QueueOn(cli, func(string) bool { time.Sleep(time.Millisecond); return true }))).
		WithConcurrent(8).WithQueueConcurrency(places)
	face.Several(f, messages)
	q.StartConsume()
	f.Drained()
	trips = int(all.Load())
	for _, h := range book.Fetches() {
		n += h.N
	}
	t.Logf("%d in %d fetches, %d calls", n, len(book.Fetches()), trips)
	return n, trips
}
