package delayqueue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// These are the promises of docs/limits.md that no other test has.

// TestThrottleLeavesWhatWasFetched: without a limit, what a consumer has when a handler throttles the queue is handled, what it
// had fetched ahead, too; but what no worker gets to in a while goes back, as ever, and waits.
func TestThrottleLeavesWhatWasFetched(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	keys := newStore(f.cli, "dq", f.name).keys
	var got tally
	fetched := make(chan []string, 1)
	q := noTick(f.queue(nil))
	throttled := false // of the only worker
	q.WithHandler(func(_ context.Context, msg *Message) error {
		if held := q.current().leases.held.totals().deliveries; held > 10 && !throttled {
			if tags := f.cli.ZRange(ctxB, keys.unack, 0, -1).Val(); len(tags) > 1 {
				throttled = true
				fetched <- tags
				return Throttle(time.Hour, errBoom)
			}
		}
		got.add(msg.ID)
		return nil
	})
	q.StartConsume()
	var tags []string
	eventually(t, "a handler throttles the queue when more is fetched", func() bool {
		f.several(500)
		select {
		case tags = <-fetched:
		default:
		}
		return tags != nil
	})
	eventually(t, "nothing is with the consumer", func() bool { return f.cli.ZCard(ctxB, keys.unack).Val() == 0 })
	if c, err := NewMonitor(f.name, f.cli).Counts(ctxB); err != nil || c.ThrottledUntil.IsZero() || c.Retry != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	s, where := f.check(), map[string]int{}
	for _, tag := range tags {
		id, _ := splitTag(tag)
		if got.of(id) == 1 {
			where["handled"]++
		} else {
			where[s.Where(id)]++
		}
	}
	if t.Logf("of %d that were fetched: %v", len(tags), where); where["retry"] != 1 || where["handled"]+where["ready"] != len(tags)-1 {
		t.Error("want one in retry, and the others handled, or back")
	}
}

// TestLimitsOfAPausedQueue: of a paused queue nothing goes, and the rate saves up no more than a burst for afterwards.
func TestLimitsOfAPausedQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	limit := Limits{Rate: 50, Per: time.Second, Burst: 5}
	var book ledger
	var handled atomic.Int64
	cli := f.client()
	book.of(t, cli)
	q := unhurried(f.queueOn(cli, func(string) bool { handled.Add(1); return true })).
		WithRateLimit(limit.Rate, limit.Per, limit.Burst).WithConcurrent(100)
	m := NewMonitor(f.name, f.cli)
	server := func() int64 { at, err := f.cli.Time(ctxB).Result(); f.must(err); return at.UnixMicro() }
	f.several(10)
	q.StartConsume()
	reaches(t, "messages are handled", 10, func() int { return int(handled.Load()) })
	f.must(m.Pause(ctxB))
	paused := server()
	f.several(60)
	eventually(t, "the rate would have saved up more than a burst",
		func() bool { return server() > paused+3*int64(limit.Burst)*limit.Per.Microseconds()/int64(limit.Rate) })
	resumed := server()
	f.must(m.Resume(ctxB))
	reaches(t, "the others are handled", 70, func() int { return int(handled.Load()) })
	book.keeps(t, limit)
	for _, h := range book.fetches() {
		if h.n > 0 && h.at > paused && h.at < resumed {
			t.Errorf("%d were handed out while the queue was paused", h.n)
		}
	}
}

