package delayqueue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// limited makes a rig whose consumers ask for these limits.
func limited(l Limits, do func(r *rig)) func(r *rig) {
	return func(r *rig) {
		r.limits = l
		do(r)
	}
}

// tenPerSecond lets three go at once.
var tenPerSecond = Limits{Rate: 10, Per: time.Second, Burst: 3}

// six are messages that are due now.
func six() []*sendMessage {
	return []*sendMessage{msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0), msg("f", 0)}
}

// gives fetches for a new consumer, and says what it gets and what is next.
func (r *rig) gives(want int, tags string, next time.Duration) {
	r.t.Helper()
	f := r.fetch(newCaller(), want)
	r.equal("handed out", handed(f), tags)
	if f.next == 0 {
		r.equal("next", time.Duration(0), next)
	} else {
		r.equal("next", r.since(int64(f.next)), next)
	}
}

// TestScriptRate: what may go by the rate goes, and the alarm is the instant at which the next may.
func TestScriptRate(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a burst, then one each": {limited(tenPerSecond, func(r *rig) {
			r.put(six()...)
			r.gives(10, "a b c", 100*time.Millisecond)
			r.at(100*time.Millisecond - time.Microsecond)
			r.gives(10, "", 100*time.Millisecond)
			r.at(100 * time.Millisecond)
			r.gives(10, "d", 200*time.Millisecond)
			r.at(450 * time.Millisecond)
			r.gives(10, "e f", 0)
		}), "unack a@10.000001s b@10.000001s c@10.000001s d@10.100001s e@10.450001s f@10.450001s"},
		"who asks for less leaves the rest": {limited(tenPerSecond, func(r *rig) {
			r.put(six()...)
			r.gives(2, "a b", 0)
			r.gives(2, "c", 100*time.Millisecond)
			r.gives(0, "", 100*time.Millisecond)
		}), "pending d@0s e@0s f@0s unack a@10.000001s b@10.000001s c@10.000003s wake 100ms"},
		"retries count, and what is released": {limited(tenPerSecond, func(r *rig) {
			r.hand(six()[:3]...)
			r.done(ends(outcomeReady, "a", 0, 0, ""))
			r.gives(10, "", 100*time.Millisecond)
			r.at(100 * time.Millisecond)
			r.gives(10, "2:a", 0)
		}), "unack b@10.000001s c@10.000001s 2:a@10.100001s fail a=2/0/0@0s"},
		"what comes later sets no alarm while others wait": {limited(Limits{Rate: 1, Per: time.Minute, Burst: 1}, func(r *rig) {
			r.put(six()...)
			r.gives(10, "a", time.Minute)
			r.do("DEL", r.keys.wake) // a consumer has it
			r.at(time.Second)
			r.put(msg("g", 0))
			r.put(msg("h", time.Second, keyed("k")))
		}), "pending b@0s c@0s d@0s e@0s f@0s g@1s h@2s unack a@10.000001s key k=h armed 0s"},
		"the marker is set once": {limited(Limits{Rate: 1, Per: time.Minute, Burst: 1}, func(r *rig) {
			r.put(six()[:2]...)
			r.gives(10, "a", time.Minute)
			r.do("DEL", r.keys.wake)
			r.gives(10, "", time.Minute)
		}), "pending b@0s unack a@10.000001s armed 0s"},
		"what is due later, and before it may go": {limited(Limits{Rate: 1, Per: time.Minute, Burst: 1}, func(r *rig) {
			r.put(msg("a", 0), msg("b", 30*time.Second))
			r.gives(10, "a", time.Minute)
		}), "pending b@30s unack a@10.000001s wake 1m0s"},
		"no pause is shortened": {limited(tenPerSecond, func(r *rig) {
			r.put(six()...)
			r.gives(10, "a b c", 100*time.Millisecond)
			r.pause(time.Hour)
			r.at(100 * time.Millisecond)
			r.gives(10, "", time.Hour)
			r.pause(0)
			r.gives(10, "d", 200*time.Millisecond)
		}), "pending e@0s f@0s unack a@10.000001s b@10.000001s c@10.000001s d@10.100001s wake 200ms"},
		"a third of a us": {limited(Limits{Rate: 3, Per: time.Second, Burst: 1}, func(r *rig) {
			r.put(six()[:3]...)
			r.gives(10, "a", 333334*time.Microsecond)
			r.at(333334 * time.Microsecond)
			r.gives(10, "b", 666668*time.Microsecond)
		}), "pending c@0s unack a@10.000001s b@10.333335s wake 666.668ms"},
		"a million a second": {limited(Limits{Rate: 1, Per: time.Microsecond, Burst: 2}, func(r *rig) {
			r.put(six()[:4]...)
			r.gives(10, "a b", time.Microsecond)
			r.at(time.Microsecond)
			r.gives(10, "c", 2*time.Microsecond)
		}), "pending d@0s unack a@10.000001s b@10.000001s c@10.000003s wake 2µs"},
		"one in a year": {limited(Limits{Rate: 1, Per: maxPer, Burst: maxRate}, func(r *rig) {
			r.put(six()...)
			r.gives(5, "a b c d e", 0)
		}), "pending f@0s unack a@10.000001s b@10.000001s c@10.000001s d@10.000001s e@10.000001s wake 0s"},
	})
}

