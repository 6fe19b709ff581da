package script

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// limited is a test whose consumers ask for these limits.
func limited(l RateLimits, do func(r *rig)) func(r *rig) {
	return func(r *rig) {
		r.limits = l
		do(r)
	}
}

// tenPerSecond lets three go at once.
var tenPerSecond = RateLimits{Rate: 10, Per: time.Second, Burst: 3}

// six are messages that are due now.
func six() []*SendMessage {
	return []*SendMessage{msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0), msg("f", 0)}
}

// gives fetches for a new consumer, and wants these deliveries, and this instant of the next work.
func (r *rig) gives(want int, tags string, next time.Duration) {
	r.t.Helper()
	f := r.fetch(NewCaller(), want)
	r.equal("handed out", handed(f), tags)
	if f.Next == 0 {
		r.equal("next", time.Duration(0), next)
	} else {
		r.equal("next", r.since(int64(f.Next)), next)
	}
}

// TestScriptRate: as much is handed out as the rate allows, and the alarm stands at the instant at which the next message may
// go.
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
		"a third of a us": {limited(RateLimits{Rate: 3, Per: time.Second, Burst: 1}, func(r *rig) {
			r.put(six()[:3]...)
			r.gives(10, "a", 333334*time.Microsecond)
			r.at(333334 * time.Microsecond)
			r.gives(10, "b", 666668*time.Microsecond)
		}), "pending c@0s unack a@10.000001s b@10.333335s wake 666.668ms"},
		"a million a second": {limited(RateLimits{Rate: 1, Per: time.Microsecond, Burst: 2}, func(r *rig) {
			r.put(six()[:4]...)
			r.gives(10, "a b", time.Microsecond)
			r.at(time.Microsecond)
			r.gives(10, "c", 2*time.Microsecond)
		}), "pending d@0s unack a@10.000001s b@10.000001s c@10.000003s wake 2µs"},
		"one in a year": {limited(RateLimits{Rate: 1, Per: maxPer, Burst: maxRate}, func(r *rig) {
			r.put(six()...)
			r.gives(5, "a b c d e", 0)
		}), "pending f@0s unack a@10.000001s b@10.000001s c@10.000001s d@10.000001s e@10.000001s wake 0s"},
	})
}

func (r *rig) pause(until time.Duration) {
	r.t.Helper()
	c, us := NewCaller(), int64(0)
	if c.Next(); until > 0 {
		us = rigBase + until.Microseconds()
	}
	if err := r.Store.Pause(context.Background(), c, us, "", ""); err != nil {
		r.t.Fatal(err)
	}
}

// TestScriptRateOfARepeat: a repeated fetch takes nothing from the rate.
func TestScriptRateOfARepeat(t *testing.T) {
	t.Parallel()
	onBoth(t, limited(tenPerSecond, func(r *rig) {
		r.put(six()...)
		c := NewCaller()
		r.equal("first", handed(r.fetch(c, 2)), "a b")
		tat := r.Cli.HGet(queuetest.CtxB, r.Keys.State, "tat").Val()
		for _, a := range []FetchRequest{{Want: 2}, {Want: 2, Bytes: 1}, {Probe: true}} {
			r.ask(c, a)
			r.equal("tat", r.Cli.HGet(queuetest.CtxB, r.Keys.State, "tat").Val(), tat)
		}
		r.gives(10, "2:b", 100*time.Millisecond) // it was given back, and counts again
		r.at(100 * time.Millisecond)
		r.gives(10, "c", 200*time.Millisecond)
		r.read()
	}))
}

// TestScriptRateOfWhatIsOver: an expired delivery comes to no handler, and takes nothing from the rate.
func TestScriptRateOfWhatIsOver(t *testing.T) {
	within := func(e *message.Envelope) { e.TTL = time.Second }
	expires := func(at time.Duration) func(e *message.Envelope) {
		return func(e *message.Envelope) { e.Deadline = rigBase + at.Microseconds() }
	}
	one := RateLimits{Rate: 1, Per: time.Minute, Burst: 1}
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
		"beyond the places that are free": {limited(RateLimits{Concurrency: 1}, func(r *rig) {
			r.put(msg("a", 0, within), msg("b", 0, within), msg("c", 0, within), msg("d", 0), msg("e", 0, within))
			r.at(long)
			r.gives(1, "a b c", 10*time.Second+long+time.Microsecond)
			r.gives(1, "", 10*time.Second+long+time.Microsecond)
			r.done(ack("a"), ack("b"), ack("c"))
			r.gives(1, "d", 10*time.Second+long+3*time.Microsecond)
			r.done(ack("d"))
		}), "pending e@0s wake 1.000002s"},
	})
}

