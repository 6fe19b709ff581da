package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestScriptRubbishInLimits: no value in the fields about limits makes a script raise or stops the queue.
func TestScriptRubbishInLimits(t *testing.T) {
	t.Parallel()
	more := []string{"0 0 0 0 0 0", "1 1 1 1 1 1", "1 1 1 1", "1 0 1 0", "5 1000000 0 0",
		"7258118400000000 7258118400000000 7258118400000000 1 1 1",
		"1 7258118400000000 7258118400000000 0 0 0", "1 7258118400000000 1 7258118400000000 0 1",
		"1717200000000000 1717200000000000", "1 2 3 4 1", "0 0 0 0 1",
		"1717200000000000 1717200000000000 7258118400000000 7258118400000000 1"}
	for n, field := range []string{"limits", "override", "tat", "throttled", "limited"} {
		for name, l := range map[string]RateLimits{"none": {}, "both": {Rate: 100, Per: time.Second, Burst: 10, Concurrency: 100}} {
			t.Run(field+" "+name, func(t *testing.T) {
				onReal(t, limited(l, func(r *rig) {
					for i, value := range someRubbish(n, more...) {
						r.do("HSET", r.Keys.State, "limits", "", field, value)
						for _, err := range everyCall(r, NewCaller(), i) {
							r.t.Errorf("%s %q: %v", field, value, err)
						}
						r.at(r.since(r.now) + time.Hour)
						r.do("HDEL", r.Keys.State, "override")
						r.fetch(NewCaller(), 0)
						r.do("HSET", r.Keys.State, "limits", "", field, value)
						if !strings.HasPrefix(value, "1 7258118400000000 1 7") && field != "override" {
							goesOn(r)
						}
						r.do("DEL", r.Keys.State)
					}
				}))
			})
		}
	}
}

// TestScriptCostsOfLimits: calls in a queue with limits take as many commands as the comments of their scripts say.
func TestScriptCostsOfLimits(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	both := RateLimits{Rate: 1000, Per: time.Second, Burst: 10, Concurrency: 10}
	with := func(l RateLimits, do func()) func() { return func() { c.r.limits = l; do() } }
	full := with(three, func() { c.send(dueAlike(4, 0)...); c.fetch(3); c.quiet() })
	c.cost(t, []costsRow{
		{"fetch, idle, with a rate", with(tenPerSecond, c.quiet), func() { c.fetch(idleWant) }, 12 + 1},
		{"fetch, idle, with both", with(both, c.quiet), func() { c.fetch(idleWant) }, 12 + 2},
		{"fetch, a message", with(both, func() { c.hour(); c.fetch(0); c.send(dueAlike(1, 0)...) }), func() { c.fetch(1) }, 19 + 2},
		{"fetch, full", full, func() { c.fetch(idleWant) }, 13 + 2},
		{"settle, 1 ack that frees a place", full, func() { c.r.done(acksOf(1)...) }, 9 + 2},
		{"settle, 100 acks", with(RateLimits{Concurrency: 100}, func() { c.hand(100) }), func() { c.r.done(acksOf(100)...) }, 9},
		{"settle, a handler that runs on", full, func() { c.r.done(runsOn(tagsOfFirst(1)[0])) }, 17 + 1},
		{"overrun, 100", with(both, func() { c.fetch(0) }), func() { c.r.overrun(time.Second, tagsOfFirst(100)...) }, 5},
		{"overrun that frees a place", func() { full(); c.r.overrun(time.Second, "a"); c.quiet() }, func() { c.r.overrun(0, "a") }, 7},
		{"cancel", full, func() { c.r.cancel("id", acksOf(1)[0].Tag) }, 23 + 1},
		{"limit", full, func() {
			by := newCall()
			if _, err := c.r.Store.SetLimits(queuetest.CtxB, by, both); err != nil {
				c.r.t.Fatal(err)
			}
		}, 6},
		{"lift", with(RateLimits{}, func() {
			c.send(dueAlike(4, 0)...)
			c.fetch(3)
			said := acksOf(1)[0]
			said.Kind, said.Delay = OutcomeThrottle, time.Hour
			c.r.done(said)
			c.quiet()
		}), func() {
			by := newCall()
			if _, err := c.r.Store.LiftThrottle(queuetest.CtxB, by); err != nil {
				c.r.t.Fatal(err)
			}
		}, 7},
	})
}