func (r *rig) pause(until time.Duration) {
	r.t.Helper()
	c, us := newCaller(), int64(0)
	if c.next(); until > 0 {
		us = rigBase + until.Microseconds()
	}
	if err := r.store.pause(context.Background(), c, us, onBehalf{}); err != nil {
		r.t.Fatal(err)
	}
}

// TestScriptRateOfARepeat: a fetch whose reply was lost takes nothing twice.
func TestScriptRateOfARepeat(t *testing.T) {
	t.Parallel()
	onBoth(t, limited(tenPerSecond, func(r *rig) {
		r.put(six()...)
		c := newCaller()
		r.equal("first", handed(r.fetch(c, 2)), "a b")
		tat := r.cli.HGet(ctxB, r.keys.state, "tat").Val()
		for _, a := range []fetchRequest{{want: 2}, {want: 2, bytes: 1}, {probe: true}} {
			r.ask(c, a)
			r.equal("tat", r.cli.HGet(ctxB, r.keys.state, "tat").Val(), tat)
		}
		r.gives(10, "2:b", 100*time.Millisecond) // it was given back, and counts again
		r.at(100 * time.Millisecond)
		r.gives(10, "c", 200*time.Millisecond)
		r.read()
	}))
}

// TestScriptRateOfWhatIsOver: a delivery beyond its TTL or deadline comes to no handler, and takes nothing from the rate.
func TestScriptRateOfWhatIsOver(t *testing.T) {
	within := func(e *envelope) { e.ttl = time.Second }
	expires := func(at time.Duration) func(e *envelope) {
		return func(e *envelope) { e.deadline = rigBase + at.Microseconds() }
	}
	one := Limits{Rate: 1, Per: time.Minute, Burst: 1}
	long := time.Second + 2*time.Microsecond
	runScripts(t, map[string]scriptCase{
		"all of it goes, and one more": {limited(one, func(r *rig) {
			r.put(msg("a", 0, within), msg("b", 0, within, keyed("k")), msg("c", 0, within, expires(time.Hour)), msg("d", 0, expires(long)),
				msg("e", 0), msg("f", 0, within))
			r.at(long)
			r.gives(1, "a b c d", 0)
			r.gives(1, "e", time.Minute+long)
			r.gives(1, "", time.Minute+long)
			r.done(ack("a"), ack("b", "k"), ack("c"), ack("d"), ack("e"))
		}), "pending f@0s wake 1m1.000002s"},
		"what may not go yet stays before it": {limited(one, func(r *rig) {
			r.put(msg("a", 0), msg("b", 0, within), msg("c", 0), msg("d", 0, within))
			r.at(long)
			r.gives(2, "a", time.Minute+long)
			r.at(time.Minute + long)
			r.gives(2, "b", 0)
			r.gives(2, "c", 2*time.Minute+long)
			r.done(ack("a"), ack("b"), ack("c"))
		}), "pending d@0s wake 2m1.000002s"},
		"beyond the places that are free": {limited(Limits{Concurrency: 1}, func(r *rig) {
			r.put(msg("a", 0, within), msg("b", 0, within), msg("c", 0, within), msg("d", 0), msg("e", 0, within))
			r.at(long)
			r.gives(1, "a b c", 10*time.Second+long+time.Microsecond)
			r.gives(1, "", 10*time.Second+long+time.Microsecond)
			r.done(ack("a"), ack("b"), ack("c"))
			r.gives(1, "d", 10*time.Second+long+3*time.Microsecond)
			r.done(ack("d"))
		}), "pending e@0s wake 1.000002s"},
		"retries, too": {limited(Limits{Rate: 1, Per: time.Minute, Burst: 3}, func(r *rig) {
			for _, name := range []string{"a", "b", "c"} {
				r.hand(msg(name, 0, expires(3*time.Second)))
				r.done(ends(outcomeRetry, name, 1, 0, "no"))
			}
			r.put(msg("d", 0, within), msg("e", 0, within), msg("f", 0))
			r.at(time.Minute)
			got := r.fetch(newCaller(), 1)
			r.equal("handed out", len(got.tags), 5)
			r.equal("records", len(got.fails) >= 3, true)
			r.gives(1, "f", 0)
			for _, name := range []string{"a", "b", "c"} {
				r.done(settlement{tag: tagOf(idOf(name), 2), id: idOf(name), number: 2, kind: outcomeAck})
			}
			r.done(ack("d"), ack("e"), ack("f"))
		}), ""},
		"what is just within counts": {limited(one, func(r *rig) {
			r.put(msg("a", 0, within), msg("b", 0))
			r.at(time.Second)
			r.gives(1, "a", time.Minute+time.Second)
		}), "pending b@0s unack a@11.000001s wake 1m1s"},
		"before a deadline, too": {limited(one, func(r *rig) {
			r.put(msg("a", 0, expires(time.Second)), msg("b", 0))
			r.at(time.Second - time.Microsecond)
			r.gives(1, "a", time.Minute+time.Second-time.Microsecond)
		}), "pending b@0s unack a@10.999999s wake 1m0.999999s"},
		"a TTL is of the first delivery": {limited(Limits{Rate: 1, Per: time.Minute, Burst: 2}, func(r *rig) {
			r.put(msg("a", 0, within), msg("b", 0))
			r.gives(1, "a", 0)
			r.done(ends(outcomeReady, "a", 0, 0, ""))
			r.at(2 * time.Second)
			r.gives(1, "2:a", time.Minute)
		}), "pending b@0s unack 2:a@12.000001s fail a=2/0/0@0s wake 1m0s"},
	})
}

