package script

import (
	"fmt"
	"strconv"
	"testing"
	"time"

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
			r.do("HSET", r.Keys.key, "k", queuetest.IDOf("x"))
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

// TestScriptSendRubbish: rubbish in state stops no send and no alarm. A send of one message and a batch count as sent alike.
func TestScriptSendRubbish(t *testing.T) {
	cases := map[string]scriptCase{}
	for _, rubbish := range []string{"x", "", "nan", "inf", "-inf", "-5", "1e300", "0x7ffffffffffff", "1.5"} {
		for name, batch := range map[string][]*SendMessage{
			"alone": {msg("a", time.Second)}, "together": {msg("a", time.Second), msg("b", time.Second)},
		} {
			cases[name+" "+rubbish] = scriptCase{func(r *rig) {
				fields := []any{"in:stored", "armed", "pause", "big"}
				for _, field := range fields {
					r.do(append([]any{"HDEL", r.Keys.State}, fields...)...)
					r.do("DEL", r.Keys.Wake)
					r.do("HSET", r.Keys.State, field, rubbish)
					r.put(batch...)
					if b := r.balance(); b.Entered != int64(len(batch)) || b.Unaccounted != 0 {
						r.t.Errorf("with %s: %+v", field, b)
					}
					if field != "armed" {
						r.equal("armed", r.Cli.HGet(queuetest.CtxB, r.Keys.State, "armed").Val(), strconv.FormatInt(r.now+1e6, 10))
					}
				}
				r.do(append([]any{"HDEL", r.Keys.State}, fields...)...)
				r.put(batch...)
			}, map[string]string{"alone": "pending a@1s wake 1s", "together": "pending a@1s b@1s wake 1s"}[name]}
		}
	}
	runScripts(t, cases)
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
			if runs := len((&SendRequest{Messages: batch}).args(NewCaller())) - 3 - 2*len(batch); runs != 3*[]int{1, 1, 1, 3, 4}[i] {
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
