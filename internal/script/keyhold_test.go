package script

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// holding is an ack after which the key stays taken for d.
func holding(name string, d time.Duration, key string) Settlement {
	s := ack(name, key)
	s.Hold = d
	return s
}

// heldKey makes an acked message a whose key k stays taken until 5 s.
func heldKey(r *rig) {
	r.hand(msg("a", 0, keyed("k")))
	r.done(holding("a", 5*time.Second, "k"))
}

// resend sends b with the key k and this policy, and returns the answer.
func resend(r *rig, c Conflict) string {
	return r.answers(NewCaller(), on(c, true, msg("b", time.Minute, keyed("k"))))
}

// looksHeld wants a key that this message holds until then.
func (r *rig) looksHeld(key, by string, until time.Duration) {
	r.t.Helper()
	if m, err := r.Look(queuetest.CtxB, "key", key, 0); err != nil || m == nil || !m.Held || names(m.ID) != by || r.since(m.At) != until {
		r.t.Errorf("%s: %+v, %v; want it held by %s until %v", key, m, err, by, until)
	}
}

func refusedIn(r *rig, m *SendMessage) string { return refused(r.send(NewCaller(), m)) }

// requeues brings a message back from garbage now, and returns the answer in words.
func (r *rig) requeues(name string) string {
	return r.steered(SteerRequest{What: SteerRequeue, Us: r.now, Targets: []Spot{{Tag: queuetest.IDOf(name)}}})
}

// release ends the holds of keys, and returns the answers in words.
func (r *rig) release(keys ...string) string {
	return r.steered(SteerRequest{What: SteerRelease, Only: "key", Targets: conc.Mapped(keys, func(k *string) Spot { return Spot{Tag: *k} })})
}

func (r *rig) steered(do SteerRequest) string {
	r.t.Helper()
	got, err := r.Store.Steer(queuetest.CtxB, newCall(), do)
	queuetest.Must(r.t, err)
	var words []string
	for _, s := range got {
		word := s.State
		if s.Holder != "" {
			word = "=" + names(s.Holder)
		}
		if s.Held {
			word = "=" + acked + names(s.Holder)
		}
		if !s.Done && s.Holder == "" {
			word = "!" + word
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestScriptKeyHold: after an ack with a hold the key of its message stays taken, until the hold is over or released.
// TestModel compares the rest.
func TestScriptKeyHold(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"while it is held": {func(r *rig) {
			heldKey(r)
			r.at(5*time.Second - time.Microsecond)
			r.equal("send", refused(r.send(NewCaller(), msg("b", 0, keyed("k")), msg("c", time.Minute, keyed("l")))), "0=acked:a")
			for c, want := range map[Conflict]string{ConflictRefuse: "=acked:a", ConflictKeep: "~a", ConflictReplace: "=acked:a", ConflictReschedule: "=acked:a"} {
				r.equal(fmt.Sprint(conflictWords[c]), resend(r, c), want)
			}
			r.equal("intercept", r.intercept(NewCaller(), "key", "k"), StateGone)
			r.equal("cancel", r.cancel("key", "k"), StateGone)
			r.looksHeld("k", "a", 5*time.Second)
			r.tick() // nothing is over
		}, "pending c@1m4.999999s key k=acked:a l=c held k@5s wake 1m4.999999s"},
		"or when it is released": {func(r *rig) {
			r.hand(msg("g", 0, keyed("k")))
			r.done(ends(OutcomeGarbage, "g", 1, 0, "x", "k"))
			heldKey(r)
			r.equal("release", r.release("k", "l", "k"), "done !gone !gone")
			r.equal("requeue", r.requeues("g"), "garbage")
		}, "retry 2:g@0s fail g=2/0/0@0s!x key k=g wake 0s"},
	})
}

// TestScriptKeyHoldThen: a message that follows an ack takes over the key that the ack holds. No other message does.
// TestModel compares the rest.
func TestScriptKeyHoldThen(t *testing.T) {
	next := func(name string) *SendMessage { return msg(name, time.Minute, keyed("k")) }
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
		"that of another, in one call": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("o", 0))
			_, refused := r.follows(then(ack("o"), next("b")), holding("a", 5*time.Second, "k"))
			r.equal("refused", refused, "0.0=a")
		}, "key k=acked:a held k@5s"},
	})
}

// TestScriptKeyHoldRubbish: an entry of another program neither keeps a key for ever nor stops anything.
func TestScriptKeyHoldRubbish(t *testing.T) {
	const year = 365 * 24 * time.Hour // the longest hold
	onReal(t, func(r *rig) {
		for i, score := range []string{"+inf", "-inf", "0", "-5", "9.1e15", fmt.Sprint(r.now + year.Microseconds() + 1)} {
			heldKey(r)
			r.do("ZADD", r.Keys.held, score, "k")
			name := fmt.Sprint("m", i)
			r.equal("held until "+score, r.answers(NewCaller(), on(ConflictKeep, true, msg(name, time.Second, keyed("k")))), "+1s")
			r.equal("cancel", r.cancel("key", "k"), statePending)
			r.do("DEL", r.Keys.held)
		}
		r.do("HSET", r.Keys.key, "k", "acked:", "l", "acked:x y")
		r.do("ZADD", r.Keys.held, r.now+1e6, "l")
		r.equal("answers", r.answers(NewCaller(), on(ConflictKeep, true, msg("n", time.Second, keyed("k"))),
			on(ConflictKeep, true, msg("o", time.Second, keyed("l")))), "+1s ~x?y")
		r.equal("cancel", r.cancel("key", "k"), statePending)
		for _, value := range rubbish {
			r.do("HSET", r.Keys.State, "held", value)
			r.tick()
		}
		r.tickTo(2 * time.Second)
		r.expect("")
		goesOn(r)
	})
}

// TestScriptKeyHoldSweep: if many holds end at once, each fetch frees 500 keys, and sets the alarm for the rest.
func TestScriptKeyHoldSweep(t *testing.T) {
	onReal(t, func(r *rig) {
		const n = 9_700 // of Go's making; the bound does not depend on it
		for i := 0; i < n; i += 100 {
			held, keys := []any{"ZADD", r.Keys.held}, []any{"HSET", r.Keys.key}
			for j := range 100 {
				key := fmt.Sprint("k", i+j)
				held, keys = append(held, r.now+1, key), append(keys, key, "acked:"+queuetest.IDOf("a"))
			}
			r.do(held...)
			r.do(keys...)
		}
		r.do("HSET", r.Keys.State, "held", r.now+1)
		r.at(time.Second)
		for left := n; left > 0; {
			next := r.fetch(NewCaller(), 0).Next
			left = max(left-MaxBatch, 0)
			r.equal("the alarm is for now", next == message.ServerTime(r.now), left > 0)
			wake, _ := r.Cli.ZScore(queuetest.CtxB, r.Keys.Wake, "w").Result()
			r.equal("and set", int64(wake) == r.now, left > 0)
			r.equal("held", r.Cli.ZCard(queuetest.CtxB, r.Keys.held).Val(), int64(left))
			r.equal("keys", r.Cli.HLen(queuetest.CtxB, r.Keys.key).Val(), int64(left))
		}
		r.expect("")
	})
}
