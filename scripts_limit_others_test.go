package delayqueue

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestScriptRubbishInLimits: nothing there raises, nor stops the queue.
func TestScriptRubbishInLimits(t *testing.T) {
	t.Parallel()
	more := []string{"0 0 0 0 0 0", "1 1 1 1 1 1", "1 1 1 1", "1 0 1 0", "5 1000000 0 0",
		"7258118400000000 7258118400000000 7258118400000000 1 1 1",
		"1 7258118400000000 7258118400000000 0 0 0", "1 7258118400000000 1 7258118400000000 0 1",
		"1717200000000000 1717200000000000", "1 2 3 4 1", "0 0 0 0 1",
		"1717200000000000 1717200000000000 7258118400000000 7258118400000000 1"}
	for _, field := range []string{"limits", "override", "tat", "throttled", "limited"} {
		for name, l := range map[string]Limits{"none": {}, "both": {Rate: 100, Per: time.Second, Burst: 10, Concurrency: 100}} {
			t.Run(field+" "+name, func(t *testing.T) {
				onBoth(t, limited(l, func(r *rig) {
					for i, value := range append(append([]string{}, rubbish...), more...) {
						r.do("HSET", r.keys.state, "limits", "", field, value)
						for _, err := range everyCall(r, newCaller(), i) {
							r.t.Errorf("%s %q: %v", field, value, err)
						}
						r.at(r.since(r.now) + time.Hour)
						r.do("HDEL", r.keys.state, "override")
						r.fetch(newCaller(), 0)
						r.do("HSET", r.keys.state, "limits", "", field, value)
						if !strings.HasPrefix(value, "1 7258118400000000 1 7") && field != "override" {
							goesOn(r)
						}
						r.do("DEL", r.keys.state)
					}
				}))
			})
		}
	}
}

// TestScriptCostsOfLimits: how many commands each takes, as the comment on its script says.
func TestScriptCostsOfLimits(t *testing.T) {
	t.Parallel()
	c := newCosts(t)
	both := Limits{Rate: 1000, Per: time.Second, Burst: 10, Concurrency: 10}
	with := func(l Limits, do func()) func() { return func() { c.r.limits = l; do() } }
	full := with(three, func() { c.send(dueAlike(4, 0)...); c.fetch(3); c.quiet() })
	c.cost(t, []costsRow{
		{"fetch, idle, with a rate", with(tenPerSecond, c.quiet), func() { c.fetch(idleWant) }, 12 + 1},
		{"fetch, idle, with both", with(both, c.quiet), func() { c.fetch(idleWant) }, 12 + 2},
		{"fetch, a message", with(both, func() { c.hour(); c.fetch(0); c.send(dueAlike(1, 0)...) }), func() { c.fetch(1) }, 19 + 2},
		{"fetch, full", full, func() { c.fetch(idleWant) }, 13 + 2},
		{"settle, 1 ack that frees a place", full, func() { c.r.done(acksOf(1)...) }, 9 + 2},
		{"settle, 100 acks", with(Limits{Concurrency: 100}, func() { c.hand(100) }), func() { c.r.done(acksOf(100)...) }, 9},
		{"settle, a handler that runs on", full, func() { c.r.done(runsOn(tagsOfFirst(1)[0])) }, 17 + 1},
		{"overrun, 100", with(both, func() { c.fetch(0) }), func() { c.r.overrun(time.Second, tagsOfFirst(100)...) }, 5},
		{"overrun that frees a place", func() { full(); c.r.overrun(time.Second, "a"); c.quiet() }, func() { c.r.overrun(0, "a") }, 7},
		{"cancel", full, func() { c.r.cancel("id", acksOf(1)[0].tag) }, 23 + 1},
		{"limit", full, func() {
			by := newCaller()
			by.next()
			if _, err := c.r.store.setLimits(ctxB, by, both); err != nil {
				c.r.t.Fatal(err)
			}
		}, 6},
		{"lift", with(Limits{}, func() {
			c.send(dueAlike(4, 0)...)
			c.fetch(3)
			said := acksOf(1)[0]
			said.kind, said.delay = outcomeThrottle, time.Hour
			c.r.done(said)
			c.quiet()
		}), func() {
			by := newCaller()
			by.next()
			if _, err := c.r.store.liftThrottle(ctxB, by); err != nil {
				c.r.t.Fatal(err)
			}
		}, 7},
	})
}

