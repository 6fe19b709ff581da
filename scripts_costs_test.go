package delayqueue

import (
	"context"
	"fmt"
	"strings"
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

// A costs counts the commands of script calls. Its rig is made anew for each row.
type costs struct {
	server *redistest.Server
	cli    *redis.Client
	r      *rig
	idle   *caller // of a consumer that goes by the alarm
}

// A costsRow is a call of one script, what makes it ready, and how many commands there are in it.
type costsRow struct {
	name         string
	before, call func()
	want         int
}

func newCosts(t *testing.T) *costs {
	t.Helper()
	server := redistest.Start(t)
	c := &costs{server: server, cli: patientClient(server.Addr())}
	t.Cleanup(func() { _ = c.cli.Close() })
	for _, script := range everyScript {
		if err := c.cli.ScriptLoad(context.Background(), script.text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// cost checks rows, one after the other: what a call spends is what the server counts.
func (c *costs) cost(t *testing.T, rows []costsRow) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: c.server.Addr()}))
			c.r = &rig{store: newStore(c.cli, "dq", f.name), t: t, name: f.name, with: fetchSettings{lease: rigLease, maxLosses: 3}}
			c.r.store.attemptTimeout = time.Minute
			row.before()
			spent := commands(t, c.cli, row.call)
			calls, inside := spent["evalsha"], 0
			delete(spent, "evalsha")
			for _, greeting := range []string{"hello", "client", "client|setinfo"} { // of a new connection: the one before was too old
				delete(spent, greeting)
			}
			for _, n := range spent {
				inside += n
			}
			if calls != 1 || inside != row.want {
				t.Errorf("%d script calls, %d commands inside; want 1 and %d: %v", calls, inside, row.want, spent)
			}
		})
	}
}

const idleWant = 10 // deliveries, with nothing due

func (c *costs) send(ms ...*sendMessage) { c.r.send(newCaller(), ms...) }

func (c *costs) fetch(want int) {
	c.r.t.Helper()
	by := newCaller()
	by.next()
	if f, err := c.r.store.fetch(context.Background(), by, fetchRequest{want: want, settings: &c.r.with, limits: c.r.limits}); err != nil ||
		len(f.tags) != want && want != idleWant {
		c.r.t.Fatalf("fetched %d, want %d: %v", len(f.tags), want, err)
	}
}

// byAlarm is a fetch of an idle consumer, after a first one.
func (c *costs) byAlarm() {
	c.r.t.Helper()
	c.idle.next()
	if _, err := c.r.store.fetch(context.Background(), c.idle, fetchRequest{want: idleWant, byAlarm: true, settings: &c.r.with}); err != nil {
		c.r.t.Fatal(err)
	}
}

// hand sends n messages and fetches them.
func (c *costs) hand(n int) { c.send(dueAlike(n, 0)...); c.fetch(n) }

// hour sends a message that waits, longer than the others, so that big stays as it is.
func (c *costs) hour() { c.send(msg("waits", time.Hour, sized(200))) }

// quiet is a first fetch: the sweep of old callers is due with that alone, and nothing is left to be moved to history, which
// the next fetch would do if that is a second later.
func (c *costs) quiet() {
	c.fetch(idleWant)
	c.r.do(append([]any{"HDEL", c.r.keys.state}, "sent", "delivered", "acked", "failed", "lost", "garbage", "superseded",
		"started", "late", "latest")...)
}

// quietConsumer is quiet for a consumer that goes by the alarm from then on.
func (c *costs) quietConsumer() {
	c.idle = newCaller()
	c.byAlarm()
	c.quiet()
}

// over makes the holds of n keys end.
func (c *costs) over(n int) {
	for i := range n {
		c.r.do("ZADD", c.r.keys.held, i+1, fmt.Sprint("k", i))
	}
	c.r.do("HSET", c.r.keys.state, "held", 1)
}

// group makes one of n parts.
func (c *costs) group(n int, d time.Duration) {
	var all []*sendMessage
	for i := range n {
		all = append(all, untimed(part(fmt.Sprint("g", i), d, 0)))
	}
	c.send(all...)
}

