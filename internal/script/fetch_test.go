package script

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptByAlarm: a tick that goes by the alarm sees rubbish in its place, and a lease that is too long.
func TestScriptByAlarm(t *testing.T) {
	byAlarm := func(spoil func(r *rig)) func(r *rig) {
		return func(r *rig) {
			c := NewCaller()
			r.fetch(c, 10)
			spoil(r)
			c.Next()
			r.ask(c, FetchRequest{Want: 10, ByAlarm: true})
		}
	}
	runScripts(t, map[string]scriptCase{
		"rubbish for an alarm": {byAlarm(func(r *rig) {
			r.put(msg("a", time.Second))
			r.do("HSET", r.Keys.State, "armed", "soon")
		}), "pending a@1s wake 1s"},
		"a lease that a clock made too long": {byAlarm(func(r *rig) {
			r.hand(msg("a", 0))
			r.do("ZADD", r.Keys.of("unack"), rigBase+time.Hour.Microseconds(), r.leases[queuetest.IDOf("a")].Name)
		}), "unack a@10s"},
	})
}

// TestScriptFetchDrops: a tag without an envelope is dropped, counted once, and stops nothing.
func TestScriptFetchDrops(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"tags without envelope": {func(r *rig) {
			r.hand(msg("r", 0), msg("R", 0), msg("q", 0), msg("Q", 0))
			r.done(ends(OutcomeReady, "r", 0, 0, ""), ends(OutcomeReady, "R", 1, 0, "x"), ends(OutcomeRetry, "q", 1, 0, ""),
				ends(OutcomeRetry, "Q", 1, 0, "y"))
			r.put(msg("p", 0), msg("P", 0), msg("L", time.Hour))
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("r"), queuetest.IDOf("p"), queuetest.IDOf("q"))
			r.at(time.Second)
			f := r.fetch(NewCaller(), 20)
			r.equal("handed out", handed(f), "2:R 2:Q P")
			r.equal("records", f.records(),
				[]string{fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 x", rigBase), fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 y", rigBase)})
			r.equal("dropped", f.Dropped, 3)
			f = r.fetch(NewCaller(), 20)
			r.equal("dropped again", f.Dropped, 0)
			r.equal("next", r.since(int64(f.Next)), time.Hour)
		}, "pending L@1h0m0s unack P@11s 2:Q@11s 2:R@11s fail Q=2/1/0@0s!y R=2/1/0@0s!x wake 1h0m0s dropped 3"},
		"rubbish tags": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.done(ends(OutcomeReady, "a", 1, 0, "x"), ends(OutcomeRetry, "b", 1, 0, "y"))
			r.put(msg("c", 0))
			for _, rubbish := range []string{"1:" + queuetest.IDOf("a"), "02:" + queuetest.IDOf("a"), "x:y", ":", "2:"} {
				r.do("LPUSH", r.Keys.of("ready"), rubbish)
				r.do("ZADD", r.Keys.of("retry"), 0, rubbish)
			}
			r.at(time.Second)
			f := r.fetch(NewCaller(), 20)
			r.equal("handed out", handed(f), "2:a 2:b c")
			r.equal("records", f.Fails,
				[]string{fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 x", rigBase), fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 y", rigBase)})
			r.equal("dropped", f.Dropped, 10)
		}, "unack c@11s 2:a@11s 2:b@11s fail a=2/1/0@0s!x b=2/1/0@0s!y dropped 10"},
		"expired tags without envelope": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.done(ends(OutcomeReady, "b", 0, 0, ""))
			r.put(msg("c", 0))
			r.take("2:b c")
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"), queuetest.IDOf("b"))
			f := r.lapse(11 * time.Second)
			r.equal("lost, dropped", []int{f.Lost, f.Dropped}, []int{1, 0}) // they may have been canceled
			r.equal("leases", len(r.read().Leases), 0)
		}, "retry 2:c@11s~11.5s fail c=2/0/1@11s!lost wake 11s~11.5s"},
	})
}

