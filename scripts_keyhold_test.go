package delayqueue

import (
	"errors"
	"fmt"
	"strings"
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

// looksHeld wants a key that is held by a message until then.
func (r *rig) looksHeld(key, by string, until time.Duration) {
	r.t.Helper()
	held := new(KeyHeldError)
	if m, err := r.look(ctxB, "key", key); m != nil || !errors.As(err, &held) || !errors.Is(err, ErrNotFound) {
		r.t.Errorf("look: %+v, %v", m, err)
		return
	}
	r.equal("held", []any{held.Key, names(held.ID), r.since(held.Until.UnixMicro())}, []any{key, by, until})
}

func refusedIn(r *rig, m *sendMessage) string { return refused(r.send(newCaller(), m)) }

// requeues says what became of a message that is to come back from garbage now, in the words of steer.
func (r *rig) requeues(name string) string {
	return r.steered(steerRequest{what: steerRequeue, us: r.now, targets: []spot{{tag: idOf(name)}}})
}

// release says what became of the holds of keys, in the words of steer.
func (r *rig) release(keys ...string) string {
	return r.steered(steerRequest{what: steerRelease, only: "key", targets: mapped(keys, func(k *string) spot { return spot{tag: *k} })})
}

func (r *rig) steered(do steerRequest) string {
	r.t.Helper()
	got, err := r.store.steer(ctxB, after(newCaller()), do)
	if err != nil {
		r.t.Fatal(err)
	}
	var words []string
	for _, s := range got {
		word := s.state.String()
		if s.holder != "" {
			word = "=" + names(s.holder)
		}
		if s.held {
			word = "=" + acked + names(s.holder)
		}
		if !s.done && s.holder == "" {
			word = "!" + word
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestScriptKeyHold: after an ack a key stays taken, and is free afterwards, whether a fetch has looked or not.
func TestScriptKeyHold(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"while it is held": {func(r *rig) {
			heldKey(r)
			r.at(5*time.Second - time.Microsecond)
			r.equal("send", refused(r.send(newCaller(), msg("b", 0, keyed("k")), msg("c", time.Minute, keyed("l")))), "0=acked:a")
			for c, want := range map[Conflict]string{Refuse: "=acked:a", Keep: "~a", Replace: "=acked:a", Reschedule: "=acked:a"} {
				r.equal(c.String(), resend(r, c), want)
			}
			r.equal("intercept", r.intercept(newCaller(), "key", "k"), StateGone)
			r.equal("cancel", r.cancel("key", "k"), StateGone)
			r.looksHeld("k", "a", 5*time.Second)
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
			r.equal("refused", r.answers(newCaller(), numbered(msg("b", 0, keyed("k")), "s", 1)), "=acked:a")
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
		"what is in garbage comes back when it is over": {func(r *rig) {
			r.hand(msg("g", 0, keyed("k")))
			r.done(ends(outcomeGarbage, "g", 1, 0, "x", "k"))
			heldKey(r)
			r.equal("requeue", r.requeues("g"), "=acked:a")
			r.equal("cancel by key", r.cancel("key", "k"), StateGone)
			r.at(5*time.Second - time.Microsecond)
			r.equal("requeue", r.requeues("g"), "=acked:a")
			r.at(5 * time.Second)
			r.equal("requeue", r.requeues("g"), "garbage")
			r.tick() // frees nothing of g's
		}, "retry 2:g@5s fail g=2/0/0@5s!x key k=g wake 5s"},
		"or when it is released": {func(r *rig) {
			r.hand(msg("g", 0, keyed("k")))
			r.done(ends(outcomeGarbage, "g", 1, 0, "x", "k"))
			heldKey(r)
			r.equal("release", r.release("k", "l", "k"), "done !gone !gone")
			r.equal("requeue", r.requeues("g"), "garbage")
		}, "retry 2:g@0s fail g=2/0/0@0s!x key k=g wake 0s"},
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
		"its own, and after it the key is held on": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			void, refused := r.follows(then(holding("a", 5*time.Second, "k"), msg("b", 0, keyed("k")), next("c")))
			r.equal("void, refused", []any{void, refused}, []any{[]int(nil), "0.1=b"})
			r.take("b")
			r.done(ack("b", "k"))
			r.looksHeld("k", "b", 5*time.Second)
			r.equal("send", refusedIn(r, msg("d", 0, keyed("k"))), "0=acked:b")
		}, "key k=acked:b held k@5s"},
		"its own, which ends otherwise": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.follows(then(holding("a", 5*time.Second, "k"), msg("b", 0, keyed("k"))))
			r.take("b")
			r.done(ends(outcomeGarbage, "b", 1, 0, "x", "k"))
			r.equal("send", refusedIn(r, msg("d", 0, keyed("k"))), "0=acked:b")
			r.equal("requeue", r.requeues("b"), "garbage") // it is its own
			r.equal("intercept", r.intercept(newCaller(), "key", "k"), StateRetry)
		}, "key k=acked:b held k@5s wake 0s"},
		"its own, which is lost for good": {func(r *rig) {
			r.with.maxLosses = 1
			r.hand(msg("a", 0, keyed("k")))
			r.follows(then(holding("a", time.Minute, "k"), msg("b", 0, keyed("k"))))
			r.take("b")
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.tick()
		}, "garbage b@11s fail b=2/0/1@11s!poison key k=acked:b held k@1m0s"},
		"its own, and the hold is over before": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.follows(then(holding("a", 5*time.Second, "k"), next("b")))
			r.tickTo(6 * time.Second) // frees nothing of b's
			r.equal("state.held", r.read().Fields["held"], "0")
			r.equal("delete", r.steers("delete", 0, "b"), "pending")
		}, "wake 1m0s"},
		"its own, and the hold is released": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.follows(then(holding("a", 5*time.Second, "k"), next("b")))
			r.equal("release", r.release("k"), "done")
			r.equal("delete", r.steers("delete", 0, "b"), "pending")
		}, "wake 1m0s"},
		"and holds it in its turn, no shorter": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.follows(then(holding("a", 5*time.Second, "k"), msg("b", 0, keyed("k"))))
			r.take("b")
			r.done(holding("b", 3*time.Second, "k"))
		}, "key k=acked:b held k@5s"},
		"and longer": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.follows(then(holding("a", 5*time.Second, "k"), msg("b", 0, keyed("k"))))
			r.take("b")
			r.done(holding("b", 7*time.Second, "k"))
		}, "key k=acked:b held k@7s"},
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
		}, "pending b@1m0s done a@1h0m0s result a=1 fail a=2/0/0@0s key k=b held k@5s wake 1m0s"},
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