// dueAlike makes n messages that are due alike.
func dueAlike(n int, d time.Duration, keys ...string) (ms []*sendMessage) {
	for i := range n {
		ms = append(ms, msg(fmt.Sprint("m", i), d, func(e *envelope) {
			for _, key := range keys {
				e.key = fmt.Sprint(key, i)
			}
		}))
	}
	return ms
}

// numberedAlike makes n messages of one sequence.
func numberedAlike(n int, sequence string, keys ...string) []*sendMessage {
	ms := dueAlike(n, time.Minute, keys...)
	for i, m := range ms {
		numbered(m, sequence, int64(i))
	}
	return ms
}

func withPolicy(p Conflict, ms []*sendMessage) []*sendMessage {
	for _, m := range ms {
		on(p, true, m)
	}
	return ms
}

func acksOf(n int) (all []settlement) {
	for i := range n {
		all = append(all, ack(fmt.Sprint("m", i)))
	}
	return all
}

func keyedAcks(n int) []settlement {
	all := acksOf(n)
	for i := range all {
		all[i].key = fmt.Sprint("k", i)
	}
	return all
}

func withHolds(all []settlement) []settlement {
	for i := range all {
		all[i].hold = time.Hour
	}
	return all
}

func keptAll(n int, value string) (all []settlement) {
	for i := range n {
		all = append(all, kept(fmt.Sprint("m", i), time.Hour, value))
	}
	return all
}

func tagsOfFirst(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("m", i))
	}
	return all
}

// TestScriptCostsOfSends: how many commands each takes, as the comment on its script says.
func TestScriptCostsOfSends(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	c.cost(t, []costsRow{
		{"send, 1", c.hour, func() { c.send(dueAlike(1, 2*time.Hour)...) }, 5},
		{"send, 100", c.hour, func() { c.send(dueAlike(100, 2*time.Hour)...) }, 6},
		{"send, 1 that is the soonest", c.hour, func() { c.send(dueAlike(1, time.Minute)...) }, 6},
		{"send, 100 that are the soonest", c.hour, func() { c.send(dueAlike(100, time.Minute)...) }, 8},
		{"send, 1 with a deadline and a timeout", c.hour, func() {
			c.send(msg("m", 2*time.Hour, func(e *envelope) { e.deadline, e.timeout = c.r.now+10e9, time.Second }))
		}, 6},
		{"send, 1 with a key", c.hour, func() { c.send(dueAlike(1, 2*time.Hour, "k")...) }, 6 + 1 + 1},
		{"send, 100 with keys", c.hour, func() { c.send(dueAlike(100, 2*time.Hour, "k")...) }, 6 + 100 + 1},
		{"put, 1", c.hour, func() { c.send(numberedAlike(1, "s")...) }, 16 + 4 + 1},
		{"put, 1 that is passed", func() { c.hour(); c.send(numberedAlike(1, "s")...) }, func() { c.send(numberedAlike(1, "s")...) }, 16 + 1},
		{"put, 100 that are the soonest", c.hour, func() { c.send(numberedAlike(100, "s")...) }, 16 + 4*100 + 1},
		{"put, 100 with keys", c.hour, func() { c.send(numberedAlike(100, "s", "k")...) }, 16 + 6*100 + 1},
		{"put, 1 that keeps another", func() { c.send(dueAlike(1, time.Minute, "k")...) },
			func() { c.send(on(Keep, true, dueAlike(1, 0, "k")[0])) }, 16 + 3},
		{"put, 100 that replace others", func() { c.send(dueAlike(100, time.Minute, "k")...) },
			func() { c.send(withPolicy(Replace, dueAlike(100, time.Hour, "k"))...) }, 16 + 7*100},
		{"put, 1 that begins a group", c.hour, func() { c.send(part("m0", 2*time.Hour, 0)) }, 17 + 4},
		{"put, 1 that is appended", func() { c.send(part("m0", time.Hour, 0)) }, func() { c.send(part("m1", 2*time.Hour, 0)) }, 17 + 8},
		{"put, 1 that replaces a group of 100", func() { c.group(100, time.Hour) },
			func() { c.send(on(Replace, true, msg("r", 2*time.Hour, keyed("k")))) }, 17 + 8},
		{"put, 100 that reschedule others", func() { c.send(dueAlike(100, time.Minute, "k")...) },
			func() { c.send(withPolicy(Reschedule, dueAlike(100, time.Hour, "k"))...) }, 16 + 7*100},
	})
}

