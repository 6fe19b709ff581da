package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// leaves makes group a, of two parts, leave its key while it is handled, and group b have that.
func leaves(r *rig) {
	r.t.Helper()
	r.answers(newCaller(), part("a", 0, 0), untimed(part("p", 0, 0)))
	r.take("a")
	r.equal("the next", r.answers(newCaller(), part("b", time.Hour, 0)), "+1h0m0s")
}

// byKey wants what a look by key finds: the message, and the groups that left the key.
func (r *rig) byKey(want string) {
	r.t.Helper()
	m, err := r.store.look(ctxB, "key", "k")
	got := fmt.Sprint(err)
	if err == nil {
		got = "nothing"
	}
	if m != nil {
		got = names(strings.Join(append([]string{m.ID}, m.Earlier...), " "))
	}
	r.equal("by key", got, want)
}

// takesOut intercepts or cancels by the key, and wants where that was and what.
func (r *rig) takesOut(running bool, want string) {
	r.t.Helper()
	c := newCaller()
	c.next()
	got, err := r.store.intercept(ctxB, c, "key", "k", running)
	r.equal("taken out", strings.TrimSpace(fmt.Sprint(got.State, " ", names(got.ID))), want)
	again, err2 := r.store.intercept(ctxB, c, "key", "k", running)
	r.equal("the same again", []any{again, err, err2}, []any{got, nil, nil})
}

