package delayqueue

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestScriptSend: messages wait in pending until they are due, by the server's clock.
func TestScriptSend(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"delay": {func(r *rig) {
			r.equal("due from", r.send(newCaller(), msg("a", 1500*time.Millisecond)), sendReply{now: r.now})
		}, "pending a@1.5s wake 1.5s"},
		"schedule": {func(r *rig) {
			r.at(time.Second)
			r.put(msgAt("a", 2*time.Second+time.Microsecond))
		}, "pending a@2.000001s wake 2.000001s"},
		"schedule in the past": {func(r *rig) {
			r.at(time.Second)
			r.put(msgAt("a", -time.Hour), msgAt("b", time.Second-time.Microsecond), msgAt("c", time.Second))
		}, "pending a@1s b@1s c@1s wake 1s"},
		"batch": {func(r *rig) {
			r.put(msg("a", 3*time.Second), msg("b", 0), msg("c", 3*time.Second, keyed("k")), msgAt("d", 2*time.Second), msg("e", 0))
		}, "pending b@0s e@0s d@2s a@3s c@3s key k=c wake 0s"},
		"a full batch": {func(r *rig) {
			var batch []*sendMessage
			for i := range maxBatch {
				batch = append(batch, msg("n"+strconv.Itoa(i), time.Duration(i)*time.Second, keyed("k"+strconv.Itoa(i%300))))
			}
			if out := r.send(newCaller(), batch...); len(out.refused) != maxBatch-300 {
				r.t.Errorf("%d refused", len(out.refused))
			}
			s := r.read()
			r.equal("messages, keys", []int{len(s.Messages), len(s.Keys)}, []int{300, 300})
			for i := range 300 {
				if state := r.intercept(newCaller(), "key", "k"+strconv.Itoa(i)); state == StateGone {
					r.t.Errorf("message %d is gone", i)
				}
			}
		}, "wake 0s"},
		"envelope": {func(r *rig) {
			m := msgAt("a", time.Second, keyed("k"), func(e *envelope) {
				e.ttl, e.headers, e.payload = time.Minute, map[string]string{"h": "1", "": ""}, "\x00\xff"
			})
			r.put(m)
			e := r.read().Messages[idOf("a")] // by the checker's own decoder
			if e.Due != rigBase+1e6 || e.Key != "k" || e.Retries != 3 || e.TTL != 60e6 || e.Payload != "\x00\xff" ||
				len(e.Headers) != 2 || e.Headers["h"] != "1" {
				r.t.Errorf("envelope %+v", e)
			}
		}, "pending a@1s key k=a wake 1s"},
		"big is the longest ever": {func(r *rig) {
			want := strconv.Itoa(len(msg("b", 0, sized(3000)).text) + envelopeHead)
			r.put(msg("a", time.Second, sized(2100)))
			r.put(msg("b", time.Second, sized(3000)), msg("c", time.Second, sized(2050)))
			r.equal("big", r.read().Fields["big"], want)
			r.equal("intercept", r.intercept(newCaller(), "id", idOf("b")), StatePending)
			r.put(msg("d", time.Second, sized(2999)))
			r.equal("big", r.read().Fields["big"], want)
		}, "pending a@1s c@1s d@1s wake 1s"},
		"nothing is stored": {func(r *rig) {
			r.put(msg("a", 5*time.Second, keyed("k")))
			r.equal("refused", refused(r.send(newCaller(), msg("b", 0, keyed("k"), sized(3000)))), "0=a")
			r.equal("big", r.read().Fields["big"], "")
		}, "pending a@5s key k=a wake 5s"},
	})
}

