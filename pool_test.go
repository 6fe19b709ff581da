package delayqueue

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// poolFixture is one fixture for each queue of a pool, each with a client of its own.
func poolFixture(t *testing.T, queues int) (fs []*fixture) {
	for i := range queues {
		f := newFixture(t)
		f.name += fmt.Sprint("-", i+1)
		fs = append(fs, f)
	}
	return fs
}

// poolOf makes a pool that is stopped at the end of the test.
func poolOf(t *testing.T, workers int, shares ...Share) *Pool {
	p := NewPool(workers, shares...)
	p.workers.lapseAfter = time.Hour // what a test says must not depend on speed
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			t.Errorf("at the end of the test: %v", err)
		}
		for _, s := range shares {
			if c := s.Queue.current(); c != nil {
				settledDown(t, c)
			}
		}
	})
	return p
}

// unhurried is a queue none of whose calls and leases end because the machine is slow: a queue whose fetch has failed is not hungry, and
// leaves its workers to the others of its pool.
func unhurried(q *DelayQueue) *DelayQueue {
	q.store.attemptTimeout = time.Hour
	return q.WithLease(time.Hour)
}

// unhurriedMonitor is a Monitor none of whose attempts is given up and repeated because the machine is slow: the hooks of tests count
// them, and are not made for two at a time.
func unhurriedMonitor(name string, cli redis.UniversalClient) *Monitor {
	m := NewMonitor(name, cli)
	m.store.attemptTimeout = time.Hour
	return m
}

// backlog sends n messages.
func (f *fixture) backlog(q *DelayQueue, n int) {
	f.t.Helper()
	for ; n > 0; n -= maxBatch {
		if _, err := q.SendBatch(context.Background(), make([]Outgoing, min(n, maxBatch))); err != nil {
			f.t.Fatal(err)
		}
	}
}

// countFetches counts the fetches over a fixture's client that were answered.
func countFetches(t *testing.T, f *fixture) *atomic.Int64 {
	var fetches atomic.Int64
	hookOwn(t, f.cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); len(args) > 1 && args[1] == fetchScript.sha {
			fetches.Add(1)
		}
		return err
	}))
	return &fetches
}

func acks(string) bool { return true }

func TestPoolBadInput(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, taken, busy, broken := f.queue(acks), f.queue(acks), f.queue(acks), f.queue(nil)
	NewPool(1, Share{Queue: taken})
	busy.StartConsume()
	runs := NewPool(1, Share{Queue: f.queue(acks)})
	defer runs.StopConsume()
	runs.StartConsume()
	for name, c := range map[string]struct {
		call func()
		want string
	}{
		"no workers":         {func() { NewPool(0, Share{Queue: q}) }, "NewPool: 0 workers: a pool needs at least 1"},
		"no queue":           {func() { NewPool(1) }, "NewPool: a pool needs at least 1 queue"},
		"a nil queue":        {func() { NewPool(1, Share{Queue: q}, Share{}) }, "share 2: the queue must not be nil"},
		"an unmade queue":    {func() { NewPool(1, Share{Queue: &DelayQueue{}}) }, "NewQueue"},
		"a queue twice":      {func() { NewPool(1, Share{Queue: q}, Share{Queue: q}) }, `"TestPoolBadInput" is there twice`},
		"a weight below 0":   {func() { NewPool(1, Share{Queue: q, Weight: -1}) }, "Weight -1: must be at least 1"},
		"AtMost below 0":     {func() { NewPool(1, Share{Queue: q, AtMost: -1}) }, "AtMost -1: must not be negative"},
		"in another pool":    {func() { NewPool(1, Share{Queue: q}, Share{Queue: taken}) }, "is in another pool"},
		"consuming":          {func() { NewPool(1, Share{Queue: q}, Share{Queue: busy}) }, "is consuming: stop it first"},
		"started alone":      {func() { taken.StartConsume() }, "is in a Pool: start that"},
		"run alone":          {func() { _ = taken.Run(context.Background()) }, "is in a Pool: start that"},
		"strict too late":    {func() { runs.Strict() }, "Strict while consuming"},
		"a setting too late": {func() { runs.shares[0].Queue.WithLease(time.Second) }, "while consuming"},
		"no handler":         {func() { NewPool(1, Share{Queue: q}, Share{Queue: broken}).StartConsume() }, "StartConsume without a callback"},
		"a pool of nobody's": {func() { new(Pool).StartConsume() }, "was not made by NewPool"},
		"no pool":            {func() { (*Pool)(nil).StopConsume() }, "was not made by NewPool"},
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "delayqueue: ") || !strings.Contains(p, c.want) {
					t.Errorf("%s: it says %s", name, p)
				}
			}()
			c.call()
		}()
		q.mu.Lock()
		q.pool = nil // of "no handler"
		q.mu.Unlock()
	}
}

