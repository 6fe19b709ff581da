package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
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
			full := make(chan struct{})
			var all atomic.Int64
			var shares []Share
			for i, f := range fs {
				q := f.queue(func(string) bool {
					if n := all.Add(1); n <= enough {
						handled[i].Add(1)
						if n == enough {
							close(full)
						}
					}
					return true
				})
				f.backlog(q, enough*8/10)
				shares = append(shares, Share{Queue: q, Weight: []int{6, 3, 1}[i]})
			}
			p := poolOf(t, workers, shares...)
			p.StartConsume()
			receive(t, "enough is handled", full)
			for i, want := range []int64{6000, 3000, 1000} {
				// A slow machine releases some of what was fetched ahead; TestSharesByWeight is exact.
				if n := handled[i].Load(); n < want*8/10-int64(workers) || n > want*12/10+int64(workers) {
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
	first, bulk := fs[0].queue(handle("first")).WithFetchInterval(10*time.Millisecond), fs[1].queue(handle("bulk"))
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
		p.workers.mu.Lock()
		if p.workers.held > 2 {
			t.Errorf("%d are held by two workers", p.workers.held)
		}
		p.workers.mu.Unlock()
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

// TestPoolStuckCallbacks: callbacks of one queue that never return take workers from that queue alone.
func TestPoolStuckCallbacks(t *testing.T) {
	t.Parallel()
	for _, atMost := range []int{0, 1} {
		t.Run(fmt.Sprint(atMost), func(t *testing.T) {
			fs, release, runs, got := poolFixture(t, 2), make(chan struct{}), atomic.Int64{}, make(chan string, 10)
			hangs := fs[0].queue(func(string) bool { runs.Add(1); <-release; return true }).
				WithMaxConsumeDuration(time.Millisecond).WithNackRedeliveryDelay(time.Hour)
			other := fs[1].queue(func(payload string) bool { got <- payload; return true })
			fs[0].backlog(hangs, 40)
			p := poolOf(t, 4, Share{Queue: hangs, AtMost: atMost}, Share{Queue: other})
			p.StartConsume()
			want := 2 * int64(cmp.Or(atMost, 4))
			eventually(t, "nothing replaces them any more", func() bool { return fs[0].log.count("too many callbacks run on", "workers=0") == 1 })
			for range 10 {
				fs[1].send(other, "x")
				receive(t, "the other queue has a worker", got)
			}
			if n := runs.Load(); n != want {
				t.Errorf("%d run on, want %d", n, want)
			}
			close(release)
			eventually(t, "all of the first are handled, now that they return", func() bool { return runs.Load() == 40 })
		})
	}
}

// TestPoolFarServer: a queue whose fetches take over a tenth of a second gets workers beside one that is near.
func TestPoolFarServer(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint(strict), func(t *testing.T) {
			t.Parallel()
			fs, got := poolFixture(t, 2), make(chan struct{}, 100)
			hookOwn(t, fs[0].cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if args := cmd.Args(); len(args) > 1 && args[1] == fetchScript.sha {
					time.Sleep(150 * time.Millisecond)
				}
				return next(ctx, cmd)
			}))
			far := fs[0].queue(func(string) bool { got <- struct{}{}; return true })
			near := fs[1].queue(func(string) bool { time.Sleep(300 * time.Millisecond); return true })
			fs[0].backlog(far, 20)
			fs[1].backlog(near, 500)
			p := poolOf(t, 4, Share{Queue: far, Weight: 100}, Share{Queue: near})
			if strict {
				p.Strict()
			}
			p.workers.lapseAfter = lapseAfter
			p.StartConsume()
			for range 5 {
				receive(t, "the far one is handled", got)
			}
		})
	}
}

// TestPoolExpired: a backlog of expired messages does not hold up another queue.
func TestPoolExpired(t *testing.T) {
	t.Parallel()
	fs, handled, garbage := poolFixture(t, 2), 0, make(chan int64, 1)
	expired := fs[0].queue(acks)
	good := fs[1].queue(func(string) bool {
		if handled++; handled == 200 {
			n, err := fs[0].cli.ZCard(context.Background(), fs[0].calls().keys.garbage).Result()
			if err != nil {
				t.Error(err)
			}
			garbage <- n
		}
		return true
	})
	const many = 4000
	late := slices.Repeat([]Outgoing{{Options: []MsgOption{WithMsgTTL(time.Millisecond)}}}, maxBatch)
	for range many / maxBatch {
		if _, err := expired.SendBatch(context.Background(), late); err != nil {
			t.Fatal(err)
		}
	}
	fs[1].backlog(good, 200)
	p := poolOf(t, 1, Share{Queue: expired}, Share{Queue: good})
	time.Sleep(200 * time.Millisecond) // until all are
	p.StartConsume()
	if n := receive(t, "the others are handled", garbage); n > many/2 {
		t.Errorf("%d of %d expired ones were set aside before", n, many)
	}
}

