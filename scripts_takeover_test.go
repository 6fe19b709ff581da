package delayqueue

import (
	"fmt"
	"testing"
	"time"
)

// fails is the settlement of a delivery that failed and is to be retried after a second.
func fails(name string, key ...string) settlement { return ends(outcomeRetry, name, 1, 0, "x", key...) }

// superseded hands out a, of which b then takes the key, due after 4 s: c replaces b.
func (r *rig) superseded(how Conflict, more ...func(*envelope)) {
	r.t.Helper()
	r.hand(msg("a", 0, append(more, keyed("k"))...))
	r.equal("answer", r.answers(newCaller(), on(how, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
	r.equal("another", r.answers(newCaller(), on(Replace, true, msg("c", 4*time.Second, keyed("k")))), "~b@4s")
	r.expect("pending b@4s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 3s")
}

// TestScriptSuperseded: whatever becomes of a delivery whose key another send took, its message ends as by an ack, and is
// counted as superseded.
func TestScriptSuperseded(t *testing.T) {
	t.Parallel()
	throttled := ends(outcomeThrottle, "a", 0, 0, "busy", "k")
	throttled.delay = 2 * time.Second
	for name, s := range map[string]settlement{
		"acked": ack("a", "k"), "failed": fails("a", "k"), "released": ends(outcomeReady, "a", 0, 0, "", "k"),
		"snoozed": ends(outcomeRetry, "a", 0, 0, "", "k"), "lost on the line": ends(outcomeRetry, "a", 0, 1, "x"),
		"garbage": ends(outcomeGarbage, "a", 1, 0, "x", "k"), "throttled": throttled,
	} {
		for _, how := range []Conflict{Replace, Reschedule} {
			t.Run(fmt.Sprint(name, " ", how), func(t *testing.T) {
				onBoth(t, func(r *rig) {
					r.superseded(how)
					r.equal("extend", r.extend("a"), []leaseState{leaseRenewed})
					r.over("it ends", []int{0}, s)
					r.expect("pending b@4s key k=b wake 3s")
					f := r.read().Fields
					r.equal("counts", []string{f["superseded"], f["acked"], f["garbage"]}, []string{"1", "", ""})
					if s.kind == outcomeThrottle {
						r.equal("throttled", f["throttled"], fmt.Sprintf("%d %d", r.now, r.now+2e6))
					}
				})
			})
			t.Run(fmt.Sprint(name, " ", how, ", and kept"), func(t *testing.T) {
				onBoth(t, func(r *rig) {
					s := s
					r.superseded(how, retained(time.Minute))
					if s.kind == outcomeAck {
						s.kind, s.delay = outcomeDone, time.Minute
					}
					r.over("it ends", []int{0}, s)
					got := r.read()
					r.equal("done", []any{len(got.Done), len(got.Messages), got.Fail[idOf("a")].Delivery, got.Fail[idOf("a")].Superseded},
						[]any{1, 2, int64(2), s.kind != outcomeDone})
					ends, err := r.store.await(ctxB, []string{idOf("a")})
					r.equal("await", []any{len(ends), err, ends[0].State, ends[0].Superseded, ends[0].At.UnixMicro()},
						[]any{1, nil, StateDone, s.kind != outcomeDone, r.now})
					r.equal("its last error", ends[0].Err, got.Fail[idOf("a")].Error)
					r.equal("until", r.since(got.Done[0].Score), time.Minute)
				})
			})
		}
	}
}

// over settles twice, for the reply was lost, and wants to be told of those that were superseded, and of the second as void.
func (r *rig) over(what string, which []int, all ...settlement) {
	r.t.Helper()
	c := newCaller()
	c.next()
	first, err := r.store.settle(ctxB, c, all)
	r.equal(what, []any{first.superseded, err}, []any{which, nil})
	got, err := r.store.settle(ctxB, c, all)
	r.equal("a repeat", []any{got, err}, []any{first, nil})
}

// TestScriptSupersededOtherwise: deliveries that were superseded, and end without a word of their consumer, or meet others.
func TestScriptSupersededOtherwise(t *testing.T) {
	lost := func(r *rig) fetchReply {
		r.t.Helper()
		r.tickTo(9 * time.Second)
		r.at(11 * time.Second)
		return r.fetch(newCaller(), 0)
	}
	runScripts(t, map[string]scriptCase{
		"lost": {func(r *rig) {
			r.superseded(Replace)
			f := lost(r)
			r.equal("lost, superseded, dead", []int{f.lost, f.replaced, len(f.dead)}, []int{1, 1, 0})
			got := r.history()
			r.equal("counts", []int64{got.hours[r.now/3_600_000_000].Superseded, got.hours[r.now/3_600_000_000].Lost}, []int64{1, 1})
		}, "pending b@4s key k=b wake 4s"},
		"lost for the last time": {func(r *rig) {
			r.superseded(Replace)
			r.with.maxLosses = 1
			f := lost(r)
			r.equal("lost, superseded, dead", []int{f.lost, f.replaced, len(f.dead)}, []int{1, 1, 0})
		}, "pending b@4s key k=b wake 4s"},
		"lost, and kept": {func(r *rig) {
			r.superseded(Replace, retained(time.Minute))
			r.equal("superseded", lost(r).replaced, 1)
			r.equal("done from", r.read().Fields["done"], fmt.Sprint(r.now+60e6))
		}, "pending b@4s done a@1m11s fail a=2/0/1@superseded!lost key k=b wake 4s"},
		"lost, beside others": {func(r *rig) {
			r.superseded(Replace)
			r.put(msg("d", 0))
			r.take("d")
			r.tick()
			r.at(21 * time.Second)
			f := r.fetch(newCaller(), 0)
			r.equal("lost, superseded", []int{f.lost, f.replaced}, []int{0, 0}) // a grace
		}, "pending b@4s unack a@10.000001s d@10.000003s fail a=1/0/0@superseded key k=b wake 4s"},
		"its reply was lost": {func(r *rig) {
			r.put(msg("a", 0, keyed("k")))
			c := r.take("a")
			r.equal("answer", r.answers(newCaller(), on(Reschedule, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			f := r.fetchAgain(c, 1)
			r.equal("again", []any{handed(f), f.replaced}, []any{"", 1})
			r.equal("void", r.settle(newCaller(), ack("a", "k")), []int{0})
		}, "pending b@3s key k=b wake 3s"},
		"a list of what its reply held": {func(r *rig) {
			r.put(msg("a", 0, keyed("k")), msg("d", 0))
			c := newCaller()
			r.fetch(c, 2)
			r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			f := r.ask(c, fetchRequest{want: 2, probe: true})
			r.equal("held, superseded", []int{len(f.held), f.replaced}, []int{1, 1})
		}, "pending b@3s unack d@10.000003s key k=b wake 3s"},
		"in a later delivery": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(fails("a", "k"))
			r.at(time.Second)
			r.take("2:a")
			r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("b", 3*time.Second, keyed("k")))), "+4s")
			m, err := r.store.look(ctxB, "id", idOf("a"))
			r.equal("a look", []any{m.Superseded, m.Key, m.Failures, m.LastError, err}, []any{true, "k", 1, "x", nil})
			s := fails("2:a", "k")
			s.failures = 2
			r.over("it ends", []int{0}, s)
		}, "pending b@4s key k=b wake 4s"},
		"among others": {func(r *rig) {
			r.hand(msg("o", 0), msg("p", 0, keyed("p")))
			r.superseded2()
			r.over("over", []int{3}, ack("o"), ack("nobody"), fails("p", "p"), fails("a", "k"))
		}, "pending b@3s retry 2:p@1s fail p=2/1/0@0s!x key k=b p=p wake 1s"},
		"when the new one was handled": {func(r *rig) {
			r.superseded(Replace)
			r.at(4 * time.Second)
			r.take("b")
			r.done(ack("b", "k"))
			r.over("it ends", []int{0}, fails("a", "k"))
		}, ""},
		"when a third has the key": {func(r *rig) {
			r.superseded(Replace)
			r.equal("cancel", r.cancel("key", "k"), StatePending)
			r.put(msg("d", 9*time.Second, keyed("k")))
			r.over("it ends", []int{0}, fails("a", "k"))
		}, "pending d@9s key k=d wake 3s"},
		"both": {func(r *rig) {
			r.superseded(Replace)
			r.at(4 * time.Second)
			r.take("b")
			r.equal("a third one", r.answers(newCaller(), on(Replace, false, msg("d", 0, keyed("k")))), "+4s")
			r.over("both end", []int{0, 1}, fails("a", "k"), fails("b", "k"))
		}, "pending d@4s key k=d wake 4s"},
		"canceled": {func(r *rig) {
			r.superseded(Replace)
			r.equal("by its key", r.intercept(newCaller(), "key", "k"), StatePending)
			r.equal("by its id", r.cancel("id", idOf("a")), StateUnack)
		}, "wake 3s"},
		"its key would stay taken": {func(r *rig) {
			r.superseded(Replace)
			s := ack("a", "k")
			s.hold = time.Hour
			r.over("it ends", []int{0}, s)
		}, "pending b@4s key k=b wake 3s"},
		"what follows it is sent if it was acked": {func(r *rig) {
			r.superseded(Replace)
			void, refused := r.follows(then(ack("a", "k"), msg("n", time.Second)))
			r.equal("void, refused", []any{len(void), refused}, []any{0, ""})
		}, "pending n@1s b@4s key k=b wake 1s"},
		"a group": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0), untimed(part("d", 0, 0)))
			r.take("a")
			r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			r.over("it ends", []int{0}, fails("a", "k"))
		}, "pending b@3s key k=b wake 3s"},
		"somebody else deleted it": {func(r *rig) {
			r.superseded(Replace)
			r.do("HDEL", r.keys.msg, idOf("a"))
			r.do("ZADD", r.keys.unack, r.now+10e6, idOf("a"))
			r.over("it ends", []int{0}, fails("a", "k"))
		}, "pending b@4s key k=b wake 3s"},
	})
}