// TestScriptKeyHoldSweep: however many holds end at once, a fetch frees as many keys as one call may move, and the alarm is set
// for those that are left.
func TestScriptKeyHoldSweep(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		const n = 9_700 // of Go's making; the bound does not depend on it
		for i := 0; i < n; i += 100 {
			held, keys := []any{"ZADD", r.keys.held}, []any{"HSET", r.keys.key}
			for j := range 100 {
				key := fmt.Sprint("k", i+j)
				held, keys = append(held, r.now+1, key), append(keys, key, "acked:"+idOf("a"))
			}
			r.do(held...)
			r.do(keys...)
		}
		r.do("HSET", r.keys.state, "held", r.now+1)
		r.at(time.Second)
		for left := n; left > 0; {
			next := r.fetch(newCaller(), 0).next
			left = max(left-maxBatch, 0)
			r.equal("the alarm is for now", next == serverTime(r.now), left > 0)
			wake, _ := r.cli.ZScore(ctxB, r.keys.wake, "w").Result()
			r.equal("and set", int64(wake) == r.now, left > 0)
			r.equal("held", r.cli.ZCard(ctxB, r.keys.held).Val(), int64(left))
			r.equal("keys", r.cli.HLen(ctxB, r.keys.key).Val(), int64(left))
		}
		r.expect("")
	})
}
