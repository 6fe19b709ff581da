package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// A costs counts the commands of script calls. Its rig is made anew for each row.
type costs struct {
	server *redistest.Server
	cli    *redis.Client
	r      *rig
	idle   *Caller // of a consumer that goes by the alarm
}

// A costsRow is a call of one script: what comes before it, and how many commands it has inside.
type costsRow struct {
	name         string
	before, call func()
	want         int
}

func newCosts(t *testing.T) *costs {
	t.Helper()
	server := redistest.Start(t)
	c := &costs{server: server, cli: queuetest.PatientClient(server.Addr())}
	t.Cleanup(func() { _ = c.cli.Close() })
	return c
}

// cost makes the calls one after the other, and compares their commands with what the server counts.
func (c *costs) cost(t *testing.T, rows []costsRow) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c.r = rigAt(t, c.server.Addr())
			row.before()
			spent := queuetest.Commands(t, c.cli, row.call)
			c.r.read()
			calls, inside := spent["eval"], 0
			delete(spent, "eval")
			for _, greeting := range []string{"hello", "client",
				"client|setinfo"} { // of a new connection: the one before was too old
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

func (c *costs) send(ms ...*SendMessage) { c.r.send(NewCaller(), ms...) }

func (c *costs) fetch(want int) {
	c.r.t.Helper()
	by := newCall()
	f, err := c.r.Store.Fetch(queuetest.CtxB, by, FetchRequest{Want: want, Settings: &c.r.with, Limits: c.r.limits})
	if err != nil || len(f.Tags) != want && want != idleWant {
		c.r.t.Fatalf("fetched %d, want %d: %v", len(f.Tags), want, err)
	}
	c.r.gave(f)
}

// byAlarm is a fetch of an idle consumer, after a first one.
func (c *costs) byAlarm() {
	c.r.t.Helper()
	c.idle.Next()
	queuetest.Must(c.r.t,
		queuetest.Failure(c.r.Store.Fetch(queuetest.CtxB, c.idle,
			FetchRequest{Want: idleWant, ByAlarm: true, Settings: &c.r.with})))
}

func (c *costs) tick() { c.r.tickOf(NewCaller()) }

// hand sends n messages and fetches them.
func (c *costs) hand(n int) { c.send(dueAlike(n, 0)...); c.fetch(n) }

// hour sends a message that waits, and is longer than the others, so that the field big does not change.
func (c *costs) hour() { c.send(msg("waits", time.Hour, sized(200))) }

// quiet is a first fetch. After it no sweep of old callers is due, and nothing has to be moved to history.
func (c *costs) quiet() {
	c.fetch(idleWant)
	c.r.tickOf(NewCaller())
	c.r.do(append([]any{"HDEL", c.r.Keys.State}, "delivered", "failed", "lost", "garbage", "superseded", "started", "late",
		"latest")...)
}

// quietConsumer is quiet for a consumer that goes by the alarm from then on.
func (c *costs) quietConsumer() {
	c.idle = NewCaller()
	c.byAlarm()
	c.quiet()
}

// over makes n keys held whose holds are over.
func (c *costs) over(n int) {
	for i := range n {
		c.r.do("ZADD", c.r.Keys.of("holds"), i+1, fmt.Sprint("k", i))
	}
	c.r.do("HSET", c.r.Keys.State, "holds", 1)
}

// group makes a group of n parts.
func (c *costs) group(n int, d time.Duration) {
	c.send(many(n, func(i int) *SendMessage { return untimed(part(fmt.Sprint("g", i), d, 0)) })...)
}

// many makes n of a kind.
func many[T any](n int, one func(i int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = one(i)
	}
	return all
}

// changed makes a change to each.
func changed[T any](all []T, change func(i int, one *T)) []T {
	for i := range all {
		change(i, &all[i])
	}
	return all
}

// dueAlike makes n messages that are due alike.
func dueAlike(n int, d time.Duration, keys ...string) []*SendMessage {
	return many(n, func(i int) *SendMessage {
		return msg(fmt.Sprint("m", i), d, func(e *message.Envelope) {
			for _, key := range keys {
				e.Key = fmt.Sprint(key, i)
			}
		})
	})
}

// numberedAlike makes n messages of one sequence.
func numberedAlike(n int, sequence string, keys ...string) []*SendMessage {
	return changed(dueAlike(n, time.Minute, keys...), func(i int, m **SendMessage) { numbered(*m, sequence, int64(i)) })
}

func withPolicy(p Conflict, ms []*SendMessage) []*SendMessage {
	return changed(ms, func(_ int, m **SendMessage) { on(p, true, *m) })
}

// lanesAlike are n messages of so many lanes, due now.
func lanesAlike(n, lanes int) []*SendMessage {
	return many(n, func(i int) *SendMessage { return inLane(fmt.Sprint("lane-", i%lanes), 1, fmt.Sprint("m", i), 0) })
}

func acksOf(n int) []Settlement {
	return many(n, func(i int) Settlement { return ack(fmt.Sprint("m", i)) })
}

// lanedAcks are the acks of the first of these.
func lanedAcks(n int) []Settlement {
	return many(n, func(i int) Settlement { return lane(fmt.Sprint("lane-", i), ack(fmt.Sprint("m", i))) })
}

func keyedAcks(n int) []Settlement {
	return many(n, func(i int) Settlement { return ack(fmt.Sprint("m", i), fmt.Sprint("k", i)) })
}

func countingAcks(n int) []Settlement {
	return many(n, func(i int) Settlement { return counting("k", ack(fmt.Sprint("m", i))) })
}

func withHolds(all []Settlement) []Settlement {
	return changed(all, func(_ int, s *Settlement) { s.Hold = time.Hour })
}

func keptAll(n int, d time.Duration, value string) []Settlement {
	return many(n, func(i int) Settlement { return kept(fmt.Sprint("m", i), d, value) })
}

func tagsOfFirst(n int) []string { return many(n, func(i int) string { return fmt.Sprint("m", i) }) }

// TestScriptCostsOfSends: each send takes as many commands as the comment of its script says.
func TestScriptCostsOfSends(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	c.cost(t, []costsRow{
		{"send, 1", c.hour, func() { c.send(dueAlike(1, 2*time.Hour)...) }, 5},
		{"send, 100", c.hour, func() { c.send(dueAlike(100, 2*time.Hour)...) }, 6},
		{"send, 1 that is the soonest", c.hour, func() { c.send(dueAlike(1, time.Minute)...) }, 6},
		{"send, 100 that are the soonest", c.hour, func() { c.send(dueAlike(100, time.Minute)...) }, 8},
		{"send, 1 with a deadline and a timeout", c.hour, func() {
			c.send(msg("m", 2*time.Hour, func(e *message.Envelope) { e.Deadline, e.Timeout = c.r.now+10e9, time.Second }))
		}, 6},
		{"send, 1 with a key", c.hour, func() { c.send(dueAlike(1, 2*time.Hour, "k")...) }, 6 + 1 + 1},
		{"send, 100 with keys", c.hour, func() { c.send(dueAlike(100, 2*time.Hour, "k")...) }, 6 + 100 + 1},
		{"put, 1", c.hour, func() { c.send(numberedAlike(1, "s")...) }, 16 + 4 + 1},
		{"put, 1 that is passed", func() { c.hour(); c.send(numberedAlike(1, "s")...) }, func() {
			c.send(numberedAlike(1, "s")...)
		}, 16 + 1},
		{"put, 100 that are the soonest", c.hour, func() { c.send(numberedAlike(100, "s")...) }, 16 + 4*100 + 1},
		{"put, 100 with keys", c.hour, func() { c.send(numberedAlike(100, "s", "k")...) }, 16 + 6*100 + 1},
		{"put, 1 that keeps another", func() { c.send(dueAlike(1, time.Minute, "k")...) },
			func() { c.send(on(ConflictKeep, true, dueAlike(1, 0, "k")[0])) }, 18 + 3},
		{"put, 100 that replace others", func() { c.send(dueAlike(100, time.Minute, "k")...) },
			func() { c.send(withPolicy(ConflictReplace, dueAlike(100, time.Hour, "k"))...) }, 18 + 7*100},
		{"put, 1 that begins a group", c.hour, func() { c.send(part("m0", 2*time.Hour, 0)) }, 19 + 4},
		{"put, 1 that is appended", func() { c.send(part("m0", time.Hour, 0)) }, func() {
			c.send(part("m1", 2*time.Hour, 0))
		}, 19 + 8},
		{"put, 1 that replaces a group of 100", func() { c.group(100, time.Hour) },
			func() { c.send(on(ConflictReplace, true, msg("r", 2*time.Hour, keyed("k")))) }, 19 + 8},
		{"put, 100 that reschedule others", func() { c.send(dueAlike(100, time.Minute, "k")...) },
			func() { c.send(withPolicy(ConflictReschedule, dueAlike(100, time.Hour, "k"))...) }, 18 + 7*100},
		{"put, 1 that has a lane", c.hour, func() { c.send(lanesAlike(1, 1)...) }, 18 + 5},
		{"put, 100 that have a lane each", c.hour, func() { c.send(lanesAlike(100, 100)...) }, 18 + 4*100 + 1},
		{"put, 100 into one lane", c.hour, func() { c.send(lanesAlike(100, 1)...) }, 18 + 4*100 + 5},
	})
}

// TestScriptCostsOfFetches: so does each fetch.
func TestScriptCostsOfFetches(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	c.cost(t, []costsRow{
		{"fetch, idle", c.quiet, func() { c.fetch(idleWant) }, 11},
		{"fetch, while one is handled", func() { c.hand(1); c.quiet() }, func() { c.fetch(idleWant) }, 11},
		{"fetch, idle, by the alarm", c.quietConsumer, c.byAlarm, 5},
		{"fetch, by the alarm, with a message that waits", func() { c.hour(); c.quietConsumer() }, c.byAlarm, 5},
		{"fetch, by the alarm, while one is handled", func() { c.hand(1); c.quietConsumer() }, c.byAlarm, 6},
		{"fetch, with a message that waits", func() { c.hour(); c.quiet() }, func() { c.fetch(idleWant) }, 11},
		{"fetch, without a free worker", func() { c.hour(); c.quiet() }, func() { c.fetch(0) }, 11},
		{"tick, frees 100 keys", func() {
			c.send(dueAlike(100, 0, "k")...)
			c.fetch(100)
			c.r.done(withHolds(keyedAcks(100))...)
			c.quiet()
			c.over(100)
		}, c.tick, 18 + 5},
		{"tick", c.quiet, c.tick, 18},
		{"tick, a lease is over", func() {
			c.hand(1)
			c.r.at(9 * time.Second)
			c.quiet()
			c.r.at(11 * time.Second)
		}, c.tick, 31},
		{"fetch, idle, and says something", c.quiet, func() {
			c.r.t.Helper()
			by := newCall()
			queuetest.Must(c.r.t,
				queuetest.Failure(c.r.Store.Fetch(queuetest.CtxB, by, FetchRequest{Presence: "{}", Settings: &c.r.with})))
		}, 14},
		{"fetch, a message", func() { c.hour(); c.fetch(0); c.send(dueAlike(1, 0)...) }, func() { c.fetch(1) }, 19},
		{"fetch, a group of 100", func() { c.group(100, 0); c.fetch(0) }, func() { c.fetch(1) }, 19 + 2},
		{"fetch, a message where there are groups", func() { c.group(100, time.Hour); c.fetch(0); c.send(dueAlike(1, 0)...) },
			func() { c.fetch(1) }, 19 + 1},
		{"fetch, idle, with 100 that are kept", func() { c.hand(100); c.r.done(keptAll(100, time.Hour, "v")...); c.quiet() },
			func() { c.fetch(idleWant) }, 11},
	})
}

// superseded hands out a message with a key, which another message takes over.
func (c *costs) superseded() {
	c.send(dueAlike(1, 0, "k")...)
	c.fetch(1)
	c.r.answers(NewCaller(), on(ConflictReplace, true, msg("b", time.Hour, keyed("k0"))))
}

// TestScriptCostsOfSettlements: so does each settlement.
func TestScriptCostsOfSettlements(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	c.cost(t, []costsRow{
		{"settle, 1 ack", func() { c.hand(1) }, func() { c.r.done(acksOf(1)...) }, 8},
		{"settle, 100 acks", func() { c.hand(100) }, func() { c.r.done(acksOf(100)...) }, 8},
		{"settle, 1 ack that a message follows", func() { c.hour(); c.hand(1) },
			func() { c.r.done(then(acksOf(1)[0], dueAlike(1, 2*time.Hour)...)) }, 15 + 4 + 2 + 2},
		{"settle, 1 ack that 10 with keys follow", func() { c.hour(); c.hand(1) },
			func() { c.r.done(then(acksOf(1)[0], dueAlike(10, 2*time.Hour, "k")...)) }, 15 + 4 + 10*4 + 3},
		{"settle, 10 acks that count", func() { c.send(waitsFor(20, msg("p", time.Hour, keyed("k")))); c.hand(10) },
			func() { c.r.done(countingAcks(10)...) }, 15 + 10*3 + 10*4 + 4},
		{"settle, 10 acks that count, the last one among them", func() {
			c.send(waitsFor(10, msg("p", time.Hour, keyed("k"))))
			c.hand(10)
		},
			func() { c.r.done(countingAcks(10)...) }, 15 + 10*3 + 10*4 + 4 + 4 + 1},
		// None of them looks through ready.
		{"settle, 100 acks of which one is void", func() { c.hand(100); c.r.cancel("id", queuetest.IDOf("m7")) },
			func() { c.r.equal("void", c.r.settle(NewCaller(), acksOf(100)...), []int{7}) }, 8 + 2 + 1 + 99},
		{"settle, 100 acks of a lease that is over",
			func() { c.hand(100); c.r.do("DEL", c.r.Keys.of("unack"), c.r.Keys.of("lease"), c.r.Keys.msg) },
			func() { c.r.equal("void", len(c.r.settle(NewCaller(), acksOf(100)...)), 100) }, 6 + 2 + 100},
		{"settle, 100 acks with keys of which one is void", func() {
			c.send(dueAlike(100, 0, "k")...)
			c.fetch(100)
			c.r.cancel("key", "k7")
		},
			func() { c.r.equal("void", c.r.settle(NewCaller(), keyedAcks(100)...), []int{7}) }, 14 + 2 + 1 + 99*6 + 1},
		{"settle, 100 acks with keys", func() { c.send(dueAlike(100, 0, "k")...); c.fetch(100) },
			func() { c.r.done(keyedAcks(100)...) }, 15 + 100*6},
		{"settle, 100 acks with keys that stay taken", func() { c.send(dueAlike(100, 0, "k")...); c.fetch(100) },
			func() { c.r.done(withHolds(keyedAcks(100))...) }, 16 + 100*7},
		{"settle, 1 with a key that fails", func() { c.send(dueAlike(1, 0, "k")...); c.fetch(1) },
			func() { c.r.done(fails("m0", "k0")) }, 15 + 5},
		{"settle, 1 that fails and was superseded", c.superseded, func() { c.r.done(fails("m0", "k0")) }, 15 + 2 + 2 + 5},
		{"settle, 1 ack of what was superseded", c.superseded, func() { c.r.done(ack("m0", "k0")) }, 15 + 2 + 2 + 5},
		{"settle, 100 that are kept with a result", func() { c.hand(100) }, func() {
			c.r.done(keptAll(100, time.Hour, "v")...)
		}, 19 + 100*5},
		{"settle, 1 that is kept where there is no room", func() {
			c.r.doneMax = 1
			c.hand(2)
			c.r.done(keptAll(1, time.Hour, "v")...)
		},
			func() { c.r.done(kept("m1", time.Minute, "")) }, 19 + 4 + 11},
		{"settle, 1 ack of a group of 100", func() { c.group(100, 0); c.fetch(1) },
			func() { c.r.done(groupOf(100, ack("g0", "k"))) }, 16 + 5 + 2},
		{"settle, 1 ack where there are groups", func() { c.group(2, time.Hour); c.hand(1) }, func() {
			c.r.done(acksOf(1)...)
		}, 8},
		{"settle, 1 that is kept without a result", func() { c.hand(1) }, func() { c.r.done(keptAll(1, time.Hour, "")...) },
			19 + 4},
		{"settle, 100 acks of a lane each", func() { c.send(lanesAlike(100, 100)...); c.fetch(100) },
			func() { c.r.done(lanedAcks(100)...) }, 18 + 100*6},
		{"settle, 1 ack in a lane where others wait", func() { c.send(lanesAlike(100, 1)...); c.fetch(1) },
			func() { c.r.done(lanedAcks(1)...) }, 18 + 6 + 6},
		{"settle, 1 failure in a lane where others wait", func() { c.send(lanesAlike(100, 1)...); c.fetch(1) },
			func() { c.r.done(lane("lane-0", fails("m0", ""))) }, 18 + 5},
	})
}

// TestScriptCostsOfOtherCalls: so does each other call.
func TestScriptCostsOfOtherCalls(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	c.cost(t, []costsRow{
		{"counts", func() {
			c.hand(3)
			c.hour()
			c.r.done(ends(OutcomeReady, "m0", 0, 0, ""), ends(OutcomeRetry, "m1", 1, 0, ""))
		}, func() {
			queuetest.Must(c.r.t, queuetest.Failure(c.r.Store.Counts(queuetest.CtxB)))
		}, 26},
		{"forecast, 60 spans", func() { c.send(dueAlike(1, 24*time.Hour, "")...) }, func() { c.forecast(60) }, 4 + 61},
		{"forecast, 500 spans behind all that there is", func() { c.send(dueAlike(1, 0, "")...); c.r.at(time.Second) },
			func() { c.forecast(500) }, 4 + 1},
		{"await, 100 that are not there", c.hour, func() { c.r.awaits(100) }, 3 + 100},
		{"await, 100 that are kept", func() { c.hand(100); c.r.done(keptAll(100, time.Hour, "v")...) }, func() {
			c.r.awaits(100)
		}, 3 + 300},
		{"extend, 1", func() { c.hand(1) }, func() { c.r.extend(tagsOfFirst(1)...) }, 6 + 1},
		{"extend, 100", func() { c.hand(100) }, func() { c.r.extend(tagsOfFirst(100)...) }, 6 + 100},
	})
}

func (c *costs) forecast(n int) {
	queuetest.Must(c.r.t, queuetest.Failure(c.r.Store.Forecast(queuetest.CtxB, 0, time.Second, n)))
}