// TestLimitsText: limits are read as they were written.
func TestLimitsText(t *testing.T) {
	t.Parallel()
	for _, l := range []RateLimits{{}, tenPerSecond, three, {Rate: 1, Per: maxPer, Burst: maxRate, Concurrency: 1<<31 - 1}} {
		if got := limitsOf(strings.Fields(l.text())); got != l {
			t.Errorf("%+v is %+v", l, got)
		}
	}
	if got := fmt.Sprint(RatePer(1500*time.Nanosecond), RatePer(time.Second)); got != "2µs 1s" {
		t.Error(got)
	}
}

// throttles is a settlement that holds back the whole queue.
func throttles(name string, d time.Duration, text string) Settlement {
	s := ends(OutcomeThrottle, name, 0, 0, text)
	s.Delay = d
	return s
}

// TestScriptThrottle: until a throttle is over nothing is handed out, with limits and without. Then as much goes as may.
func TestScriptThrottle(t *testing.T) {
	const rest = "pending c@0s d@0s e@0s f@0s "
	begin := func(r *rig) {
		r.put(six()...)
		r.gives(2, "a b", 0)
		r.done(throttles("a", time.Second, "429"), ack("b"))
	}
	clean := func(r *rig) {
		for _, field := range []string{"limits", "throttled", "limited"} {
			r.equal(field, r.Cli.HExists(queuetest.CtxB, r.Keys.State, field).Val(), false)
		}
	}
	runScripts(t, map[string]scriptCase{
		"nothing goes before": {func(r *rig) { begin(r); r.gives(10, "", time.Second) }, rest + "retry 2:a@1s fail a=2/0/0@0s!429 wake 1s"},
		"and sends wake nobody": {func(r *rig) {
			begin(r)
			r.gives(10, "", time.Second)
			r.do("DEL", r.Keys.Wake)
			r.at(time.Millisecond)
			r.put(msg("g", 0))
		}, rest + "g@1ms retry 2:a@1s fail a=2/0/0@0s!429 armed 0s"},
		"then all go, and nothing is left of it": {func(r *rig) {
			begin(r)
			r.at(time.Second)
			r.equal("handed out", len(r.fetch(NewCaller(), 10).Tags), 5)
			r.done(ack("2:a"), ack("c"), ack("d"), ack("e"), ack("f"))
			clean(r)
		}, ""},
		"a shorter one changes nothing": {func(r *rig) {
			begin(r)
			r.hand()
			r.do("HDEL", r.Keys.State, "throttled")
			r.gives(1, "c", 0)
			r.gives(1, "d", 0)
			r.done(throttles("c", time.Minute, ""))
			r.done(throttles("d", time.Second, ""))
			r.at(2 * time.Second)
			r.gives(10, "", time.Minute)
			r.do("DEL", r.Keys.pending, r.Keys.retry, r.Keys.unack, r.Keys.msg, r.Keys.fail, r.Keys.Wake, r.Keys.State)
		}, ""},
		"two hours are one": {func(r *rig) {
			r.hand(msg("a", 0))
			r.put(msg("b", 0))
			r.done(throttles("a", 2*time.Hour, ""))
			r.gives(1, "", time.Hour)
		},
			"pending b@0s retry 2:a@2h0m0s fail a=2/0/0@0s wake 1h0m0s"},
		"a void one changes nothing": {func(r *rig) {
			r.hand(msg("a", 0))
			r.put(msg("b", 0))
			r.cancel("id", queuetest.IDOf("a"))
			r.equal("void", r.settle(NewCaller(), throttles("a", time.Minute, "")), []int{0})
			r.gives(1, "b", 0)
		}, "unack b@10.000003s"},
		"the clock is stepped back": {func(r *rig) {
			r.put(msg("b", 0))
			r.at(time.Hour)
			r.gives(1, "b", 0)
			r.put(msgAt("c", 0))
			r.done(throttles("b", time.Minute, ""))
			r.at(30 * time.Minute)
			r.put(msg("d", 0))
			r.gives(10, "d", time.Hour)
		}, "pending c@1h0m0s unack d@30m10.000001s retry 2:b@1h1m0s fail b=2/0/0@1h0m0s wake 1h0m0s"},
		"with limits": {limited(tenPerSecond, func(r *rig) {
			begin(r)
			r.gives(10, "", time.Second)
			r.at(time.Second)
			r.equal("handed out", len(r.fetch(NewCaller(), 10).Tags), 3)
			r.do("DEL", r.Keys.pending, r.Keys.retry, r.Keys.unack, r.Keys.msg, r.Keys.fail, r.Keys.Wake, r.Keys.State)
		}), ""},
		"a repeat throttles once": {func(r *rig) {
			r.hand(msg("a", 0))
			c := NewCaller()
			r.settle(c, throttles("a", time.Second, ""))
			r.at(2 * time.Second)
			r.settleAgain(c, throttles("a", time.Second, ""))
			r.gives(1, "2:a", 0)
		}, "unack 2:a@12.000001s fail a=2/0/0@0s"},
	})
}

