package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
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

// TestScriptDoneAge: a done message is deleted when its time is over. A tick deletes at most 100 messages from done and
// garbage together.
func TestScriptDoneAge(t *testing.T) {
	keep := func(r *rig, n int) {
		r.hand(dueAlike(n, 0)...)
		r.done(keptAll(n, time.Minute, "v")...)
	}
	runScripts(t, map[string]scriptCase{
		"some at a time, and then at once": {func(r *rig) {
			keep(r, 250)
			r.at(time.Minute)
			for left := 150; left >= -50; left -= 100 {
				f := r.fetch(NewCaller(), 0)
				r.equal("more at once", f.TickReply.More, left > -50)
				r.equal("left", r.Cli.ZCard(queuetest.CtxB, r.Keys.of("done")).Val(), int64(max(left, 0)))
			}
		}, ""},
		"whatever state.done says": {func(r *rig) {
			keep(r, 1)
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
			keep(r, 1)
			r.do("HDEL", r.Keys.State, "done")
			r.hand(msg("a", 0))
			r.done(kept("a", time.Hour, "v"))
			r.at(time.Minute)
			r.tick()
		}, "done a@1h0m0s result a=1 fail a=2/0/0@0s"},
	})
}

// TestScriptDoneLimit: if there are more done messages than the consumers' largest bound, those go that would be over
// soonest.
func TestScriptDoneLimit(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"rubbish": {func(r *rig) {
			r.doneMax = 2
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0))
			r.done(kept("a", time.Minute, ""), kept("b", time.Minute, ""))
			for _, record := range []string{"", "x", "2 0 0 99999999999999999999 x", "2 0 0 nan x"} {
				r.do("HSET", r.Keys.of("fail"), queuetest.IDOf("a"), record, queuetest.IDOf("b"), record)
				r.do("ZADD", r.Keys.of("done"), "inf", queuetest.IDOf("b"))
			}
			got, err := r.Store.Settle(queuetest.CtxB, newCall(),
				r.leased([]Settlement{kept("c", 2*time.Hour, ""), kept("d", time.Second, "")}), false)
			r.equal("settled", []any{got.DoneOverflow, err}, []any{2, nil})
		}, "done d@1s c@2h0m0s fail c=2/0/0@0s d=2/0/0@0s"},
	})
}

// TestScriptDoneIsSeen: a look by id finds a done message until its time is over, and counts say how many there are.
func TestScriptDoneIsSeen(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0, keyed("k"), retained(time.Minute)), msg("b", 0, retained(time.Hour)))
		r.at(2 * time.Second)
		r.done(kept("a", time.Minute, "yes", "k"), kept("b", time.Hour, ""))
		if m := r.looks("id", queuetest.IDOf("a")); m.State != StateDone || m.Result != "yes" ||
			r.since(m.At) != time.Minute+2*time.Second ||
			r.since(m.When) != 2*time.Second {
			r.t.Errorf("%+v", m)
		}
		if m := r.looks("key", "k"); m != nil {
			r.t.Errorf("by its key: %+v", m)
		}
		r.equal("counts", r.queueCounts(), QueueCounts{Counts: Counts{Done: 2}})
		r.at(time.Minute + 2*time.Second) // no fetch has deleted it yet
		if m := r.looks("id", queuetest.IDOf("a")); m != nil {
			r.t.Errorf("its time is over: %+v", m)
		}
		r.equal("counts", r.queueCounts(), QueueCounts{Counts: Counts{Done: 1}})
	})
}

func targetsOf(names ...string) []Spot {
	return conc.Mapped(names, func(name *string) Spot { return Spot{Tag: queuetest.IDOf(*name)} })
}

// awaits asks for n messages.
func (r *rig) awaits(n int) {
	r.t.Helper()
	ids := many(n, func(i int) string { return queuetest.IDOf(fmt.Sprint("m", i)) })
	if got, err := r.Store.Await(queuetest.CtxB, ids); err != nil || len(got) != n {
		r.t.Errorf("%d answers, %v", len(got), err)
	}
}

