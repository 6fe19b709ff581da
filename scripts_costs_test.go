package delayqueue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// commands counts what a server executes during a call, by command, those inside scripts
// included.
func commands(t *testing.T, cli *redis.Client, call func()) map[string]int {
	t.Helper()
	read := func() map[string]int {
		text, err := cli.Info(context.Background(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		stats := map[string]int{}
		for line := range strings.Lines(text) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
			n := 0
			if _, err := fmt.Sscanf(rest, "calls=%d,", &n); err == nil {
				stats[name] = n
			}
		}
		return stats
	}
	before := read()
	call()
	spent := map[string]int{}
	for name, n := range read() {
		if n -= before[name]; n > 0 && name != "info" {
			spent[name] = n
		}
	}
	return spent
}

// TestScriptCosts: how many commands each script makes, as its comment says.
func TestScriptCosts(t *testing.T) {
	t.Parallel()
	const idle = 10 // wanted, with nothing due
	server := redistest.Start(t)
	cli := redisClient(t, server.Addr())
	for _, script := range everyScript {
		if err := cli.ScriptLoad(context.Background(), script.text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// These are made anew for each row.
	var r *rig
	send := func(ms ...*sendMessage) { r.send(newCaller(), ms...) }
	fetch := func(want int) {
		t.Helper()
		c := newCaller()
		c.next()
		if f, err := r.store.fetch(context.Background(), c, fetchRequest{want: want, settings: &r.with}); err != nil || len(f.tags) != want && want != idle {
			t.Fatalf("fetched %d, want %d: %v", len(f.tags), want, err)
		}
	}
	// due makes n messages that are due alike.
	due := func(n int, d time.Duration, keys ...string) (ms []*sendMessage) {
		for i := range n {
			ms = append(ms, msg(fmt.Sprint("m", i), d, func(e *envelope) {
				for _, key := range keys {
					e.key = fmt.Sprint(key, i)
				}
			}))
		}
		return ms
	}
	// puts makes n messages of one sequence.
	puts := func(n int, keys ...string) []*sendMessage {
		ms := due(n, time.Minute, keys[1:]...)
		for i, m := range ms {
			numbered(m, keys[0], int64(i))
		}
		return ms
	}
	all := func(c Conflict, ms []*sendMessage) []*sendMessage {
		for _, m := range ms {
			on(c, true, m)
		}
		return ms
	}
	over := func(n int) { // the holds of so many keys
		for i := range n {
			r.do("ZADD", r.keys.held, i+1, fmt.Sprint("k", i))
		}
		r.do("HSET", r.keys.state, "held", 1)
	}
	holds := func(all []settlement) []settlement {
		for i := range all {
			all[i].hold = time.Hour
		}
		return all
	}
	hand := func(n int) { send(due(n, 0)...); fetch(n) }
	acks := func(n int) (all []settlement) {
		for i := range n {
			all = append(all, ack(fmt.Sprint("m", i)))
		}
		return all
	}
	keptAll := func(n int, value string) (all []settlement) {
		for i := range n {
			all = append(all, kept(fmt.Sprint("m", i), time.Hour, value))
		}
		return all
	}
	keyedAcks := func(n int) []settlement {
		all := acks(n)
		for i := range all {
			all[i].key = fmt.Sprint("k", i)
		}
		return all
	}
	inHand := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("m", i))
		}
		return all
	}
	// A message that waits, longer than the others, so that big stays as it is.
	hour := func() { send(msg("waits", time.Hour, sized(200))) }
	quiet := func() { fetch(idle) } // the sweep of old callers is due with the first fetch alone
	for _, c := range []struct {
		name         string
		before, call func()
		want         int
	}{
		{"fetch, idle", quiet, func() { fetch(idle) }, 12},
		{"fetch, while one is handled", func() { hand(1); quiet() }, func() { fetch(idle) }, 13},
		{"fetch, with a message that waits", func() { hour(); quiet() }, func() { fetch(idle) }, 12},
		{"fetch, without a free worker", func() { hour(); quiet() }, func() { fetch(0) }, 12},
		{"settle, 1 ack", func() { hand(1) }, func() { r.done(acks(1)...) }, 9},
		{"settle, 100 acks", func() { hand(100) }, func() { r.done(acks(100)...) }, 9},
		{"settle, 1 ack that a message follows", func() { hour(); hand(1) }, func() { r.done(then(acks(1)[0], due(1, 2*time.Hour)...)) }, 13 + 2 + 2 + 1},
		{"settle, 1 ack that 10 with keys follow", func() { hour(); hand(1) }, func() { r.done(then(acks(1)[0], due(10, 2*time.Hour, "k")...)) }, 13 + 2 + 10*4 + 1},
		// None of them looks through ready.
		{"settle, 100 acks of which one is void", func() { hand(100); r.cancel("id", idOf("m7")) },
			func() { r.equal("void", r.settle(newCaller(), acks(100)...), []int{7}) }, 8 + 100 + 100 + 99},
		{"settle, 100 acks with keys of which one is void", func() { send(due(100, 0, "k")...); fetch(100); r.cancel("key", "k7") },
			func() { r.equal("void", r.settle(newCaller(), keyedAcks(100)...), []int{7}) }, 12 + 99*5 + 3},
		{"send, 1", hour, func() { send(due(1, 2*time.Hour)...) }, 5},
		{"send, 100", hour, func() { send(due(100, 2*time.Hour)...) }, 6},
		{"send, 1 that is the soonest", hour, func() { send(due(1, time.Minute)...) }, 6},
		{"send, 100 that are the soonest", hour, func() { send(due(100, time.Minute)...) }, 8},
		{"send, 1 with a deadline and a timeout", hour, func() {
			send(msg("m", 2*time.Hour, func(e *envelope) { e.deadline, e.timeout = r.now+10e9, time.Second }))
		}, 6},
		{"send, 1 with a key", hour, func() { send(due(1, 2*time.Hour, "k")...) }, 6 + 1 + 1},
		{"send, 100 with keys", hour, func() { send(due(100, 2*time.Hour, "k")...) }, 6 + 100 + 1},
		{"settle, 100 acks with keys", func() { send(due(100, 0, "k")...); fetch(100) }, func() { r.done(keyedAcks(100)...) }, 12 + 100*5},
		{"settle, 100 acks with keys that stay taken", func() { send(due(100, 0, "k")...); fetch(100) }, func() { r.done(holds(keyedAcks(100))...) }, 13 + 100*7},
		{"fetch, frees 100 keys", func() {
			send(due(100, 0, "k")...)
			fetch(100)
			r.done(holds(keyedAcks(100))...)
			over(100)
		}, func() { fetch(idle) }, 12 + 2 + 5},
		{"put, 1", hour, func() { send(puts(1, "s")...) }, 16 + 4 + 1},
		{"put, 1 that is passed", func() { hour(); send(puts(1, "s")...) }, func() { send(puts(1, "s")...) }, 16 + 1},
		{"put, 100 that are the soonest", hour, func() { send(puts(100, "s")...) }, 16 + 4*100 + 1},
		{"put, 100 with keys", hour, func() { send(puts(100, "s", "k")...) }, 16 + 6*100 + 1},
		{"put, 1 that keeps another", func() { send(due(1, time.Minute, "k")...) }, func() { send(on(Keep, true, due(1, 0, "k")[0])) }, 16 + 3},
		{"put, 100 that replace others", func() { send(due(100, time.Minute, "k")...) }, func() { send(all(Replace, due(100, time.Hour, "k"))...) }, 16 + 7*100},
		{"put, 100 that reschedule others", func() { send(due(100, time.Minute, "k")...) }, func() { send(all(Reschedule, due(100, time.Hour, "k"))...) }, 16 + 7*100},
		{"fetch, idle, and says something", quiet, func() {
			t.Helper()
			c := newCaller()
			c.next()
			if _, err := r.store.fetch(context.Background(), c, fetchRequest{presence: "{}", settings: &r.with}); err != nil {
				t.Fatal(err)
			}
		}, 15},
		{"counts", func() {
			hand(3)
			hour()
			r.done(ends(outcomeReady, "m0", 0, 0, ""), ends(outcomeRetry, "m1", 1, 0, ""))
		}, func() {
			if _, err := r.store.counts(context.Background()); err != nil {
				t.Fatal(err)
			}
		}, 15},
		{"settle, 100 that are kept with a result", func() { hand(100) }, func() { r.done(keptAll(100, "v")...) }, 16 + 100*4},
		{"settle, 1 that is kept without a result", func() { hand(1) }, func() { r.done(keptAll(1, "")...) }, 16 + 3},
		{"fetch, idle, with 100 that are kept", func() { hand(100); r.done(keptAll(100, "v")...); quiet() }, func() { fetch(idle) }, 12},
		{"await, 100 that are not there", hour, func() { r.awaits(100) }, 3 + 100},
		{"await, 100 that are kept", func() { hand(100); r.done(keptAll(100, "v")...) }, func() { r.awaits(100) }, 3 + 300},
		{"extend, 1", func() { hand(1) }, func() { r.extend(inHand(1)...) }, 5},
		{"extend, 100", func() { hand(100) }, func() { r.extend(inHand(100)...) }, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
			r = &rig{store: newStore(cli, "dq", f.name), t: t, name: f.name, with: fetchSettings{lease: rigLease, maxLosses: 3}}
			r.store.attemptTimeout = time.Minute
			c.before()
			spent := commands(t, cli, c.call)
			calls, inside := spent["evalsha"], 0
			delete(spent, "evalsha")
			for _, n := range spent {
				inside += n
			}
			if calls != 1 || inside != c.want {
				t.Errorf("%d script calls, %d commands inside; want 1 and %d: %v", calls, inside, c.want, spent)
			}
		})
	}
}

