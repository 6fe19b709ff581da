package delayqueue

import (
	"testing"
	"time"
)

func (r *rig) overrun(lease time.Duration, names ...string) {
	r.t.Helper()
	tags := make([]string, len(names))
	for i, name := range names {
		tags[i] = tagFor(name)
	}
	if err := r.store.overrun(ctxB, lease, tags); err != nil {
		r.t.Fatalf("overrun: %v", err)
	}
}

// runsOn is the settlement of a delivery whose handler keeps its place for ten seconds.
func runsOn(name string) settlement {
	s := ends(outcomeRetry, name, 1, 0, "slow")
	s.delay, s.overrun = time.Minute, 10*time.Second
	return s
}

// TestScriptOverruns: a handler that runs on keeps its place until it returns, or until nobody has renewed that for a lease.
func TestScriptOverruns(t *testing.T) {
	one := Limits{Concurrency: 1}
	const past = "pending b@0s unack overrun:a@10s retry 2:a@1m0s fail a=2/1/0@0s!slow "
	begin := func(r *rig) {
		r.put(msg("a", 0), msg("b", 0))
		r.gives(1, "a", 10*time.Second+time.Microsecond)
		r.done(runsOn("a"))
		r.gives(1, "", 10*time.Second)
	}
	runScripts(t, map[string]scriptCase{
		"past its limit": {limited(one, begin), past + "wake 10s"},
		"settled twice": {limited(one, func(r *rig) {
			r.put(msg("a", 0), msg("b", 0))
			r.gives(1, "a", 10*time.Second+time.Microsecond)
			c := newCaller()
			r.settle(c, runsOn("a"))
			r.overrun(0, "a")
			r.settleAgain(c, runsOn("a"))
			r.gives(1, "b", time.Minute)
		}), "unack b@10.000003s retry 2:a@1m0s fail a=2/1/0@0s!slow wake 1m0s"},
		"it was lost before": {limited(one, func(r *rig) {
			r.put(msg("a", 0))
			r.equal("void", r.settle(newCaller(), runsOn("a")), []int{0})
		}), "pending a@0s wake 0s"},
		"it returns": {limited(one, func(r *rig) {
			begin(r)
			r.overrun(0, "a")
			r.equal("woken", r.cli.ZScore(ctxB, r.keys.wake, "w").Val(), float64(r.now))
			r.do("DEL", r.keys.wake)
			r.overrun(0, "a")
			r.equal("woken once", r.cli.Exists(ctxB, r.keys.wake).Val(), int64(0))
			r.gives(1, "b", time.Minute)
		}), "unack b@10.000003s retry 2:a@1m0s fail a=2/1/0@0s!slow wake 1m0s"},
		"it is renewed": {limited(one, func(r *rig) {
			begin(r)
			r.tickTo(9 * time.Second)
			r.overrun(10*time.Second, "a")
			r.tickTo(18 * time.Second)
			r.gives(1, "", 19*time.Second)
		}), "pending b@0s unack overrun:a@19s retry 2:a@1m0s fail a=2/1/0@0s!slow wake 19s"},
		"its process dies": {limited(one, func(r *rig) {
			begin(r)
			r.tickTo(9 * time.Second)
			r.at(10 * time.Second)
			f := r.fetch(newCaller(), 1)
			r.equal("handed out", handed(f), "b")
			r.equal("lost and dropped", f.lost+f.dropped, 0)
		}), "unack b@20.000001s retry 2:a@1m0s fail a=2/1/0@0s!slow wake 1m0s"},
		"nobody fetched for long": {limited(one, func(r *rig) { // Redis was away: it may live
			begin(r)
			r.at(11 * time.Second)
			r.equal("handed out", handed(r.fetch(newCaller(), 1)), "")
		}), past + "wake 23.5s"},
		"canceled by key, twice": {limited(one, func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.put(msg("b", 0))
			c := newCaller()
			c.next()
			r.equal("was", r.takeOut(c, "key", "k", true), StateUnack)
			r.equal("was", r.takeOut(c, "key", "k", true), StateUnack)
			r.equal("again", r.cancel("id", idOf("a")), StateGone)
			r.equal("renewed", r.extend("a"), []leaseState{leaseGone})
			r.gives(1, "", 10*time.Second)
		}), "pending b@0s unack overrun:a@10s wake 10s"},
		"a fetch is repeated after a cancel": {limited(Limits{Concurrency: 3}, func(r *rig) {
			r.put(msg("a", 0), msg("b", 0))
			c := newCaller()
			r.equal("handed out", handed(r.fetch(c, 2)), "a b")
			r.cancel("id", idOf("a"))
			r.equal("again", handed(r.fetchAgain(c, 2)), "b")
		}), "unack overrun:a@10s b@10.000003s"},
		"places of a Monitor": {limited(Limits{}, func(r *rig) {
			r.hand(msg("a", 0))
			by := newCaller()
			by.next()
			if _, err := r.store.setLimits(ctxB, by, Limits{Concurrency: 7}); err != nil {
				t.Error(err)
			}
			r.fetch(newCaller(), 0)
			r.cancel("id", idOf("a"))
		}), "unack overrun:a@10s"},
		"any number of places": {limited(Limits{Rate: 1, Per: time.Second, Burst: 9}, func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.cancel("id", idOf("a"))
			r.steers(steerCancel, 0, "b")
			r.overrun(10*time.Second, "a", "b")
		}), ""},
		"the queue was deleted": {limited(one, func(r *rig) {
			begin(r)
			if _, _, err := r.store.drop(ctxB, true); err != nil {
				t.Error(err)
			}
			r.overrun(10*time.Second, "a")
		}), ""},
		"there are more than places": {limited(one, func(r *rig) {
			begin(r)
			r.overrun(10*time.Second, "c", "d") // they were lost, and others have them
			r.overrun(0, "a", "c")
			r.gives(1, "", 10*time.Second)
		}), "pending b@0s unack overrun:d@10s retry 2:a@1m0s fail a=2/1/0@0s!slow wake 10s"},
	})
}