// TestLimitsText: what scripts are told, and what they say.
func TestLimitsText(t *testing.T) {
	t.Parallel()
	for _, l := range []Limits{{}, tenPerSecond, three, {Rate: 1, Per: maxPer, Burst: maxRate, Concurrency: 1<<31 - 1}} {
		if got := limitsOf(strings.Fields(l.text())); got != l {
			t.Errorf("%+v is %+v", l, got)
		}
	}
	if got := fmt.Sprint(ratePer(1500*time.Nanosecond), ratePer(time.Second)); got != "2µs 1s" {
		t.Error(got)
	}
}

// throttles is a settlement that holds for the whole queue.
func throttles(name string, d time.Duration, text string) settlement {
	s := ends(outcomeThrottle, name, 0, 0, text)
	s.delay = d
	return s
}

// TestScriptThrottle: nothing is handed out until a throttle is over, with limits and without; then all that may.
func TestScriptThrottle(t *testing.T) {
	const rest = "pending c@0s d@0s e@0s f@0s "
	begin := func(r *rig) {
		r.put(six()...)
		r.gives(2, "a b", 0)
		r.done(throttles("a", time.Second, "429"), ack("b"))
	}
	clean := func(r *rig) {
		for _, field := range []string{"limits", "throttled", "limited"} {
			r.equal(field, r.cli.HExists(ctxB, r.keys.state, field).Val(), false)
		}
	}
	runScripts(t, map[string]scriptCase{
		"nothing goes before": {func(r *rig) { begin(r); r.gives(10, "", time.Second) }, rest + "retry 2:a@1s fail a=2/0/0@0s!429 wake 1s"},
		"and sends wake nobody": {func(r *rig) {
			begin(r)
			r.gives(10, "", time.Second)
			r.do("DEL", r.keys.wake)
			r.at(time.Millisecond)
			r.put(msg("g", 0))
		}, rest + "g@1ms retry 2:a@1s fail a=2/0/0@0s!429 armed 0s"},
		"then all go, and nothing is left of it": {func(r *rig) {
			begin(r)
			r.at(time.Second)
			r.equal("handed out", len(r.fetch(newCaller(), 10).tags), 5)
			r.done(ack("2:a"), ack("c"), ack("d"), ack("e"), ack("f"))
			clean(r)
		}, ""},
		"a shorter one changes nothing": {func(r *rig) {
			begin(r)
			r.hand()
			r.do("HDEL", r.keys.state, "throttled")
			r.gives(1, "c", 0)
			r.gives(1, "d", 0)
			r.done(throttles("c", time.Minute, ""))
			r.done(throttles("d", time.Second, ""))
			r.at(2 * time.Second)
			r.gives(10, "", time.Minute)
			r.do("DEL", r.keys.pending, r.keys.retry, r.keys.unack, r.keys.msg, r.keys.fail, r.keys.wake, r.keys.state)
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
			r.cancel("id", idOf("a"))
			r.equal("void", r.settle(newCaller(), throttles("a", time.Minute, "")), []int{0})
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
			r.equal("handed out", len(r.fetch(newCaller(), 10).tags), 3)
			r.do("DEL", r.keys.pending, r.keys.retry, r.keys.unack, r.keys.msg, r.keys.fail, r.keys.wake, r.keys.state)
		}), ""},
		"a repeat throttles once": {func(r *rig) {
			r.hand(msg("a", 0))
			c := newCaller()
			r.settle(c, throttles("a", time.Second, ""))
			r.at(2 * time.Second)
			r.settleAgain(c, throttles("a", time.Second, ""))
			r.gives(1, "2:a", 0)
		}, "unack 2:a@12.000001s fail a=2/0/0@0s"},
	})
}