// TestScriptCostsOfFetches: how many commands each takes, as the comment on its script says.
func TestScriptCostsOfFetches(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	c.cost(t, []costsRow{
		{"fetch, idle", c.quiet, func() { c.fetch(idleWant) }, 12},
		{"fetch, while one is handled", func() { c.hand(1); c.quiet() }, func() { c.fetch(idleWant) }, 13},
		{"fetch, idle, by the alarm", c.quietConsumer, c.byAlarm, 5},
		{"fetch, by the alarm, with a message that waits", func() { c.hour(); c.quietConsumer() }, c.byAlarm, 5},
		{"fetch, by the alarm, while one is handled", func() { c.hand(1); c.quietConsumer() }, c.byAlarm, 6},
		{"fetch, with a message that waits", func() { c.hour(); c.quiet() }, func() { c.fetch(idleWant) }, 12},
		{"fetch, without a free worker", func() { c.hour(); c.quiet() }, func() { c.fetch(0) }, 12},
		{"fetch, frees 100 keys", func() {
			c.send(dueAlike(100, 0, "k")...)
			c.fetch(100)
			c.r.done(withHolds(keyedAcks(100))...)
			c.quiet()
			c.over(100)
		}, func() { c.fetch(idleWant) }, 12 + 2 + 5},
		{"fetch, idle, and says something", c.quiet, func() {
			c.r.t.Helper()
			by := newCaller()
			by.next()
			if _, err := c.r.store.fetch(context.Background(), by, fetchRequest{presence: "{}", settings: &c.r.with}); err != nil {
				c.r.t.Fatal(err)
			}
		}, 15},
		{"fetch, a message", func() { c.hour(); c.fetch(0); c.send(dueAlike(1, 0)...) }, func() { c.fetch(1) }, 19},
		{"fetch, a group of 100", func() { c.group(100, 0); c.fetch(0) }, func() { c.fetch(1) }, 19 + 2},
		{"fetch, a message where there are groups", func() { c.group(100, time.Hour); c.fetch(0); c.send(dueAlike(1, 0)...) },
			func() { c.fetch(1) }, 19 + 1},
		{"fetch, idle, with 100 that are kept", func() { c.hand(100); c.r.done(keptAll(100, "v")...); c.quiet() },
			func() { c.fetch(idleWant) }, 12},
	})
}

// superseded hands out a message with a key, which another one takes over.
func (c *costs) superseded() {
	c.send(dueAlike(1, 0, "k")...)
	c.fetch(1)
	c.r.answers(newCaller(), on(Replace, true, msg("b", time.Hour, keyed("k0"))))
}

