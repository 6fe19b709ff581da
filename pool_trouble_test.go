package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

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

// TestPoolBesideHanging: a queue of quick handlers that begin to hang leaves another one its workers.
func TestPoolBesideHanging(t *testing.T) {
	t.Parallel()
	fs, release, begun, handled := poolFixture(t, 2), make(chan struct{}), atomic.Int64{}, atomic.Int64{}
	defer close(release)
	hangs := unhurried(fs[0].queue(func(string) bool {
		if begun.Add(1) > 100 && handled.Load() >= 10 {
			<-release
		}
		return true
	}))
	other := unhurried(fs[1].queue(func(string) bool { handled.Add(1); return true }))
	fs[0].backlog(hangs, 2000)
	fs[1].backlog(other, 4*maxBatch) // no more than it may hold: one that waits for its settlements is not hungry either
	poolOf(t, 4, Share{Queue: hangs}, Share{Queue: other}).StartConsume()
	reaches(t, "the other queue is handled, although half of the workers hang", 2*maxBatch, func() int { return int(handled.Load()) })
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
	expired := unhurried(fs[0].queue(acks))
	good := unhurried(fs[1].queue(func(string) bool {
		if handled++; handled == 200 {
			n, err := fs[0].cli.ZCard(context.Background(), fs[0].calls().keys.garbage).Result()
			if err != nil {
				t.Error(err)
			}
			garbage <- n
		}
		return true
	}))
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
				delay := 300 * time.Millisecond
				for early := true; early; delay *= 2 {
					eventually(t, "nothing is in hand that the trouble could strike", func() bool { return len(f.check().Messages) == 0 })
					sent := time.Now()
					f.send(first, "x", WithDelay(delay))
					c.begin(f, server)
					if early = time.Since(sent) > delay/2; early { // this machine is slow: it may have been handled
						c.end(f, server)
						receive(t, "the first works again", got)
					}
				}
				for range 15 {
					other.send(second, "x")
					if name := receive(t, "the second goes on", got); name != "second" {
						t.Errorf("it is handled by the %s", name)
					}
					time.Sleep(delay / 10) // so that the first is due meanwhile
				}
				c.end(f, server)
				if name := receive(t, "the first goes on", got); name != "first" {
					t.Errorf("it is handled by the %s", name)
				}
			})
		}
	}
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