// TestScriptFetchTrims: garbage goes when it is too old, or too much.
func TestScriptFetchTrims(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"garbage over its room": {func(r *rig) {
			for i := range 6 {
				r.at(time.Duration(i) * time.Second)
				name := "g" + strconv.Itoa(i)
				r.hand(msg(name, 0))
				r.done(ends(OutcomeGarbage, name, 1, 0, ""))
			}
			r.with.GarbageAge, r.with.GarbageMax = 4*time.Second, 2 // two are too old, two more are too many
			r.equal("trimmed", r.fetch(NewCaller(), 0).Overflow, 2)
			r.equal("trimmed", r.fetch(NewCaller(), 0).Overflow, 0)
			r.with.GarbageMax = 1
			r.equal("trimmed", r.fetch(NewCaller(), 0).Overflow, 1)
		}, "garbage g5@5s fail g5=2/1/0@5s"},
		"garbage for ever": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x"))
			r.at(1e4 * time.Hour)
			r.tick()
		}, "garbage a@0s fail a=2/1/0@0s!x"},
	})
}

// TestScriptFetchSweeps: the records of old callers go, and big is forgotten in an empty queue.
func TestScriptFetchSweeps(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"old callers are forgotten, some at a time": {func(r *rig) {
			call := func(age time.Duration) string { return fmt.Sprintf("3 %d ", r.now-age.Microseconds()) }
			args := []any{"HSET", r.Keys.State, "call:broken", "?", "call:ahead", call(-2 * time.Hour)}
			for i := range 1000 {
				args = append(args, fmt.Sprint("call:old", i), call(time.Hour+time.Microsecond), fmt.Sprint("call:fresh", i),
					call(time.Hour))
			}
			r.do(args...)
			for range 50 {
				r.tick()
			}
			left := slices.DeleteFunc(slices.Collect(maps.Keys(r.read().Fields)), func(field string) bool {
				return !strings.HasPrefix(field, "call:")
			})
			r.equal("left", len(left), 1000+1)                                                        // and the ticker's own
			for _, at := range []time.Duration{10 * time.Minute, 10*time.Minute + time.Microsecond} { // the next sweep is then
				r.at(at)
				r.do("HSET", r.Keys.State, "call:old", call(25*time.Hour))
				for range 30 {
					r.tick()
				}
				r.equal(at.String(), r.read().Fields["call:old"] == "", at > 10*time.Minute)
			}
			r.do("DEL", r.Keys.State)
		}, ""},
		"big starts anew in an empty queue": {func(r *rig) {
			r.put(msg("a", 0, sized(3000)))
			r.tick()
			if big := r.read().Fields["big"]; big == "" {
				r.t.Error("big is forgotten while a message is there")
			}
			r.equal("intercept", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), stateReady)
			r.at(time.Hour)
			r.tick()
			r.equal("big", r.read().Fields["big"], "")
		}, ""},
	})
}

// sendDue sends n messages that are due.
func sendDue(r *rig, prefix string, n int) {
	r.put(many(n, func(i int) *SendMessage { return msg(fmt.Sprintf("%s%04d", prefix, i), 0) })...)
}

// allEnd settles all that a fetch handed out.
func allEnd(f taking, kind OutcomeKind) []Settlement {
	return many(len(f.Tags), func(i int) Settlement { return ends(kind, names(f.Tags[i]), 1, 0, "") })
}

