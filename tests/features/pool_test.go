package features

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// poolFixture is one fixture for each queue of a pool, each with a client of its own.
func poolFixture(t *testing.T, queues int) (fs []*face.Fixture) {
	for i := range queues {
		f := face.New(t)
		f.Name += fmt.Sprint("-", i+1)
		fs = append(fs, f)
	}
	return fs
}

// unhurried is a queue none of whose leases end because the machine is slow, nor the calls of its consumers, which
// get a quarter of a lease: a queue whose fetch has failed is not hungry, and leaves its workers to the others of its
// pool.
func unhurried(q *delayqueue.DelayQueue) *delayqueue.DelayQueue { return q.WithLease(time.Hour) }

// backlog sends n messages.
func backlogIn(f *face.Fixture, q *delayqueue.DelayQueue, n int) {
	f.T.Helper()
	for ; n > 0; n -= script.MaxBatch {
		f.Must(queuetest.Failure(q.SendBatch(context.Background(), make([]delayqueue.Outgoing, min(n, script.MaxBatch)))))
	}
}

// reported is what the consumers of a queue say of themselves.
func reported(f *face.Fixture) (all []script.Presence) {
	f.T.Helper()
	for _, text := range f.Check().Consumers {
		var p script.Presence
		f.Must(json.Unmarshal([]byte(text[strings.Index(text, "{"):]), &p))
		all = append(all, p)
	}
	return all
}

func TestPoolBadInput(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, taken, busy, broken := f.Queue(queuetest.Acks), f.Queue(queuetest.Acks), f.Queue(queuetest.Acks), f.Queue(nil)
	delayqueue.NewPool(1, delayqueue.Share{Queue: taken})
	busy.StartConsume()
	running := f.Queue(queuetest.Acks)
	runs := delayqueue.NewPool(1, delayqueue.Share{Queue: running})
	defer runs.StopConsume()
	runs.StartConsume()
	for name, c := range map[string]struct {
		call func()
		want string
	}{
		"no workers": {func() { delayqueue.NewPool(0, delayqueue.Share{Queue: q}) },
			"NewPool: 0 workers: a pool needs at least 1"},
		"no queue": {func() { delayqueue.NewPool(1) }, "NewPool: a pool needs at least 1 queue"},
		"a nil queue": {func() { delayqueue.NewPool(1, delayqueue.Share{Queue: q}, delayqueue.Share{}) },
			"share 2: the queue must not be nil"},
		"an unmade queue": {func() { delayqueue.NewPool(1, delayqueue.Share{Queue: &delayqueue.DelayQueue{}}) }, "NewQueue"},
		"a queue twice": {func() { delayqueue.NewPool(1, delayqueue.Share{Queue: q}, delayqueue.Share{Queue: q}) },
			`"TestPoolBadInput" is there twice`},
		"a weight below 0": {func() { delayqueue.NewPool(1, delayqueue.Share{Queue: q, Weight: -1}) },
			"Weight -1: must be at least 1"},
		"AtMost below 0": {func() { delayqueue.NewPool(1, delayqueue.Share{Queue: q, AtMost: -1}) },
			"AtMost -1: must not be negative"},
		"in another pool": {func() { delayqueue.NewPool(1, delayqueue.Share{Queue: q}, delayqueue.Share{Queue: taken}) },
			"is in another pool"},
		"consuming": {func() { delayqueue.NewPool(1, delayqueue.Share{Queue: q}, delayqueue.Share{Queue: busy}) },
			"is consuming: stop it first"},
		"started alone": {func() { taken.StartConsume() }, "is in a Pool: start that"},
		"started meanwhile": {func() {
			q := f.Queue(queuetest.Acks)
			q.WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
				delayqueue.NewPool(1, delayqueue.Share{Queue: q})
				return next
			}).StartConsume()
		}, "is in a Pool: start that"},
		"run alone":          {func() { _ = taken.Run(context.Background()) }, "is in a Pool: start that"},
		"strict too late":    {func() { runs.Strict() }, "Strict while consuming"},
		"a setting, alone":   {func() { busy.WithConcurrent(2) }, "before StartConsume"},
		"a setting too late": {func() { running.WithLease(time.Second) }, "while consuming"},
		"no handler": {func() {
			delayqueue.NewPool(1, delayqueue.Share{Queue: f.Queue(queuetest.Acks)},
				delayqueue.Share{Queue: broken}).StartConsume()
		}, "StartConsume without a callback"},
		"a pool of nobody's": {func() { new(delayqueue.Pool).StartConsume() }, "was not made by NewPool"},
		"no pool":            {func() { (*delayqueue.Pool)(nil).StopConsume() }, "was not made by NewPool"},
	} {
		if text := queuetest.PanicText(c.call); !strings.HasPrefix(text, "delayqueue: ") || !strings.Contains(text, c.want) {
			t.Errorf("%s: it says %s", name, text)
		}
	}
}

