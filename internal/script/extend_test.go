package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

func TestScriptExtend(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a shorter lease": {func(r *rig) {
			r.hand(msg("a", 0))
			r.with.Lease = time.Second
			r.extend("a")
			r.expect("unack a@10s") // another consumer asks for more
			r.at(10*time.Second + time.Microsecond)
			r.extend("a") // that one is gone
		}, "unack a@11.000001s"},
		"many end one after the other": {func(r *rig) { // list looks through all leases of the same end
			r.hand(msg("a", 0))
			r.hand(msg("b", 0))
			r.at(time.Second)
			r.extend("a", "b")
		}, "unack b@10.999999s a@11s"},
	})
}

func (r *rig) overrun(lease time.Duration, names ...string) {
	r.t.Helper()
	tags := make([]string, len(names))
	for i, name := range names {
		tags[i] = tagFor(name)
	}
	if err := r.Store.Overrun(queuetest.CtxB, lease, tags); err != nil {
		r.t.Fatalf("overrun: %v", err)
	}
}

// runsOn is the settlement of a delivery whose handler keeps its place for ten seconds.
func runsOn(name string) Settlement {
	s := ends(OutcomeRetry, name, 1, 0, "slow")
	s.Delay, s.Overrun = time.Minute, 10*time.Second
	return s
}

// TestScriptOverruns: a handler that runs on keeps its place until it returns, or until its process has not renewed the place
// for a lease.
func TestScriptOverruns(t *testing.T) {
	one := RateLimits{Concurrency: 1}
	begin := func(r *rig) {
		r.put(msg("a", 0), msg("b", 0))
		r.gives(1, "a", 10*time.Second)
		r.done(runsOn("a"))
		r.gives(1, "", 10*time.Second)
	}
	runScripts(t, map[string]scriptCase{
		"its process dies": {limited(one, func(r *rig) {
			begin(r)
			r.tickTo(9 * time.Second)
			r.at(10 * time.Second)
			f := r.fetch(NewCaller(), 1)
			r.equal("handed out", handed(f), "b")
			r.equal("lost and dropped", f.Lost+f.Dropped, 0)
		}), "unack b@20s retry 2:a@1m0s fail a=2/1/0@0s!slow wake 1m0s"},
		"the queue was deleted": {limited(one, func(r *rig) {
			begin(r)
			if _, _, err := r.Store.Drop(queuetest.CtxB, true); err != nil {
				t.Error(err)
			}
			r.overrun(10*time.Second, "a")
		}), ""},
	})
}

// TestScriptInterceptNotDue: messages with infinite instants, and of ten deliveries and more, are found.
func TestScriptInterceptNotDue(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"at an infinite instant": {func(r *rig) {
			r.put(msg("a", time.Second), msg("b", time.Second))
			r.do("ZADD", r.Keys.pending, "+inf", queuetest.IDOf("a"), "-inf", queuetest.IDOf("b"))
			r.equal("later", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), statePending)
			r.equal("sooner", r.intercept(NewCaller(), "id", queuetest.IDOf("b")), stateReady)
		}, "wake 1s"},
		"delivery 12": {func(r *rig) {
			r.hand(msg("a", 0))
			for n := 1; n < 12; n++ {
				tag := "a"
				if n > 1 {
					tag = fmt.Sprintf("%d:a", n)
				}
				r.done(ends(OutcomeReady, tag, 0, 0, ""))
				if n < 11 {
					r.take(fmt.Sprintf("%d:a", n+1))
				}
			}
			r.expect("ready 12:a fail a=12/0/0@0s wake 0s")
			r.equal("state", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), stateReady)
		}, "wake 0s"},
	})
}

// TestScriptInterceptKeys: an entry of a key that another program wrote finds nothing, and nothing is changed.
func TestScriptInterceptKeys(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a key that points nowhere": {func(r *rig) {
			r.do("HSET", r.Keys.key, "k", queuetest.IDOf("x"))
			r.do("HSET", r.Keys.State, "swept", "0") // there is such a queue
			r.equal("state", r.intercept(NewCaller(), "key", "k"), StateGone)
			r.put(msg("a", time.Second, keyed("k")))
		}, "pending a@1s key k=a wake 1s"},
		"a key whose entry somebody else wrote": {func(r *rig) {
			r.put(msg("a", time.Second, keyed("k")), msg("b", time.Second))
			r.do("HSET", r.Keys.key, "x", queuetest.IDOf("a"), "y", queuetest.IDOf("b"))
			r.equal("another's key", r.intercept(NewCaller(), "key", "x"), StateGone)
			r.equal("the key of a message without one", r.intercept(NewCaller(), "key", "y"), StateGone)
			r.do("HDEL", r.Keys.key, "x", "y")
		}, "pending a@1s b@1s key k=a wake 1s"},
	})
}
