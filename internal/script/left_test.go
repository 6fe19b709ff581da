package script

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// leaves makes group a, of two parts, leave its key while it is handled. Group b has the key then.
func leaves(r *rig) {
	r.t.Helper()
	r.answers(NewCaller(), part("a", 0, 0), untimed(part("p", 0, 0)))
	r.take("a")
	r.equal("the next", r.answers(NewCaller(), part("b", time.Hour, 0)), "+1h0m0s")
}

// byKey wants a look by key to find these: the message that has the key, then the groups that left it.
func (r *rig) byKey(want string) {
	r.t.Helper()
	got := "nothing"
	if m := r.looks("key", "k"); m != nil {
		got = names(strings.Join(append([]string{m.Delivered.ID}, m.Earlier...), " "))
	}
	r.equal("by key", got, want)
}

// takesOut intercepts or cancels by the key, and wants this state and message.
func (r *rig) takesOut(running bool, want string) {
	r.t.Helper()
	c := newCall()
	got, err := r.Store.Intercept(queuetest.CtxB, c, "key", "k", running)
	r.equal("taken out", strings.TrimSpace(got.State+" "+names(got.ID)), want)
	again, err2 := r.Store.Intercept(queuetest.CtxB, c, "key", "k", running)
	r.equal("the same again", []any{again, err, err2}, []any{got, nil, nil})
}

// TestScriptLeft: a group that left its key is listed under it as long as the group lives.
func TestScriptLeft(t *testing.T) {
	const b, two = "pending b@1h0m0s ", "parts a:2=1 "
	failed := func(kind OutcomeKind) Settlement { return ends(kind, "a", 1, 0, "x", "k") }
	runScripts(t, map[string]scriptCase{
		"ack":                       {func(r *rig) { leaves(r); r.done(groupOf(2, ack("a", "k"))) }, b + "key k=b wake 1h0m0s"},
		"a result":                  {func(r *rig) { leaves(r); r.done(groupOf(2, kept("a", time.Minute, "v", "k"))) }, b + "done a@1m0s result a=1 " + two + "fail a=2/0/0@0s key k=b wake 1h0m0s"},
		"an ack that holds the key": {func(r *rig) { leaves(r); r.done(groupOf(2, holding("a", time.Minute, "k"))) }, b + "key k=b wake 1h0m0s"},
		"release":                   {func(r *rig) { leaves(r); r.done(failed(OutcomeReady)) }, b + "ready 2:a " + two + "left k=a fail a=2/1/0@0s!x key k=b wake 0s"},
		"failure":                   {func(r *rig) { leaves(r); r.done(failed(OutcomeRetry)) }, b + "retry 2:a@1s " + two + "left k=a fail a=2/1/0@0s!x key k=b wake 1s"},
		"garbage":                   {func(r *rig) { leaves(r); r.done(failed(OutcomeGarbage)) }, b + "garbage a@0s " + two + "fail a=2/1/0@0s!x key k=b wake 1h0m0s"},
		"garbage that is requeued": {func(r *rig) {
			leaves(r)
			r.done(failed(OutcomeGarbage))
			r.equal("requeue", r.steers("requeue", r.now+1e6, "a"), "garbage")
		}, b + "retry 2:a@1s " + two + "left k=a fail a=2/0/0@0s!x key k=b wake 1s"},
		"lost": {func(r *rig) { leaves(r); r.lapse(11 * time.Second) },
			b + "retry 2:a@11s~11.5s " + two + "left k=a fail a=2/0/1@11s!lost key k=b wake 11s~11.5s"},
		"poison": {func(r *rig) {
			leaves(r)
			r.with.MaxLosses = 1
			r.lapse(11 * time.Second)
		},
			b + "garbage a@11s " + two + "fail a=2/0/1@11s!poison key k=b wake 1h0m0s"},
		"deleted": {func(r *rig) {
			leaves(r)
			r.done(failed(OutcomeRetry))
			r.equal("state", r.steers("delete", 0, "a"), "retry")
		}, b + "key k=b wake 1s"},
		"canceled":       {func(r *rig) { leaves(r); r.equal("state", r.steers("cancel", 0, "a"), "unack") }, b + "key k=b wake 1h0m0s"},
		"canceled alone": {func(r *rig) { leaves(r); r.equal("state", r.cancel("id", queuetest.IDOf("a")), stateUnack) }, b + "key k=b wake 1h0m0s"},
		"expired": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0, func(e *message.Envelope) { e.Deadline = rigBase + 1e6 }))
			r.at(2 * time.Second)
			r.equal("the next", r.answers(NewCaller(), part("b", time.Hour, 0)), "+1h0m2s")
			r.byKey("b a")
		}, "pending a@0s b@1h0m2s left k=a key k=b wake 0s"},
	})
}

