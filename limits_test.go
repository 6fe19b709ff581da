package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A handOut is a fetch as the server had it.
type handOut struct {
	at int64 // the server's clock, unix us
	n  int   // deliveries
}

// A ledger has all fetches of some consumers.
type ledger struct {
	mu  sync.Mutex
	all []handOut
}

// of reads the replies that come to a client's consumers.
func (l *ledger) of(t *testing.T, cli redis.UniversalClient) {
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && len(args) > 1 && args[1] == fetchScript.sha {
			r := reply{rest: cmd.(*redis.StringSliceCmd).Val()}
			if got, bad := r.fetched(); bad == nil {
				l.mu.Lock()
				l.all = append(l.all, handOut{int64(got.now), len(got.tags)})
				l.mu.Unlock()
			}
		}
		return err
	}))
}

func (l *ledger) fetches() []handOut {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.all)
	slices.SortFunc(all, func(a, b handOut) int { return int(a.at - b.at) })
	return all
}

// keeps wants no time in which more was handed out than a rate allows, and says how much there was, in how many fetches, and
// how many of these brought nothing.
func (l *ledger) keeps(t *testing.T, limit Limits) (n, fetches, vain int) {
	t.Helper()
	all := l.fetches()
	for i := range all {
		sum := 0
		for j := i; j < len(all); j++ {
			sum += all[j].n
			if most := limit.Burst + int((all[j].at-all[i].at)*int64(limit.Rate)/limit.Per.Microseconds()); sum > most {
				t.Fatalf("%d were handed out in %v, at most %d may be", sum, microseconds(all[j].at-all[i].at), most)
			}
		}
		n += all[i].n
		if all[i].n == 0 {
			vain++
		}
	}
	return n, len(all), vain
}

// several sends so many messages that are due.
func (f *fixture) several(n int) {
	f.t.Helper()
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i].Payload = strconv.Itoa(i)
	}
	if _, err := f.queue(nil).SendBatch(ctxB, batch); err != nil {
		f.t.Fatal(err)
	}
}

// TestRateLimit: 600 messages at 100 a second through three consumers: never more than the rate allows, none asks in vain but
// at its ticks, and all come.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const messages = 600
	limit := Limits{Rate: 100, Per: time.Second, Burst: 10}
	f.several(messages)
	var handled atomic.Int64
	var book ledger
	begun := time.Now()
	for range 3 {
		cli := f.client()
		book.of(t, cli)
		q := f.queueOn(cli, func(string) bool { handled.Add(1); return true }).WithConcurrent(16).
			WithRateLimit(limit.Rate, limit.Per, limit.Burst)
		unhurried(q).StartConsume() // the reply to a repeat does not say when the first attempt handed out
	}
	reaches(t, "messages are handled", messages, func() int { return int(handled.Load()) })
	took := time.Since(begun)
	n, fetches, vain := book.keeps(t, limit)
	t.Logf("%d handed out in %v, with %d fetches, %d of them in vain", n, took, fetches, vain)
	if ideal := 5900 * time.Millisecond; n != messages || took < ideal {
		t.Errorf("%d handed out in %v, want %d and at least %v", n, took, messages, ideal)
	}
	// A consumer ticks once a second, and may come a moment too early, by how far it misjudges the server's clock.
	if most := messages/2 + 5*int(took/time.Second+1); vain > most {
		t.Errorf("%d of %d fetches were in vain, want at most %d", vain, fetches, most)
	}
}

// TestRateLimitOfMoreThanGoes: where more comes in than the rate lets out, what has expired takes nothing from what has not.
func TestRateLimitOfMoreThanGoes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var handled atomic.Int64
	q := f.queue(func(string) bool { handled.Add(1); return true }).WithRateLimit(20, time.Second, 1)
	q.StartConsume()
	keys, sender := newStore(f.cli, "dq", f.name).keys, f.queue(nil)
	sends := func() { // the rate lets out 60 in six times their TTL
		if f.cli.ZCard(ctxB, keys.pending).Val() < 60 {
			batch := make([]Outgoing, 20)
			for i := range batch {
				batch[i].Options = []MsgOption{WithMsgTTL(500 * time.Millisecond)}
			}
			_, err := sender.SendBatch(ctxB, batch)
			f.must(err)
		}
	}
	reaches(t, "messages expire", 30, func() int { sends(); return int(f.cli.ZCard(ctxB, keys.garbage).Val()) })
	before := handled.Load()
	reaches(t, "others are handled meanwhile", int(before)+20, func() int { sends(); return int(handled.Load()) })
}

