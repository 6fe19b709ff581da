package script

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// recovered is how long after the end of its lease a dead consumer's message comes back, if another consumer ticks at this
// interval.
func recovered(r *rig, tick time.Duration) time.Duration {
	r.t.Helper()
	slow := NewCaller()
	r.fetch(slow, 0)
	r.hand(msg("a", 0))
	ends := r.since(r.now) + r.with.Lease
	for range 300 {
		r.at(r.since(r.now) + tick)
		if r.fetch(slow, 0).Lost == 1 {
			return r.since(r.now) - ends
		}
	}
	r.t.Fatalf("beside a consumer that ticks every %v it never comes back", tick)
	panic("unreachable")
}

// TestScriptGraceIsGivenOnce: a consumer that is cut off again and again does not keep dead consumers' messages.
func TestScriptGraceIsGivenOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lease, tick time.Duration }{
		{time.Second, time.Second/3 + 180*time.Millisecond},                    // a slow line
		{100 * time.Millisecond, 100*time.Millisecond/3 + 17*time.Millisecond}, // a slower one
		{10 * time.Second, 6 * time.Second},                                    // a process that is frozen for so long, again and again
		{10 * time.Second, 60 * time.Second},
		{10 * time.Second, 10 * time.Second / 3}, // as it should be
	} {
		t.Run(fmt.Sprint(c.lease, " ", c.tick), func(t *testing.T) {
			onBoth(t, func(r *rig) {
				r.with.Lease = c.lease
				late := recovered(r, c.tick)
				if most := 7*c.lease/4 + 2*c.tick; late > most {
					r.t.Errorf("%v after the end of the lease, want %v at most", late, most)
				}
				if c.tick < c.lease/2 && late > c.tick {
					r.t.Errorf("%v after the end of the lease, and nobody was cut off", late)
				}
			})
		})
	}
}

func TestScriptGrace(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"the repeat of a fetch finds what the grace of another has kept": {func(r *rig) {
			r.with.MaxLosses = 1
			r.put(msg("a", 0), msg("b", 0))
			c := NewCaller()
			r.fetch(c, 2) // its reply is lost, and all are cut off
			r.at(16 * time.Second)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 0)
			r.at(17 * time.Second)
			r.equal("the repeat", handed(r.fetchAgain(c, 2)), "a b")
			r.tickTo(26 * time.Second)
		}, "unack a@27s b@27s wake 27s"},
		"each lease has it once, and a renewed one has it again": {func(r *rig) {
			c, d := r.hand(msg("dead", 0)), r.hand(msg("alive", 0))
			r.at(8 * time.Second) // all were cut off
			r.fetch(c, 0)
			r.fetch(d, 0)
			r.extend("alive")      // until 18 s
			r.at(17 * time.Second) // and again
			r.fetch(c, 0)
			r.expect("unack dead@10s alive@18s wake 20.5s")
			r.at(20500 * time.Millisecond) // the first grace is over: 8 s, 5 in which all find back, and 7.5
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 1)
			r.at(29500*time.Millisecond - time.Microsecond)
			r.equal("lost", r.fetch(d, 0).Lost, 0)
			r.extend("alive")
		}, "unack alive@39.499999s retry 2:dead@20.5s~21s fail dead=2/0/1@20.5s!lost wake 20.5s~21s"},
		"a lease that ends later than all find back is not kept longer": {func(r *rig) {
			c := NewCaller()
			r.fetch(c, 0)
			r.at(6 * time.Second)
			r.hand(msg("a", 0)) // until 16 s
			r.at(6 * time.Second)
			r.fetch(c, 0) // it was cut off, until 11 s all find back
			r.tickTo(15 * time.Second)
			r.at(16 * time.Second)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 1)
		}, "retry 2:a@16s~16.5s fail a=2/0/1@16s!lost wake 16s~16.5s"},
		"the longest lease in use holds for all": {func(r *rig) {
			long, short := NewCaller(), NewCaller()
			r.fetch(long, 0) // asks for 10 s
			r.with.Lease = time.Second
			r.put(msg("a", 0))
			f := r.fetch(short, 1)
			r.equal("agreed", f.Agreed.Lease, 10*time.Second)
			r.expect("unack a@10s")
			r.at(4 * time.Second) // an outage
			r.with.Lease = 10 * time.Second
			r.equal("lost", r.fetch(long, 0).Lost, 0)
			r.with.Lease = time.Second
			r.extend("a")
			r.expect("unack a@14s")
			r.at(14*time.Second - time.Microsecond)
			r.extend("a") // the other asked for 10 s until 14 s
			r.at(14*time.Second + time.Microsecond)
			r.equal("agreed", r.fetch(short, 0).Agreed.Lease, time.Second)
		}, "unack a@15.000001s"},
		"the most that anybody asks for holds for all": {func(r *rig) {
			r.with = FetchSettings{Lease: rigLease, MaxLosses: 5, GarbageMax: 7}
			r.fetch(NewCaller(), 0)
			r.with = FetchSettings{Lease: time.Second, MaxLosses: 2, GarbageAge: time.Hour, GarbageMax: 9}
			for _, at := range []time.Duration{0, rigLease} {
				r.at(at)
				r.equal("agreed", r.fetch(NewCaller(), 0).Agreed, FetchSettings{Lease: rigLease, MaxLosses: 5, GarbageMax: 9})
			}
			r.at(rigLease + time.Microsecond)
			r.equal("agreed", r.fetch(NewCaller(), 0).Agreed, r.with)
		}, ""},
	})
}