// TestScriptLeftByKey: calls by key reach the message that has the key, and then the groups that left it, the newest first.
func TestScriptLeftByKey(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"intercept": {func(r *rig) {
			leaves(r)
			r.byKey("b a")
			r.takesOut(false, "pending b")
			r.takesOut(false, "unack a")
			r.byKey("a")
			r.done(ends(OutcomeRetry, "a", 1, 0, "x", "k"))
			r.takesOut(false, "retry a")
			r.takesOut(false, "gone")
			r.byKey("nothing")
		}, "wake 1s"},
		"a group that does not come through": {func(r *rig) {
			r.with.MaxLosses = 1
			r.answers(NewCaller(), part("a", 0, 0))
			c := newCall()
			r.equal("handed out", handed(r.ask(c, FetchRequest{Want: 1})), "a")
			r.answers(NewCaller(), part("b", time.Hour, 0))
			got := r.ask(c, FetchRequest{Want: 1, Probe: true})
			r.equal("held", fmt.Sprint(len(got.Described), got.Described[0].Key), "1k")
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x", got.Described[0].Key))
			r.byKey("b")
		}, "pending b@1h0m0s garbage a@0s fail a=2/1/0@0s!x key k=b wake 1h0m0s"},
		"beside a key that is held": {func(r *rig) {
			leaves(r)
			r.steers("at", r.now, "b")
			r.take("b")
			r.takesOut(false, "unack b") // the first of those that may not be taken out
			r.done(groupOf(1, holding("b", time.Minute, "k")))
			r.byKey("a")
			r.done(groupOf(2, ack("a", "k")))
			if m, err := r.Store.Look(queuetest.CtxB, "key", "k", 0); err != nil || m == nil || !m.Held || m.ID != queuetest.IDOf("b") {
				r.t.Errorf("%+v, %v", m, err)
			}
		}, "key k=acked:b held k@1m0s"},
		"more than are listed": {func(r *rig) {
			for i := range 103 {
				r.answers(NewCaller(), part(fmt.Sprint("a", i), time.Hour, 2), part(fmt.Sprint("b", i), time.Hour, 2))
			}
			if m := r.looks("key", "k"); names(m.Delivered.ID) != "a102" || len(m.Earlier) != 99 || names(m.Earlier[98]) != "a3" {
				r.t.Errorf("%+v", m)
			}
			for range 100 {
				r.equal("state", r.intercept(NewCaller(), "key", "k"), stateReady)
			}
			r.equal("state", r.intercept(NewCaller(), "key", "k"), StateGone)
			for _, name := range []string{"a0", "a1", "a2"} {
				r.equal("by id", r.intercept(NewCaller(), "id", queuetest.IDOf(name)), stateReady)
			}
		}, "wake 0s"},
	})
}

// TestScriptLeftRubbish: another program's text in place of a list of groups is passed over.
func TestScriptLeftRubbish(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]string{
		"nothing": "", "blanks": "  ", "no ids": "x y\n\x00", "of another key": queuetest.IDOf("z"), "the same twice": queuetest.IDOf("a") + " " + queuetest.IDOf("a"),
		"very long": strings.Repeat(queuetest.IDOf("x")+" ", 10000) + queuetest.IDOf("a"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onReal(t, func(r *rig) {
				leaves(r)
				r.put(msg("z", time.Hour, keyed("other")))
				r.do("HSET", r.Keys.parts, ":k", list)
				if _, err := r.Store.Look(context.Background(), "key", "k", 0); err != nil {
					r.t.Error(err)
				}
				r.takesOut(true, "pending b")
				r.cancel("key", "k")
				r.equal("the other one", r.intercept(NewCaller(), "key", "other"), statePending)
				r.settle(NewCaller(), groupOf(2, ack("a", "k")))
				r.do("HDEL", r.Keys.parts, ":k")
				r.read()
			})
		})
	}
}