// TestLowerConcurrency: it takes nothing away from handlers that run, and none is handed out until enough have ended.
func TestLowerConcurrency(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, end := make(chan int, 10), make(chan struct{})
	var ordinal, running atomic.Int64
	noTick(f.queue(nil)).WithConcurrent(8).WithQueueConcurrency(4).WithHandler(func(ctx context.Context, msg *Message) error {
		now := running.Add(1)
		if n := ordinal.Add(1); n > 4 && now > 2 || msg.Delivery > 1 {
			t.Errorf("message %d, delivery %d, is handled beside %d others", n, msg.Delivery, now-1)
		}
		started <- int(now)
		<-end
		if ctx.Err() != nil {
			t.Errorf("a handler's context has ended: %v", context.Cause(ctx))
		}
		running.Add(-1)
		return nil
	}).StartConsume()
	f.several(8)
	for range 4 {
		receive(t, "four run", started)
	}
	_, err := NewMonitor(f.name, f.cli).SetLimits(ctxB, Limits{Concurrency: 2})
	f.must(err)
	for left := range 2 {
		end <- struct{}{}
		eventually(t, "one has ended", func() bool { return len(f.check().Unack) == 3-left })
	}
	end <- struct{}{}
	if now := receive(t, "another one is handed out", started); now != 2 {
		t.Errorf("it is one of %d", now)
	}
	close(end)
	f.drained()
}

// TestSetLimitsHoldsAtOnce: consumers obey with the next delivery, and go on at once when what was set is taken back.
func TestSetLimitsHoldsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, end := make(chan string, 10), make(chan struct{})
	defer close(end)
	var all []*DelayQueue
	for range 2 {
		q := noTick(f.queueOn(f.client(), func(payload string) bool { started <- payload; <-end; return true })).WithConcurrent(4)
		q.StartConsume()
		all = append(all, q)
	}
	eventually(t, "both have asked", func() bool { return len(f.check().Consumers) == len(all) })
	m := NewMonitor(f.name, f.cli)
	set := func(l Limits) {
		_, err := m.SetLimits(ctxB, l)
		f.must(err)
	}
	set(Limits{Concurrency: 1})
	f.several(4)
	receive(t, "one starts", started)
	eventually(t, "the others wait", func() bool { c, err := m.Counts(ctxB); return err == nil && c.Limited && c.Unack == 1 && c.Ready == 3 })
	set(Limits{})
	for range 3 {
		receive(t, "the others start before the first tick", started)
	}
}

// TestLimitsInARollingDeploy: a limit that is in the code no more holds until nobody has asked for it in a lease.
func TestLimitsInARollingDeploy(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	now := time.Now()
	server.SetTime(now)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	consumer := func(set func(q *DelayQueue)) (*DelayQueue, *ledger) {
		cli, book := f.client2(server.Addr()), &ledger{}
		book.of(t, cli)
		q := f.queueOn(cli, func(string) bool { return true }).WithLease(time.Minute).WithFetchInterval(50 * time.Millisecond)
		set(q)
		q.StartConsume()
		return q, book
	}
	limited := func(q *DelayQueue) { q.WithQueueConcurrency(1) }
	one, ofOne := consumer(limited)
	other, ofOther := consumer(limited)
	_, ofNew := consumer(func(*DelayQueue) {})
	passes := func(books ...*ledger) { // less than a lease, in which all of them ask
		now = now.Add(50 * time.Second)
		server.SetTime(now)
		for _, book := range books {
			eventually(t, "each has asked", func() bool { all := book.fetches(); return len(all) > 0 && all[len(all)-1].at >= now.UnixMicro() })
		}
	}
	held := func(want bool, when string) {
		t.Helper()
		l, err := NewMonitor(f.name, f.cli).Limits(ctxB)
		f.must(err)
		if got := l.Asked.Concurrency == 1; got != want {
			t.Errorf("%s: %+v", when, l)
		}
	}
	for range 3 {
		passes(ofOne, ofOther, ofNew)
	}
	held(true, "both old ones are there")
	f.must(one.Shutdown(ctxB))
	for range 3 {
		passes(ofOther, ofNew)
	}
	held(true, "one of them is there")
	f.must(other.Shutdown(ctxB))
	passes(ofNew)
	held(true, "for less than a lease none is")
	passes(ofNew)
	held(false, "none is")
	eventually(t, "the log says so", func() bool {
		return f.log.count("the limits of this queue are those that this consumer asks for", `this="no limit"`) == 1
	})
}