// TestScriptFetchBounds: a fetch moves at most 500 messages and a tick 200, and each says so if there is more.
func TestScriptFetchBounds(t *testing.T) {
	t.Parallel()
	subtest(t, "moves", onReal, func(r *rig) {
		sendDue(r, "g", 200)
		r.done(allEnd(r.fetch(NewCaller(), 200), OutcomeGarbage)...)
		sendDue(r, "l", 150)
		r.fetch(NewCaller(), 150)
		sendDue(r, "p", MaxBatch)
		r.tickTo(9 * time.Second)
		r.at(11 * time.Second)
		r.with.GarbageAge = time.Second
		f := r.fetch(NewCaller(), MaxBatch)
		s := r.read()
		r.equal("lost, left in garbage, handed out", []int{f.Lost, len(s.Garbage), len(f.Tags)}, []int{100, 100, MaxBatch})
		r.equal("more at once", f.more(), true)
	})
	subtest(t, "moves, with many on their last chance", onReal, func(r *rig) {
		onLastChance(r, "l", 150)
		r.at(time.Second)
		sendDue(r, "p", MaxBatch)
		f := r.ask(newCall(), FetchRequest{Want: MaxBatch})
		aside := slices.DeleteFunc(r.read().Retry, func(e check.Entry) bool { return e.Score <= r.now })
		r.equal("set aside, handed out", []int{len(aside), len(f.Tags)}, []int{150, MaxBatch - 150})
	})
}

// more says whether there is more to do at once.
func (f *taking) more() bool { return f.TickReply.More || f.Next != 0 && f.Next <= f.Now }

// onLastChance makes n messages that are due for a retry in a second, and are poison if they are lost once more.
func onLastChance(r *rig, prefix string, n int) {
	r.t.Helper()
	r.with.MaxLosses = 2
	sendDue(r, prefix, n)
	all := allEnd(r.fetch(NewCaller(), n), OutcomeRetry)
	for i := range all {
		all[i].Failures, all[i].Losses = 0, 1
	}
	r.done(all...)
}

// TestScriptFetchSizes: the reply of one call has at most 1 MB, or one message.
func TestScriptFetchSizes(t *testing.T) {
	t.Parallel()
	subtest(t, "size", onReal, func(r *rig) {
		big := sized(225 << 10)
		r.hand(msg("q1", 0, big), msg("q2", 0, big), msg("r1", 0, big), msg("r2", 0, big))
		r.done(ends(OutcomeReady, "q1", 0, 0, ""), ends(OutcomeReady, "q2", 0, 0, ""), ends(OutcomeRetry, "r1", 0, 0, ""),
			ends(OutcomeRetry, "r2", 0, 0, ""))
		for i := range 6 {
			r.put(msg("p"+strconv.Itoa(i), 0, big))
		}
		r.at(time.Second)
		var all []string
		for _, n := range []int{4, 4, 2} {
			f := r.fetch(NewCaller(), 20)
			r.equal("handed out, more at once", []any{len(f.Tags), f.more()}, []any{n, n == 4})
			all = append(all, strings.Fields(handed(f))...)
		}
		r.equal("first", all[:2], []string{"2:q1", "2:q2"})
		slices.Sort(all)
		r.equal("handed out", strings.Join(all, " "), "2:q1 2:q2 2:r1 2:r2 p0 p1 p2 p3 p4 p5")
		r.put(msg("huge", 0, sized(5<<19)), msg("small", 0))
		r.equal("handed out", handed(r.fetch(NewCaller(), 20)), "huge")
		c := r.take("small")
		r.equal("the repeat", handed(r.fetchAgain(c, 1)), "small")
		// Of ready too: the rest stays in its order.
		r.done(ends(OutcomeReady, "huge", 0, 0, ""), ends(OutcomeReady, "small", 0, 0, ""),
			ends(OutcomeReady, "p2", 0, 0, ""))
		r.equal("handed out", handed(r.fetch(NewCaller(), 20)), "2:huge")
		r.equal("handed out", handed(r.fetch(NewCaller(), 20)), "2:small 2:p2")
		r.read()
	})
	subtest(t, "size, with retries", onReal, func(r *rig) { // neither starves the other of room
		for i := range 4 { // of each in turn, so as not to fetch what is not wanted yet
			name := fmt.Sprint("r", i)
			r.hand(msg(name, 0, sized(225<<10)))
			r.done(ends(OutcomeRetry, name, 1, 0, ""))
			r.at(r.since(r.now) + time.Microsecond)
		}
		r.put(many(4, func(i int) *SendMessage { return msg(fmt.Sprint("p", i), 0, sized(225<<10)) })...)
		r.at(2 * time.Second)
		f := r.fetch(NewCaller(), 20)
		r.equal("some of both", len(f.Fails) > 0 && len(f.Fails) < len(f.Tags), true)
		r.read()
	})
	subtest(t, "size of the dead", onReal, func(r *rig) {
		r.with.MaxLosses = 1
		ms := many(12, func(i int) *SendMessage { return msg(fmt.Sprintf("d%02d", i), 0, sized(225<<10)) })
		for part := range slices.Chunk(ms, 4) {
			r.hand(part...)
		}
		r.tickTo(9 * time.Second)
		r.at(11 * time.Second)
		dead := 0
		for calls := 0; dead < 12 && calls < 12; calls++ {
			f := r.fetch(NewCaller(), 0)
			dead += len(f.Dead)
			r.equal("some die, and more at once", []any{len(f.Dead) > 0 && len(f.Dead) <= 5, len(f.Dead) == f.Lost, f.more()},
				[]any{true, true, dead < 12})
		}
		r.equal("dead", dead, 12)
		r.read()
	})
}

