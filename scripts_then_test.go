package delayqueue

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// then is the settlement of a delivery with what follows it.
func then(s settlement, follows ...*sendMessage) settlement {
	s.follows = follows
	return s
}

// follows settles by a caller of its own, repeats the call, and says what was void and what was refused, as
// `<settlement>.<follower>=<holder>`.
func (r *rig) follows(all ...settlement) (void []int, refusals string) {
	r.t.Helper()
	c := newCaller()
	c.next()
	var first settleReply
	for i := range 2 {
		got, err := r.store.settle(ctxB, c, all)
		r.equal("error", err, nil)
		if i == 0 {
			first = got
		}
		r.equal("a repeat", got, first)
	}
	var words []string
	for _, f := range first.refused {
		words = append(words, fmt.Sprintf("%d.%d=%s", f.settlement, f.follower, names(f.holder)))
	}
	return first.void, strings.Join(words, " ")
}

// TestScriptThen: what follows an ack is stored with it, once, due when it says.
func TestScriptThen(t *testing.T) {
	none := []int(nil)
	limited := func(e *envelope) { e.timeout = time.Minute }
	runScripts(t, map[string]scriptCase{
		"after a delay": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(time.Second)
			void, refused := r.follows(then(ack("a"), msg("b", 5*time.Second)))
			r.equal("void", void, none)
			r.equal("refused", refused, "")
			r.equal("sent", r.read().Fields["sent"], "1") // the first was moved to history
		}, "pending b@6s wake 6s"},
		"now": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(time.Second)
			r.follows(then(ack("a"), msg("b", 0)))
			r.take("b")
		}, "unack b@11.000001s"},
		"at an instant, and one that is past": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(time.Second)
			r.follows(then(ack("a"), msgAt("b", 5*time.Second), msgAt("c", 0)))
			r.equal("due", r.since(r.read().Messages[idOf("c")].Due), time.Second)
		}, "pending c@1s b@5s wake 1s"},
		"in order, of both versions": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(time.Second)
			r.follows(then(ack("a"), msg("b", time.Second), msg("c", time.Second, limited),
				msgAt("d", 2*time.Second, limited), msgAt("e", 2*time.Second)))
			for name, version := range map[string]byte{"b": 1, "c": 2, "d": 2, "e": 1} {
				if e := r.read().Messages[idOf(name)]; e.Version != version || e.Payload != name || (e.Timeout != 0) != (version == 2) {
					r.t.Errorf("%s: %+v", name, e)
				}
			}
		}, "pending b@2s c@2s d@2s e@2s wake 2s"},
		"the alarm is sooner": {func(r *rig) {
			r.put(msg("x", time.Hour))
			r.hand(msg("a", 0))
			r.follows(then(ack("a"), msg("b", time.Minute)))
		}, "pending b@1m0s x@1h0m0s wake 1m0s"},
		"while the queue is paused": {func(r *rig) {
			r.hand(msg("a", 0))
			c := newCaller()
			c.next()
			r.equal("paused", r.store.pause(ctxB, c, forever, onBehalf{}), nil)
			r.follows(then(ack("a"), msg("b", time.Second)))
			r.at(2 * time.Second)
			r.equal("handed out", len(r.fetch(newCaller(), 10).tags), 0)
		}, "pending b@1s wake 1539144h0m0s"},
		"a long one is noted": {func(r *rig) {
			r.hand(msg("a", 0))
			r.follows(then(ack("a"), msg("b", time.Second, sized(5000))))
			r.equal("big", r.read().Fields["big"], fmt.Sprint(r.read().Messages[idOf("b")].Size))
		}, "pending b@1s wake 1s"},
	})
}

