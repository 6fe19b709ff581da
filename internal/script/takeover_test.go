package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// fails is the settlement of a delivery that failed and is to be retried after a second.
func fails(name string, key ...string) Settlement { return ends(OutcomeRetry, name, 1, 0, "x", key...) }

// superseded hands out a. b takes the key of a, and c replaces b, which is due after 4 s then.
func (r *rig) superseded(how Conflict, more ...func(*message.Envelope)) {
	r.t.Helper()
	r.hand(msg("a", 0, append(more, keyed("k"))...))
	r.equal("answer", r.answers(NewCaller(), on(how, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
	r.equal("another", r.answers(NewCaller(), on(ConflictReplace, true, msg("c", 4*time.Second, keyed("k")))), "~b@4s")
	r.expect("pending b@4s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 3s")
}

// TestScriptSuperseded: if another send took the key of a delivery, its message ends as by an ack, whatever becomes of the
// delivery, and counts as superseded.
func TestScriptSuperseded(t *testing.T) {
	t.Parallel()
	throttled := ends(OutcomeThrottle, "a", 0, 0, "busy", "k")
	throttled.Delay = 2 * time.Second
	for name, s := range map[string]Settlement{
		"acked": ack("a", "k"), "failed": fails("a", "k"), "released": ends(OutcomeReady, "a", 0, 0, "", "k"),
		"snoozed": ends(OutcomeRetry, "a", 0, 0, "", "k"), "lost on the line": ends(OutcomeRetry, "a", 0, 1, "x"),
		"garbage": ends(OutcomeGarbage, "a", 1, 0, "x", "k"), "throttled": throttled,
	} {
		for _, how := range []Conflict{ConflictReplace, ConflictReschedule} {
			t.Run(fmt.Sprint(name, " ", how), func(t *testing.T) {
				onBoth(t, func(r *rig) {
					r.superseded(how)
					r.equal("extend", r.extend("a"), []leaseState{LeaseRenewed})
					r.over("it ends", []int{0}, s)
					r.expect("pending b@4s key k=b wake 3s")
					f := r.read().Fields
					r.equal("counts", []string{f["superseded"], f["acked"], f["garbage"]}, []string{"1", "", ""})
					if s.Kind == OutcomeThrottle {
						r.equal("throttled", f["throttled"], fmt.Sprintf("%d %d", r.now, r.now+2e6))
					}
				})
			})
			t.Run(fmt.Sprint(name, " ", how, ", and kept"), func(t *testing.T) {
				onBoth(t, func(r *rig) {
					s := s
					r.superseded(how, retained(time.Minute))
					if s.Kind == OutcomeAck {
						s.Kind, s.Delay = OutcomeDone, time.Minute
					}
					r.over("it ends", []int{0}, s)
					got := r.read()
					r.equal("done", []any{len(got.Done), len(got.Messages), got.Fail[queuetest.IDOf("a")].Delivery, got.Fail[queuetest.IDOf("a")].Superseded},
						[]any{1, 2, int64(2), s.Kind != OutcomeDone})
					ends, err := r.Store.Await(queuetest.CtxB, []string{queuetest.IDOf("a")})
					word := AwaitSuperseded
					if s.Kind == OutcomeDone {
						word = StateDone
					}
					r.equal("await", []any{len(ends), err, ends[0].Word, ends[0].At}, []any{1, nil, word, r.now})
					r.equal("its last error", ends[0].Text, got.Fail[queuetest.IDOf("a")].Error)
					r.equal("until", r.since(got.Done[0].Score), time.Minute)
				})
			})
		}
	}
}

// over settles twice, as if the reply was lost, and wants to be told which deliveries were superseded.
func (r *rig) over(what string, which []int, all ...Settlement) {
	r.t.Helper()
	c := newCall()
	first, err := r.Store.Settle(queuetest.CtxB, c, all)
	r.equal(what, []any{first.Superseded, err}, []any{which, nil})
	got, err := r.Store.Settle(queuetest.CtxB, c, all)
	r.equal("a repeat", []any{got, err}, []any{first, nil})
}

// TestScriptSupersededAndLost: the message of a superseded delivery ends also if its lease or the reply of its fetch is lost.
func TestScriptSupersededAndLost(t *testing.T) {
	lost := func(r *rig) FetchReply {
		r.t.Helper()
		return r.lapse(11 * time.Second)
	}
	runScripts(t, map[string]scriptCase{
		"lost": {func(r *rig) {
			r.superseded(ConflictReplace)
			f := lost(r)
			r.equal("lost, superseded, dead", []int{f.Lost, f.Replaced, len(f.Dead)}, []int{1, 1, 0})
			got := r.history()
			r.equal("counts", []int64{got.Hours[r.now/3_600_000_000].Superseded, got.Hours[r.now/3_600_000_000].Lost}, []int64{1, 1})
		}, "pending b@4s key k=b wake 4s"},
		"lost for the last time": {func(r *rig) {
			r.superseded(ConflictReplace)
			r.with.MaxLosses = 1
			f := lost(r)
			r.equal("lost, superseded, dead", []int{f.Lost, f.Replaced, len(f.Dead)}, []int{1, 1, 0})
		}, "pending b@4s key k=b wake 4s"},
		"lost, and kept": {func(r *rig) {
			r.superseded(ConflictReplace, retained(time.Minute))
			r.with.MaxLosses = 1 // it is not called poison
			r.equal("superseded", lost(r).Replaced, 1)
			r.equal("done from", r.read().Fields["done"], fmt.Sprint(r.now+60e6))
		}, "pending b@4s done a@1m11s fail a=2/0/1@superseded!lost key k=b wake 4s"},
		"lost, beside others": {func(r *rig) {
			r.superseded(ConflictReplace)
			r.put(msg("d", 0))
			r.take("d")
			r.tick()
			r.at(21 * time.Second)
			f := r.fetch(NewCaller(), 0)
			r.equal("lost, superseded", []int{f.Lost, f.Replaced}, []int{0, 0}) // a grace
		}, "pending b@4s unack a@10.000001s d@10.000003s fail a=1/0/0@superseded key k=b wake 4s"},
		"its reply was lost": {func(r *rig) {
			r.put(msg("a", 0, keyed("k")))
			c := r.take("a")
			r.equal("answer", r.answers(NewCaller(), on(ConflictReschedule, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			f := r.fetchAgain(c, 1)
			r.equal("again", []any{handed(f), f.Replaced}, []any{"", 1})
			r.equal("void", r.settle(NewCaller(), ack("a", "k")), []int{0})
		}, "pending b@3s key k=b wake 3s"},
		"a list of what its reply held": {func(r *rig) {
			r.put(msg("a", 0, keyed("k")), msg("d", 0))
			c := NewCaller()
			r.fetch(c, 2)
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			f := r.ask(c, FetchRequest{Want: 2, Probe: true})
			r.equal("held, superseded", []int{len(f.Described), f.Replaced}, []int{1, 1})
		}, "pending b@3s unack d@10.000003s key k=b wake 3s"},
	})
}

// TestScriptSupersededAmongOthers: superseded deliveries end beside others, in later deliveries, and with groups, holds and
// followers.
func TestScriptSupersededAmongOthers(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"in a later delivery": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(fails("a", "k"))
			r.at(time.Second)
			r.take("2:a")
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+4s")
			m := r.looks("id", queuetest.IDOf("a"))
			r.equal("a look", []any{m.Superseded, m.Key, m.Delivered.Failures, message.LastError(m.Errors)}, []any{true, "k", 1, "x"})
			s := fails("2:a", "k")
			s.Failures = 2
			r.over("it ends", []int{0}, s)
		}, "pending b@4s key k=b wake 4s"},
		"among others": {func(r *rig) {
			r.hand(msg("o", 0), msg("p", 0, keyed("p")), msg("a", 0, keyed("k")))
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			r.over("over", []int{3}, ack("o"), ack("nobody"), fails("p", "p"), fails("a", "k"))
		}, "pending b@3s retry 2:p@1s fail p=2/1/0@0s!x key k=b p=p wake 1s"},
		"when the new one was handled": {func(r *rig) {
			r.superseded(ConflictReplace)
			r.at(4 * time.Second)
			r.take("b")
			r.done(ack("b", "k"))
			r.over("it ends", []int{0}, fails("a", "k"))
		}, ""},
		"when a third has the key": {func(r *rig) {
			r.superseded(ConflictReplace)
			r.equal("cancel", r.cancel("key", "k"), statePending)
			r.put(msg("d", 9*time.Second, keyed("k")))
			r.over("it ends", []int{0}, fails("a", "k"))
		}, "pending d@9s key k=d wake 3s"},
		"both": {func(r *rig) {
			r.superseded(ConflictReplace)
			r.at(4 * time.Second)
			r.take("b")
			r.equal("a third one", r.answers(NewCaller(), on(ConflictReplace, false, msg("d", 0, keyed("k")))), "+4s")
			r.over("both end", []int{0, 1}, fails("a", "k"), fails("b", "k"))
		}, "pending d@4s key k=d wake 4s"},
		"canceled": {func(r *rig) {
			r.superseded(ConflictReplace)
			r.equal("by its key", r.intercept(NewCaller(), "key", "k"), statePending)
			r.equal("by its id", r.cancel("id", queuetest.IDOf("a")), stateUnack)
		}, "wake 3s"},
		"its key would stay taken": {func(r *rig) {
			r.superseded(ConflictReplace)
			s := ack("a", "k")
			s.Hold = time.Hour
			r.over("it ends", []int{0}, s)
		}, "pending b@4s key k=b wake 3s"},
		"what follows it is sent if it was acked": {func(r *rig) {
			r.superseded(ConflictReplace)
			void, refused := r.follows(then(ack("a", "k"), msg("n", time.Second)))
			r.equal("void, refused", []any{len(void), refused}, []any{0, ""})
		}, "pending n@1s b@4s key k=b wake 1s"},
		"a group": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("d", 0, 0)))
			r.take("a")
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			r.over("it ends", []int{0}, fails("a", "k"))
		}, "pending b@3s key k=b wake 3s"},
		"somebody else deleted it": {func(r *rig) {
			r.superseded(ConflictReplace)
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
			r.do("ZADD", r.Keys.unack, r.now+10e6, queuetest.IDOf("a"))
			r.over("it ends", []int{0}, fails("a", "k"))
		}, "pending b@4s key k=b wake 3s"},
	})
}