// superseded2 is superseded beside others that were handed out.
func (r *rig) superseded2() {
	r.t.Helper()
	r.hand(msg("a", 0, keyed("k")))
	r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
}

// TestScriptAgainKeepsItsKey: what comes again has its key still.
func TestScriptAgainKeepsItsKey(t *testing.T) {
	again := func(name string) settlement { return ends(outcomeRetry, name, 0, 0, "", "k") }
	runScripts(t, map[string]scriptCase{
		"its own": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.over("again", nil, again("a"))
		}, "retry 2:a@1s fail a=2/0/0@0s key k=a wake 1s"},
		"after a failure, with its error": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(fails("a", "k"))
			r.at(time.Second)
			r.take("2:a")
			r.over("again", nil, again("2:a"))
		}, "retry 3:a@2s fail a=3/0/0@1s!x key k=a wake 2s"},
		"without an envelope": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.do("HDEL", r.keys.msg, idOf("a"))
			r.do("HDEL", r.keys.key, "k")
			r.over("again", nil, again("a"))
			r.at(time.Second)
			r.equal("handed out", handed(r.fetch(newCaller(), 1)), "")
		}, "dropped 1"},
	})
}

// TestScriptTTLAnew: the TTL of a message that is replaced or rescheduled counts from that send, also where it keeps its place;
// a group that has expired is no place to append to.
func TestScriptTTLAnew(t *testing.T) {
	limited := func(e *envelope) { e.ttl, e.since = time.Second, latestUnknown }
	dies := func(e *envelope) { e.deadline = rigBase + 1e6 }
	fit := func(r *rig, want string) {
		r.t.Helper()
		f, got := r.fetch(newCaller(), 9), ""
		for _, d := range decode(nil, &f, 3, time.Now(), time.Now()) {
			_, over := unfit(d, f.now)
			got += fmt.Sprintf("%s %v,", d.msg.Payload, !over)
		}
		r.equal("handed out, and may be handled", got, want)
	}
	runScripts(t, map[string]scriptCase{
		"replaced": {func(r *rig) {
			r.put(msg("a", 0, keyed("k"), limited), msg("z", 0))
			r.at(2 * time.Second)
			r.equal("answer", r.answers(newCaller(), on(Replace, false, msg("b", 0, keyed("k"), limited))), "~a@0s")
			r.at(2900 * time.Millisecond)
			fit(r, "b true,z true,")
		}, "unack a@12.900001s z@12.900001s key k=a"},
		"replaced, and late again": {func(r *rig) {
			r.put(msg("a", 0, keyed("k"), limited))
			r.at(2 * time.Second)
			r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("b", 0, keyed("k"), limited))), "~a@0s")
			r.at(3100 * time.Millisecond)
			fit(r, "b false,")
		}, "unack a@13.100001s key k=a"},
		"rescheduled twice": {func(r *rig) {
			r.put(msg("a", 0, keyed("k"), limited))
			for _, at := range []time.Duration{2 * time.Second, 4 * time.Second} {
				r.at(at)
				r.equal("answer", r.answers(newCaller(), on(Reschedule, true, msg("b", 0, keyed("k")))), "~a@0s")
			}
			r.at(4900 * time.Millisecond)
			fit(r, "a true,")
		}, "unack a@14.900001s key k=a"},
		"appended to when it is over": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0, limited), untimed(part("b", 0, 0, limited)))
			r.at(2 * time.Second)
			r.equal("a new group", r.answers(newCaller(), part("c", 0, 0, limited), untimed(part("d", 0, 0, limited))), "+2s ~c@2s")
			fit(r, "a false,c true,")
		}, "unack a@12.000001s c@12.000001s parts a:2=1 c:2=1 left k=a key k=c"},
		"appended to while it is not": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0, limited))
			r.at(900 * time.Millisecond)
			r.equal("answer", r.answers(newCaller(), untimed(part("b", 0, 0, limited))), "~a@0s")
			fit(r, "a true,")
		}, "unack a@10.900001s parts a:2=1 key k=a"},
		"appended to past its deadline": {func(r *rig) {
			r.answers(newCaller(), part("a", 5*time.Second, 0, dies))
			r.at(time.Second)
			r.equal("a new group", r.answers(newCaller(), part("c", 0, 0)), "+1s")
		}, "pending c@1s a@5s left k=a key k=c wake 1s"},
		"appended to past its deadline, when it failed": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0, dies))
			r.take("a")
			r.done(fails("a", "k"))
			r.at(2 * time.Second)
			r.equal("a new group", r.answers(newCaller(), part("c", 0, 0)), "+2s")
		}, "pending c@2s retry 2:a@1s left k=a fail a=2/1/0@0s!x key k=c wake 1s"},
	})
}