// TestScriptAwait: an await answers for as many messages as one reply can hold. TestModel compares what it says.
func TestScriptAwait(t *testing.T) {
	onBoth(t, func(r *rig) {
		large := strings.Repeat("x", 600<<10)
		r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
		r.done(kept("a", time.Minute, large), kept("b", time.Minute, large), ends(OutcomeGarbage, "c", 1, 0, "no"))
		ids := []string{queuetest.IDOf("a"), queuetest.IDOf("b"), queuetest.IDOf("c")}
		want := []AwaitReply{{StateDone, r.now, large}, {StateDone, r.now, large}, {stateGarbage, r.now, "no"}}
		got, err := r.Store.Await(queuetest.CtxB, ids)
		r.equal("the first two", err == nil && slices.Equal(got, want[:2]), true)
		got, err = r.Store.Await(queuetest.CtxB, ids[2:])
		r.equal("the rest", err == nil && slices.Equal(got, want[2:]), true)
	})
}

const century = 100 * 365 * 24 * time.Hour

// keepsAll puts one entry of each kind that is deleted by age into a queue, an hour old at most: garbage, a done
// message with its result, the hold of a key, an hour of history, an old caller. The function that it returns names
// those that are there.
func keepsAll(r *rig) func() string {
	r.with.GarbageAge = time.Hour
	r.hand(msg("g", 0), msg("d", 0), msg("h", 0, keyed("k")))
	r.done(ends(OutcomeGarbage, "g", 1, 0, "x"), kept("d", time.Hour, "r"), holding("h", time.Hour, "k"))
	hour := fmt.Sprint(rigBase / time.Hour.Microseconds())
	r.do("HSET", r.Keys.of("history"), hour, "1 0 0 0 0 0 0 0 0 0")
	r.do("HSET", r.Keys.State, "call:old", fmt.Sprintf("3 %d ", r.now))
	return func() string {
		s, there := r.read(), []string{}
		for what, is := range map[string]bool{"garbage": len(s.Garbage) > 0, "done": len(s.Done) > 0,
			"result": len(s.Results) > 0,
			"key":    len(s.Holds) > 0, "caller": s.Fields["call:old"] != "", "history": s.History[hour] != ""} {
			if is {
				there = append(there, what)
			}
		}
		slices.Sort(there)
		return strings.Join(there, " ")
	}
}

// aged puts 450 messages into garbage, 450 into done, and 2,600 holds of keys into held, whose time is over. The
// function that it returns counts what is left of each.
func aged(r *rig) func() [3]int64 {
	r.with.GarbageAge = time.Second
	r.hand(many(450, func(i int) *SendMessage { return msg(fmt.Sprint("g", i), 0) })...)
	r.done(many(450, func(i int) Settlement { return ends(OutcomeGarbage, fmt.Sprint("g", i), 1, 0, "") })...)
	r.hand(dueAlike(450, 0)...)
	r.done(keptAll(450, time.Second, "")...)
	held := []any{"ZADD", r.Keys.of("holds")}
	for i := range 2600 {
		held = append(held, rigBase+1, fmt.Sprint("k", i))
	}
	r.do(held...)
	r.do("HSET", r.Keys.State, "holds", rigBase+1)
	return func() [3]int64 {
		return [3]int64{r.Cli.ZCard(queuetest.CtxB, r.Keys.of("garbage")).Val(),
			r.Cli.ZCard(queuetest.CtxB, r.Keys.of("done")).Val(), r.Cli.ZCard(queuetest.CtxB, r.Keys.of("holds")).Val()}
	}
}

