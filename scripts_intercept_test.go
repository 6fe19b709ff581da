package delayqueue

import (
	"fmt"
	"testing"
	"time"
)

// TestScriptIntercept: a message is taken out of the state in which it is, with its key; one that is being handled only by cancel.
func TestScriptIntercept(t *testing.T) {
	// In each state stands the message a, which has the key k, beside its like.
	into := map[State]func(r *rig){
		StatePending: func(r *rig) { r.put(msg("a", time.Second, keyed("k")), msg("b", time.Second, keyed("K"))) },
		StateReady: func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K")))
			r.done(ends(outcomeReady, "b", 0, 0, "", "K"), ends(outcomeReady, "a", 0, 0, "", "k"))
		},
		StateUnack: func(r *rig) { r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K"))) },
		StateRetry: func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K")))
			r.done(ends(outcomeRetry, "a", 1, 0, "x", "k"), ends(outcomeRetry, "b", 1, 0, "x", "K"))
		},
		StateGarbage: func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K")))
			r.done(ends(outcomeGarbage, "a", 1, 0, "x", "k"), ends(outcomeGarbage, "b", 1, 0, "x", "K"))
		},
	}
	left := map[State]string{
		StatePending: "pending b@1s key K=b wake 1s",
		StateReady:   "ready 2:b fail b=2/0/0@0s key K=b wake 0s",
		StateUnack:   "unack b@10.000001s key K=b",
		StateRetry:   "retry 2:b@1s fail b=2/1/0@0s!x key K=b wake 1s",
		StateGarbage: "garbage b@0s fail b=2/1/0@0s!x",
	}
	cases := map[string]scriptCase{}
	for state, build := range into {
		cases["cancel, "+state.String()] = scriptCase{func(r *rig) {
			build(r)
			r.equal("state", r.cancel("id", idOf("a")), state)
			r.equal("again", r.cancel("id", idOf("a")), StateGone)
		}, left[state]}
		if state == StateUnack {
			cases["unack, which stays"] = scriptCase{func(r *rig) {
				build(r)
				for range 2 {
					r.equal("by id", r.intercept(newCaller(), "id", idOf("a")), StateUnack)
					r.equal("by key", r.intercept(newCaller(), "key", "k"), StateUnack)
				}
				r.equal("cancel by key", r.cancel("key", "k"), StateUnack)
			}, left[state]}
			continue
		}
		cases[state.String()+" by id"] = scriptCase{func(r *rig) {
			build(r)
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), state)
			r.equal("again", r.intercept(newCaller(), "id", idOf("a")), StateGone)
		}, left[state]}
		if state == StateGarbage {
			cases["garbage by key, which is free"] = scriptCase{func(r *rig) {
				build(r)
				r.equal("state", r.intercept(newCaller(), "key", "k"), StateGone)
				r.equal("by id", r.intercept(newCaller(), "id", idOf("a")), StateGarbage)
			}, left[state]}
			continue
		}
		cases[state.String()+" by key"] = scriptCase{func(r *rig) {
			build(r)
			r.equal("state", r.intercept(newCaller(), "key", "k"), state)
			r.equal("again", r.intercept(newCaller(), "key", "k"), StateGone)
		}, left[state]}
	}
	runScripts(t, cases)
}

// TestScriptInterceptNotDue: pending and ready differ by the due time alone, and each delivery is found.
func TestScriptInterceptNotDue(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"due, not handed out": {func(r *rig) {
			r.put(msg("a", time.Second))
			r.at(time.Second)
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StateReady)
		}, "wake 1s"},
		"not yet due": {func(r *rig) {
			r.put(msg("a", time.Second))
			r.at(time.Second - time.Microsecond)
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StatePending)
		}, "wake 1s"},
		"at an infinite instant": {func(r *rig) {
			r.put(msg("a", time.Second), msg("b", time.Second))
			r.do("ZADD", r.keys.pending, "+inf", idOf("a"), "-inf", idOf("b"))
			r.equal("later", r.intercept(newCaller(), "id", idOf("a")), StatePending)
			r.equal("sooner", r.intercept(newCaller(), "id", idOf("b")), StateReady)
		}, "wake 1s"},
		"a later delivery that is held": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeReady, "a", 0, 0, ""))
			r.take("2:a")
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StateUnack)
			r.expect("unack 2:a@10.000003s fail a=2/0/0@0s")
			r.equal("state", r.cancel("id", idOf("a")), StateUnack)
		}, ""},
		"delivery 12": {func(r *rig) {
			r.hand(msg("a", 0))
			for n := 1; n < 12; n++ {
				tag := "a"
				if n > 1 {
					tag = fmt.Sprintf("%d:a", n)
				}
				r.done(ends(outcomeReady, tag, 0, 0, ""))
				if n < 11 {
					r.take(fmt.Sprintf("%d:a", n+1))
				}
			}
			r.expect("ready 12:a fail a=12/0/0@0s wake 0s")
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StateReady)
		}, "wake 0s"},
	})
}