// TestScriptLeft: a group that left its key is listed by that as long as it lives, whatever becomes of it.
func TestScriptLeft(t *testing.T) {
	const b, two = "pending b@1h0m0s ", "parts a:2=1 "
	failed := func(kind outcomeKind) settlement { return ends(kind, "a", 1, 0, "x", "k") }
	runScripts(t, map[string]scriptCase{
		"ack":                       {func(r *rig) { leaves(r); r.done(groupOf(2, ack("a", "k"))) }, b + "key k=b wake 1h0m0s"},
		"a result":                  {func(r *rig) { leaves(r); r.done(groupOf(2, kept("a", time.Minute, "v", "k"))) }, b + "done a@1m0s result a=1 " + two + "fail a=2/0/0@0s key k=b wake 1h0m0s"},
		"an ack that holds the key": {func(r *rig) { leaves(r); r.done(groupOf(2, holding("a", time.Minute, "k"))) }, b + "key k=b wake 1h0m0s"},
		"release":                   {func(r *rig) { leaves(r); r.done(failed(outcomeReady)) }, b + "ready 2:a " + two + "left k=a fail a=2/1/0@0s!x key k=b wake 0s"},
		"failure":                   {func(r *rig) { leaves(r); r.done(failed(outcomeRetry)) }, b + "retry 2:a@1s " + two + "left k=a fail a=2/1/0@0s!x key k=b wake 1s"},
		"garbage":                   {func(r *rig) { leaves(r); r.done(failed(outcomeGarbage)) }, b + "garbage a@0s " + two + "fail a=2/1/0@0s!x key k=b wake 1h0m0s"},
		"garbage that is requeued": {func(r *rig) {
			leaves(r)
			r.done(failed(outcomeGarbage))
			r.equal("requeue", r.steers("requeue", r.now+1e6, "a"), "garbage")
		}, b + "retry 2:a@1s " + two + "left k=a fail a=2/0/0@0s!x key k=b wake 1s"},
		"lost": {func(r *rig) { leaves(r); r.tickTo(9 * time.Second); r.at(11 * time.Second); r.tick() },
			b + "retry 2:a@11s~11.5s " + two + "left k=a fail a=2/0/1@11s!lost key k=b wake 11s~11.5s"},
		"poison": {func(r *rig) {
			leaves(r)
			r.with.maxLosses = 1
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.tick()
		},
			b + "garbage a@11s " + two + "fail a=2/0/1@11s!poison key k=b wake 1h0m0s"},
		"deleted": {func(r *rig) {
			leaves(r)
			r.done(failed(outcomeRetry))
			r.equal("state", r.steers("delete", 0, "a"), "retry")
		}, b + "key k=b wake 1s"},
		"canceled":       {func(r *rig) { leaves(r); r.equal("state", r.steers("cancel", 0, "a"), "unack") }, b + "key k=b wake 1h0m0s"},
		"canceled alone": {func(r *rig) { leaves(r); r.equal("state", r.cancel("id", idOf("a")), StateUnack) }, b + "key k=b wake 1h0m0s"},
		"expired": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0, func(e *envelope) { e.deadline = rigBase + 1e6 }))
			r.at(2 * time.Second)
			r.equal("the next", r.answers(newCaller(), part("b", time.Hour, 0)), "+1h0m2s")
			r.byKey("b a")
		}, "pending a@0s b@1h0m2s left k=a key k=b wake 0s"},
		"the one that takes parts ends first": {func(r *rig) {
			leaves(r)
			r.done(failed(outcomeRetry))
			r.takesOut(false, "pending b")
			r.byKey("a")
			r.equal("a third", r.answers(newCaller(), part("c", time.Hour, 0)), "+1h0m0s")
			r.byKey("c a")
		}, "pending c@1h0m0s retry 2:a@1s " + two + "left k=a fail a=2/1/0@0s!x key k=c wake 1s"},
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
			r.done(ends(outcomeRetry, "a", 1, 0, "x", "k"))
			r.takesOut(false, "retry a")
			r.takesOut(false, "gone")
			r.byKey("nothing")
		}, "wake 1s"},
		"a group that does not come through": {func(r *rig) {
			r.with.maxLosses = 1
			r.answers(newCaller(), part("a", 0, 0))
			c := newCaller()
			c.next()
			r.equal("handed out", handed(r.ask(c, fetchRequest{want: 1})), "a")
			r.answers(newCaller(), part("b", time.Hour, 0))
			got := r.ask(c, fetchRequest{want: 1, probe: true})
			r.equal("held", fmt.Sprint(len(got.held), got.held[0].key), "1k")
			r.done(ends(outcomeGarbage, "a", 1, 0, "x", got.held[0].key))
			r.byKey("b")
		}, "pending b@1h0m0s garbage a@0s fail a=2/1/0@0s!x key k=b wake 1h0m0s"},
		"intercept, while the one that has the key is handled": {func(r *rig) {
			leaves(r)
			r.done(ends(outcomeRetry, "a", 1, 0, "x", "k"))
			r.steers("at", r.now, "b")
			r.take("b")
			r.takesOut(false, "retry a")
			r.takesOut(false, "unack b")
		}, "unack b@10.000003s key k=b wake 1s"},
		"cancel": {func(r *rig) {
			leaves(r)
			r.takesOut(true, "pending b")
			r.takesOut(true, "unack a")
			r.takesOut(true, "gone")
		}, "wake 1h0m0s"},
		"full ones": {func(r *rig) {
			for _, name := range []string{"a", "b", "c"} {
				r.answers(newCaller(), part(name, time.Hour, 2), part(name+"2", time.Hour, 2))
			}
			r.answers(newCaller(), part("d", time.Hour, 2))
			r.byKey("d c b a")
			for _, want := range []string{"pending d", "ready c", "ready b", "ready a", "gone"} {
				r.takesOut(false, want)
			}
		}, "wake 0s"},
		"beside a plain message": {func(r *rig) {
			r.answers(newCaller(), part("a", time.Hour, 2), part("a2", time.Hour, 2))
			r.put(msg("p", time.Hour, keyed("k")))
			r.byKey("p")
			r.takesOut(false, "pending p")
			r.byKey("a")
		}, "pending a@0s parts a:2=2 left k=a wake 0s"},
		"beside a key that is held": {func(r *rig) {
			leaves(r)
			r.steers("at", r.now, "b")
			r.take("b")
			r.done(groupOf(1, holding("b", time.Minute, "k")))
			r.byKey("a")
			r.done(groupOf(2, ack("a", "k")))
			m, err := r.store.look(ctxB, "key", "k")
			if held := new(KeyHeldError); m != nil || !errors.As(err, &held) || held.ID != idOf("b") {
				r.t.Errorf("%+v, %v", m, err)
			}
		}, "key k=acked:b held k@1m0s"},
		"more than are listed": {func(r *rig) {
			for i := range 103 {
				r.answers(newCaller(), part(fmt.Sprint("a", i), time.Hour, 2), part(fmt.Sprint("b", i), time.Hour, 2))
			}
			m, err := r.store.look(ctxB, "key", "k")
			if err != nil || names(m.ID) != "a102" || len(m.Earlier) != 99 || names(m.Earlier[98]) != "a3" {
				r.t.Errorf("%+v, %v", m, err)
			}
			for range 100 {
				r.equal("state", r.intercept(newCaller(), "key", "k"), StateReady)
			}
			r.equal("state", r.intercept(newCaller(), "key", "k"), StateGone)
			for _, name := range []string{"a0", "a1", "a2"} {
				r.equal("by id", r.intercept(newCaller(), "id", idOf(name)), StateReady)
			}
		}, "wake 0s"},
	})
}

// TestScriptLeftRubbish: what another program wrote into a list is passed over, and no script raises.
func TestScriptLeftRubbish(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]string{
		"nothing": "", "blanks": "  ", "no ids": "x y\n\x00", "of another key": idOf("z"), "the same twice": idOf("a") + " " + idOf("a"),
		"very long": strings.Repeat(idOf("x")+" ", 10000) + idOf("a"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(r *rig) {
				leaves(r)
				r.put(msg("z", time.Hour, keyed("other")))
				r.do("HSET", r.keys.parts, ":k", list)
				if _, err := r.store.look(context.Background(), "key", "k"); err != nil {
					r.t.Error(err)
				}
				r.takesOut(true, "pending b")
				r.cancel("key", "k")
				r.equal("the other one", r.intercept(newCaller(), "key", "other"), StatePending)
				r.settle(newCaller(), groupOf(2, ack("a", "k")))
				r.do("HDEL", r.keys.parts, ":k")
				r.read()
			})
		})
	}
}
