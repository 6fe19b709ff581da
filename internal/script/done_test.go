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

// kept is an ack of a message that is kept for d, with a result.
func kept(name string, d time.Duration, value string, key ...string) Settlement {
	s := ends(OutcomeDone, name, 0, 0, value, key...)
	s.Delay = d
	return s
}

func retained(d time.Duration) func(*message.Envelope) {
	return func(e *message.Envelope) { e.Retention = d }
}

// TestScriptDoneAge: a done message is deleted when its time is over. A fetch deletes at most 100 messages from done and
// garbage together.
func TestScriptDoneAge(t *testing.T) {
	many := func(r *rig, n int, d time.Duration) {
		var ms []*SendMessage
		var acks []Settlement
		for i := range n {
			name := fmt.Sprint("m", i)
			ms = append(ms, msg(name, 0, retained(d)))
			acks = append(acks, kept(name, d, "v"))
		}
		r.hand(ms...)
		r.done(acks...)
	}
	runScripts(t, map[string]scriptCase{
		"not before": {func(r *rig) {
			many(r, 2, time.Minute)
			r.at(time.Minute - time.Microsecond)
			r.tick()
		}, "done m0@1m0s m1@1m0s result m0=1 m1=1 fail m0=2/0/0@0s m1=2/0/0@0s"},
		"then": {func(r *rig) {
			many(r, 2, time.Minute)
			r.at(time.Minute)
			r.tick()
			r.equal("state.done", r.Cli.HGet(queuetest.CtxB, r.Keys.State, "done").Val(), "0")
		}, ""},
		"some at a time, and then at once": {func(r *rig) {
			many(r, 250, time.Minute)
			r.at(time.Minute)
			for left := 150; left >= -50; left -= 100 {
				f := r.fetch(NewCaller(), 0)
				r.equal("more at once", int64(f.Next) == r.now, left > -50)
				r.equal("left", r.Cli.ZCard(queuetest.CtxB, r.Keys.done).Val(), int64(max(left, 0)))
			}
		}, ""},
		"within one budget with garbage": {func(r *rig) {
			r.with.GarbageAge = time.Minute
			many(r, 80, time.Minute)
			var ms []*SendMessage
			var dead []Settlement
			for i := range 70 {
				ms = append(ms, msg(fmt.Sprint("g", i), 0))
				dead = append(dead, ends(OutcomeGarbage, fmt.Sprint("g", i), 1, 0, "x"))
			}
			r.hand(ms...)
			r.done(dead...)
			r.at(time.Minute)
			r.tick()
			r.equal("left", r.Cli.ZCard(queuetest.CtxB, r.Keys.done).Val()+r.Cli.ZCard(queuetest.CtxB, r.Keys.garbage).Val(), int64(50))
			r.tick()
		}, ""},
		"whatever state.done says": {func(r *rig) {
			many(r, 1, time.Minute)
			r.at(time.Minute)
			for _, value := range rubbish {
				if len(value) > 15 && strings.Trim(value, "0123456789") == "" {
					continue // the next that is done sets that right
				}
				r.do("HSET", r.Keys.State, "done", value)
				r.tick()
				r.equal("state.done", r.Cli.HGet(queuetest.CtxB, r.Keys.State, "done").Val(), "0")
			}
		}, ""},
		"set right by the next that is done": {func(r *rig) {
			many(r, 1, time.Minute)
			r.do("HDEL", r.Keys.State, "done")
			r.hand(msg("a", 0))
			r.done(kept("a", time.Hour, "v"))
			r.at(time.Minute)
			r.tick()
		}, "done a@1h0m0s result a=1 fail a=2/0/0@0s"},
	})
}