// TestScriptManyThatAreOver: what has expired holds up what has not for a call each 500 messages, or each megabyte.
func TestScriptManyThatAreOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ bytes, messages, most int }{"small": {10, 1200, 4}, "large": {100_000, 40, 7}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, limited(Limits{Rate: 1, Per: time.Hour, Burst: 1}, func(r *rig) {
				for i := range c.messages {
					r.put(msg(fmt.Sprintf("m%04d", i), 0, func(e *envelope) { e.ttl, e.payload = time.Second, strings.Repeat("x", c.bytes) }))
				}
				r.at(2 * time.Second)
				r.put(msg("n", 0))
				calls, given := 0, 0
				for ; given < c.messages+1 && calls < 100; calls++ {
					given += len(r.fetch(newCaller(), 1).tags)
				}
				r.equal("handed out", given, c.messages+1)
				r.equal("calls are few", calls <= c.most, true)
				r.read()
			}))
		})
	}
}

// TestScriptRateOfCenturies: a rate holds however long a full burst takes to come back.
func TestScriptRateOfCenturies(t *testing.T) {
	t.Parallel()
	onBoth(t, limited(Limits{Rate: 1, Per: maxPer, Burst: 200}, func(r *rig) {
		for i := range 402 {
			r.put(msg(fmt.Sprint("m", i), 0))
		}
		given := 0
		for range 3 {
			given += len(r.fetch(newCaller(), 500).tags)
		}
		r.equal("handed out", given, 200)
		r.at(maxPer)
		r.equal("a year later", len(r.fetch(newCaller(), 500).tags), 1)
		r.read()
	}))
}

