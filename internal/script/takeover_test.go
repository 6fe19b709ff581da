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

// takenOver hands out a. b takes the key of a, and is due after 3 s.
func (r *rig) takenOver(more ...func(*message.Envelope)) {
	r.t.Helper()
	r.hand(msg("a", 0, append(more, keyed("k"))...))
	r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
	r.expect("pending b@3s unack a@10s fail a=1/0/0@superseded key k=b wake 3s")
}

// over settles twice, as if the reply was lost, and wants to be told that the delivery was superseded.
func (r *rig) over(s Settlement) {
	r.t.Helper()
	c := newCall()
	for range 2 {
		got, err := r.Store.Settle(queuetest.CtxB, c, r.leased([]Settlement{s}))
		r.equal("superseded", []any{got.Superseded, err}, []any{[]int{0}, nil})
	}
}

// TestScriptSuperseded: if another send took the key of a delivery, its message ends as by an ack, whatever becomes of the
// delivery, also beside what other programs do. TestModel compares the rest.
func TestScriptSuperseded(t *testing.T) {
	const rest = "pending b@3s key k=b wake 3s"
	rows := map[string]scriptCase{
		"lost for the last time": {func(r *rig) {
			r.takenOver()
			r.with.MaxLosses = 1
			f := r.lapse(11 * time.Second)
			r.equal("lost, superseded, dead", []int{f.Lost, f.Replaced, len(f.Dead)}, []int{1, 1, 0})
		}, rest},
		"lost, and kept": {func(r *rig) {
			r.takenOver(retained(time.Minute))
			r.with.MaxLosses = 1 // it is not called poison
			r.equal("superseded", r.lapse(11*time.Second).Replaced, 1)
			r.equal("done from", r.read().Fields["done"], fmt.Sprint(r.now+60e6))
		}, "pending b@3s done a@1m11s fail a=2/0/1@superseded!lost key k=b wake 3s"},
		"a list of what its reply held": {func(r *rig) {
			r.put(msg("a", 0, keyed("k")), msg("d", 0))
			c := NewCaller()
			r.fetch(c, 2)
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			f := r.ask(c, FetchRequest{Want: 2, Probe: true})
			r.equal("held, superseded", []int{len(f.Described), f.Replaced}, []int{2, 0}) // a repeat may be late, and a consumer has it
			r.done(fails("a", "k"))
		}, "pending b@3s unack d@10s key k=b wake 3s"},
		"given back by a repeat": {func(r *rig) {
			c := r.hand(msg("a", 0, sized(300)), msg("d", 0, sized(300), keyed("k")))
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			f := r.ask(c, FetchRequest{Want: 2, Bytes: 400})
			r.equal("handed out, superseded", []any{handed(f), f.Replaced}, []any{"a", 1})
		}, "pending b@3s unack a@10s key k=b wake 3s"},
		"found in no structure": {func(r *rig) {
			r.takenOver()
			r.do("DEL", r.Keys.lease, r.Keys.unack)
			r.at(3 * time.Second)
			r.take("b")
			r.done(ack("b", "k"))
			words, err := r.Store.Repair(queuetest.CtxB, []Flaw{{"place", queuetest.IDOf("a")}})
			r.equal("repair", []any{words, err}, []any{[]string{"garbage"}, nil})
		}, "garbage a@3s fail a=1/0/0@3s!found_in_no_structure_by_doctor,_and_another_send_took_its_key"},
		"a look": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(fails("a", "k"))
			r.at(time.Second)
			r.take("2:a")
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+4s")
			m := r.looks("id", queuetest.IDOf("a"))
			r.equal("a look", []any{m.Superseded, m.Key, m.Delivered.Failures, message.LastError(m.Errors)}, []any{true, "k", 1, "x"})
		}, "pending b@4s unack 2:a@11s fail a=2/1/0@superseded!x key k=b wake 4s"},
		"somebody else deleted it": {func(r *rig) {
			r.takenOver()
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
			r.equal("void", r.settle(NewCaller(), fails("a", "k")), []int{0})
			r.lapse(11 * time.Second) // its record goes with the lease
		}, "pending b@3s key k=b wake 3s"},
	}
	for name, s := range map[string]Settlement{
		"acked": ack("a", "k"), "failed": fails("a", "k"), "released": ends(OutcomeReady, "a", 0, 0, "", "k"),
		"snoozed": ends(OutcomeRetry, "a", 0, 0, "", "k"), "lost on the line": ends(OutcomeRetry, "a", 0, 1, "x"),
		"garbage": ends(OutcomeGarbage, "a", 1, 0, "x", "k"), "throttled": throttles("a", 2*time.Second, "busy"),
	} {
		rows[name] = scriptCase{func(r *rig) { r.takenOver(); r.over(s) }, rest}
	}
	runScripts(t, rows)
}

// TestScriptWithoutAnEnvelope: a delivery whose message another program deleted does not end, and is neither lost nor counted.
func TestScriptWithoutAnEnvelope(t *testing.T) {
	runScripts(t, map[string]scriptCase{"": {func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
		r.do("HDEL", r.Keys.key, "k")
		r.equal("void", r.settle(NewCaller(), ends(OutcomeRetry, "a", 0, 0, "", "k")), []int{0})
		f := r.lapse(11 * time.Second)
		r.equal("lost, dropped, leases", []int{f.Lost, f.Dropped, len(r.read().Leases)}, []int{0, 0, 0})
	}, ""}})
}