// lift lifts a throttle, twice as if the reply was lost, and returns whether there was one.
func (r *rig) lift() (lifted bool) {
	r.t.Helper()
	c := newCall()
	for i := range 2 {
		got, err := r.Store.LiftThrottle(queuetest.CtxB, c)
		if err != nil {
			r.t.Fatal(err)
		}
		if i > 0 {
			r.equal("the repeat", got, lifted)
		}
		lifted = got
	}
	return lifted
}

// TestScriptUnthrottle: when a throttle is lifted, what it put off may go at once, and one consumer wakes for it.
func TestScriptUnthrottle(t *testing.T) {
	begin := func(r *rig, over time.Duration) {
		r.put(six()...)
		r.gives(2, "a b", 0)
		r.done(throttles("a", over, ""), ack("b"))
		r.gives(10, "", over)
		r.do("DEL", r.Keys.Wake) // a consumer has it
		r.at(time.Second)
	}
	lifted := func(r *rig, want bool, wakes any) {
		r.t.Helper()
		r.equal("lifted", r.lift(), want)
		r.equal("throttled", r.Cli.HExists(queuetest.CtxB, r.Keys.State, "throttled").Val(), false)
		got, err := r.Cli.ZScore(queuetest.CtxB, r.Keys.Wake, "w").Result()
		if wakes == nil {
			r.equal("wakes nobody", err, redis.Nil)
		} else {
			r.equal("wakes", got, float64(rigBase+wakes.(time.Duration).Microseconds()))
		}
	}
	runScripts(t, map[string]scriptCase{
		"all go": {func(r *rig) {
			begin(r, time.Hour)
			lifted(r, true, time.Second)
			r.gives(10, "c d e f", time.Hour)
			r.equal("once more", r.lift(), false)
			for _, field := range []string{"limits", "throttled", "limited"} {
				r.equal(field, r.Cli.HExists(queuetest.CtxB, r.Keys.State, field).Val(), false)
			}
		}, "unack c@11.000001s d@11.000001s e@11.000001s f@11.000001s retry 2:a@1h0m0s fail a=2/0/0@0s wake 1h0m0s"},
		"while the queue is paused": {func(r *rig) {
			begin(r, time.Hour)
			r.pause(time.Minute)
			r.equal("lifted", r.lift(), true)
			r.gives(10, "", time.Minute)
			r.pause(0)
			r.gives(10, "c d e f", time.Hour)
		}, "unack c@11.000001s d@11.000001s e@11.000001s f@11.000001s retry 2:a@1h0m0s fail a=2/0/0@0s wake 1h0m0s"},
		"after a pause": {func(r *rig) {
			begin(r, time.Hour)
			r.pause(time.Minute)
			r.gives(10, "", time.Hour)
			r.pause(0)
			r.gives(10, "", time.Hour)
			r.equal("lifted", r.lift(), true)
			r.gives(10, "c d e f", time.Hour)
		}, "unack c@11.000001s d@11.000001s e@11.000001s f@11.000001s retry 2:a@1h0m0s fail a=2/0/0@0s wake 1h0m0s"},
		"one that is over": {func(r *rig) { begin(r, time.Second); lifted(r, false, nil) },
			"pending c@0s d@0s e@0s f@0s retry 2:a@1s fail a=2/0/0@0s armed 0s"},
		"the clock is stepped back": {func(r *rig) {
			begin(r, time.Hour)
			r.at(-time.Minute)
			lifted(r, false, nil)
			r.do("DEL", r.Keys.pending, r.Keys.retry, r.Keys.msg, r.Keys.fail, r.Keys.State)
		}, ""},
		"a queue that is not there": {func(r *rig) {
			c := newCall()
			_, err := r.Store.LiftThrottle(queuetest.CtxB, c)
			r.equal("no queue", errors.Is(err, ErrNoQueue), true)
			r.equal("state", r.Cli.Exists(queuetest.CtxB, r.Keys.State).Val(), int64(0))
		}, ""},
		"a later call was carried out": {func(r *rig) {
			r.hand(msg("a", 0))
			late := NewCaller()
			late.N = 2
			_, err := r.Store.LiftThrottle(queuetest.CtxB, late)
			r.equal("the later one", err, nil)
			early := *late
			early.N = 1
			r.done(throttles("a", time.Hour, ""))
			_, err = r.Store.LiftThrottle(queuetest.CtxB, &early)
			r.equal("refused", link.Says(err, "DQSTALE"), true)
			r.equal("throttled", r.Cli.HExists(queuetest.CtxB, r.Keys.State, "throttled").Val(), true)
		}, "retry 2:a@1h0m0s fail a=2/0/0@0s wake 1h0m0s"},
	})
}

