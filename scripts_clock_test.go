package delayqueue

import (
	"testing"
	"time"
)

const clockAhead = time.Hour // of the clock, before the step

// TestScriptClockStepsBackUnderLeases: what state holds lies in the future then. Leases and losses go by the new time at once.
func TestScriptClockStepsBackUnderLeases(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a lease that is handed out after it": {func(r *rig) {
			r.at(clockAhead)
			r.tick() // seen and grace
			r.at(0)
			r.hand(msg("a", 0))
			r.expect("unack a@10.000001s")
			r.tickTo(9 * time.Second)
			r.extend("a")
			r.tickTo(18 * time.Second)
			r.expect("unack a@19s wake 19s")
			r.at(19 * time.Second)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 1)
		}, "retry 2:a@19s~19.5s fail a=2/0/1@19s!lost wake 19s~19.5s"},
		"a lease from before it is not believed for longer than one from now": {func(r *rig) {
			r.put(msg("a", 0))
			r.at(clockAhead)
			r.take("a") // by a consumer that dies
			r.at(0)
			r.tick()
			r.expect("unack a@10s")
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 1)
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s!lost wake 11s~11.5s"},
		"a lease from before it is renewed to the new time": {func(r *rig) {
			r.put(msg("a", 0))
			r.at(clockAhead)
			r.take("a")
			r.at(0)
			r.equal("extend", r.extend("a"), []leaseState{leaseRenewed})
			r.expect("unack a@10s")
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 1)
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s!lost wake 11s~11.5s"},
		"a lease from before it can be settled": {func(r *rig) {
			r.put(msg("a", 0), msg("b", 0))
			r.at(clockAhead)
			r.take("a b")
			r.at(0)
			r.done(ack("a"))
			r.done(ends(outcomeRetry, "b", 1, 0, "x"))
			r.at(time.Second)
			r.take("2:b")
		}, "unack 2:b@11.000001s fail b=2/1/0@0s!x"},
		"a poisonous message is given up all the same": {func(r *rig) {
			lostTwice(r, "a")
			r.at(r.since(r.now) + time.Second)
			r.take("3:a")
			r.at(0)
			r.tick()
			r.equal("extend", r.extend("3:a"), []leaseState{leaseRenewed})
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.equal("dead", len(r.fetch(newCaller(), 0).dead), 1)
		}, "garbage a@11s fail a=4/0/3@11s!poison"},
	})
}

// TestScriptClockStepsBackUnderGrace: so does the grace after an outage.
func TestScriptClockStepsBackUnderGrace(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"no grace from before it": {func(r *rig) {
			r.tick()
			r.do("HSET", r.keys.state, "grace", rigBase+clockAhead.Microseconds())
			r.hand(msg("a", 0))
			r.tickTo(10 * time.Second)
			r.at(11 * time.Second)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 1)
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s!lost wake 11s~11.5s"},
		"grace for what ran out in it": {func(r *rig) {
			r.hand(msg("a", 0))
			r.do("HSET", r.keys.state, "seen", rigBase+clockAhead.Microseconds())
			r.at(11 * time.Second)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 0)
			r.expect("unack a@10.000001s")
			r.tickTo(23 * time.Second)
			r.at(23500 * time.Millisecond)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 1)
		}, "retry 2:a@23.5s~24s fail a=2/0/1@23.5s!lost wake 23.5s~24s"},
		"no grace of a time that comes again": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.at(clockAhead)
			r.equal("lost, ahead", r.fetch(c, 0).lost, 0) // a has a grace
			r.extend("a")
			r.at(20 * time.Second)
			r.equal("lost, back again", r.fetch(c, 0).lost, 0)
			r.tickTo(29 * time.Second)
			r.extend("a")
			r.at(clockAhead + 30*time.Second) // when that grace is over
			r.equal("lost, ahead again", r.fetch(c, 0).lost, 0)
		}, "unack a@39s"},
		"grace after an outage that follows it": {func(r *rig) {
			r.at(clockAhead)
			r.tick()
			r.at(0)
			r.hand(msg("a", 0))
			r.at(16 * time.Second)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 0)
		}, "unack a@10.000001s"},
	})
}

// TestScriptClockStepsBackUnderCalls: so do alarms; a call from before it is repeated.
func TestScriptClockStepsBackUnderCalls(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"an alarm that is armed for later": {func(r *rig) {
			r.at(clockAhead)
			r.put(msg("a", time.Second))
			r.at(0)
			r.put(msg("b", 5*time.Second))
			r.expect("pending b@5s a@1h0m1s wake 5s")
			r.at(5 * time.Second)
			r.take("b")
			r.done(ack("b"))
		}, "pending a@1h0m1s wake 1h0m1s"},
		"a send from before it is repeated": {func(r *rig) {
			r.at(clockAhead)
			c, a := newCaller(), msg("a", time.Second)
			first := r.send(c, a)
			r.at(0)
			r.equal("the repeat", r.sendAgain(c, a), first)
		}, "pending a@1h0m1s wake 1h0m1s"},
		"a fetch from before it is repeated": {func(r *rig) {
			r.put(msg("a", 0))
			r.at(clockAhead)
			c := r.take("a")
			r.at(0)
			r.equal("the repeat", handed(r.fetchAgain(c, 1)), "a")
		}, "unack a@10.000001s"},
	})
}

// TestScriptBulkAfterTheClockWasAhead: what was sent and what failed while it was is due too late, and a call for many brings it back.
func TestScriptBulkAfterTheClockWasAhead(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"by": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(century)
			r.done(ends(outcomeRetry, "a", 1, 0, "x"))
			r.put(msg("b", 2*time.Second))
			r.at(5 * time.Second)
			r.put(msg("c", time.Hour))
			got, err := NewMonitor(r.name, r.cli).BulkRescheduleBy(ctxB,
				Bulk{Filter: Filter{From: time.UnixMicro(rigBase).Add(century)}}, -century)
			if err != nil || got.Done != 2 {
				r.t.Errorf("%+v, %v", got, err)
			}
			r.do("DEL", r.keys.journal)
		}, "pending b@5s c@1h0m5s retry 2:a@5s fail a=2/1/0@876000h0m0s!x wake 5s"},
	})
}