// TestScriptAgainKeepsItsKey: a message that comes again keeps its key.
func TestScriptAgainKeepsItsKey(t *testing.T) {
	again := func(name string) Settlement { return ends(OutcomeRetry, name, 0, 0, "", "k") }
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
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
			r.do("HDEL", r.Keys.key, "k")
			r.over("again", nil, again("a"))
			r.at(time.Second)
			r.equal("handed out", handed(r.fetch(NewCaller(), 1)), "")
		}, "dropped 1"},
	})
}

// TestScriptTTLAnew: the TTL of a message that is replaced or rescheduled counts from that send, also if the message keeps its
// place. An expired group takes no more parts.
func TestScriptTTLAnew(t *testing.T) {
	limited := func(e *message.Envelope) { e.TTL, e.Since = time.Second, message.LatestUnknown }
	dies := func(e *message.Envelope) { e.Deadline = rigBase + 1e6 }
	fit := func(r *rig, want string) {
		r.t.Helper()
		f, got := r.fetch(NewCaller(), 9), ""
		for _, d := range takenOf(f) {
			late := message.Microseconds(int64(f.Now) - max(d.msg.Due.UnixMicro(), d.since))
			over := d.ttl > 0 && d.msg.Delivery == 1 && late > d.ttl
			got += fmt.Sprintf("%s %v,", d.msg.Payload, !over)
		}
		r.equal("handed out, and may be handled", got, want)
	}
	replace := func(r *rig, timed bool) {
		r.t.Helper()
		r.at(2 * time.Second)
		r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, timed, msg("b", 0, keyed("k"), limited))), "~a@0s")
	}
	runScripts(t, map[string]scriptCase{
		"replaced": {func(r *rig) {
			r.put(msg("a", 0, keyed("k"), limited), msg("z", 0))
			replace(r, false)
			r.at(2900 * time.Millisecond)
			fit(r, "b true,z true,")
		}, "unack a@12.900001s z@12.900001s key k=a"},
		"replaced, and late again": {func(r *rig) {
			r.put(msg("a", 0, keyed("k"), limited))
			replace(r, true)
			r.at(3100 * time.Millisecond)
			fit(r, "b false,")
		}, "unack a@13.100001s key k=a"},
		"rescheduled twice": {func(r *rig) {
			r.put(msg("a", 0, keyed("k"), limited))
			for _, at := range []time.Duration{2 * time.Second, 4 * time.Second} {
				r.at(at)
				r.equal("answer", r.answers(NewCaller(), on(ConflictReschedule, true, msg("b", 0, keyed("k")))), "~a@0s")
			}
			r.at(4900 * time.Millisecond)
			fit(r, "a true,")
		}, "unack a@14.900001s key k=a"},
		"appended to when it is over": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0, limited), untimed(part("b", 0, 0, limited)))
			r.at(2 * time.Second)
			r.equal("a new group", r.answers(NewCaller(), part("c", 0, 0, limited), untimed(part("d", 0, 0, limited))), "+2s ~c@2s")
			fit(r, "a false,c true,")
		}, "unack a@12.000001s c@12.000001s parts a:2=1 c:2=1 left k=a key k=c"},
		"appended to while it is not": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0, limited))
			r.at(900 * time.Millisecond)
			r.equal("answer", r.answers(NewCaller(), untimed(part("b", 0, 0, limited))), "~a@0s")
			fit(r, "a true,")
		}, "unack a@10.900001s parts a:2=1 key k=a"},
		"appended to past its deadline": {func(r *rig) {
			r.answers(NewCaller(), part("a", 5*time.Second, 0, dies))
			r.at(time.Second)
			r.equal("a new group", r.answers(NewCaller(), part("c", 0, 0)), "+1s")
		}, "pending c@1s a@5s left k=a key k=c wake 1s"},
		"appended to past its deadline, when it failed": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0, dies))
			r.take("a")
			r.done(fails("a", "k"))
			r.at(2 * time.Second)
			r.equal("a new group", r.answers(NewCaller(), part("c", 0, 0)), "+2s")
		}, "pending c@2s retry 2:a@1s left k=a fail a=2/1/0@0s!x key k=c wake 1s"},
	})
}