// TestScriptInterceptKeys: a key finds the message that has it, and no other; what finds nothing changes nothing.
func TestScriptInterceptKeys(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"never sent": {func(r *rig) {
			r.put(msg("a", time.Second, keyed("k")))
			r.equal("by id", r.intercept(newCaller(), "id", idOf("x")), StateGone)
			r.equal("by key", r.intercept(newCaller(), "key", "x"), StateGone)
			r.equal("a key as an id", r.intercept(newCaller(), "id", "k"), StateGone)
			r.equal("an id as a key", r.intercept(newCaller(), "key", idOf("a")), StateGone)
			r.equal("nothing", r.intercept(newCaller(), "id", ""), StateGone)
		}, "pending a@1s key k=a wake 1s"},
		"acked": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(ack("a", "k"))
			r.equal("by id", r.intercept(newCaller(), "id", idOf("a")), StateGone)
			r.equal("by key", r.intercept(newCaller(), "key", "k"), StateGone)
		}, ""},
		"a key that points nowhere": {func(r *rig) {
			r.do("HSET", r.keys.key, "k", idOf("x"))
			r.do("HSET", r.keys.state, "sent", "0") // there is such a queue
			r.equal("state", r.intercept(newCaller(), "key", "k"), StateGone)
			r.put(msg("a", time.Second, keyed("k")))
		}, "pending a@1s key k=a wake 1s"},
		"a key that another has stays": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(ends(outcomeGarbage, "a", 1, 0, "", "k"))
			r.put(msg("b", time.Second, keyed("k")))
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StateGarbage)
		}, "pending b@1s key k=b wake 1s"},
		"a key whose entry somebody else wrote": {func(r *rig) {
			r.put(msg("a", time.Second, keyed("k")), msg("b", time.Second))
			r.do("HSET", r.keys.key, "x", idOf("a"), "y", idOf("b"))
			r.equal("another's key", r.intercept(newCaller(), "key", "x"), StateGone)
			r.equal("the key of a message without one", r.intercept(newCaller(), "key", "y"), StateGone)
			r.do("HDEL", r.keys.key, "x", "y")
		}, "pending a@1s b@1s key k=a wake 1s"},
	})
}

// TestScriptInterceptRepeated: a call that comes again says the same and takes out nothing more.
func TestScriptInterceptRepeated(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"repeated": {func(r *rig) {
			r.put(msg("a", time.Second, keyed("k")))
			c := newCaller()
			r.equal("state", r.intercept(c, "key", "k"), StatePending)
			r.put(msg("b", time.Second, keyed("k"))) // another of that key must stay
			for range 2 {
				r.at(r.since(r.now) + time.Second)
				r.equal("the repeat", r.interceptAgain(c, "key", "k"), StatePending)
			}
			r.equal("a new call", r.intercept(c, "key", "k"), StateReady)
		}, "wake 1s"},
		"repeated, of nothing": {func(r *rig) {
			r.do("HSET", r.keys.state, "sent", "0") // there is such a queue
			c := newCaller()
			r.equal("state", r.intercept(c, "key", "k"), StateGone)
			r.put(msg("b", time.Second, keyed("k")))
			r.equal("the repeat", r.interceptAgain(c, "key", "k"), StateGone)
		}, "pending b@1s key k=b wake 1s"},
		"an older call": {func(r *rig) {
			r.put(msg("a", time.Second), msg("b", time.Second), msg("c", time.Second))
			c := newCaller()
			r.intercept(c, "id", idOf("a"))
			r.intercept(c, "id", idOf("b"))
			before := r.contents()
			_, err := r.store.intercept(ctxB, older(c), "id", idOf("c"), false)
			r.tooLate(err)
			r.equal("contents", r.contents(), before)
		}, "pending c@1s wake 1s"},
	})
}