// TestScriptSendKeys: a key is of one message that lives.
func TestScriptSendKeys(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"key taken": {func(r *rig) {
			r.put(msg("a", 5*time.Second, keyed("k")))
			r.equal("refused", refused(r.send(newCaller(), msg("b", 0, keyed("k")), msg("c", time.Second), msg("d", 0, keyed("other")))), "0=a")
		}, "pending d@0s c@1s a@5s key k=a other=d wake 0s"},
		"key twice in a batch": {func(r *rig) {
			r.equal("refused", refused(r.send(newCaller(), msg("a", time.Second, keyed("k")), msg("b", 0, keyed("k")),
				msg("c", 2*time.Second, keyed("k")))), "1=a 2=a")
		}, "pending a@1s key k=a wake 1s"},
		"key whose holder has no envelope": {func(r *rig) {
			r.do("HSET", r.keys.key, "k", idOf("x"))
			r.equal("refused", refused(r.send(newCaller(), msg("a", 0, keyed("k")), msg("b", 0, keyed("k")))), "1=a")
		}, "pending a@0s key k=a wake 0s"},
		"key held in unack, ready and retry, free in garbage": {func(r *rig) {
			r.hand(msg("a", 0, keyed("1")), msg("b", 0, keyed("2")), msg("c", 0, keyed("3")), msg("d", 0, keyed("4")))
			r.done(ends(outcomeReady, "b", 0, 0, "", "2"), ends(outcomeRetry, "c", 1, 0, "x", "3"), ends(outcomeGarbage, "d", 1, 0, "x", "4"))
			out := r.send(newCaller(), msg("e", 5*time.Second, keyed("1")), msg("f", 5*time.Second, keyed("2")),
				msg("g", 5*time.Second, keyed("3")), msg("h", 5*time.Second, keyed("4")))
			r.equal("refused", refused(out), "0=a 1=b 2=c")
		}, "pending h@5s ready 2:b unack a@10.000001s retry 2:c@1s garbage d@0s fail b=2/0/0@0s c=2/1/0@0s!x d=2/1/0@0s!x key 1=a 2=b 3=c 4=h " +
			"wake 0s"},
		"key of any bytes": {func(r *rig) {
			r.equal("refused", refused(r.send(newCaller(), msg("a", 0, keyed("\x00=1 \xff")), msg("b", 0, keyed("\x00=1 \xff")),
				msg("c", 0, keyed("\x00")))), "1=a")
			r.done() // no outcomes: nothing changes
			r.equal("intercept", r.intercept(newCaller(), "key", "\x00=1 \xff"), StateReady)
			r.equal("intercept", r.intercept(newCaller(), "key", "\x00"), StateReady)
		}, "wake 0s"},
	})
}

// TestScriptSendRepeated: a call that comes again says the same and stores nothing; an older one is refused.
func TestScriptSendRepeated(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"repeated": {func(r *rig) {
			c, batch := newCaller(), []*sendMessage{msg("a", time.Second, keyed("k")), msg("b", 0, keyed("k")), msg("c", 3*time.Second)}
			first := r.send(c, batch...)
			for range 3 {
				r.at(r.since(r.now) + 10*time.Second)
				r.equal("the repeat", r.sendAgain(c, batch...), first)
			}
		}, "pending a@1s c@3s key k=a wake 1s"},
		"repeated when it was acked meanwhile": {func(r *rig) {
			c, a := newCaller(), msg("a", 0, keyed("k"))
			first := r.send(c, a)
			r.take("a")
			r.done(ack("a", "k"))
			r.at(time.Second)
			r.equal("the repeat", r.sendAgain(c, a), first)
		}, ""},
		"repeated when another has its key meanwhile": {func(r *rig) {
			c, a := newCaller(), msg("a", 0, keyed("k"))
			first := r.send(c, a)
			r.equal("intercept", r.intercept(newCaller(), "key", "k"), StateReady)
			r.put(msg("b", time.Second, keyed("k")))
			r.equal("the repeat", r.sendAgain(c, a), first)
		}, "pending b@1s key k=b wake 0s"},
		"the next call": {func(r *rig) {
			c := newCaller()
			r.send(c, msg("a", time.Second))
			r.send(c, msg("b", 2*time.Second))
			c.n += 7 // numbers need only rise
			r.send(c, msg("c", 3*time.Second))
		}, "pending a@1s b@2s c@3s wake 1s"},
		"an older call": {func(r *rig) {
			c := newCaller()
			r.send(c, msg("a", time.Second))
			r.send(c, msg("b", 2*time.Second, keyed("k")))
			before := r.contents()
			for _, m := range []*sendMessage{msg("a", time.Second), msg("c", 0)} {
				_, err := r.store.send(ctxB, older(c), sendRequest{messages: []*sendMessage{m}})
				r.tooLate(err)
			}
			r.equal("contents", r.contents(), before)
		}, "pending a@1s b@2s key k=b wake 1s"},
		"call numbers of ten and more": {func(r *rig) {
			c := newCaller()
			c.n = 8
			r.send(c, msg("a", time.Second))
			r.send(c, msg("b", time.Second)) // 10, which as text is before 9
			_, err := r.store.send(ctxB, older(c), sendRequest{messages: []*sendMessage{msg("c", 0)}})
			r.tooLate(err)
		}, "pending a@1s b@1s wake 1s"},
		"callers do not mix": {func(r *rig) {
			a, b := newCaller(), newCaller()
			a.n = 5
			r.send(a, msg("a", time.Second))
			r.send(b, msg("b", time.Second))
			r.sendAgain(a, msg("a", time.Second))
		}, "pending a@1s b@1s wake 1s"},
	})
}