// TestScriptClockStepsForwardOverRetention: after a step of the clock nothing is deleted for a minute, for an hour a
// page with each call, and then as much as ever.
func TestScriptClockStepsForwardOverRetention(t *testing.T) {
	onReal(t, func(r *rig) {
		left, step := aged(r), 3*time.Hour
		c := NewCaller()
		r.fetch(c, 0)
		all := [3]int64{450, 450, 2600}
		for _, one := range []struct {
			at   time.Duration // after the step
			want [3]int64
			next bool // a call follows at once
		}{
			{0, all, false}, {time.Minute - time.Microsecond, all, false},
			{time.Minute, [3]int64{350, 450, 2100}, false}, {time.Minute, [3]int64{250, 450, 1600}, false},
			{31 * time.Minute, [3]int64{150, 450, 1100}, false}, {61 * time.Minute, [3]int64{50, 450, 600}, false},
			{61*time.Minute + time.Microsecond, [3]int64{0, 400, 100}, true}, {62 * time.Minute, [3]int64{0, 300, 0}, true},
		} {
			r.at(step + one.at)
			f := r.fetch(c, 0)
			r.equal(one.at.String(), left(), one.want)
			r.equal("more at once, "+one.at.String(), f.TickReply.More, one.next)
		}
	})
}

// TestScriptRoomDoesNotWait: garbage for which there is no room goes at once, also after a step of the clock.
func TestScriptRoomDoesNotWait(t *testing.T) {
	onReal(t, func(r *rig) {
		left := aged(r)
		c := NewCaller()
		r.fetch(c, 0)
		r.at(3 * time.Hour)
		r.fetch(c, 0)
		r.with.GarbageMax = 10
		calls := 1
		for f := r.fetch(c, 0); f.TickReply.More; f = r.fetch(c, 0) {
			calls++
		}
		r.equal("calls", calls, 5)
		r.equal("left", left(), [3]int64{10, 450, 2600})
	})
}

// TestScriptRetentionOfWhatIsDrained: new consumers that drain a queue now and then, and live for a moment, delete
// what is old. Each second run does at least.
func TestScriptRetentionOfWhatIsDrained(t *testing.T) {
	for _, every := range []time.Duration{time.Hour, time.Hour + time.Second, 24 * time.Hour} {
		subtest(t, every.String(), onBoth, func(r *rig) {
			there := keepsAll(r)
			for run := 1; run <= 3; run++ {
				r.at(time.Duration(run) * every)
				for range 3 {
					r.fetch(NewCaller(), 0)
				}
			}
			r.equal("after three runs", there(), "history")
		})
	}
}

// TestScriptRetentionAfterRubbish: if the fields about the clock hold rubbish, old entries go a minute later all the
// same.
func TestScriptRetentionAfterRubbish(t *testing.T) {
	for _, field := range []string{"aging", "seen"} {
		for i, value := range append([]string{"99999999999999999999", fmt.Sprint(rigBase + int64(century/time.Microsecond))},
			rubbish...) {
			subtest(t, fmt.Sprint(field, i), onReal, func(r *rig) {
				there := keepsAll(r)
				r.do("HSET", r.Keys.State, field, value)
				r.at(time.Hour + time.Second)
				r.fetch(NewCaller(), 0)
				r.at(time.Hour + 62*time.Second)
				r.fetch(NewCaller(), 0)
				r.equal(value, there(), "history")
			})
		}
	}
}

// TestScriptNoStepWhileOthersTick: a consumer that ticks again after hours, in which others did, takes that for no
// step of the clock.
func TestScriptNoStepWhileOthersTick(t *testing.T) {
	onReal(t, func(r *rig) {
		first, other := NewCaller(), NewCaller()
		r.tickOf(first)
		for at := time.Duration(0); at < 3*time.Hour; at += 30 * time.Minute {
			r.at(at)
			r.tickOf(other)
		}
		r.tickOf(first)
		r.equal("aging", r.readAsItIs().Fields["aging"], "")
		r.at(6 * time.Hour) // nobody
		r.tickOf(first)
		r.equal("aging", r.readAsItIs().Fields["aging"], strconv.FormatInt(r.now+60e6, 10))
	})
}