// TestScriptRateWhenTheClockIsStepped: by the time that there is no more of a burst goes, and nothing waits longer than for one.
func TestScriptRateWhenTheClockIsStepped(t *testing.T) {
	t.Parallel()
	onBoth(t, limited(tenPerSecond, func(r *rig) {
		r.put(append(six(), msg("g", 0), msg("h", 0))...)
		r.at(48 * time.Hour)
		r.gives(10, "a b c", 48*time.Hour+100*time.Millisecond)
		r.done(ack("a"), ack("b"), ack("c"))
		r.at(50 * time.Hour)
		r.gives(10, "d e f", 50*time.Hour+100*time.Millisecond)
		r.done(ack("d"), ack("e"), ack("f"))
		r.at(time.Hour)
		r.gives(10, "", time.Hour+100*time.Millisecond)
		r.at(time.Hour + 100*time.Millisecond)
		r.gives(10, "g", time.Hour+200*time.Millisecond)
		r.read()
	}))
}

// three are as many at a time.
var three = Limits{Concurrency: 3}

// TestScriptConcurrency: no more are in unack than there may be, and whatever frees a place wakes one consumer.
func TestScriptConcurrency(t *testing.T) {
	const rest = "unack a@10.000001s b@10.000001s c@10.000001s "
	begin := func(r *rig) {
		r.put(six()...)
		r.gives(10, "a b c", 10*time.Second+time.Microsecond)
		r.do("DEL", r.keys.wake) // a consumer has it
	}
	runScripts(t, map[string]scriptCase{
		"full": {limited(three, begin), "pending d@0s e@0s f@0s " + rest + "armed 0s"},
		"full, and more comes": {limited(three, func(r *rig) { begin(r); r.at(time.Second); r.put(msg("g", 0)) }),
			"pending d@0s e@0s f@0s g@1s " + rest + "armed 0s"},
		"looked at again": {limited(three, func(r *rig) { begin(r); r.gives(10, "", 10*time.Second+time.Microsecond) }),
			"pending d@0s e@0s f@0s " + rest + "armed 0s"},
		"all have gone": {limited(three, func(r *rig) { r.put(six()[:3]...); r.gives(10, "a b c", 0) }), rest},
		"one may go, and none asks for it": {limited(three, func(r *rig) { r.put(six()...); r.gives(2, "a b", 0) }),
			"pending c@0s d@0s e@0s f@0s unack a@10.000001s b@10.000001s wake 0s"},
		"settled, a fetch follows": {limited(three, func(r *rig) {
			begin(r)
			r.at(time.Second)
			by := newCaller()
			by.next()
			call := newSettleCall(by, []settlement{ack("b"), ends(outcomeRetry, "c", 1, 0, "x")}, "+")
			if _, err := call.read(r.store.run(ctxB, settleScript, call.args)); err != nil {
				r.t.Fatal(err)
			}
			r.equal("woken", r.cli.Exists(ctxB, r.keys.wake).Val(), int64(0)) // the fetch sets the alarm
			r.gives(1, "d", 0)
		}), "pending e@0s f@0s unack a@10.000001s d@11.000001s retry 2:c@2s fail c=2/1/0@1s!x wake 0s"},
		"settled": {limited(three, func(r *rig) {
			begin(r)
			r.at(time.Second)
			r.done(ack("b"))
			r.do("ZREM", r.keys.wake, "x")
			r.equal("woken", r.cli.ZScore(ctxB, r.keys.wake, "w").Val(), float64(r.now))
			r.do("DEL", r.keys.wake)
			r.done(ack("c")) // it will be seen by who was woken
			r.equal("woken once", r.cli.Exists(ctxB, r.keys.wake).Val(), int64(0))
			r.gives(10, "d e", 10*time.Second+time.Microsecond)
		}), "pending f@0s unack a@10.000001s d@11.000001s e@11.000001s wake 10.000001s"},
		"failed": {limited(three, func(r *rig) { begin(r); r.done(ends(outcomeRetry, "b", 1, 0, "no")) }),
			"pending d@0s e@0s f@0s unack a@10.000001s c@10.000001s retry 2:b@1s fail b=2/1/0@0s!no wake 0s"},
		"released": {limited(three, func(r *rig) {
			begin(r)
			r.done(ends(outcomeReady, "b", 0, 0, ""))
			r.gives(10, "2:b", 10*time.Second+time.Microsecond)
		}),
			"pending d@0s e@0s f@0s unack a@10.000001s c@10.000001s 2:b@10.000003s fail b=2/0/0@0s wake 10.000001s"},
		"canceled": {limited(three, func(r *rig) { begin(r); r.equal("was", r.cancel("id", idOf("b")), StateUnack) }),
			"pending d@0s e@0s f@0s unack overrun:b@10s a@10.000001s c@10.000001s armed 0s"},
		"canceled by a bulk": {limited(three, func(r *rig) { begin(r); r.equal("was", r.steers(steerCancel, 0, "b"), "unack") }),
			"pending d@0s e@0s f@0s unack overrun:b@10s a@10.000001s c@10.000001s armed 0s"},
		"not canceled": {limited(three, func(r *rig) { begin(r); r.intercept(newCaller(), "id", idOf("b")) }),
			"pending d@0s e@0s f@0s " + rest + "armed 0s"},
		"its consumer is dead": {limited(three, func(r *rig) {
			begin(r)
			r.tickTo(10 * time.Second)
			r.at(10*time.Second + time.Microsecond)
			r.equal("they go", len(r.fetch(newCaller(), 10).tags), 3)
			r.do("DEL", r.keys.pending, r.keys.retry, r.keys.unack, r.keys.msg, r.keys.fail, r.keys.wake, r.keys.state)
		}), ""},
		"the rate says when": {limited(Limits{Rate: 1, Per: time.Minute, Burst: 3, Concurrency: 3}, func(r *rig) {
			begin(r)
			r.done(ack("b"))
			r.equal("woken", r.cli.ZScore(ctxB, r.keys.wake, "w").Val(), float64(rigBase+60_000_000))
			r.gives(10, "", time.Minute)
		}), "pending d@0s e@0s f@0s unack a@10.000001s c@10.000001s wake 1m0s"},
	})
}