// TestScriptSendArms: an alarm is armed for what is sooner than the others, and for nothing else.
func TestScriptSendArms(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"no alarm for what is later than the head": {func(r *rig) {
			r.put(msg("a", 5*time.Second))
			r.do("ZREM", r.keys.wake, "w") // somebody took it
			r.put(msg("b", 10*time.Second), msg("c", 5*time.Second))
		}, "pending a@5s c@5s b@10s armed 5s"},
		"an alarm for what is sooner": {func(r *rig) {
			r.put(msg("a", 5*time.Second))
			r.do("ZREM", r.keys.wake, "w")
			r.put(msg("b", 5*time.Second-time.Microsecond))
		}, "pending b@4.999999s a@5s wake 4.999999s"},
	})
}

// TestScriptSendRubbish: nothing that somebody else wrote into state stops a send or its alarm, be it made alone
// or with others, and both count as sent.
func TestScriptSendRubbish(t *testing.T) {
	cases := map[string]scriptCase{}
	for _, rubbish := range []string{"x", "", "nan", "inf", "-inf", "-5", "1e300", "0x7ffffffffffff", "1.5"} {
		for name, batch := range map[string][]*sendMessage{
			"alone": {msg("a", time.Second)}, "together": {msg("a", time.Second), msg("b", time.Second)},
		} {
			cases[name+" "+rubbish] = scriptCase{func(r *rig) {
				for _, field := range []string{"sent", "armed", "pause", "big"} {
					for _, other := range []string{"sent", "armed", "pause", "big"} {
						r.do("HDEL", r.keys.state, other)
					}
					r.do("DEL", r.keys.wake)
					r.do("HSET", r.keys.state, field, rubbish)
					r.put(batch...)
					if field != "sent" {
						r.equal("sent", r.cli.HGet(context.Background(), r.keys.state, "sent").Val(), strconv.Itoa(len(batch)))
					}
					if field != "armed" {
						r.equal("armed", r.cli.HGet(context.Background(), r.keys.state, "armed").Val(), strconv.FormatInt(r.now+1e6, 10))
					}
				}
				r.do("HDEL", r.keys.state, "sent", "armed", "pause", "big")
				r.put(batch...)
			}, map[string]string{"alone": "pending a@1s wake 1s", "together": "pending a@1s b@1s wake 1s"}[name]}
		}
	}
	runScripts(t, cases)
}

// TestScriptForget: what an hour of calls leaves behind goes, and nothing else does.
func TestScriptForget(t *testing.T) {
	runScripts(t, map[string]scriptCase{"": {func(r *rig) {
		call := func(age time.Duration) string { return fmt.Sprintf("3 %d ", r.now-age.Microseconds()) }
		r.put(msg("a", time.Hour))
		before := r.read().Fields
		r.do("HSET", r.keys.state, "call:fresh", call(time.Hour), "call:soon", call(-time.Hour))
		for i := range 150 {
			r.do("HSET", r.keys.state, fmt.Sprint("call:old", i), call(time.Hour+time.Microsecond), fmt.Sprint("call:ahead", i), call(-2*time.Hour))
		}
		r.do("HSET", r.keys.state, "call:broken", "?", "call:inf", "1 inf ")
		for range 100 {
			if err := r.store.forget(context.Background()); err != nil {
				r.t.Fatal(err)
			}
		}
		r.equal("left", len(r.read().Fields), len(before)+2)
	}, "pending a@1h0m0s wake 1h0m0s"}})
}

// TestScriptSingleAfterAPause: a pause that is over costs no second call.
func TestScriptSingleAfterAPause(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for i, until := range []int64{r.now - 1e6, r.now + 1e6} {
			r.do("HSET", r.keys.state, "pause", until)
			c := newCaller()
			c.next()
			m := msg(strconv.Itoa(i), time.Second)
			got, err := eval(ctxB, r.store, singleScript, []any{c.id, c.n, m.delay(), m.id, m.text}, 0, redis.NewIntCmd)
			if err != nil || (got.Val() != 0) != (i == 0) {
				r.t.Errorf("paused until %d, now %d: %v, %v", until, r.now, got, err)
			}
		}
		r.do("HDEL", r.keys.state, "pause")
	})
}
