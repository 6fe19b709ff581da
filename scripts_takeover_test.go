package delayqueue

import (
	"testing"
	"time"
)

// TestScriptTakeover: a message that a handler holds is not touched, whatever becomes of the two.
func TestScriptTakeover(t *testing.T) {
	second := func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
		r.equal("another", r.answers(newCaller(), on(Replace, true, msg("c", 4*time.Second, keyed("k")))), "~b@4s")
	}
	runScripts(t, map[string]scriptCase{
		"it is acked": {func(r *rig) {
			second(r)
			r.done(ack("a", "k"))
		}, "pending b@4s key k=b wake 3s"},
		"it fails, and comes again without the key": {func(r *rig) {
			second(r)
			r.done(ends(outcomeRetry, "a", 1, 0, "x"))
			r.at(time.Second)
			f := r.fetch(newCaller(), 1)
			ds := decode(nil, &f, 0, time.Time{}, time.Time{})
			r.equal("delivery", []any{names(ds[0].tag), ds[0].msg.Key, ds[0].msg.Payload, ds[0].msg.Failures}, []any{"2:a", "", "a", 1})
		}, "pending b@4s unack 2:a@11.000001s fail a=2/1/0@0s!x key k=b wake 4s"},
		"the new one is handled first": {func(r *rig) {
			second(r)
			r.done(ends(outcomeRetry, "a", 1, 0, "x"))
			r.equal("cancel", r.cancel("id", idOf("b")), StatePending)
			r.equal("the key is free", r.answers(newCaller(), on(Keep, true, msg("d", 9*time.Second, keyed("k")))), "+9s")
		}, "pending d@9s retry 2:a@1s fail a=2/1/0@0s!x key k=d wake 1s"},
		"it says Again": {func(r *rig) {
			second(r)
			r.says("again, and ends", []int{0}, again("a", "k"))
			r.equal("void", r.settle(newCaller(), again("a", "k")), []int{0})
		}, "pending b@4s key k=b wake 3s"},
		"it says Again, among others": {func(r *rig) {
			r.hand(msg("o", 0), msg("p", 0, keyed("p")))
			second(r)
			r.says("again", []int{3}, ack("o"), ack("nobody"), again("p", "p"), again("a", "k"))
		}, "pending b@4s retry 2:p@1s fail p=2/0/0@0s key k=b p=p wake 1s"},
		"it says Again, and is kept": {func(r *rig) {
			second(r)
			s := again("a", "k")
			s.retention = time.Minute
			r.says("again", []int{0}, s)
		}, "pending b@4s done a@1m0s fail a=2/0/0@0s key k=b wake 3s"},
		"it says Again when the new one was handled": {func(r *rig) {
			second(r)
			r.at(4 * time.Second)
			r.take("b")
			r.done(ack("b", "k"))
			r.says("again", []int{0}, again("a", "k"))
		}, ""},
		"it says Again when a third has the key": {func(r *rig) {
			second(r)
			r.equal("cancel", r.cancel("id", idOf("b")), StatePending)
			r.put(msg("d", 9*time.Second, keyed("k")))
			r.says("again", []int{0}, again("a", "k"))
		}, "pending d@9s key k=d wake 3s"},
		"it is snoozed": {func(r *rig) {
			second(r)
			r.done(ends(outcomeRetry, "a", 0, 0, "", "k"))
		}, "pending b@4s retry 2:a@1s fail a=2/0/0@0s key k=b wake 1s"},
		"it is garbage": {func(r *rig) {
			second(r)
			r.done(ends(outcomeGarbage, "a", 1, 0, "x", "k"))
		}, "pending b@4s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s"},
		"it is lost": {func(r *rig) {
			second(r)
			r.with.maxLosses = 1
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.tick()
		}, "pending b@4s garbage a@11s fail a=2/0/1@11s!poison key k=b wake 4s"},
		"it is canceled": {func(r *rig) {
			second(r)
			r.equal("by its key", r.intercept(newCaller(), "key", "k"), StatePending)
			r.equal("by its id", r.cancel("id", idOf("a")), StateUnack)
		}, "wake 3s"},
		"its reply was lost": {func(r *rig) {
			r.put(msg("a", 0, keyed("k")))
			c := r.take("a")
			r.equal("answer", r.answers(newCaller(), on(Reschedule, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			r.equal("again", handed(r.fetchAgain(c, 1)), "a")
			r.done(ack("a"))
		}, "pending b@3s key k=b wake 3s"},
		"both are handled": {func(r *rig) {
			second(r)
			r.at(4 * time.Second)
			r.take("b")
			r.equal("a third one", r.answers(newCaller(), on(Replace, false, msg("d", 0, keyed("k")))), "+4s")
			r.done(ack("a", "k"), ack("b", "k"))
		}, "pending d@4s key k=d wake 4s"},
	})
}

// again is the settlement of a message that was handled well and is to come again.
func again(name string, key ...string) settlement { return ends(outcomeAgain, name, 0, 0, "", key...) }

// says settles twice, for the reply was lost, and wants to be told of those that ended, and of the second as void.
func (r *rig) says(what string, ended []int, all ...settlement) {
	r.t.Helper()
	c := newCaller()
	c.next()
	first, err := r.store.settle(ctxB, c, all)
	r.equal(what, []any{first.ended, err}, []any{ended, nil})
	got, err := r.store.settle(ctxB, c, all)
	r.equal("a repeat", []any{got, err}, []any{first, nil})
}

// TestScriptAgainKeepsItsKey: what says Again comes again while it has its key, and while somebody else wrote that it has not.
func TestScriptAgainKeepsItsKey(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"its own": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.says("again", nil, again("a", "k"))
		}, "retry 2:a@1s fail a=2/0/0@0s key k=a wake 1s"},
		"after a failure, with its error": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(ends(outcomeRetry, "a", 1, 0, "x", "k"))
			r.at(time.Second)
			r.take("2:a")
			r.says("again", nil, again("2:a", "k"))
		}, "retry 3:a@2s fail a=3/0/0@1s!x key k=a wake 2s"},
		"rubbish": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			for _, entry := range []string{"", "nobody", idOf("b"), "acked:" + idOf("a")} {
				r.do("HSET", r.keys.key, "k", entry)
				r.says("again", nil, again("a", "k"))
				r.do("ZREM", r.keys.retry, tagFor("2:a"))
				r.do("HDEL", r.keys.fail, idOf("a"))
				r.do("ZADD", r.keys.unack, r.now+1, idOf("a"))
			}
			r.do("HSET", r.keys.key, "k", idOf("a"))
			r.done(ack("a", "k"))
		}, "wake 1s"},
		"without an envelope": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.do("HDEL", r.keys.msg, idOf("a"))
			r.do("HDEL", r.keys.key, "k")
			r.says("again", nil, again("a", "k"))
			r.at(time.Second)
			r.equal("handed out", handed(r.fetch(newCaller(), 1)), "")
		}, "dropped 1"},
	})
}