// TestScriptCountsThrottle: counts say until when a queue is throttled, also if nothing is due.
func TestScriptCountsThrottle(t *testing.T) {
	t.Parallel()
	onReal(t, func(r *rig) {
		until := func(want time.Duration) {
			r.t.Helper()
			got, err := r.Store.Counts(queuetest.CtxB)
			if err != nil {
				r.t.Fatal(err)
			}
			if want == 0 {
				r.equal("none", got.ThrottledUntil.IsZero(), true)
			} else {
				r.equal("until", r.since(got.ThrottledUntil.UnixMicro()), want)
			}
		}
		r.hand(msg("a", 0))
		until(0)
		r.done(throttles("a", time.Minute, ""))
		until(time.Minute)
		r.at(time.Minute - time.Microsecond)
		until(time.Minute)
		r.at(time.Minute)
		until(0)
		r.at(-time.Second)
		until(0)
		r.at(time.Second)
		until(time.Minute)
		r.lift()
		until(0)
		for _, rubbish := range append([]string{"1 2 3", "7258118400000000 7258118400000001", fmt.Sprint(rigBase, message.Forever)}, rubbish...) {
			r.do("HSET", r.Keys.State, "throttled", rubbish)
			until(0)
			r.equal("lifted", r.lift(), false)
		}
	})
}

// TestScriptCountsLimits: counts tell messages that wait for a limit apart from messages that wait for a consumer.
func TestScriptCountsLimits(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		want := func(what string, limited bool, since, until time.Duration) {
			r.t.Helper()
			got, err := r.Store.Counts(queuetest.CtxB)
			if err != nil {
				r.t.Fatal(err)
			}
			at := func(d time.Duration) (t time.Time) {
				if d >= 0 {
					t = time.UnixMicro(rigBase).Add(d)
				}
				return t
			}
			c := got
			if c.Limited != limited || !c.LimitedSince.Equal(at(since)) || !c.LimitedUntil.Equal(at(until)) {
				r.t.Errorf("%s: %v since %v until %v", what, c.Limited, c.LimitedSince, c.LimitedUntil)
			}
		}
		r.limits = RateLimits{Rate: 1, Per: 10 * time.Second, Burst: 1, Concurrency: 2}
		want("nothing", false, -1, -1)
		r.put(six()...)
		want("nobody has looked", false, -1, -1)
		r.gives(1, "a", 10*time.Second)
		want("the rate", true, 0, 10*time.Second)
		r.at(5 * time.Second)
		r.gives(0, "", 10*time.Second)
		want("still", true, 0, 10*time.Second)
		r.extend("a")
		r.at(10*time.Second + 999*time.Millisecond)
		want("in a moment", true, 0, -1)
		r.at(11 * time.Second)
		want("nobody comes", false, -1, -1)
		r.limits = RateLimits{Concurrency: 1}
		r.extend("a")
		r.at(21 * time.Second)
		r.extend("a")
		r.gives(1, "", 31*time.Second)
		want("a place", true, 0, -1)
		r.at(30 * time.Second)
		want("still no place", true, 0, -1)
		limits, err := r.Store.Counts(queuetest.CtxB)
		r.equal("limits", fmt.Sprint(limits.Asked, err), "1 at a time <nil>")
		r.done(ack("a"))
		want("freed", false, -1, -1)
	})
}