// TestPoolShares: with a backlog everywhere, queues have their weights' parts of the workers.
func TestPoolShares(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 3, 10, 64} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			fs, handled := poolFixture(t, 3), [3]atomic.Int64{}
			const enough = 10000
			var all atomic.Int64
			var shares []Share
			for i, f := range fs {
				q := unhurried(f.queue(func(string) bool {
					if all.Add(1) <= enough {
						handled[i].Add(1)
					}
					return true
				}))
				f.backlog(q, enough*8/10)
				shares = append(shares, Share{Queue: q, Weight: []int{6, 3, 1}[i]})
			}
			p := poolOf(t, workers, shares...)
			p.StartConsume()
			reaches(t, "enough is handled", enough, func() int {
				return int(handled[0].Load() + handled[1].Load() + handled[2].Load())
			})
			for i, want := range []int64{6000, 3000, 1000} {
				// On a slow machine handlers and fetches wait for a processor, and it releases some of what was fetched
				// ahead; TestSharesByWeight is exact.
				if n := handled[i].Load(); n < want/2-int64(workers) || n > 2*want+int64(workers) {
					t.Errorf("queue %d: %d handled, want about %d", i, n, want)
				}
			}
		})
	}
}

// TestPoolStrict: a message of the first queue gets the next worker that becomes free, and waits for nothing that was
// fetched before.
func TestPoolStrict(t *testing.T) {
	t.Parallel()
	fs := poolFixture(t, 2)
	started, release := make(chan string), make(chan struct{})
	handle := func(name string) CallbackFunc {
		return func(string) bool { started <- name; <-release; return true }
	}
	fetches := countFetches(t, fs[0])
	first, bulk := unhurried(fs[0].queue(handle("first"))).WithFetchInterval(10*time.Millisecond), unhurried(fs[1].queue(handle("bulk")))
	fs[1].backlog(bulk, 100)
	p := poolOf(t, 2, Share{Queue: first}, Share{Queue: bulk}).Strict()
	p.StartConsume()
	for range 2 {
		if name := receive(t, "a worker is busy", started); name != "bulk" {
			t.Errorf("with %s", name)
		}
	}
	for range 10 {
		fs[0].send(first, "x")
		asked, m := fetches.Load(), first.current().member
		eventually(t, "the pool knows of it", func() bool {
			p.workers.mu.Lock()
			defer p.workers.mu.Unlock()
			return m.hungry && fetches.Load() >= asked+2
		})
		release <- struct{}{}
		if name := receive(t, "the next starts", started); name != "first" {
			t.Fatalf("the next is of %s", name)
		}
		release <- struct{}{} // either of them
		if name := receive(t, "one of the other queue follows", started); name != "bulk" {
			t.Fatalf("it is of %s", name)
		}
	}
	p.StopConsume()
	close(release)
}

// TestPoolAtMost: handlers that do not return have no more workers than AtMost, and other queues get the rest.
func TestPoolAtMost(t *testing.T) {
	t.Parallel()
	fs, release, bulkRuns, got := poolFixture(t, 2), make(chan struct{}), atomic.Int64{}, make(chan string, 10)
	bulk := fs[0].queue(func(string) bool { bulkRuns.Add(1); <-release; return true })
	other := fs[1].queue(func(payload string) bool { got <- payload; return true })
	fs[0].backlog(bulk, 50)
	p := poolOf(t, 8, Share{Queue: bulk, Weight: 100, AtMost: 3}, Share{Queue: other, AtMost: 100})
	p.StartConsume()
	eventually(t, "3 run", func() bool { return bulkRuns.Load() == 3 })
	for range 10 {
		fs[1].send(other, "x")
		receive(t, "the other queue has a worker", got)
	}
	if n := bulkRuns.Load(); n != 3 {
		t.Errorf("%d of the bounded queue run", n)
	}
	for i, want := range []int{3, 8} {
		eventually(t, "it reports its workers", func() bool {
			all, err := NewMonitor(fs[i].name, fs[i].cli).Consumers(context.Background())
			return err == nil && len(all) == 1 && all[0].Concurrency == want && len(all[0].Handling) == []int{3, 0}[i]
		})
	}
	p.StopConsume()
	close(release)
}

