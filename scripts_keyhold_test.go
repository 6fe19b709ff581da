package delayqueue

import (
	"fmt"
	"testing"
	"time"
)

// holding is an ack after which the key stays taken for so long.
func holding(name string, d time.Duration, key string) settlement {
	s := ack(name, key)
	s.hold = d
	return s
}

// heldKey makes an acked message a whose key k stays taken until 5 s.
func heldKey(r *rig) {
	r.hand(msg("a", 0, keyed("k")))
	r.done(holding("a", 5*time.Second, "k"))
}

// resend sends b with the key k and this policy, and says what came of it.
func resend(r *rig, c Conflict) string {
	return r.answers(newCaller(), on(c, true, msg("b", time.Minute, keyed("k"))))
}

// TestScriptKeyHold: after an ack a key stays taken, and is free afterwards, whether a fetch has looked or not.
func TestScriptKeyHold(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"while it is held": {func(r *rig) {
			heldKey(r)
			r.at(5*time.Second - time.Microsecond)
			r.equal("send", refused(r.send(newCaller(), msg("b", 0, keyed("k")), msg("c", time.Minute, keyed("l")))), "0=a")
			for c, want := range map[Conflict]string{Refuse: "=a", Keep: "~a", Replace: "=a", Reschedule: "=a"} {
				r.equal(c.String(), resend(r, c), want)
			}
			r.equal("intercept", r.intercept(newCaller(), "key", "k"), StateGone)
			r.equal("cancel", r.cancel("key", "k"), StateGone)
			if m, err := r.look(ctxB, "key", "k"); m != nil || err != nil {
				r.t.Errorf("look: %+v, %v", m, err)
			}
			r.tick() // nothing is over
		}, "pending c@1m4.999999s key k=acked:a l=c held k@5s wake 1m4.999999s"},
		"it is over": {func(r *rig) {
			heldKey(r)
			r.at(5 * time.Second)
			r.equal("keep", resend(r, Keep), "+1m5s")
		}, "pending b@1m5s key k=b held k@5s wake 1m5s"},
		"it is over, for send": {func(r *rig) {
			heldKey(r)
			r.at(5 * time.Second)
			r.put(msg("b", time.Minute, keyed("k")))
			r.tick() // frees nothing of b's
		}, "pending b@1m5s key k=b wake 1m5s"},
		"it is over, and a fetch has looked": {func(r *rig) {
			heldKey(r)
			r.tickTo(5 * time.Second)
			r.equal("state.held", r.read().Fields["held"], "0")
		}, ""},
		"a number of a sequence": {func(r *rig) {
			heldKey(r)
			r.equal("refused", r.answers(newCaller(), numbered(msg("b", 0, keyed("k")), "s", 1)), "=a")
			m := numbered(msg("b", 0, keyed("k")), "s", 2)
			m.put.on = Keep
			r.equal("kept", r.answers(newCaller(), m, m), "~a #2")
		}, "key k=acked:a sequence s=2 held k@5s"},
	})
}

// TestScriptKeyHoldSettled: for which settlements a key stays taken, and who takes it over.
func TestScriptKeyHoldSettled(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"its settlement is repeated": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			c := newCaller()
			r.equal("void", r.settle(c, holding("a", 5*time.Second, "k")), []int(nil))
			r.at(time.Second)
			r.equal("void", r.settleAgain(c, holding("a", 5*time.Second, "k")), []int(nil))
			r.equal("void, by another", r.settle(newCaller(), holding("a", 5*time.Second, "k")), []int{0})
		}, "key k=acked:a held k@5s"},
		"two, the sooner one last": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("l")), msg("c", 0, keyed("m")))
			r.done(holding("a", 5*time.Second, "k"))
			r.done(holding("b", 3*time.Second, "l"), holding("c", 9*time.Second, "m"))
			r.tickTo(3 * time.Second)
		}, "key k=acked:a m=acked:c held k@5s m@9s"},
		"a failure": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("l")))
			r.done(ends(outcomeRetry, "a", 1, 0, "x", "k"), ends(outcomeGarbage, "b", 1, 0, "x", "l"))
		}, "retry 2:a@1s garbage b@0s fail a=2/1/0@0s!x b=2/1/0@0s!x key k=a wake 1s"},
		"another has the key": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.equal("answer", resend(r, Replace), "+1m0s")
			r.done(holding("a", 5*time.Second, "k"))
		}, "pending b@1m0s key k=b wake 1m0s"},
		"the other is acked too": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.answers(newCaller(), on(Replace, true, msg("b", 0, keyed("k"))))
			r.take("b")
			r.done(holding("b", 5*time.Second, "k"), holding("a", 9*time.Second, "k"))
		}, "key k=acked:b held k@5s"},
		"and is kept to be looked at": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			s := kept("a", 2*time.Second, "v", "k")
			s.hold = 5 * time.Second
			r.done(s)
			r.equal("keep", resend(r, Keep), "~a")
			r.tickTo(4 * time.Second)
			r.equal("keep", resend(r, Keep), "~a")
		}, "key k=acked:a held k@5s"},
		"kept for longer than held": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			s := kept("a", time.Hour, "v", "k")
			s.hold = 5 * time.Second
			r.done(s)
			r.at(5 * time.Second)
			r.equal("keep", resend(r, Keep), "+1m5s")
		}, "pending b@1m5s done a@1h0m0s result a=1 fail a=2/0/0@0s key k=b held k@5s wake 1m5s"},
		"what is requeued takes it over": {func(r *rig) {
			r.hand(msg("g", 0, keyed("k")))
			r.done(ends(outcomeGarbage, "g", 1, 0, "x", "k"))
			heldKey(r)
			c := newCaller()
			c.next()
			got, err := r.store.steer(ctxB, c, steerRequest{what: steerRequeue, us: r.now + 60e6, targets: []spot{{tag: idOf("g")}}})
			if err != nil || !got[0].done {
				r.t.Errorf("%+v, %v", got, err)
			}
			r.tickTo(6 * time.Second) // frees nothing of g's
		}, "retry 2:g@1m0s fail g=2/0/0@0s!x key k=g wake 1m0s"},
		"the server forgot the fetch": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.do("ZREM", r.keys.unack, idOf("a"))
			r.do("ZADD", r.keys.pending, r.now, idOf("a"))
			r.done(holding("a", 5*time.Second, "k"))
		}, "key k=acked:a held k@5s"},
	})
}

