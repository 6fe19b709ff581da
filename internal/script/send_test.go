package script

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestScriptSend: a send stores envelopes, and their longest length.
func TestScriptSend(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"envelope": {func(r *rig) {
			m := msgAt("a", time.Second, keyed("k"), func(e *message.Envelope) {
				e.TTL, e.Headers, e.Payload = time.Minute, map[string]string{"h": "1", "": ""}, "\x00\xff"
			})
			r.put(m)
			e := r.read().Messages[queuetest.IDOf("a")]
			if e.Due != rigBase+1e6 || e.Key != "k" || e.Retries != 3 || e.TTL != time.Minute || e.Payload != "\x00\xff" ||
				len(e.Headers) != 2 || e.Headers["h"] != "1" {
				r.t.Errorf("envelope %+v", e)
			}
		}, "pending a@1s key k=a wake 1s"},
		"big is the longest ever": {func(r *rig) {
			want := strconv.Itoa(len(msg("b", 0, sized(3000)).Text) + message.EnvelopeHead)
			r.put(msg("a", time.Second, sized(2100)))
			r.put(msg("b", time.Second, sized(3000)), msg("c", time.Second, sized(2050)))
			r.equal("big", r.read().Fields["big"], want)
			r.equal("intercept", r.intercept(NewCaller(), "id", queuetest.IDOf("b")), statePending)
			r.put(msg("d", time.Second, sized(2999)))
			r.equal("big", r.read().Fields["big"], want)
		}, "pending a@1s c@1s d@1s wake 1s"},
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
			r.do("HSET", r.Keys.State, fmt.Sprint("call:old", i), call(time.Hour+time.Microsecond), fmt.Sprint("call:ahead", i), call(-2*time.Hour))
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
			got, err := eval(queuetest.CtxB, r.Store, SingleScript, []any{c.ID, c.N, m.delay(), m.ID, m.Text}, 0, redis.NewIntCmd)
			if err != nil || (got.Val() != 0) != (i == 0) {
				r.t.Errorf("paused until %d, now %d: %v, %v", until, r.now, got, err)
			}
		}
		r.do("HDEL", r.Keys.State, "pause")
	})
}

// TestEnvelopeVersions: an envelope is of version 2 only if version 1 cannot say what it holds. Both versions share a batch.
func TestEnvelopeVersions(t *testing.T) {
	onBoth(t, func(r *rig) {
		limited := func(e *message.Envelope) { e.Timeout = time.Minute }
		versions := map[string]byte{}
		for i, batch := range [][]*SendMessage{
			{msg("a", time.Second)}, // by single
			{msg("b", time.Second, limited)},
			{msgAt("c", time.Second, limited)},
			{msg("d", time.Second), msg("e", time.Second, limited), msg("f", time.Second, limited, keyed("f")), msg("g", time.Second)},
			{msgAt("h", time.Hour), msgAt("i", time.Hour, limited), msg("j", time.Hour), msg("k", 2*time.Hour, limited), msgAt("l", 0)},
		} {
			for _, m := range batch {
				versions[m.ID] = m.Version
			}
			args := (&SendRequest{Messages: batch}).args(NewCaller(), "1")
			if runs := len(args) - 3 - 2*len(batch); runs != 3*[]int{1, 1, 1, 3, 4}[i] {
				r.t.Errorf("batch %d has %d arguments for its runs", i, runs)
			}
			r.put(batch...)
		}
		for id, m := range r.read().Messages {
			if m.Format != versions[id] || m.Problem != "" || (m.Format == 2) != (m.Timeout == time.Minute) {
				r.t.Errorf("%s: %+v, want version %d", names(id), m, versions[id])
			}
		}
	})
}

// TestEnvelopeFieldsInScripts: scripts find due instant and key in envelopes of version 2, and keep the version.
func TestEnvelopeFieldsInScripts(t *testing.T) {
	onBoth(t, func(r *rig) {
		inFields := func(name string, d time.Duration, rest ...func(*message.Envelope)) *SendMessage {
			m := msgAt(name, d, rest...)
			m.Text = fmt.Sprintf("\x02%016d\x00%c%s\x09\x05other\x03\x01\x03\x01%c%s", rigBase+d.Microseconds(), len(m.Key), m.Key, len(name), name)
			return m
		}
		due := func(name string, want time.Duration) {
			r.t.Helper()
			if e := r.read().Messages[queuetest.IDOf(name)]; e.Format != 2 || r.since(e.Due) != want || e.Problem != "" {
				r.t.Errorf("%s: %+v, want it of version 2 and due at %v", name, e, want)
			}
		}
		r.at(time.Minute)
		r.put(inFields("a", 0)) // by single
		r.put(inFields("b", 0, keyed("kb")), inFields("c", time.Hour, keyed("kc")))
		due("a", time.Minute)
		due("b", time.Minute)
		r.equal("refused", refused(r.send(NewCaller(), inFields("d", time.Hour, keyed("kc")))), "0=c")
		at := rigBase + (2 * time.Hour).Microseconds()
		r.equal("by key", r.steered(SteerRequest{What: "at", Us: at, Only: "key", Targets: []Spot{{Tag: "kc"}}}), "pending")
		due("c", 2*time.Hour)
		if found := r.looks("key", "kc"); found == nil || found.Delivered.ID != queuetest.IDOf("c") || found.broken != nil || found.Payload != "c" {
			r.t.Errorf("by key: %+v", found)
		}
		r.equal("handed out", len(r.fetch(NewCaller(), 10).Tags), 2)
		r.done(ends(OutcomeGarbage, "b", 1, 0, "x", "kb"))
		r.equal("back from garbage", r.requeues("b"), "garbage")
		r.equal("holder", r.read().Keys["kb"], queuetest.IDOf("b"))
		r.equal("taken out", r.cancel("key", "kc"), statePending)
		r.with.MaxLosses = 1
		r.tickTo(2*time.Minute + 9*time.Second)
		r.fetch(NewCaller(), 10) // b
		r.tickTo(3 * time.Minute)
		r.equal("keys of what is poison", len(r.read().Keys), 0)
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
			r.do("ZADD", r.Keys.of("held"), score, "k")
			name := fmt.Sprint("m", i)
			r.equal("held until "+score, r.answers(NewCaller(), on(ConflictKeep, true, msg(name, time.Second, keyed("k")))), "+1s")
			r.equal("cancel", r.cancel("key", "k"), statePending)
			r.do("DEL", r.Keys.of("held"))
		}
		r.do("HSET", r.Keys.of("key"), "k", "acked:", "l", "acked:x y")
		r.do("ZADD", r.Keys.of("held"), r.now+1e6, "l")
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
			held, keys := []any{"ZADD", r.Keys.of("held")}, []any{"HSET", r.Keys.of("key")}
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
			r.equal("held", r.Cli.ZCard(queuetest.CtxB, r.Keys.of("held")).Val(), int64(left))
			r.equal("keys", r.Cli.HLen(queuetest.CtxB, r.Keys.of("key")).Val(), int64(left))
		}
		r.expect("")
	})
}