// TestScriptDoneLimit: if there are more done messages than the consumers' largest bound, those go that would be over soonest.
func TestScriptDoneLimit(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"not what was acked just now": {func(r *rig) {
			r.with.DoneMax = 3
			for i := range 4 {
				name := fmt.Sprint("l", i)
				r.hand(msg(name, 0))
				r.done(kept(name, time.Hour, ""))
				r.at(r.since(r.now) + 2*time.Second)
			}
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0))
			r.expect("unack a@18s b@18s c@18s d@18s done l1@1h0m2s l2@1h0m4s l3@1h0m6s fail l1=2/0/0@2s l2=2/0/0@4s " +
				"l3=2/0/0@6s")
			r.done(kept("a", time.Minute, ""))
			r.at(9 * time.Second)
			r.done(kept("b", time.Minute, ""))
			r.expect("unack c@18s d@18s done a@1m8s b@1m9s l3@1h0m6s fail a=2/0/0@8s b=2/0/0@9s l3=2/0/0@6s")
			r.done(kept("c", 30*time.Second, ""))
			r.expect("unack d@18s done c@39s a@1m8s b@1m9s fail a=2/0/0@8s b=2/0/0@9s c=2/0/0@9s") // all just now: the first
			r.at(13 * time.Second)
			r.done(kept("d", 10*time.Second, ""))
		}, "done d@23s c@39s b@1m9s fail b=2/0/0@9s c=2/0/0@9s d=2/0/0@13s"},
		"more lengths than it looks for": {func(r *rig) {
			r.with.DoneMax = 6
			var ms []*SendMessage
			for i := range 6 {
				ms = append(ms, msg(fmt.Sprint("l", i), 0))
			}
			r.hand(append(ms, msg("x", 0))...)
			for i := 5; i >= 0; i-- { // the longest first: it stands behind what is looked for
				r.done(kept(fmt.Sprint("l", i), time.Duration(i+1)*time.Minute, ""))
				r.at(r.since(r.now) + 100*time.Millisecond)
			}
			r.done(kept("x", time.Hour, "")) // the first of the four that were found
		}, "done l0@1m0.5s l1@2m0.4s l2@3m0.3s l4@5m0.1s l5@6m0s x@1h0m0.6s fail x=2/0/0@600ms l0=2/0/0@500ms l1=2/0/0@400ms l2=2/0/0@300ms " +
			"l4=2/0/0@100ms l5=2/0/0@0s"},
		"rubbish": {func(r *rig) {
			r.with.DoneMax = 2
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0))
			r.done(kept("a", time.Minute, ""), kept("b", time.Minute, ""))
			for _, record := range []string{"", "x", "2 0 0 99999999999999999999 x", "2 0 0 nan x"} {
				r.do("HSET", r.Keys.fail, queuetest.IDOf("a"), record, queuetest.IDOf("b"), record)
				r.do("ZADD", r.Keys.done, "inf", queuetest.IDOf("b"))
			}
			got, err := r.Store.Settle(queuetest.CtxB, newCall(), r.leased([]Settlement{kept("c", 2*time.Hour, ""), kept("d", time.Second, "")}))
			r.equal("settled", []any{got.DoneOverflow, err}, []any{2, nil})
		}, "done d@1s c@2h0m0s fail c=2/0/0@0s d=2/0/0@0s"},
		"100 more than came in": {func(r *rig) {
			var ms []*SendMessage
			var acks []Settlement
			for i := range 300 {
				ms = append(ms, msg(fmt.Sprint("m", i), 0))
				acks = append(acks, kept(fmt.Sprint("m", i), time.Minute, "v"))
			}
			r.hand(ms...)
			r.done(acks...)
			r.with.DoneMax = 10
			r.tickTo(2 * r.with.Lease) // nobody asks for any number any more
			for _, left := range []int{200, 99, 10} {
				r.hand(msg("a", 0))
				r.done(kept("a", time.Hour, "v"))
				r.equal("left", r.Cli.ZCard(queuetest.CtxB, r.Keys.done).Val(), int64(left))
				got, err := r.Store.Steer(queuetest.CtxB, newCall(), SteerRequest{What: SteerDelete, Targets: targetsOf("a")})
				r.equal("delete", fmt.Sprint(got, err), fmt.Sprint([]Steered{{State: StateDone, Done: true}}, nil))
			}
			r.at(2 * time.Minute)
			r.tick()
		}, ""},
	})
}