// TestPoolShares: with a backlog everywhere, queues have their weights' parts of the workers.
func TestPoolShares(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 10} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			fs, handled := poolFixture(t, 3), [3]atomic.Int64{}
			const enough = 5000
			var all atomic.Int64
			var shares []delayqueue.Share
			for i, f := range fs {
				q := unhurried(f.Queue(func(string) bool {
					if all.Add(1) <= enough {
						handled[i].Add(1)
					}
					time.Sleep(time.Duration(workers) * 300 * time.Microsecond) // workers, not fetches, are what is short
					return true
				}))
				backlogIn(f, q, enough*8/10)
				shares = append(shares, delayqueue.Share{Queue: q, Weight: []int{6, 3, 1}[i]})
			}
			p := face.PoolOf(t, workers, shares...)
			p.StartConsume()
			queuetest.Reaches(t, "enough is handled", enough, func() int {
				return int(handled[0].Load() + handled[1].Load() + handled[2].Load())
			})
			for i, weight := range []int64{6, 3, 1} {
				// On a slow machine handlers and fetches wait for a processor, and it releases some of what was fetched
				// ahead; TestSharesByWeight is exact.
				want := enough * weight / 10
				if n := handled[i].Load(); n < want/2-int64(workers) || n > 2*want+int64(workers) {
					t.Errorf("queue %d: %d handled, want about %d", i, n, want)
				}
			}
		})
	}
}

// TestPoolStrict: the order counts, and not the weights. TestSharesInOrder has the rest.
func TestPoolStrict(t *testing.T) {
	t.Parallel()
	fs, handled := poolFixture(t, 2), make(chan int, 100)
	var shares []delayqueue.Share
	for i, f := range fs {
		q := unhurried(f.Queue(func(string) bool { handled <- i; return true }))
		backlogIn(f, q, 50)
		shares = append(shares, delayqueue.Share{Queue: q, Weight: []int{1, 100}[i]})
	}
	face.PoolOf(t, 1, shares...).Strict().StartConsume()
	early := 0 // of the second queue: on a slow machine the first one may have nothing fetched for a moment
	for first := 0; first < 50; {
		if queuetest.Receive(t, "a message", handled) == 0 {
			first++
		} else if early++; early > 10 {
			t.Fatalf("%d messages of queue 2 came before the last of queue 1", early)
		}
	}
}

// TestPoolAtMost: handlers that do not return have no more workers than AtMost, and other queues get the rest.
func TestPoolAtMost(t *testing.T) {
	t.Parallel()
	fs, release, bulkRuns, got := poolFixture(t, 2), make(chan struct{}), atomic.Int64{}, make(chan string, 10)
	bulk := fs[0].Queue(func(string) bool { bulkRuns.Add(1); <-release; return true })
	other := fs[1].Queue(func(payload string) bool { got <- payload; return true })
	backlogIn(fs[0], bulk, 50)
	p := face.PoolOf(t, 8, delayqueue.Share{Queue: bulk, Weight: 100, AtMost: 3},
		delayqueue.Share{Queue: other, AtMost: 100})
	p.StartConsume()
	queuetest.Eventually(t, "3 run", func() bool { return bulkRuns.Load() == 3 })
	for range 10 {
		fs[1].Send(other, "x")
		queuetest.Receive(t, "the other queue has a worker", got)
	}
	if n := bulkRuns.Load(); n != 3 {
		t.Errorf("%d of the bounded queue run", n)
	}
	for i, want := range []int{3, 8} {
		queuetest.Eventually(t, "it reports its workers", func() bool {
			all := reported(fs[i])
			return len(all) == 1 && all[0].Concurrency == want && len(all[0].Handling) == []int{3, 0}[i]
		})
	}
	p.StopConsume()
	close(release)
}