// TestScriptGraceAfterAnOutage: leases that ran out while nobody fetched are not lost before their consumers had time to renew them.
func TestScriptGraceAfterAnOutage(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"grace after an outage": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(16 * time.Second)
			r.put(msg("b", 0))
			f := r.fetch(NewCaller(), 1) // the first of any consumer since 0 s
			r.equal("lost", f.Lost, 0)
			r.expect("unack a@10s b@26s")
			r.tickTo(25 * time.Second)
			r.extend("b")
			r.tickTo(28500*time.Millisecond - time.Microsecond)
			r.expect("unack a@10s b@35s wake 28.5s")
			r.tickTo(28500 * time.Millisecond)
		}, "unack b@35s retry 2:a@28.5s~29s fail a=2/0/1@28.5s!lost wake 28.5s~29s"},
		"no grace within two thirds of a lease": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(4 * time.Second)
			r.tick()
			r.at(4*time.Second + r.with.Lease*2/3)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 1)
		}, "retry 2:a@10.666666s~11.166666s fail a=2/0/1@10.666666s!lost wake 10.666666s~11.166666s"},
		"grace just beyond": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(4 * time.Second)
			r.tick()
			r.at(4*time.Second + r.with.Lease*2/3 + time.Microsecond)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 0)
		}, "unack a@10s"},
		"grace is for what ran out in the outage": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(8 * time.Second) // an outage that ended before the lease did
			r.tick()
			r.at(11 * time.Second)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 1)
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s!lost wake 11s~11.5s"},
		"who comes back gives the others time": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.at(r.with.Lease/2 + time.Microsecond)
			r.fetch(c, 0)
			r.tickTo(17*time.Second + 500*time.Millisecond)
			r.expect("unack a@10s wake 17.500001s")
			r.at(17*time.Second + 500001*time.Microsecond) // once only
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 1)
		}, "retry 2:a@17.500001s~18.000001s fail a=2/0/1@17.500001s!lost wake 17.500001s~18.000001s"},
		"no time for others within half a lease": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.at(r.with.Lease / 2)
			r.fetch(c, 0)
			r.at(10*time.Second + 2*time.Microsecond)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 1)
		}, "retry 2:a@10.000002s~10.500002s fail a=2/0/1@10.000002s!lost wake 10.000002s~10.500002s"},
	})
}

const clockAhead = time.Hour // of the clock, before the step

// TestScriptClockStepsBack: after a step back, state holds instants of the future. Leases, and the grace after an outage, go by
// the new time at once.
func TestScriptClockStepsBack(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a lease from before it is not believed for longer than one from now": {func(r *rig) {
			r.put(msg("a", 0))
			r.at(clockAhead)
			r.take("a") // by a consumer that dies
			r.at(0)
			r.tick()
			r.expect("unack a@10s")
			r.equal("lost", r.lapse(11*time.Second).Lost, 1)
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s!lost wake 11s~11.5s"},
		"no grace from before it": {func(r *rig) {
			r.tick()
			r.do("HSET", r.Keys.State, "grace", rigBase+clockAhead.Microseconds())
			r.hand(msg("a", 0))
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 1)
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s!lost wake 11s~11.5s"},
		"grace for what ran out in it": {func(r *rig) {
			r.hand(msg("a", 0))
			r.do("HSET", r.Keys.State, "seen", rigBase+clockAhead.Microseconds())
			r.at(11 * time.Second)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 0)
			r.expect("unack a@10s")
			r.tickTo(23 * time.Second)
			r.at(23500 * time.Millisecond)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 1)
		}, "retry 2:a@23.5s~24s fail a=2/0/1@23.5s!lost wake 23.5s~24s"},
		"no grace of a time that comes again": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.at(clockAhead)
			r.equal("lost, ahead", r.fetch(c, 0).Lost, 0) // a has a grace
			r.extend("a")
			r.at(20 * time.Second)
			r.equal("lost, back again", r.fetch(c, 0).Lost, 0)
			r.tickTo(29 * time.Second)
			r.extend("a")
			r.at(clockAhead + 30*time.Second) // when that grace is over
			r.equal("lost, ahead again", r.fetch(c, 0).Lost, 0)
		}, "unack a@39s"},
		"grace after an outage that follows it": {func(r *rig) {
			r.at(clockAhead)
			r.tick()
			r.at(0)
			r.hand(msg("a", 0))
			r.at(16 * time.Second)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 0)
		}, "unack a@10s"},
	})
}

// TestScriptSteerAfterTheClockWasAhead: a message that was sent or failed while the clock was ahead is due too late. A list by
// its instant finds it, and a steer brings it back.
func TestScriptSteerAfterTheClockWasAhead(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"by": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(century)
			r.done(ends(OutcomeRetry, "a", 1, 0, "x"))
			r.put(msg("b", 2*time.Second))
			r.at(5 * time.Second)
			r.put(msg("c", time.Hour))
			for _, in := range []string{statePending, stateRetry} {
				page, err := r.Store.List(queuetest.CtxB, ListRequest{In: in, From: rigBase + century.Microseconds(), To: math.MaxInt64, Limit: 9})
				if err != nil || len(page.Entries) != 1 {
					r.t.Fatalf("%s: %+v, %v", in, page, err)
				}
				got, err := r.Store.Steer(queuetest.CtxB, newCall(), SteerRequest{What: SteerBy, Us: -century.Microseconds(), Only: in,
					Targets: []Spot{page.Entries[0].Spot}})
				if err != nil || !got[0].Done {
					r.t.Errorf("%s: %+v, %v", in, got, err)
				}
			}
		}, "pending b@5s c@1h0m5s retry 2:a@5s fail a=2/1/0@876000h0m0s!x wake 5s"},
	})
}