// TestScriptLimitsOfConsumers: the least that any asks for holds until nobody has asked for it in a lease; what a Monitor
// sets goes before it.
func TestScriptLimitsOfConsumers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		asks := func(l Limits) string { r.limits = l; return r.fetch(newCaller(), 0).limits.String() }
		set := func(l Limits) (before string) {
			c := newCaller()
			c.next()
			for range 2 { // the reply was lost
				was, err := r.store.setLimits(ctxB, c, l)
				if err != nil {
					r.t.Fatal(err)
				}
				before = was.String()
			}
			return before
		}
		slow, fast := Limits{Rate: 5, Per: time.Second, Burst: 1}, Limits{Rate: 10, Per: time.Second, Burst: 1}
		r.equal("none", asks(Limits{}), "no limit")
		r.equal("one", asks(fast), "10 in 1s, burst 1")
		r.equal("a slower one", asks(slow), "5 in 1s, burst 1")
		r.equal("the fast one", asks(fast), "5 in 1s, burst 1")
		r.equal("of a larger burst", asks(Limits{Rate: 5, Per: time.Second, Burst: 2}), "5 in 1s, burst 1")
		r.equal("places", asks(Limits{Concurrency: 3}), "5 in 1s, burst 1, 3 at a time")
		r.at(4 * time.Second)
		r.equal("fewer places", asks(Limits{Concurrency: 2}), "5 in 1s, burst 1, 2 at a time")
		r.equal("more places", asks(Limits{Concurrency: 4}), "5 in 1s, burst 1, 2 at a time")
		r.at(10*time.Second + time.Microsecond)
		r.equal("the slow one is forgotten", asks(Limits{Concurrency: 4}), "2 at a time")
		r.at(15 * time.Second)
		r.equal("few places, too", asks(Limits{Concurrency: 4}), "4 at a time")
		r.equal("set", set(Limits{Rate: 7, Per: time.Minute, Burst: 7}), "no limit")
		r.equal("beside it", asks(Limits{Concurrency: 4}), "7 in 1m0s, burst 7, 4 at a time")
		r.equal("before another one", asks(slow), "7 in 1m0s, burst 7, 4 at a time")
		r.equal("set", set(Limits{Concurrency: 9}), "7 in 1m0s, burst 7")
		r.equal("others", asks(slow), "5 in 1s, burst 1, 9 at a time")
		r.at(30 * time.Second)
		r.equal("set ones are not forgotten", asks(Limits{}), "9 at a time")
		r.equal("taken back", set(Limits{}), "9 at a time")
		r.equal("none", asks(Limits{}), "no limit")
		for _, field := range []string{"limits", "override", "tat", "throttled", "limited"} {
			r.equal(field, r.cli.HExists(ctxB, r.keys.state, field).Val(), false)
		}
		r.read()
	})
}