func TestScriptFetchBudget(t *testing.T) {
	three := func(r *rig) *Caller {
		return r.hand(msg("a", 0, sized(100)), msg("b", 0, sized(300)), msg("c", 0, sized(100)))
	}
	runScripts(t, map[string]scriptCase{
		"one is handed out alone": {func(r *rig) {
			c := three(r)
			r.equal("handed out", handed(r.ask(c, FetchRequest{Want: 3, Bytes: 1})), "a")
		}, "ready 2:b 2:c unack a@10s fail b=2/0/0@0s c=2/0/0@0s wake 0s"},
		"a first call is bounded as well": {func(r *rig) {
			r.put(msg("a", 0, sized(100)), msg("b", 0, sized(300)), msg("c", 0, sized(100)))
			c := newCall()
			r.equal("handed out", handed(r.ask(c, FetchRequest{Want: 3, Bytes: 300})), "a")
		}, "pending b@0s c@0s unack a@10s wake 0s"},
		"what does not come through alone is lost if it is large": {func(r *rig) {
			c := r.hand(msg("a", 0, sized(70_000)), msg("b", 0, sized(300)))
			r.equal("it is one of two", handed(r.ask(c, FetchRequest{Want: 2, Lose: true})), "a")
			f := r.ask(c, FetchRequest{Want: 2, Lose: true})
			r.equal("handed out, given up, then lost", []any{handed(f), f.FetchReply.Lost, f.Tick, r.tickOf(c).Lost},
				[]any{"", 1, true, 1})
			r.equal("error", r.errorsOf("a"), "1@0s!"+queuetest.UnreceivedText)
			c = newCall()
			r.equal("the other", handed(r.ask(c, FetchRequest{Want: 1})), "2:b")
			r.equal("it is small", handed(r.ask(c, FetchRequest{Want: 1, Lose: true})), "2:b")
			r.equal("a new call", handed(r.ask(newCall(), FetchRequest{Want: 1, Lose: true})), "")
		}, "unack 2:b@10s retry 2:a@0s~500ms fail a=2/0/1@0s~500ms!unreceived b=2/0/0@0s wake 0s~500ms"},
		"the dead have no room": {func(r *rig) {
			r.with.MaxLosses = 1
			r.hand(msg("a", 0, sized(300), keyed("k")))
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			got, err := r.Store.Tick(queuetest.CtxB, newCall(), TickRequest{Bytes: 100, Settings: &r.with})
			queuetest.Must(r.t, err)
			r.equal("dead", []any{len(got.Dead), got.Dead[0].Envelope}, []any{1, ""})
		}, "garbage a@11s fail a=2/0/1@11s!poison wake 10s"},
	})
}
