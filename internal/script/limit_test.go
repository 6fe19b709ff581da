package script

import (
	"fmt"
	"strconv"
	"strings"
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

// TestScriptManyThatAreOver: expired messages hold up others for one call per megabyte. TestModel compares those of
// few bytes.
func TestScriptManyThatAreOver(t *testing.T) {
	onReal(t, limited(RateLimits{Rate: 1, Per: time.Hour, Burst: 1}, func(r *rig) {
		r.put(many(40, func(i int) *SendMessage {
			return msg(fmt.Sprintf("m%04d", i), 0, sized(100_000), func(e *message.Envelope) { e.TTL = time.Second })
		})...)
		r.at(2 * time.Second)
		r.put(msg("n", 0))
		given := 0
		for range 7 {
			n := len(r.fetch(NewCaller(), 1).Tags)
			r.equal("within a megabyte", n <= 10, true)
			given += n
		}
		r.equal("handed out", given, 41)
		r.read()
	}))
}

// TestScriptRateOfCenturies: a rate holds also if a full burst takes centuries to come back.
func TestScriptRateOfCenturies(t *testing.T) {
	subtest(t, "a small burst", onReal, limited(RateLimits{Rate: 1, Per: maxPer, Burst: 200}, func(r *rig) {
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
	const burst = 1_000_000
	subtest(t, "the largest burst", onReal, limited(RateLimits{Rate: 1, Per: maxPer, Burst: burst}, func(r *rig) {
		used := 292_000.0 * float64(maxPer.Microseconds()) // nearly 2^63
		r.do("HSET", r.Keys.State, "tat", fmt.Sprintf("%.0f", float64(r.now)+used))
		sendDue(r, "m", 900)
		for range 3 {
			r.equal("handed out", len(r.fetch(NewCaller(), 300).Tags), 300)
		}
		tat, err := strconv.ParseFloat(r.read().Fields["tat"], 64)
		if err != nil || tat < used+899*float64(maxPer.Microseconds()) {
			r.t.Errorf("tat is %v, %v", tat, err)
		}
	}))
}

// three bounds the concurrency.
var three = RateLimits{Concurrency: 3}

// TestScriptRubbishInLimits: no value in the fields about limits makes a script raise or stops the queue.
func TestScriptRubbishInLimits(t *testing.T) {
	t.Parallel()
	more := []string{"0 0 0 0 0 0", "1 1 1 1 1 1", "1 1 1 1", "1 0 1 0", "5 1000000 0 0",
		"7258118400000000 7258118400000000 7258118400000000 1 1 1",
		"1 7258118400000000 7258118400000000 0 0 0", "1 7258118400000000 1 7258118400000000 0 1",
		"1717200000000000 1717200000000000", "1 2 3 4 1", "0 0 0 0 1",
		"1717200000000000 1717200000000000 7258118400000000 7258118400000000 1"}
	for n, field := range []string{"limits", "override", "tat", "throttled", "limited"} {
		for name, l := range map[string]RateLimits{"none": {},
			"both": {Rate: 100, Per: time.Second, Burst: 10, Concurrency: 100}} {
			subtest(t, field+" "+name, onReal, limited(l, func(r *rig) {
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
		}
	}
}

// TestScriptPlacesOfStrays: what another program has put into a structure takes no place, and frees none.
func TestScriptPlacesOfStrays(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(r *rig){
		"msg": func(r *rig) { r.do("HSET", r.Keys.msg, "stray 1", "", "stray 2", "") },
		"retry": func(r *rig) {
			r.do("ZADD", r.Keys.of("retry"), message.Forever, "2:stray 1", message.Forever, "2:stray 2")
		},
		"unack": func(r *rig) { r.do("ZADD", r.Keys.of("unack"), message.Forever, "stray 1", message.Forever, "stray 2") },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, limited(RateLimits{Concurrency: 2}, func(r *rig) {
				r.put(six()...)
				write(r)
				r.equal("all places", len(r.fetch(NewCaller(), 6).Tags), 2)
				r.equal("of none", len(r.fetch(NewCaller(), 6).Tags), 0)
				r.done(ack("a"))
				r.equal("of one", len(r.fetch(NewCaller(), 6).Tags), 1)
			}))
		})
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
		{"fetch, idle, with a rate", with(tenPerSecond, c.quiet), func() { c.fetch(idleWant) }, 11 + 5},
		{"fetch, idle, with both", with(both, c.quiet), func() { c.fetch(idleWant) }, 11 + 6},
		{"fetch, a message", with(both, func() { c.hour(); c.fetch(0); c.send(dueAlike(1, 0)...) }), func() {
			c.fetch(1)
		}, 19 + 5},
		{"fetch, full", full, func() { c.fetch(idleWant) }, 13 + 5},
		{"settle, 1 ack that frees a place", full, func() { c.r.done(acksOf(1)...) }, 7 + 2},
		{"settle, 100 acks", with(RateLimits{Concurrency: 100}, func() { c.hand(100) }), func() {
			c.r.done(acksOf(100)...)
		}, 8},
		{"cancel", full, func() { c.r.cancel("id", acksOf(1)[0].Tag) }, 27 + 1},
		{"fetch, full, after a cancel", func() { full(); c.r.cancel("id", acksOf(1)[0].Tag) }, func() {
			c.fetch(0)
		}, 13 + 5 + 7 + 2},
		{"limit", full, func() {
			by := newCall()
			queuetest.Must(c.r.t, queuetest.Failure(c.r.Store.SetLimits(queuetest.CtxB, by, both)))
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
			queuetest.Must(c.r.t, queuetest.Failure(c.r.Store.LiftThrottle(queuetest.CtxB, by)))
		}, 7},
	})
}

// TestLimitsText: limits are read as they were written.
func TestLimitsText(t *testing.T) {
	t.Parallel()
	for _, l := range []RateLimits{{}, tenPerSecond, three,
		{Rate: 1, Per: maxPer, Burst: maxRate, Concurrency: 1<<31 - 1}} {
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

// TestScriptLimitsAtTheirBounds: the slowest rate lets its largest burst out, and a throttle lasts an hour at most.
// TestModel compares the rest.
func TestScriptLimitsAtTheirBounds(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"one in a year": {limited(RateLimits{Rate: 1, Per: maxPer, Burst: maxRate}, func(r *rig) {
			r.put(six()...)
			r.gives(5, "a b c d e", 0)
		}), "pending f@0s unack a@10s b@10s c@10s d@10s e@10s wake 0s"},
		"two hours are one": {func(r *rig) {
			r.hand(msg("a", 0))
			r.put(msg("b", 0))
			r.done(throttles("a", 2*time.Hour, ""))
			r.gives(1, "", time.Hour)
		}, "pending b@0s retry 2:a@2h0m0s fail a=2/0/0@0s wake 1h0m0s"},
	})
}

// lift lifts a throttle, twice as if the reply was lost, and returns whether there was one.
func (r *rig) lift() (lifted bool) {
	r.t.Helper()
	c := newCall()
	for i := range 2 {
		got, err := r.Store.LiftThrottle(queuetest.CtxB, c)
		queuetest.Must(r.t, err)
		if i > 0 {
			r.equal("the repeat", got, lifted)
		}
		lifted = got
	}
	return lifted
}

// TestScriptCountsThrottle: counts say until when a queue is throttled, also if nothing is due.
func TestScriptCountsThrottle(t *testing.T) {
	onReal(t, func(r *rig) {
		until := func(want time.Duration) {
			r.t.Helper()
			got := r.counts()
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
		for _, rubbish := range append([]string{"1 2 3", "7258118400000000 7258118400000001",
			fmt.Sprint(rigBase, message.Forever)}, rubbish...) {
			r.do("HSET", r.Keys.State, "throttled", rubbish)
			until(0)
			r.equal("lifted", r.lift(), false)
		}
	})
}

// TestScriptCountsLimits: counts tell messages that wait for a limit apart from messages that wait for a consumer.
func TestScriptCountsLimits(t *testing.T) {
	onBoth(t, func(r *rig) {
		want := func(what string, limited bool, since, until time.Duration) {
			r.t.Helper()
			got := r.counts()
			at := func(d time.Duration) (t time.Time) {
				if d >= 0 {
					t = time.UnixMicro(rigBase).Add(d)
				}
				return t
			}
			if got.Limited != limited || !got.LimitedSince.Equal(at(since)) || !got.LimitedUntil.Equal(at(until)) {
				r.t.Errorf("%s: %v since %v until %v", what, got.Limited, got.LimitedSince, got.LimitedUntil)
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
		r.equal("limits", fmt.Sprint(r.counts().Asked), "1 at a time")
		r.done(ack("a"))
		want("freed", false, -1, -1)
	})
}