// TestScriptDoneIsSeen: a look by id finds a done message, counts say how many there are, and no steer but a delete changes it.
func TestScriptDoneIsSeen(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0, keyed("k"), retained(time.Minute)), msg("b", 0, retained(time.Hour)))
		r.at(2 * time.Second)
		r.done(kept("a", time.Minute, "yes", "k"), kept("b", time.Hour, ""))
		if m := r.looks("id", queuetest.IDOf("a")); m.State != StateDone || m.Result != "yes" || r.since(m.At) != time.Minute+2*time.Second ||
			r.since(m.When) != 2*time.Second {
			r.t.Errorf("%+v", m)
		}
		if m := r.looks("key", "k"); m != nil {
			r.t.Errorf("by its key: %+v", m)
		}
		n, err := r.Store.Counts(queuetest.CtxB)
		r.equal("counts", fmt.Sprint(n.QueueCounts, err), fmt.Sprint(QueueCounts{Done: 2}, nil))
		before := r.text(r.read())
		for _, what := range []string{SteerAt, SteerBy, SteerRequeue} {
			for _, only := range []string{"", "done"} {
				r.equal(what, r.steered(SteerRequest{What: what, Only: only, Targets: targetsOf("a")}), "!done")
			}
		}
		r.expect(before)
	})
}

func targetsOf(name string) []Spot { return []Spot{{Tag: queuetest.IDOf(name)}} }

// TestScriptDoneIsOver: a done message whose time is over is nowhere, although no fetch has deleted it yet.
func TestScriptDoneIsOver(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0, retained(time.Minute)))
		r.done(kept("a", time.Minute, "yes"))
		r.at(time.Minute)
		if m := r.looks("id", queuetest.IDOf("a")); m != nil {
			r.t.Errorf("%+v", m)
		}
		got, err := r.Store.Await(queuetest.CtxB, []string{queuetest.IDOf("a")})
		r.equal("await", fmt.Sprint(got, err), fmt.Sprint([]AwaitReply{{Word: StateGone}}, nil))
		n, err := r.Store.Counts(queuetest.CtxB)
		r.equal("counts", fmt.Sprint(n.QueueCounts, err), fmt.Sprint(QueueCounts{}, nil))
		r.equal("intercepted", r.cancel("id", queuetest.IDOf("a")), StateGone)
	})
}

// awaits asks for n messages.
func (r *rig) awaits(n int) {
	r.t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, queuetest.IDOf(fmt.Sprint("m", i)))
	}
	if got, err := r.Store.Await(queuetest.CtxB, ids); err != nil || len(got) != n {
		r.t.Errorf("%d answers, %v", len(got), err)
	}
}

// TestScriptAwait: an await says what became of each message, of as many as one reply can hold.
func TestScriptAwait(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		large := strings.Repeat("x", 600<<10)
		r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0))
		r.at(2 * time.Second)
		r.done(kept("a", time.Minute, large), kept("b", time.Minute, large), ends(OutcomeGarbage, "c", 1, 0, "no"),
			ends(OutcomeReady, "d", 0, 0, ""))
		r.put(msg("f", time.Hour))
		ask := func(all ...string) string {
			r.t.Helper()
			var ids []string
			for _, name := range all {
				ids = append(ids, queuetest.IDOf(name))
			}
			got, err := r.Store.Await(context.Background(), ids)
			if err != nil {
				r.t.Error(err)
			}
			var words []string
			for i, g := range got {
				at := ""
				if g.At != 0 {
					at = "@" + r.since(g.At).String()
				}
				if g.Word == StateDone {
					g.Text = fmt.Sprint(len(g.Text))
				}
				words = append(words, fmt.Sprintf("%s=%s%s %s", all[i], g.Word, at, g.Text))
			}
			return strings.Join(words, ", ")
		}
		r.equal("all", ask("nobody", "c", "d", "e", "f", "a", "a", "b", "c"),
			"nobody=gone , c=garbage@2s no, d=live , e=live , f=live , a=done@2s 614400, a=done@2s 614400")
		r.equal("the rest", ask("b", "c"), "b=done@2s 614400, c=garbage@2s no")
		r.do("HDEL", r.Keys.msg, queuetest.IDOf("b")) // somebody else did
		r.equal("without an envelope", ask("b"), "b=gone ")
		r.do("ZREM", r.Keys.done, queuetest.IDOf("b"))
		r.do("HDEL", r.Keys.result, queuetest.IDOf("b"))
		r.do("HDEL", r.Keys.fail, queuetest.IDOf("b"))
	})
}