// TestPoolRestart: a pool that was stopped starts anew, also while handlers of its former run have workers.
func TestPoolRestart(t *testing.T) {
	t.Parallel()
	fs, started, release := poolFixture(t, 2), make(chan string, 10), make(chan struct{})
	handle := func(payload string) bool {
		started <- payload
		if payload == "slow" {
			<-release
		}
		return true
	}
	a, b := fs[0].queue(handle), fs[1].queue(handle)
	p := poolOf(t, 2, Share{Queue: a}, Share{Queue: b})
	p.StopConsume() // before the first start
	done := p.StartConsume()
	if p.StartConsume() != done {
		t.Error("a second start is another one")
	}
	fs[0].send(a, "slow")
	receive(t, "it runs", started)
	p.StopConsume()
	p.StopConsume()
	again := p.StartConsume()
	for i, q := range []*DelayQueue{a, b, a, b} {
		fs[i%2].send(q, "quick")
		if got := receive(t, "the other worker", started); got != "quick" {
			t.Errorf("it has %s", got)
		}
	}
	if closed(done) {
		t.Error("the first run has ended although a handler runs")
	}
	close(release)
	receive(t, "the first run ends", done)
	a.StopConsume() // alone
	receive(t, "it has stopped", a.current().lifecycle.done)
	if p.StartConsume() != again || closed(again) {
		t.Error("a queue that stops ends the pool")
	}
	fs[1].send(b, "quick")
	receive(t, "the other one goes on", started)
	b.StopConsume()
	receive(t, "all have stopped", again)
	p.StartConsume()
	fs[0].send(a, "quick")
	receive(t, "the pool starts all of them", started)
}

// TestPoolShutdown: it waits for all handlers, gives up when its context ends, and a handler cannot wait for itself.
func TestPoolShutdown(t *testing.T) {
	t.Parallel()
	fs, started, release, said := poolFixture(t, 3), make(chan struct{}), make(chan struct{}), make(chan error, 2)
	stuck := func(string) bool { started <- struct{}{}; <-release; return true }
	a, b, c := fs[0].queue(stuck), fs[1].queue(stuck), fs[2].queue(nil)
	p := poolOf(t, 3, Share{Queue: a}, Share{Queue: b}, Share{Queue: c})
	c.WithHandler(func(ctx context.Context, _ *Message) error {
		said <- p.Run(ctx)
		said <- p.Shutdown(ctx)
		return nil
	})
	p.StartConsume()
	sent := []*MessageInfo{fs[0].send(a, "x"), fs[1].send(b, "x")}
	receive(t, "one runs", started)
	receive(t, "two run", started)
	fs[2].send(c, "x")
	for _, call := range []string{"Run", "Shutdown"} {
		if err := receive(t, "it says", said); err == nil || !strings.Contains(err.Error(), call+": called by one of its own handlers") {
			t.Errorf("it says %v", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := p.Shutdown(ctx)
	for _, f := range fs[:2] {
		if want := fmt.Sprintf("delayqueue: queue %q: shutdown: 1 handlers were still running: ", f.name); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, want %s", err, want)
		}
	}
	for i, info := range sent {
		eventually(t, "it is released", func() bool { return fs[i].where(info.ID) == "ready" })
	}
	close(release)
	ctx, cancel = context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- p.Run(ctx) }()
	receive(t, "one runs again", started)
	receive(t, "two run again", started)
	cancel()
	if err := receive(t, "Run returns", ran); err != nil {
		t.Error(err)
	}
	fs[0].checkEmpty()
}

// TestPoolTrouble: a queue that cannot be consumed, of a hundred times the weight or first in the order, does not hold up
// the other one, and goes on once it can be.
func TestPoolTrouble(t *testing.T) {
	t.Parallel()
	broken := atomic.Bool{} // of "broken handler"
	for name, c := range map[string]struct {
		begin, end func(f *fixture, server *redistest.Server)
	}{
		"wrong type": {
			func(f *fixture, _ *redistest.Server) { f.cli.Set(context.Background(), f.calls().keys.unack, "x", 0) },
			func(f *fixture, _ *redistest.Server) { f.cli.Del(context.Background(), f.calls().keys.unack) },
		},
		"refused": {
			func(f *fixture, _ *redistest.Server) {
				f.cli.Do(context.Background(), "acl", "setuser", "default", "-evalsha", "-eval")
			},
			func(f *fixture, _ *redistest.Server) {
				f.cli.Do(context.Background(), "acl", "setuser", "default", "+evalsha", "+eval")
			},
		},
		"paused": {
			func(f *fixture, _ *redistest.Server) { _ = NewMonitor(f.name, f.cli).Pause(context.Background()) },
			func(f *fixture, _ *redistest.Server) { _ = NewMonitor(f.name, f.cli).Resume(context.Background()) },
		},
		"broken handler": {
			func(*fixture, *redistest.Server) { broken.Store(true) },
			func(*fixture, *redistest.Server) { broken.Store(false) },
		},
		"hanging server": {
			func(_ *fixture, server *redistest.Server) { server.Pause() },
			func(_ *fixture, server *redistest.Server) { server.Resume() },
		},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", strict), func(t *testing.T) {
				f, server := ownServer(t)
				got, other := make(chan string, 100), newFixture(t)
				first := f.queue(func(payload string) bool {
					if broken.Load() && name == "broken handler" {
						panic("broken")
					}
					got <- "first"
					return true
				}).WithNackRedeliveryDelay(time.Millisecond).WithDefaultRetryCount(1 << 30).WithLogger(slog.New(slog.DiscardHandler))
				second := other.queue(func(string) bool { got <- "second"; return true })
				p := poolOf(t, 2, Share{Queue: first, Weight: 100}, Share{Queue: second})
				if strict {
					p.Strict()
				}
				p.workers.lapseAfter = lapseAfter
				p.StartConsume()
				f.send(first, "x")
				receive(t, "the first works", got)
				f.send(first, "x", WithDelay(200*time.Millisecond))
				c.begin(f, server)
				for range 10 {
					other.send(second, "x")
					if name := receive(t, "the second goes on", got); name != "second" {
						t.Errorf("it is handled by the %s", name)
					}
					time.Sleep(30 * time.Millisecond) // so that the first is due meanwhile
				}
				c.end(f, server)
				if name := receive(t, "the first goes on", got); name != "first" {
					t.Errorf("it is handled by the %s", name)
				}
			})
		}
	}
}