// TestPoolAtMostIsOfEachPool: two pools with an AtMost handle twice as many at a time, whatever WithConcurrent says.
func TestPoolAtMostIsOfEachPool(t *testing.T) {
	t.Parallel()
	f, release := face.New(t), make(chan struct{})
	var running atomic.Int64
	queue := func(concurrent int) *delayqueue.DelayQueue {
		return f.QueueOn(f.Client(), func(string) bool {
			running.Add(1)
			<-release
			return true
		}).WithConcurrent(concurrent).WithLease(time.Hour)
	}
	for _, concurrent := range []int{1, 100} {
		face.PoolOf(t, 8, delayqueue.Share{Queue: queue(concurrent), AtMost: 3}).StartConsume()
	}
	backlogIn(f, f.Queue(nil), 50)
	queuetest.Eventually(t, "both have as many as they may", func() bool { return running.Load() == 6 })
	if all := reported(f); len(all) != 2 || all[0].Concurrency != 3 || all[1].Concurrency != 3 {
		t.Errorf("%+v", all)
	}
	if n := running.Load(); n != 6 {
		t.Errorf("%d run", n)
	}
	close(release)
	f.Drained()
}

// TestPoolMarkers: while the other queue has all workers, what comes due costs a queue few calls, and it knows then.
func TestPoolMarkers(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint(strict), func(t *testing.T) {
			fs := poolFixture(t, 2)
			started, release := make(chan string, 20), make(chan struct{})
			fetches := face.CountCalls(t, fs[0].Cli, script.FetchScript.SHA)
			first := fs[0].Queue(func(string) bool { started <- "first"; return true })
			bulk := fs[1].Queue(func(string) bool { started <- "bulk"; <-release; return true })
			p := face.PoolOf(t, 2, delayqueue.Share{Queue: first}, delayqueue.Share{Queue: bulk})
			if strict {
				p.Strict()
			}
			backlogIn(fs[1], bulk, 10)
			p.StartConsume()
			queuetest.Receive(t, "one runs", started)
			queuetest.Receive(t, "two run", started)
			before, begun := fetches.Load(), time.Now()
			for i := range 10 {
				fs[0].Send(first, "x", delayqueue.WithDelay(time.Duration(i)*100*time.Millisecond))
			}
			time.Sleep(1500 * time.Millisecond)
			// One to know that the first is due, as many again where the poller looked too early, and the ticks.
			if n := fetches.Load() - before; n > 20+2*int64(time.Since(begun).Seconds()) {
				t.Errorf("%d fetches", n)
			}
			queuetest.Eventually(t, "the pool knows that something is due", func() bool { return fetches.Load() >= before+3 })
			// A free worker does not wait for the fetch of the first queue if the machine is slow.
			for passed, got := 0, ""; got != "first"; passed++ {
				if passed == 6 {
					t.Fatal("free workers pass the first queue over")
				}
				release <- struct{}{}
				got = queuetest.Receive(t, "somebody gets the free worker", started)
			}
			p.StopConsume()
			close(release)
		})
	}
}

// TestPoolIsIdle: a queue of an idle pool has two goroutines.
func TestPoolIsIdle(t *testing.T) {
	t.Parallel()
	fs, handled := poolFixture(t, 8), make(chan struct{}, 100)
	var shares []delayqueue.Share
	for _, f := range fs {
		shares = append(shares, delayqueue.Share{Queue: f.Queue(func(string) bool { handled <- struct{}{}; return true })})
	}
	p := face.PoolOf(t, 64, shares...)
	count := face.Goroutines(t, func() { p.StartConsume() })
	const idle = 2*8 + 1
	queuetest.Eventually(t, "it is idle", func() bool { return count() == idle })
	for i, f := range fs {
		f.Send(shares[i].Queue, "x")
		queuetest.Receive(t, "it is handled", handled)
	}
	queuetest.Eventually(t, "it is idle again", func() bool { return count() == idle })
}