// TestScriptManyThatAreOver: expired messages hold up others for one call per 500 messages or per megabyte.
func TestScriptManyThatAreOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ bytes, messages, most int }{"small": {10, 1200, 4}, "large": {100_000, 40, 7}} {
		t.Run(name, func(t *testing.T) {
			onReal(t, limited(RateLimits{Rate: 1, Per: time.Hour, Burst: 1}, func(r *rig) {
				var ms []*SendMessage
				for i := range c.messages {
					ms = append(ms, msg(fmt.Sprintf("m%04d", i), 0, sized(c.bytes), func(e *message.Envelope) { e.TTL = time.Second }))
				}
				r.put(ms...)
				r.at(2 * time.Second)
				r.put(msg("n", 0))
				calls, given := 0, 0
				for ; given < c.messages+1 && calls < 100; calls++ {
					given += len(r.fetch(NewCaller(), 1).Tags)
				}
				r.equal("handed out", given, c.messages+1)
				r.equal("calls are few", calls <= c.most, true)
				r.read()
			}))
		})
	}
}

// TestScriptRateOfCenturies: a rate holds also if a full burst takes centuries to come back.
func TestScriptRateOfCenturies(t *testing.T) {
	t.Parallel()
	onReal(t, limited(RateLimits{Rate: 1, Per: maxPer, Burst: 200}, func(r *rig) {
		sendDue(r, "m", 402)
		given := 0
		for range 3 {
			given += len(r.fetch(NewCaller(), 500).Tags)
		}
		r.equal("handed out", given, 200)
		r.at(maxPer)
		r.equal("a year later", len(r.fetch(NewCaller(), 500).Tags), 1)
		r.read()
	}))
}

// TestScriptRateWhenTheClockIsStepped: after a step of the clock one more burst may go, and nothing waits for longer than a
// burst takes to come back.
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

// three bounds the concurrency.
var three = RateLimits{Concurrency: 3}

// TestScriptConcurrency: unack holds no more deliveries than there are places, and a place that becomes free wakes one
// consumer.
func TestScriptConcurrency(t *testing.T) {
	begin := func(r *rig) {
		r.put(six()...)
		r.gives(10, "a b c", 10*time.Second+time.Microsecond)
		r.do("DEL", r.Keys.Wake) // a consumer has it
	}
	runScripts(t, map[string]scriptCase{
		"settled, a fetch follows": {limited(three, func(r *rig) {
			begin(r)
			r.at(time.Second)
			by := newCall()
			call := newSettleCall(by, []Settlement{ack("b"), ends(OutcomeRetry, "c", 1, 0, "x")}, "+")
			if _, err := call.read(r.Store.run(queuetest.CtxB, SettleScript, call.args)); err != nil {
				r.t.Fatal(err)
			}
			r.equal("woken", r.Cli.Exists(queuetest.CtxB, r.Keys.Wake).Val(), int64(0)) // the fetch sets the alarm
			r.gives(1, "d", 0)
		}), "pending e@0s f@0s unack a@10.000001s d@11.000001s retry 2:c@2s fail c=2/1/0@1s!x wake 0s"},
		"settled": {limited(three, func(r *rig) {
			begin(r)
			r.at(time.Second)
			r.done(ack("b"))
			r.do("ZREM", r.Keys.Wake, "x")
			r.equal("woken", r.Cli.ZScore(queuetest.CtxB, r.Keys.Wake, "w").Val(), float64(r.now))
			r.do("DEL", r.Keys.Wake)
			r.done(ack("c")) // it will be seen by who was woken
			r.equal("woken once", r.Cli.Exists(queuetest.CtxB, r.Keys.Wake).Val(), int64(0))
			r.gives(10, "d e", 10*time.Second+time.Microsecond)
		}), "pending f@0s unack a@10.000001s d@11.000001s e@11.000001s wake 10.000001s"},
		"canceled": {limited(three, func(r *rig) { begin(r); r.equal("was", r.cancel("id", queuetest.IDOf("b")), stateUnack) }),
			"pending d@0s e@0s f@0s unack overrun:b@10s a@10.000001s c@10.000001s armed 0s"},
		"canceled by a bulk": {limited(three, func(r *rig) { begin(r); r.equal("was", r.steers(SteerCancel, 0, "b"), "unack") }),
			"pending d@0s e@0s f@0s unack overrun:b@10s a@10.000001s c@10.000001s armed 0s"},
	})
}