// TestQueueConcurrency: 200 messages through four consumers of eight workers: never more than five at a time, and all come.
func TestQueueConcurrency(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const messages, most = 200, 5
	f.several(messages)
	var handled, running, over atomic.Int64
	var book ledger
	for range 4 {
		cli := f.client()
		book.of(t, cli)
		q := f.queueOn(cli, func(string) bool {
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
	reaches(t, "messages are handled", messages, func() int {
		if n := f.cli.ZCard(ctxB, newStore(f.cli, "dq", f.name).keys.unack).Val(); n > most {
			t.Fatalf("%d are with consumers, want at most %d", n, most)
		}
		return int(handled.Load())
	})
	if over.Load() > 0 {
		t.Errorf("more than %d at a time, %d times", most, over.Load())
	}
	took := time.Since(begun)
	n, fetches, vain := book.keeps(t, Limits{Rate: 1, Per: time.Microsecond, Burst: messages})
	t.Logf("%d handed out in %v, with %d fetches, %d of them in vain", n, took, fetches, vain)
	if limit := messages/2 + 6*int(took/time.Second+1); vain > limit {
		t.Errorf("%d of %d fetches were in vain, want at most %d", vain, fetches, limit)
	}
}

// TestQueueConcurrencyWithoutWakeUps: a consumer whose server refuses wake-ups notices the places that it frees itself.
func TestQueueConcurrencyWithoutWakeUps(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.several(20)
	var handled atomic.Int64
	q := noTick(f.queueOn(unknownClient{f.cli}, func(string) bool { handled.Add(1); return true })).WithQueueConcurrency(2)
	begun := time.Now()
	q.StartConsume()
	reaches(t, "messages are handled", 20, func() int { return int(handled.Load()) })
	if took := time.Since(begun); took > 100*time.Second { // 2 at a tick would take 200 s
		t.Errorf("that took %v", took)
	}
}

// TestQueueConcurrencyWhenConsumersDie: what a killed consumer held is free when its leases have run out, not before; the
// others go on meanwhile with what places there are.
func TestQueueConcurrencyWhenConsumersDie(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const messages, most = 40, 4
	f.several(messages)
	spec := childSpec{Addr: shared.Addr(), Name: f.name, Events: f.eventList(), Lease: 8 * time.Second, Concurrent: 4, MaxLosses: 10,
		Handling: 20 * time.Millisecond, QueueConcurrency: most, Rate: 200}
	killedBy := map[int]string{} // by process
	for _, kill := range []string{"3", "11", "none"} {
		spec.KillOn = kill
		killedBy[startChild(t, spec).cmd.Process.Pid] = kill
	}
	ended := map[string]bool{}
	reaches(t, "messages are handled", messages-2, func() int { // two kill whoever handles them, while there is one
		if n := f.cli.ZCard(ctxB, newStore(f.cli, "dq", f.name).keys.unack).Val(); n > most {
			t.Fatalf("%d are with consumers, want at most %d", n, most)
		}
		for _, e := range find(f.events(spec.Events), "end", "") {
			ended[e.payload] = true
		}
		return len(ended)
	})
	f.drained()
	open, dead := map[int]map[string]bool{}, map[int]bool{} // what is in the hands of each process
	for _, e := range f.events(spec.Events) {
		if dead[e.pid] {
			continue
		} else if open[e.pid] == nil {
			open[e.pid] = map[string]bool{}
		}
		if delete(open[e.pid], e.payload); e.what == "start" {
			open[e.pid][e.payload] = true
		}
		sum := 0
		for _, set := range open {
			sum += len(set)
		}
		if sum > most {
			t.Errorf("%d at a time", sum)
		}
		if e.payload == killedBy[e.pid] {
			dead[e.pid] = true
			clear(open[e.pid])
		}
	}
}

// TestConsumerOfLimitsLeaves: a consumer that is killed while it is the only one leaves nothing behind that stops the next.
func TestConsumerOfLimitsLeaves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.several(3)
	spec := childSpec{Addr: shared.Addr(), Name: f.name, Events: f.eventList(), Lease: time.Second, Concurrent: 1, MaxLosses: 10,
		HangOn: "0", QueueConcurrency: 1, Rate: 1000}
	c := startChild(t, spec)
	eventually(t, "it holds the place", func() bool { return len(find(f.events(spec.Events), "start", "0")) == 1 })
	c.signal(syscall.SIGKILL)
	c.awaitExit(t)
	var handled atomic.Int64
	q := f.queue(func(string) bool { handled.Add(1); return true }).WithLease(time.Second).WithMaxLosses(10).WithQueueConcurrency(1)
	q.StartConsume()
	reaches(t, "messages are handled", 3, func() int { return int(handled.Load()) })
}

// TestLimitsDiffer: the least that any consumer asks for holds, and the log names both; what a Monitor sets goes before it.
func TestLimitsDiffer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	f.queue(func(string) bool { return true }).WithQueueConcurrency(2).StartConsume()
	eventually(t, "it has asked", func() bool { return f.check().Fields["limits"] != "" })
	f.queue(func(string) bool { return true }).WithQueueConcurrency(3).StartConsume()
	const warning = "consumers of this queue ask for other limits"
	eventually(t, "a warning", func() bool { return f.log.count(warning, `this="3 at a time"`, `all="2 at a time"`) == 1 })
	if before, err := m.SetLimits(ctxB, Limits{Concurrency: 7}); err != nil || before != (Limits{}) {
		t.Errorf("%v, %v", before, err)
	}
	eventually(t, "both know", func() bool { return f.log.count("a Monitor has set limits", `all="7 at a time"`) == 2 })
	if before, err := m.SetLimits(ctxB, Limits{}); err != nil || before != (Limits{Concurrency: 7}) {
		t.Errorf("%v, %v", before, err)
	}
	eventually(t, "it holds no more", func() bool {
		return f.log.count("are those that this consumer asks for", `this="2 at a time"`) == 1 && f.log.count(warning) == 2
	})
}

// TestBadLimits: each says in a sentence what is wrong.
func TestBadLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	panics := func(with string, do func()) {
		t.Helper()
		if text := panicText(do); !strings.Contains(text, with) {
			t.Errorf("%q, want %q", text, with)
		}
	}
	const rate, concurrency = "at least 1 and at most a million a second", "at least 1 at a time"
	for _, l := range []Limits{{0, time.Second, 1, 0}, {-1, time.Second, 1, 0}, {1, 0, 1, 0}, {1, -1, 1, 0},
		{1, 100, 1, 0}, {1, time.Second, 0, 0},
		{1, time.Second, -1, 0}, {1, time.Second, maxRate + 1, 0}, {2, time.Microsecond, 1, 0},
		{maxRate + 1, time.Second, 1, 0}, {1, maxPer + 1, 1, 0}} {
		panics(rate, func() { q.WithRateLimit(l.Rate, l.Per, l.Burst) })
		if _, err := m.SetLimits(ctxB, l); !errors.Is(err, ErrBadOption) || !strings.Contains(fmt.Sprint(err), rate) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	panics("did you mean 10*time.Second?", func() { q.WithRateLimit(1, 10, 1) })
	for _, n := range []int{0, -1, 1 << 31} {
		panics(concurrency, func() { q.WithQueueConcurrency(n) })
		if _, err := m.SetLimits(ctxB, Limits{Concurrency: n}); n != 0 &&
			(!errors.Is(err, ErrBadOption) || !strings.Contains(fmt.Sprint(err), concurrency)) {
			t.Errorf("%d: %v", n, err)
		}
	}
	q.WithRateLimit(maxRate, time.Second, maxRate).WithRateLimit(1, time.Millisecond, 1).WithQueueConcurrency(1)
}