// lift lifts a throttle, twice as if the reply was lost, and says whether there was one.
func (r *rig) lift() (lifted bool) {
	r.t.Helper()
	c := newCaller()
	c.next()
	for i := range 2 {
		got, err := r.store.liftThrottle(ctxB, c)
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

// TestScriptUnthrottle: what a throttle puts off goes at once, within limits, and one consumer wakes for it.
func TestScriptUnthrottle(t *testing.T) {
	begin := func(r *rig, over time.Duration) {
		r.put(six()...)
		r.gives(2, "a b", 0)
		r.done(throttles("a", over, ""), ack("b"))
		r.gives(10, "", over)
		r.do("DEL", r.keys.wake) // a consumer has it
		r.at(time.Second)
	}
	lifted := func(r *rig, want bool, wakes any) {
		r.t.Helper()
		r.equal("lifted", r.lift(), want)
		r.equal("throttled", r.cli.HExists(ctxB, r.keys.state, "throttled").Val(), false)
		got, err := r.cli.ZScore(ctxB, r.keys.wake, "w").Result()
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
				r.equal(field, r.cli.HExists(ctxB, r.keys.state, field).Val(), false)
			}
		}, "unack c@11.000001s d@11.000001s e@11.000001s f@11.000001s retry 2:a@1h0m0s fail a=2/0/0@0s wake 1h0m0s"},
		"as many as the rate allows": {limited(Limits{Rate: 1, Per: time.Minute, Burst: 3}, func(r *rig) {
			begin(r, time.Hour)
			lifted(r, true, time.Second)
			r.gives(10, "c", time.Minute)
		}), "pending d@0s e@0s f@0s unack c@11.000001s retry 2:a@1h0m0s fail a=2/0/0@0s wake 1m0s"},
		"what a rate puts off waits on": {limited(Limits{Rate: 1, Per: time.Minute, Burst: 1}, func(r *rig) {
			r.put(six()...)
			r.gives(10, "a", time.Minute)
			r.do("DEL", r.keys.wake)
			lifted(r, false, nil)
			r.done(ack("a"))
			r.equal("limited", r.cli.HGet(ctxB, r.keys.state, "limited").Val() != "", true)
		}), "pending b@0s c@0s d@0s e@0s f@0s armed 0s"},
		"one that is over": {func(r *rig) { begin(r, time.Second); lifted(r, false, nil) },
			"pending c@0s d@0s e@0s f@0s retry 2:a@1s fail a=2/0/0@0s armed 0s"},
		"the clock is stepped back": {func(r *rig) {
			begin(r, time.Hour)
			r.at(-time.Minute)
			lifted(r, false, nil)
			r.do("DEL", r.keys.pending, r.keys.retry, r.keys.msg, r.keys.fail, r.keys.state)
		}, ""},
		"before anybody has looked": {func(r *rig) {
			r.put(six()...)
			r.gives(1, "a", 0)
			r.done(throttles("a", time.Hour, ""))
			lifted(r, true, time.Duration(0))
			r.gives(1, "b", 0)
		}, "pending c@0s d@0s e@0s f@0s unack b@10.000003s retry 2:a@1h0m0s fail a=2/0/0@0s wake 0s"},
		"beside a pause that ends after it": {func(r *rig) {
			begin(r, time.Hour)
			r.pause(2 * time.Hour)
			lifted(r, true, time.Second)
			r.gives(10, "", 2*time.Hour)
			r.pause(0)
			r.gives(10, "c d e f", time.Hour)
		}, "unack c@11.000001s d@11.000001s e@11.000001s f@11.000001s retry 2:a@1h0m0s fail a=2/0/0@0s wake 1h0m0s"},
		"beside a pause that ends before it": {func(r *rig) {
			begin(r, time.Hour)
			r.pause(2 * time.Hour)
			r.gives(10, "", 2*time.Hour)
			r.pause(0)
			r.gives(10, "", time.Hour)
			r.do("DEL", r.keys.wake)
			lifted(r, true, time.Second)
			r.gives(10, "c d e f", time.Hour)
		}, "unack c@11.000001s d@11.000001s e@11.000001s f@11.000001s retry 2:a@1h0m0s fail a=2/0/0@0s wake 1h0m0s"},
		"said once more after that": {func(r *rig) {
			begin(r, time.Hour)
			lifted(r, true, time.Second)
			r.gives(1, "c", 0)
			r.done(throttles("c", time.Minute, ""))
			r.gives(10, "", time.Minute+time.Second)
		}, "pending d@0s e@0s f@0s retry 2:c@1m1s 2:a@1h0m0s fail a=2/0/0@0s c=2/0/0@1s wake 1m1s"},
		"a queue that is not there": {func(r *rig) {
			c := newCaller()
			c.next()
			_, err := r.store.liftThrottle(ctxB, c)
			r.equal("no queue", errors.Is(err, ErrNoQueue), true)
			r.equal("state", r.cli.Exists(ctxB, r.keys.state).Val(), int64(0))
		}, ""},
		"a queue in which nothing waits": {func(r *rig) {
			r.do("HSET", r.keys.state, "sent", "0") // there is such a queue
			lifted(r, false, nil)
		}, ""},
		"a later call was carried out": {func(r *rig) {
			r.hand(msg("a", 0))
			late := newCaller()
			late.n = 2
			_, err := r.store.liftThrottle(ctxB, late)
			r.equal("the later one", err, nil)
			early := *late
			early.n = 1
			r.done(throttles("a", time.Hour, ""))
			_, err = r.store.liftThrottle(ctxB, &early)
			r.equal("refused", says(err, "DQSTALE"), true)
			r.equal("throttled", r.cli.HExists(ctxB, r.keys.state, "throttled").Val(), true)
		}, "retry 2:a@1h0m0s fail a=2/0/0@0s wake 1h0m0s"},
	})
}

