package script

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestScriptSend: a send notes the length of the longest envelope that it stores. TestModel compares the envelopes.
func TestScriptSend(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"big is the longest ever": {func(r *rig) {
			big := func(want *SendMessage) {
				r.equal("big", r.read().Fields["big"], strconv.Itoa(len(want.Text)+message.EnvelopeHead))
			}
			b, e := msg("b", time.Second, sized(3000)), numbered(msg("e", time.Second, sized(3001)), "s", 1)
			r.put(msg("a", time.Second, sized(2100)))
			r.put(b, msg("c", time.Second, sized(2050)))
			big(b)
			r.equal("intercept", r.intercept(NewCaller(), "id", queuetest.IDOf("b")), statePending)
			r.put(msg("d", time.Second, sized(2999)))
			big(b)
			r.put(e) // by put
			big(e)
		}, "pending a@1s c@1s d@1s e@1s sequence s=1 wake 1s"},
		"nothing is stored": {func(r *rig) {
			r.put(msg("a", 5*time.Second, keyed("k")))
			r.equal("refused", refused(r.send(NewCaller(), msg("b", 0, keyed("k"), sized(3000)))), "0=a")
			r.equal("big", r.read().Fields["big"], "")
		}, "pending a@5s key k=a wake 5s"},
	})
}

// TestScriptSendKeys: a key may have any bytes, and an entry whose holder is gone does not keep a key taken.
func TestScriptSendKeys(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"key whose holder has no envelope": {func(r *rig) {
			r.do("HSET", r.Keys.of("key"), "k", queuetest.IDOf("x"))
			r.equal("refused", refused(r.send(NewCaller(), msg("a", 0, keyed("k")), msg("b", 0, keyed("k")))), "1=a")
		}, "pending a@0s key k=a wake 0s"},
		"key of any bytes": {func(r *rig) {
			r.equal("refused", refused(r.send(NewCaller(), msg("a", 0, keyed("\x00=1 \xff")), msg("b", 0, keyed("\x00=1 \xff")),
				msg("c", 0, keyed("\x00")))), "1=a")
			r.done() // no outcomes: nothing changes
			r.equal("intercept", r.intercept(NewCaller(), "key", "\x00=1 \xff"), stateReady)
			r.equal("intercept", r.intercept(NewCaller(), "key", "\x00"), stateReady)
		}, "wake 0s"},
	})
}

// TestScriptForget: calls of Forget delete the records of callers that have been silent for an hour, and nothing else.
func TestScriptForget(t *testing.T) {
	runScripts(t, map[string]scriptCase{"": {func(r *rig) {
		call := func(age time.Duration) string { return fmt.Sprintf("3 %d ", r.now-age.Microseconds()) }
		r.put(msg("a", time.Hour))
		before := r.read().Fields
		r.do("HSET", r.Keys.State, "call:fresh", call(time.Hour), "call:soon", call(-time.Hour))
		for i := range 150 {
			r.do("HSET", r.Keys.State, fmt.Sprint("call:old", i), call(time.Hour+time.Microsecond), fmt.Sprint("call:ahead", i),
				call(-2*time.Hour))
		}
		r.do("HSET", r.Keys.State, "call:broken", "?", "call:inf", "1 inf ")
		for range 100 {
			queuetest.Must(r.t, r.Store.Forget(queuetest.CtxB))
		}
		r.equal("left", len(r.read().Fields), len(before)+2)
	}, "pending a@1h0m0s wake 1h0m0s"}})
}

// TestScriptSingleAfterAPause: after a pause that is over, a single send needs no second call.
func TestScriptSingleAfterAPause(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.put(msg("b", time.Hour))
		for i, until := range []int64{r.now - 1e6, r.now + 1e6} {
			r.do("HSET", r.Keys.State, "pause", until)
			c := newCall()
			m := msg(strconv.Itoa(i), time.Second)
			got, err := eval(queuetest.CtxB, r.Store, SingleScript, []any{c.ID, c.N, m.delay(), m.ID, m.Text}, 0,
				redis.NewIntCmd)
			if err != nil || (got.Val() != 0) != (i == 0) {
				r.t.Errorf("paused until %d, now %d: %v, %v", until, r.now, got, err)
			}
		}
		r.do("HDEL", r.Keys.State, "pause")
	})
}

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

// TestScriptKeyHoldThen: a message that follows an ack takes over the key that the ack holds, and after it the key is
// held on. TestModel compares the rest.
func TestScriptKeyHoldThen(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.follows(then(holding("a", 5*time.Second, "k"), msg("b", 0, keyed("k"))))
		r.take("b")
		r.done(ack("b", "k"))
		r.expect("key k=acked:b holds k@5s")
	})
}

// TestScriptKeyHoldRubbish: an entry of another program neither keeps a key for ever nor stops anything.
func TestScriptKeyHoldRubbish(t *testing.T) {
	const year = 365 * 24 * time.Hour // the longest hold
	onReal(t, func(r *rig) {
		for i, score := range []string{"+inf", "-inf", "0", "-5", "9.1e15", fmt.Sprint(r.now + year.Microseconds() + 1)} {
			heldKey(r)
			r.do("ZADD", r.Keys.of("holds"), score, "k")
			name := fmt.Sprint("m", i)
			r.equal("held until "+score, r.answers(NewCaller(), on(ConflictKeep, true, msg(name, time.Second, keyed("k")))),
				"+1s")
			r.equal("cancel", r.cancel("key", "k"), statePending)
			r.do("DEL", r.Keys.of("holds"))
		}
		r.do("HSET", r.Keys.of("key"), "k", "acked:", "l", "acked:x y")
		r.do("ZADD", r.Keys.of("holds"), r.now+1e6, "l")
		r.equal("answers", r.answers(NewCaller(), on(ConflictKeep, true, msg("n", time.Second, keyed("k"))),
			on(ConflictKeep, true, msg("o", time.Second, keyed("l")))), "+1s ~x?y")
		r.equal("cancel", r.cancel("key", "k"), statePending)
		for _, value := range rubbish {
			r.do("HSET", r.Keys.State, "holds", value)
			r.tick()
		}
		r.tickTo(2 * time.Second)
		r.expect("")
		goesOn(r)
	})
}

// TestScriptKeyHoldSweep: if many holds end at once, each tick frees 500 keys, and says that there is more.
func TestScriptKeyHoldSweep(t *testing.T) {
	onReal(t, func(r *rig) {
		const n = 9_700 // of Go's making; the bound does not depend on it
		for i := 0; i < n; i += 100 {
			held, keys := []any{"ZADD", r.Keys.of("holds")}, []any{"HSET", r.Keys.of("key")}
			for j := range 100 {
				key := fmt.Sprint("k", i+j)
				held, keys = append(held, r.now+1, key), append(keys, key, "acked:"+queuetest.IDOf("a"))
			}
			r.do(held...)
			r.do(keys...)
		}
		r.do("HSET", r.Keys.State, "holds", r.now+1)
		r.at(time.Second)
		for left := n; left > 0; {
			more := r.fetch(NewCaller(), 0).TickReply.More
			left = max(left-MaxBatch, 0)
			r.equal("more at once", more, left > 0)
			r.equal("held", r.Cli.ZCard(queuetest.CtxB, r.Keys.of("holds")).Val(), int64(left))
			r.equal("keys", r.Cli.HLen(queuetest.CtxB, r.Keys.of("key")).Val(), int64(left))
		}
		r.expect("")
	})
}