// TestLimitsOfSeveral: what a Monitor sees is the least that any consumer asks for, and, before that, what was set.
func TestLimitsOfSeveral(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	is := func(what string, want QueueLimits, inForce Limits) {
		t.Helper()
		var got QueueLimits
		eventually(t, what, func() (ok bool) {
			var err error
			got, err = m.Limits(ctxB)
			return err == nil && got == want
		})
		if got.InForce() != inForce {
			t.Errorf("%s: %v is in force", what, got.InForce())
		}
	}
	asks := func(n, burst, places int) {
		noTick(f.queue(acks)).WithRateLimit(n, time.Second, burst).WithQueueConcurrency(places).StartConsume()
	}
	asks(10, 2, 5)
	least := Limits{Rate: 10, Per: time.Second, Burst: 2, Concurrency: 5}
	is("one asks", QueueLimits{Asked: least}, least)
	asks(5, 3, 7)
	least.Rate, least.Burst = 5, 3
	is("the slower rate, the fewer places", QueueLimits{Asked: least}, least)
	asks(5, 1, 6)
	least.Burst = 1
	is("of two rates alike the smaller burst", QueueLimits{Asked: least}, least)
	noTick(f.queue(acks)).StartConsume()
	eventually(t, "one that asks for none changes nothing", func() bool { return len(f.check().Consumers) == 4 })
	is("four have asked", QueueLimits{Asked: least}, least)
	_, err := m.SetLimits(ctxB, Limits{Concurrency: 9})
	f.must(err)
	set := least
	set.Concurrency = 9
	is("places are set", QueueLimits{Asked: least, Set: Limits{Concurrency: 9}}, set)
	rate := Limits{Rate: 100, Per: time.Minute, Burst: 4}
	_, err = m.SetLimits(ctxB, rate)
	f.must(err)
	set = rate
	set.Concurrency = 5
	is("a rate is set", QueueLimits{Asked: least, Set: rate}, set)
	_, err = m.SetLimits(ctxB, Limits{})
	f.must(err)
	is("nothing is", QueueLimits{Asked: least}, least)
}

// TestUnthrottleBesideAPause: each ends by itself, in either order, and what waits goes when both are over, before the first tick.
func TestUnthrottleBesideAPause(t *testing.T) {
	t.Parallel()
	for name, pausedLast := range map[string]bool{"the pause is over last": true, "the throttle is over last": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			got := make(chan string, 10)
			var over atomic.Bool
			q := noTick(f.queue(nil)).WithHandler(func(_ context.Context, msg *Message) error {
				if msg.Payload == "429" {
					return Throttle(time.Hour, errBoom)
				}
				if !over.Load() {
					t.Errorf("%s was handled", msg.Payload)
				}
				got <- msg.Payload
				return nil
			})
			q.StartConsume()
			info := f.send(q, "429")
			eventually(t, "it waits", func() bool { return f.where(info.ID) == "retry" })
			m := NewMonitor(f.name, f.cli)
			f.must(m.Pause(ctxB))
			f.send(f.queue(nil), "x")
			lift := func() {
				if lifted, err := m.Unthrottle(ctxB); err != nil || !lifted {
					t.Errorf("lifted: %v, %v", lifted, err)
				}
			}
			if pausedLast {
				lift()
			} else {
				f.must(m.Resume(ctxB))
			}
			c, err := m.Counts(ctxB)
			f.must(err)
			if c.Paused != pausedLast || c.ThrottledUntil.IsZero() != pausedLast || c.Ready != 1 {
				t.Errorf("%+v", c)
			}
			if over.Store(true); pausedLast {
				f.must(m.Resume(ctxB))
			} else {
				lift()
			}
			receive(t, "what waited is handled", got)
			f.must(m.Delete(ctxB, info.ID))
		})
	}
}