// TestSendBatchCosts: 500 messages a script call.
func TestSendBatchCosts(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	q := f.queue(nil)
	q.batcher.forgetOdds = 0
	f.send(q, "first", WithDelay(time.Hour), WithKey("k")) // the script is loaded
	spent := commands(t, redisClient(t, server.Addr()), func() {
		if _, err := q.SendBatch(context.Background(), make([]Outgoing, 1200)); err != nil {
			t.Fatal(err)
		}
	})
	if spent["evalsha"] != 3 || spent["eval"] != 0 {
		t.Errorf("1,200 messages took %d script calls, want 3: %v", spent["evalsha"]+spent["eval"], spent)
	}
	if n := len(f.check().Messages); n != 1201 {
		t.Errorf("%d messages stored, want 1,201", n)
	}
}

// TestConcurrentSendsShareCalls: 64 callers need a third of the calls that one after the other
// would, or fewer.
func TestConcurrentSendsShareCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	var calls atomic.Int64
	hookOwn(t, f.cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			calls.Add(1)
		}
		return next(ctx, cmd)
	}))
	const callers, each = 64, 50
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				if err := q.SendDelayMsg("x", time.Hour); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	n := calls.Load() // before the check's
	state := f.check()
	if len(state.Pending) != callers*each || n == 0 || n > callers*each/3 {
		t.Errorf("%d messages took %d calls, want %d in at most %d", len(state.Pending), n, callers*each, callers*each/3)
	}
}