// TestScriptCostsOfSettlements: how many commands each takes, as the comment on its script says.
func TestScriptCostsOfSettlements(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	c.cost(t, []costsRow{
		{"settle, 1 ack", func() { c.hand(1) }, func() { c.r.done(acksOf(1)...) }, 9},
		{"settle, 100 acks", func() { c.hand(100) }, func() { c.r.done(acksOf(100)...) }, 9},
		{"settle, 1 ack that a message follows", func() { c.hour(); c.hand(1) },
			func() { c.r.done(then(acksOf(1)[0], dueAlike(1, 2*time.Hour)...)) }, 13 + 2 + 2 + 1},
		{"settle, 1 ack that 10 with keys follow", func() { c.hour(); c.hand(1) },
			func() { c.r.done(then(acksOf(1)[0], dueAlike(10, 2*time.Hour, "k")...)) }, 13 + 2 + 10*4 + 2},
		// None of them looks through ready.
		{"settle, 100 acks of which one is void", func() { c.hand(100); c.r.cancel("id", idOf("m7")) },
			func() { c.r.equal("void", c.r.settle(newCaller(), acksOf(100)...), []int{7}) }, 8 + 100 + 100 + 99},
		{"settle, 100 acks with keys of which one is void", func() { c.send(dueAlike(100, 0, "k")...); c.fetch(100); c.r.cancel("key", "k7") },
			func() { c.r.equal("void", c.r.settle(newCaller(), keyedAcks(100)...), []int{7}) }, 12 + 99*5 + 3},
		{"settle, 100 acks with keys", func() { c.send(dueAlike(100, 0, "k")...); c.fetch(100) },
			func() { c.r.done(keyedAcks(100)...) }, 12 + 100*5},
		{"settle, 100 acks with keys that stay taken", func() { c.send(dueAlike(100, 0, "k")...); c.fetch(100) },
			func() { c.r.done(withHolds(keyedAcks(100))...) }, 13 + 100*7},
		{"settle, 1 with a key that fails", func() { c.send(dueAlike(1, 0, "k")...); c.fetch(1) },
			func() { c.r.done(fails("m0", "k0")) }, 13 + 3},
		{"settle, 1 that fails and was superseded", c.superseded, func() { c.r.done(fails("m0", "k0")) }, 12 + 2 + 1 + 4},
		{"settle, 1 ack of what was superseded", c.superseded, func() { c.r.done(ack("m0", "k0")) }, 12 + 2 + 1 + 4},
		{"settle, 100 that are kept with a result", func() { c.hand(100) }, func() { c.r.done(keptAll(100, "v")...) }, 16 + 100*4},
		{"settle, 1 that is kept where there is no room", func() { c.r.with.doneMax = 1; c.hand(2); c.r.done(keptAll(1, "v")...) },
			func() { c.r.done(kept("m1", time.Minute, "")) }, 16 + 3 + 10},
		{"settle, 1 ack of a group of 100", func() { c.group(100, 0); c.fetch(1) },
			func() { c.r.done(groupOf(100, ack("g0", "k"))) }, 13 + 5 + 2},
		{"settle, 1 ack where there are groups", func() { c.group(2, time.Hour); c.hand(1) }, func() { c.r.done(acksOf(1)...) }, 9},
		{"settle, 1 that is kept without a result", func() { c.hand(1) }, func() { c.r.done(keptAll(1, "")...) }, 16 + 3},
	})
}

// TestScriptCostsOfOtherCalls: how many commands each takes, as the comment on its script says.
func TestScriptCostsOfOtherCalls(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	c.cost(t, []costsRow{
		{"counts", func() {
			c.hand(3)
			c.hour()
			c.r.done(ends(outcomeReady, "m0", 0, 0, ""), ends(outcomeRetry, "m1", 1, 0, ""))
		}, func() {
			if _, err := c.r.store.counts(context.Background()); err != nil {
				c.r.t.Fatal(err)
			}
		}, 15},
		{"forecast, 60 spans", func() { c.send(dueAlike(1, 24*time.Hour, "")...) }, func() { c.forecast(60) }, 3 + 61},
		{"forecast, 500 spans of which the first holds all", func() { c.send(dueAlike(1, 0, "")...) }, func() { c.forecast(500) }, 3 + 1},
		{"await, 100 that are not there", c.hour, func() { c.r.awaits(100) }, 3 + 100},
		{"await, 100 that are kept", func() { c.hand(100); c.r.done(keptAll(100, "v")...) }, func() { c.r.awaits(100) }, 3 + 300},
		{"extend, 1", func() { c.hand(1) }, func() { c.r.extend(tagsOfFirst(1)...) }, 5},
		{"extend, 100", func() { c.hand(100) }, func() { c.r.extend(tagsOfFirst(100)...) }, 5},
	})
}

func (c *costs) forecast(n int) {
	if _, err := c.r.store.forecast(context.Background(), 0, time.Second, n); err != nil {
		c.r.t.Fatal(err)
	}
}