// TestScriptThenCounts: what follows an ack is stored if that ack counts, and only then.
func TestScriptThenCounts(t *testing.T) {
	none := []int(nil)
	runScripts(t, map[string]scriptCase{
		"beside plain acks, and failures": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("o", 0, keyed("k")))
			void, refused := r.follows(ends(outcomeRetry, "a", 1, 0, "x"), ack("b"),
				then(ack("c"), msg("d", 2*time.Second), msg("e", 0, keyed("k"))), ack("z"))
			r.equal("void", void, []int{3})
			r.equal("refused", refused, "2.1=o")
		}, "pending d@2s unack o@10.000001s retry 2:a@1s fail a=2/1/0@0s!x key k=o wake 1s"},
		"void": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.cancel("id", idOf("a"))
			void, refused := r.follows(then(ack("a"), msg("c", time.Second, keyed("k"))), then(ack("b"), msg("d", time.Second, keyed("k"))))
			r.equal("void", void, []int{0})
			r.equal("refused", refused, "")
		}, "pending d@1s key k=d wake 1s"},
		"of a late delivery": {func(r *rig) {
			r.hand(msg("a", 0))
			r.tickTo(10*time.Second + time.Microsecond) // lost
			r.tickTo(11 * time.Second)
			r.take("2:a")
			void, _ := r.follows(then(ack("a"), msg("b", time.Hour)))
			r.equal("void", void, []int{0})
			r.follows(then(ack("2:a"), msg("c", time.Hour)))
		}, "pending c@1h0m11s wake 1h0m11s"},
		"the server forgot the fetch": {func(r *rig) {
			r.hand(msg("a", 0))
			r.do("ZREM", r.keys.unack, idOf("a"))
			r.do("ZADD", r.keys.pending, r.now, idOf("a"))
			void, _ := r.follows(then(ack("a"), msg("b", time.Second)))
			r.equal("void", void, none)
			void, _ = r.follows(then(ack("a"), msg("c", time.Second))) // of whoever else had it
			r.equal("void", void, []int{0})
		}, "pending b@1s wake 1s"},
		"of what is kept": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			_, refused := r.follows(then(kept("a", time.Hour, "result", "k"), msg("b", time.Second, keyed("k"))))
			r.equal("refused", refused, "")
		}, "pending b@1s done a@1h0m0s result a=6 fail a=2/0/0@0s key k=b wake 1s"},
	})
}

// TestScriptThenKeys: what follows an ack may have the key that the ack frees, and none that another message has.
func TestScriptThenKeys(t *testing.T) {
	none := []int(nil)
	runScripts(t, map[string]scriptCase{
		"the key of the acked message is free": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			_, refused := r.follows(then(ack("a", "k"), msg("b", time.Second, keyed("k")), msg("c", time.Second, keyed("k")), msg("d", time.Second)))
			r.equal("refused", refused, "0.1=b")
		}, "pending b@1s d@1s key k=b wake 1s"},
		"the key of another one is not": {func(r *rig) {
			r.hand(msg("a", 0), msg("o", 0, keyed("k")))
			void, refused := r.follows(then(ack("a"), msg("b", time.Second, keyed("k")), msg("c", time.Second, keyed("K"))))
			r.equal("void", void, none)
			r.equal("refused", refused, "0.0=o")
		}, "pending c@1s unack o@10.000001s key K=c k=o wake 1s"},
		"a key that was left behind": {func(r *rig) {
			r.hand(msg("a", 0))
			r.do("HSET", r.keys.key, "k", "somebody else's")
			r.follows(then(ack("a"), msg("b", time.Second, keyed("k"))))
		}, "pending b@1s key k=b wake 1s"},
		"the key that another ack of the call frees": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K")))
			_, refused := r.follows(then(ack("a", "k"), msg("c", time.Second, keyed("K"))), then(ack("b", "K"), msg("d", time.Second, keyed("k"))))
			r.equal("refused", refused, "")
		}, "pending c@1s d@1s key K=c k=d wake 1s"},
	})
}

// TestScriptThenWhenRedisIsFull: an ack frees memory, so it goes through, and what follows it too.
func TestScriptThenWhenRedisIsFull(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	admin := server.Client(t)
	s := f.calls()
	c, settler := newCaller(), newCaller()
	c.next()
	settler.next()
	_, err := s.send(ctxB, c, sendRequest{messages: []*sendMessage{msg("a", 0)}})
	f.must(err)
	c.next()
	_, err = s.fetch(ctxB, c, fetchRequest{want: 1, settings: &fetchSettings{lease: time.Minute, maxLosses: 3}})
	f.must(err)
	f.must(admin.ConfigSet(ctxB, "maxmemory", "1").Err())
	got, err := s.settle(ctxB, settler, []settlement{then(ack("a"), msg("b", time.Hour, keyed("k")))})
	f.must(admin.ConfigSet(ctxB, "maxmemory", "0").Err())
	if err != nil || len(got.void)+len(got.refused) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if state := f.check(); state.Where(idOf("a")) != "gone" || state.Where(idOf("b")) != "pending" || state.Keys["k"] != idOf("b") {
		t.Errorf("a is %s, b is %s", state.Where(idOf("a")), state.Where(idOf("b")))
	}
}