// TestScriptLimitsTakenBack: what is put off goes as soon as it may, and nobody has to tick for it.
func TestScriptLimitsTakenBack(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]Limits{"rate": {Rate: 1, Per: time.Hour, Burst: 1}, "places": {Concurrency: 1}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, limited(l, func(r *rig) {
				r.put(six()...)
				r.gives(10, "a", map[string]time.Duration{"rate": time.Hour, "places": 10*time.Second + time.Microsecond}[name])
				r.do("DEL", r.keys.wake)
				r.at(time.Second)
				c := newCaller()
				c.next()
				if _, err := r.store.setLimits(ctxB, c, Limits{Rate: 100, Per: time.Hour, Burst: 10, Concurrency: 3}); err != nil {
					r.t.Fatal(err)
				}
				r.equal("woken", r.cli.ZScore(ctxB, r.keys.wake, "w").Val(), float64(r.now))
				if name == "places" {
					r.gives(10, "b c", 10*time.Second+time.Microsecond)
				} else {
					r.gives(10, "", 37*time.Second) // no more than the new rate
					r.at(37 * time.Second)
					r.gives(1, "b", 73*time.Second)
				}
				r.read()
			}))
		})
	}
	t.Run("by time", func(t *testing.T) {
		onBoth(t, limited(Limits{Rate: 1, Per: time.Hour, Burst: 1}, func(r *rig) {
			r.put(msg("a", 0), msg("b", 30*time.Second))
			r.gives(10, "a", time.Hour)
			r.limits = Limits{}
			r.done(ack("a"))
			r.tickTo(11 * time.Second)
			r.expect("pending b@30s wake 30s")
		}))
	})
}