// TestScriptCountsThrottle: until when a queue is throttled, also while nothing waits for that.
func TestScriptCountsThrottle(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		until := func(want time.Duration) {
			r.t.Helper()
			got, err := r.store.counts(ctxB)
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
		for _, rubbish := range append([]string{"1 2 3", "7258118400000000 7258118400000001"}, rubbish...) {
			r.do("HSET", r.keys.state, "throttled", rubbish)
			until(0)
			r.equal("lifted", r.lift(), false)
		}
	})
}

// TestScriptCountsLimits: what waits for a limit is told apart from what waits for a consumer.
func TestScriptCountsLimits(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		want := func(what string, limited bool, since, until time.Duration) {
			r.t.Helper()
			got, err := r.store.counts(ctxB)
			if err != nil {
				r.t.Fatal(err)
			}
			at := func(d time.Duration) (t time.Time) {
				if d >= 0 {
					t = time.UnixMicro(rigBase).Add(d)
				}
				return t
			}
			c := got.Counts
			if c.Limited != limited || !c.LimitedSince.Equal(at(since)) || !c.LimitedUntil.Equal(at(until)) {
				r.t.Errorf("%s: %v since %v until %v", what, c.Limited, c.LimitedSince, c.LimitedUntil)
			}
		}
		r.limits = Limits{Rate: 1, Per: 10 * time.Second, Burst: 1, Concurrency: 2}
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
		r.limits = Limits{Concurrency: 1}
		r.extend("a")
		r.at(21 * time.Second)
		r.extend("a")
		r.gives(1, "", 31*time.Second)
		want("a place", true, 0, -1)
		r.at(30 * time.Second)
		want("still no place", true, 0, -1)
		limits, err := r.store.counts(ctxB)
		r.equal("limits", fmt.Sprint(limits.limits.InForce(), err), "1 at a time <nil>")
		r.done(ack("a"))
		want("freed", false, -1, -1)
	})
}