// TestScriptKeyHoldThen: what follows a message takes its key over though that keeps it taken; nobody else does.
func TestScriptKeyHoldThen(t *testing.T) {
	next := func(name string) *sendMessage { return msg(name, time.Minute, keyed("k")) }
	runScripts(t, map[string]scriptCase{
		"its own": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			void, refused := r.follows(then(holding("a", 5*time.Second, "k"), next("b"), next("c")))
			r.equal("void, refused", []any{void, refused}, []any{[]int(nil), "0.1=b"})
			r.tickTo(6 * time.Second) // frees nothing of b's
			r.equal("state.held", r.read().Fields["held"], "0")
		}, "pending b@1m0s key k=b wake 1m0s"},
		"and holds it in its turn": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.follows(then(holding("a", 5*time.Second, "k"), msg("b", 0, keyed("k"))))
			r.take("b")
			r.done(holding("b", 3*time.Second, "k"))
		}, "key k=acked:b held k@3s"},
		"that of another, in one call": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("o", 0))
			_, refused := r.follows(then(ack("o"), next("b")), holding("a", 5*time.Second, "k"))
			r.equal("refused", refused, "0.0=a")
		}, "key k=acked:a held k@5s"},
		"one that held it before": {func(r *rig) {
			heldKey(r)
			r.hand(msg("o", 0))
			_, refused := r.follows(then(ack("o"), next("b")))
			r.equal("refused", refused, "0.0=a")
		}, "key k=acked:a held k@5s"},
		"which another has taken over": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("o", time.Hour, keyed("k")))), "+1h0m0s")
			_, refused := r.follows(then(holding("a", 5*time.Second, "k"), next("b")))
			r.equal("refused", refused, "0.0=o")
		}, "pending o@1h0m0s key k=o wake 1h0m0s"},
		"a void one": {func(r *rig) {
			heldKey(r)
			void, refused := r.follows(then(holding("a", 5*time.Second, "k"), next("b")))
			r.equal("void, refused", []any{void, refused}, []any{[]int{0}, ""})
		}, "key k=acked:a held k@5s"},
		"what is kept": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			s := kept("a", time.Hour, "v", "k")
			s.hold = 5 * time.Second
			_, refused := r.follows(then(s, next("b")))
			r.equal("refused", refused, "")
		}, "pending b@1m0s done a@1h0m0s result a=1 fail a=2/0/0@0s key k=b wake 1m0s"},
	})
}

// TestScriptKeyHoldRubbish: what somebody else wrote neither keeps a key for ever nor stops anything.
func TestScriptKeyHoldRubbish(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for i, score := range []string{"+inf", "-inf", "0", "-5", "9.1e15", fmt.Sprint(r.now + maxKeyHold.Microseconds() + 1)} {
			heldKey(r)
			r.do("ZADD", r.keys.held, score, "k")
			name := fmt.Sprint("m", i)
			r.equal("held until "+score, r.answers(newCaller(), on(Keep, true, msg(name, time.Second, keyed("k")))), "+1s")
			r.equal("cancel", r.cancel("key", "k"), StatePending)
			r.do("DEL", r.keys.held)
		}
		r.do("HSET", r.keys.key, "k", "acked:", "l", "acked:x y")
		r.do("ZADD", r.keys.held, r.now+1e6, "l")
		r.equal("answers", r.answers(newCaller(), on(Keep, true, msg("n", time.Second, keyed("k"))),
			on(Keep, true, msg("o", time.Second, keyed("l")))), "+1s ~x?y")
		r.equal("cancel", r.cancel("key", "k"), StatePending)
		for _, value := range rubbish {
			r.do("HSET", r.keys.state, "held", value)
			r.tick()
		}
		r.tickTo(2 * time.Second)
		r.expect("")
		goesOn(r)
	})
}

// TestScriptKeyHoldSweep: however many holds end at once, a fetch frees a hundred keys, with as many commands as for one.
func TestScriptKeyHoldSweep(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		const n = 10_000 // of Go's making; the bound does not depend on it
		for i := 0; i < n; i += 1000 {
			held, keys := []any{"ZADD", r.keys.held}, []any{"HSET", r.keys.key}
			for j := range 1000 {
				key := fmt.Sprint("k", i+j)
				held, keys = append(held, r.now+1, key), append(keys, key, "acked:"+idOf("a"))
			}
			r.do(held...)
			r.do(keys...)
		}
		r.do("HSET", r.keys.state, "held", r.now+1)
		r.at(time.Second)
		for left := n; left > 0; {
			r.tick()
			left -= 100
			r.equal("held", r.cli.ZCard(ctxB, r.keys.held).Val(), int64(left))
			r.equal("keys", r.cli.HLen(ctxB, r.keys.key).Val(), int64(left))
		}
		r.expect("")
	})
}