// TestScriptLimitsOfConsumers: the lowest limit that consumers ask for holds, until no consumer has asked for it in a lease.
// Limits of a Monitor go before those of consumers.
func TestScriptLimitsOfConsumers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		asks := func(l RateLimits) string { r.limits = l; return r.fetch(NewCaller(), 0).Limits.String() }
		set := func(l RateLimits) (before string) {
			c := newCall()
			for range 2 { // the reply was lost
				was, err := r.Store.SetLimits(queuetest.CtxB, c, l)
				if err != nil {
					r.t.Fatal(err)
				}
				before = was.String()
			}
			return before
		}
		slow, fast := RateLimits{Rate: 5, Per: time.Second, Burst: 1}, RateLimits{Rate: 10, Per: time.Second, Burst: 1}
		r.equal("none", asks(RateLimits{}), "no limit")
		r.equal("one", asks(fast), "10 in 1s, burst 1")
		r.equal("a slower one", asks(slow), "5 in 1s, burst 1")
		r.equal("the fast one", asks(fast), "5 in 1s, burst 1")
		r.equal("of a larger burst", asks(RateLimits{Rate: 5, Per: time.Second, Burst: 2}), "5 in 1s, burst 1")
		r.equal("places", asks(RateLimits{Concurrency: 3}), "5 in 1s, burst 1, 3 at a time")
		r.at(4 * time.Second)
		r.equal("fewer places", asks(RateLimits{Concurrency: 2}), "5 in 1s, burst 1, 2 at a time")
		r.equal("more places", asks(RateLimits{Concurrency: 4}), "5 in 1s, burst 1, 2 at a time")
		r.at(10*time.Second + time.Microsecond)
		r.equal("the slow one is forgotten", asks(RateLimits{Concurrency: 4}), "2 at a time")
		r.at(15 * time.Second)
		r.equal("few places, too", asks(RateLimits{Concurrency: 4}), "4 at a time")
		r.equal("set", set(RateLimits{Rate: 7, Per: time.Minute, Burst: 7}), "no limit")
		r.equal("beside it", asks(RateLimits{Concurrency: 4}), "7 in 1m0s, burst 7, 4 at a time")
		r.equal("before another one", asks(slow), "7 in 1m0s, burst 7, 4 at a time")
		r.equal("set", set(RateLimits{Concurrency: 9}), "7 in 1m0s, burst 7")
		r.equal("others", asks(slow), "5 in 1s, burst 1, 9 at a time")
		r.at(30 * time.Second)
		r.equal("set ones are not forgotten", asks(RateLimits{}), "9 at a time")
		r.equal("taken back", set(RateLimits{}), "9 at a time")
		r.equal("none", asks(RateLimits{}), "no limit")
		for _, field := range []string{"limits", "override", "tat", "throttled", "limited"} {
			r.equal(field, r.Cli.HExists(queuetest.CtxB, r.Keys.State, field).Val(), false)
		}
		r.read()
	})
}

// TestScriptLimitsTakenBack: if a limit is changed or taken back, what it put off goes as soon as it may, and one consumer
// wakes for it.
func TestScriptLimitsTakenBack(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]RateLimits{"rate": {Rate: 1, Per: time.Hour, Burst: 1}, "places": {Concurrency: 1}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, limited(l, func(r *rig) {
				r.put(six()...)
				r.gives(10, "a", map[string]time.Duration{"rate": time.Hour, "places": 10*time.Second + time.Microsecond}[name])
				r.do("DEL", r.Keys.Wake)
				r.at(time.Second)
				c := newCall()
				if _, err := r.Store.SetLimits(queuetest.CtxB, c, RateLimits{Rate: 100, Per: time.Hour, Burst: 10, Concurrency: 3}); err != nil {
					r.t.Fatal(err)
				}
				r.equal("woken", r.Cli.ZScore(queuetest.CtxB, r.Keys.Wake, "w").Val(), float64(r.now))
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
		onBoth(t, limited(RateLimits{Rate: 1, Per: time.Hour, Burst: 1}, func(r *rig) {
			r.put(msg("a", 0), msg("b", 30*time.Second))
			r.gives(10, "a", time.Hour)
			r.limits = RateLimits{}
			r.done(ack("a"))
			r.tickTo(11 * time.Second)
			r.expect("pending b@30s wake 30s")
		}))
	})
}