// TestPoolShutdownWithoutAServer: a queue whose server is away is not waited for beyond Shutdown's context, and the others
// end as if it were not there.
func TestPoolShutdownWithoutAServer(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	other, got := newFixture(t), make(chan string, 1)
	first := f.queue(acks).WithLogger(slog.New(slog.DiscardHandler))
	second := other.queue(func(payload string) bool { got <- payload; return true })
	p := poolOf(t, 2, Share{Queue: first}, Share{Queue: second})
	p.StartConsume()
	other.send(second, "x")
	receive(t, "it is handled", got)
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithCancel(context.Background())
	p.StopConsume()
	receive(t, "the second ends", second.current().lifecycle.done)
	cancel()
	if err := p.Shutdown(ctx); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), first.store.queue) {
		t.Errorf("it says %v", err)
	}
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
			p.workers.mu.Lock()
			if !first.current().member.hungry {
				t.Error("the pool does not know that something is due")
			}
			p.workers.mu.Unlock()
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

// TestPoolLimitedQueue: a queue that may not go on for now, because of its own limits or those of the whole queue, is not waited for.
func TestPoolLimitedQueue(t *testing.T) {
	t.Parallel()
	for name, limited := range map[string]func(q *DelayQueue){
		"fetch limit":       func(q *DelayQueue) { q.WithFetchLimit(1) },
		"bytes":             func(q *DelayQueue) { q.WithMaxInFlightBytes(1) },
		"queue concurrency": func(q *DelayQueue) { q.WithQueueConcurrency(1) },
		"rate":              func(q *DelayQueue) { q.WithRateLimit(1, time.Hour, 1) },
		"ended context": func(q *DelayQueue) {
			ctx, cancel := context.WithCancel(context.Background())
			q.WithBaseContext(ctx).WithMiddleware(func(next Handler) Handler {
				return func(ctx context.Context, msg *Message) error {
					cancel()
					return next(context.WithoutCancel(ctx), msg)
				}
			})
		},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", strict), func(t *testing.T) {
				fs, started, release, got := poolFixture(t, 2), make(chan struct{}, 10), make(chan struct{}), make(chan string, 10)
				first := fs[0].queue(func(string) bool { started <- struct{}{}; <-release; return true })
				second := fs[1].queue(func(payload string) bool { got <- payload; return true })
				limited(first)
				fs[0].backlog(first, 3)
				p := poolOf(t, 3, Share{Queue: first, Weight: 100}, Share{Queue: second})
				if strict {
					p.Strict()
				}
				p.StartConsume()
				receive(t, "the first has what it may", started)
				for range 10 {
					fs[1].send(second, "x")
					receive(t, "the second goes on", got)
				}
				if n := len(started); n != 0 {
					t.Errorf("%d more of the first run", n)
				}
				p.StopConsume()
				close(release)
			})
		}
	}
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
