package script

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

const century = 100 * 365 * 24 * time.Hour

// keepsAll puts one entry of each kind that is deleted by age into a queue, an hour old at most: garbage, a done message with
// its result, the hold of a key, an hour of history, an old caller. The function that it returns names those that are there.
func keepsAll(r *rig) func() string {
	r.with.GarbageAge = time.Hour
	r.hand(msg("g", 0), msg("d", 0), msg("h", 0, keyed("k")))
	r.done(ends(OutcomeGarbage, "g", 1, 0, "x"), kept("d", time.Hour, "r"), holding("h", time.Hour, "k"))
	hour := fmt.Sprint(rigBase / time.Hour.Microseconds())
	r.do("HSET", r.Keys.history, hour, "1 0 0 0 0 0 0 0 0 0")
	r.do("HSET", r.Keys.State, "call:old", fmt.Sprintf("3 %d ", r.now))
	return func() string {
		s, there := r.read(), []string{}
		for what, is := range map[string]bool{"garbage": len(s.Garbage) > 0, "done": len(s.Done) > 0, "result": len(s.Results) > 0,
			"key": len(s.Held) > 0, "caller": s.Fields["call:old"] != "", "history": s.History[hour] != ""} {
			if is {
				there = append(there, what)
			}
		}
		slices.Sort(there)
		return strings.Join(there, " ")
	}
}

const allKept = "caller done garbage history key result"

// TestScriptClockAheadForSeconds: a clock that is ahead for some seconds deletes nothing, whatever caller comes meanwhile. Each
// entry goes when its own time is over.
func TestScriptClockAheadForSeconds(t *testing.T) {
	for _, step := range []time.Duration{2 * time.Hour, century} {
		t.Run(step.String(), func(t *testing.T) {
			onBoth(t, func(r *rig) {
				there := keepsAll(r)
				a, b := NewCaller(), NewCaller()
				call := func(callers ...*Caller) {
					t.Helper()
					for _, c := range callers {
						r.do("HINCRBY", r.Keys.State, "delivered", 1) // so that there is something for history
						r.fetch(c, 10)
					}
				}
				call(a, b)
				for i := range 3 { // it is right and wrong by turns
					at := time.Duration(10*i) * time.Second
					r.at(at + time.Second)
					call(a, b, NewCaller())
					for s := range 3 {
						r.at(step + at + time.Duration(2+s)*time.Second)
						call(b, NewCaller(), a, NewCaller())
						r.equal("while it is ahead", there(), allKept)
					}
					r.at(at + 5*time.Second)
					call(NewCaller(), b, a)
					r.equal("when it is right", there(), allKept)
				}
				for _, at := range []time.Duration{30 * time.Minute, 59*time.Minute + 59*time.Second} {
					r.at(at)
					call(a)
				}
				r.equal("before their time is over", there(), allKept)
				r.at(80 * time.Minute)
				call(a)
				r.equal("when it is over", there(), "history")
			})
		})
	}
}

// aged puts 450 messages into garbage, 450 into done, and 2,600 holds of keys into held, whose time is over. The function that
// it returns counts what is left of each.
func aged(r *rig) func() [3]int64 {
	r.with.GarbageAge = time.Second
	var ms []*SendMessage
	var ended []Settlement
	for i := range 450 {
		ms = append(ms, msg(fmt.Sprint("g", i), 0), msg(fmt.Sprint("d", i), 0))
		ended = append(ended, ends(OutcomeGarbage, fmt.Sprint("g", i), 1, 0, ""), kept(fmt.Sprint("d", i), time.Second, ""))
	}
	r.hand(ms[:450]...)
	r.done(ended[:450]...)
	r.hand(ms[450:]...)
	r.done(ended[450:]...)
	held := []any{"ZADD", r.Keys.held}
	for i := range 2600 {
		held = append(held, rigBase+1, fmt.Sprint("k", i))
	}
	r.do(held...)
	r.do("HSET", r.Keys.State, "held", rigBase+1)
	return func() [3]int64 {
		return [3]int64{r.Cli.ZCard(queuetest.CtxB, r.Keys.garbage).Val(), r.Cli.ZCard(queuetest.CtxB, r.Keys.done).Val(), r.Cli.ZCard(queuetest.CtxB, r.Keys.held).Val()}
	}
}

// TestScriptClockStepsForwardOverRetention: after a step of the clock nothing is deleted for a minute, for an hour a page with
// each call, and then as much as ever.
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
			r.equal("next, "+one.at.String(), int64(f.Next), map[bool]int64{true: r.now}[one.next])
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
		r.do("HDEL", r.Keys.State, "settings")
		r.with.GarbageMax = 10
		calls := 1
		for f := r.fetch(c, 0); f.Next != 0; f = r.fetch(c, 0) {
			calls++
		}
		r.equal("calls", calls, 5)
		r.equal("left", left(), [3]int64{10, 450, 2600})
	})
}

// TestScriptRetentionOfWhatIsDrained: new consumers that drain a queue now and then, and live for a moment, delete what is old.
// Each second run does at least.
func TestScriptRetentionOfWhatIsDrained(t *testing.T) {
	for _, every := range []time.Duration{time.Hour, time.Hour + time.Second, 24 * time.Hour} {
		t.Run(every.String(), func(t *testing.T) {
			onBoth(t, func(r *rig) {
				there := keepsAll(r)
				for run := 1; run <= 3; run++ {
					r.at(time.Duration(run) * every)
					for range 3 {
						r.fetch(NewCaller(), 0)
					}
				}
				r.equal("after three runs", there(), "history")
			})
		})
	}
}

// TestScriptRetentionAfterRubbish: if the fields about the clock hold rubbish, old entries go a minute later all the same.
func TestScriptRetentionAfterRubbish(t *testing.T) {
	for _, field := range []string{"aging", "seen"} {
		for i, value := range append([]string{"99999999999999999999", fmt.Sprint(rigBase + int64(century/time.Microsecond))}, rubbish...) {
			t.Run(fmt.Sprint(field, i), func(t *testing.T) {
				onReal(t, func(r *rig) {
					there := keepsAll(r)
					r.do("HSET", r.Keys.State, field, value)
					r.at(time.Hour + time.Second)
					r.fetch(NewCaller(), 0)
					r.at(time.Hour + 62*time.Second)
					r.fetch(NewCaller(), 0)
					r.equal(value, there(), "history")
				})
			})
		}
	}
}