// TestPoolAtMostIsOfEachPool: two pools with an AtMost handle twice as many at a time, whatever WithConcurrent says.
func TestPoolAtMostIsOfEachPool(t *testing.T) {
	t.Parallel()
	f, release := newFixture(t), make(chan struct{})
	var running atomic.Int64
	queue := func(concurrent int) *DelayQueue {
		return f.queueOn(f.client(), func(string) bool { running.Add(1); <-release; return true }).WithConcurrent(concurrent).WithLease(time.Hour)
	}
	for _, concurrent := range []int{1, 100} {
		poolOf(t, 8, Share{Queue: queue(concurrent), AtMost: 3}).StartConsume()
	}
	f.backlog(f.queue(nil), 50)
	eventually(t, "both have as many as they may", func() bool { return running.Load() == 6 })
	all, err := NewMonitor(f.name, f.cli).Consumers(ctxB)
	if f.must(err); len(all) != 2 || all[0].Concurrency != 3 || all[1].Concurrency != 3 {
		t.Errorf("%+v", all)
	}
	if n := running.Load(); n != 6 {
		t.Errorf("%d run", n)
	}
	close(release)
	f.drained()
}

// TestPoolMarkers: while the other queue has all workers, what comes due costs a queue few calls, and it knows then.
func TestPoolMarkers(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint(strict), func(t *testing.T) {
			fs := poolFixture(t, 2)
			started, release, got := make(chan struct{}, 10), make(chan struct{}), make(chan string, 10)
			fetches := countFetches(t, fs[0])
			first := fs[0].queue(func(payload string) bool { got <- payload; return true })
			bulk := fs[1].queue(func(string) bool { started <- struct{}{}; <-release; return true })
			p := poolOf(t, 2, Share{Queue: first}, Share{Queue: bulk})
			if strict {
				p.Strict()
			}
			fs[1].backlog(bulk, 10)
			p.StartConsume()
			receive(t, "one runs", started)
			receive(t, "two run", started)
			before, begun := fetches.Load(), time.Now()
			for i := range 10 {
				fs[0].send(first, "x", WithDelay(time.Duration(i)*100*time.Millisecond))
			}
			time.Sleep(1500 * time.Millisecond)
			// One to know that the first is due, as many again where the poller looked too early, and the ticks.
			if n := fetches.Load() - before; n > 20+2*int64(time.Since(begun).Seconds()) {
				t.Errorf("%d fetches", n)
			}
			eventually(t, "the pool knows that something is due", func() bool {
				p.workers.mu.Lock()
				defer p.workers.mu.Unlock()
				return first.current().member.hungry
			})
			release <- struct{}{}
			receive(t, "it gets a worker", got)
			p.StopConsume()
			close(release)
		})
	}
}

// TestPoolIsIdle: a queue of an idle pool has two goroutines.
func TestPoolIsIdle(t *testing.T) {
	t.Parallel()
	fs, handled := poolFixture(t, 8), make(chan struct{}, 100)
	var shares []Share
	for _, f := range fs {
		shares = append(shares, Share{Queue: f.queue(func(string) bool { handled <- struct{}{}; return true })})
	}
	p := poolOf(t, 64, shares...)
	count := goroutines(t, func() { p.StartConsume() })
	const idle = 2*8 + 1
	eventually(t, "it is idle", func() bool { return count() == idle })
	for i, f := range fs {
		f.send(shares[i].Queue, "x")
		receive(t, "it is handled", handled)
	}
	eventually(t, "it is idle again", func() bool { return count() == idle })
}

// TestPoolOfOne: its bounds and its order hold, too.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint(strict), func(t *testing.T) {
			f, release, started := newFixture(t), make(chan struct{}), make(chan struct{}, 100)
			q := f.queue(func(payload string) bool {
				started <- struct{}{}
				if payload == "slow" {
					<-release
				}
				return true
			})
			f.backlog(q, 50)
			p := poolOf(t, 8, Share{Queue: q, AtMost: 3})
			if strict {
				p.Strict()
			}
			p.StartConsume()
			for range 50 {
				receive(t, "it is handled", started)
			}
			for range 10 {
				f.send(q, "slow")
			}
			for range 3 {
				receive(t, "3 run", started)
			}
			eventually(t, "there is no room", func() bool { return q.current().member.room(maxBatch, true, time.Millisecond) == 0 })
			if len(started) > 0 {
				t.Errorf("%d more run", len(started))
			}
			p.StopConsume()
			close(release)
		})
	}
}
