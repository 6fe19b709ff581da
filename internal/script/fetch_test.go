package script

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptFetch: what is due is handed out, and nothing sooner.
func TestScriptFetch(t *testing.T) {
	runScripts(t, map[string]scriptCase{"": {func(r *rig) {
		r.put(msg("a", time.Second), msg("b", time.Second+time.Microsecond))
		r.at(time.Second - time.Microsecond)
		f := r.fetch(NewCaller(), 10)
		r.equal("handed out", handed(f), "")
		r.equal("next", r.since(int64(f.Next)), time.Second)
		r.expect("pending a@1s b@1.000001s wake 1s")
		r.at(time.Second)
		f = r.fetch(NewCaller(), 10)
		r.equal("handed out", handed(f), "a")
		r.equal("next", r.since(int64(f.Next)), time.Second+time.Microsecond)
	}, "pending b@1.000001s unack a@11s wake 1.000001s"}})
}

// byAlarm is a tick of an idle consumer.
func (r *rig) byAlarm(c *Caller) FetchReply {
	r.t.Helper()
	c.Next()
	return r.ask(c, FetchRequest{Want: 10, ByAlarm: true})
}

// idleCaller is an idle consumer that has looked once.
func (r *rig) idleCaller() *Caller {
	r.t.Helper()
	c := NewCaller()
	r.fetch(c, 10)
	return c
}

// TestScriptByAlarm: a tick that goes by the alarm sees rubbish in its place, and a lease that is too long.
func TestScriptByAlarm(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"rubbish for an alarm": {func(r *rig) {
			r.put(msg("a", time.Second))
			c := r.idleCaller()
			r.do("HSET", r.Keys.State, "armed", "soon")
			r.byAlarm(c)
		}, "pending a@1s wake 1s"},
		"a lease that a clock made too long": {func(r *rig) {
			c := r.idleCaller()
			r.hand(msg("a", 0))
			r.do("ZADD", r.Keys.unack, rigBase+time.Hour.Microseconds(), r.leases[queuetest.IDOf("a")].Name)
			r.byAlarm(c)
		}, "unack a@10s"},
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
			r.equal("records", f.records(), []string{fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 x", rigBase), fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 y", rigBase)})
			r.equal("dropped", f.Dropped, 3)
			f = r.fetch(NewCaller(), 20)
			r.equal("dropped again", f.Dropped, 0)
			r.equal("next", r.since(int64(f.Next)), time.Hour)
		}, "pending L@1h0m0s unack P@11s 2:Q@11s 2:R@11s fail Q=2/1/0@0s!y R=2/1/0@0s!x wake 1h0m0s dropped 3"},
		"repeated when some are out of its hands": {func(r *rig) {
			c := r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0))
			r.equal("cancel", r.cancel("id", queuetest.IDOf("b")), stateUnack)
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("d"))
			f := r.fetchAgain(c, 4)
			r.equal("the repeat", handed(f), "a c")
			r.equal("dropped", f.Dropped, 0) // it may have been canceled
		}, "unack a@10s c@10s"},
		"rubbish tags": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.done(ends(OutcomeReady, "a", 1, 0, "x"), ends(OutcomeRetry, "b", 1, 0, "y"))
			r.put(msg("c", 0))
			for _, rubbish := range []string{"1:" + queuetest.IDOf("a"), "02:" + queuetest.IDOf("a"), "x:y", ":", "2:"} {
				r.do("LPUSH", r.Keys.ready, rubbish)
				r.do("ZADD", r.Keys.retry, 0, rubbish)
			}
			r.at(time.Second)
			f := r.fetch(NewCaller(), 20)
			r.equal("handed out", handed(f), "2:a 2:b c")
			r.equal("records", f.Fails, []string{fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 x", rigBase), fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 y", rigBase)})
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
		"garbage ages": {func(r *rig) {
			r.with.GarbageAge = time.Minute
			r.hand(msg("a", 0, keyed("k")), msg("b", 0))
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k"))
			r.at(time.Second)
			r.done(ends(OutcomeGarbage, "b", 1, 0, "x"))
			r.at(time.Minute - time.Microsecond)
			r.tick()
			r.expect("garbage a@0s b@1s fail a=2/1/0@0s!x b=2/1/0@1s!x")
			r.at(time.Minute)
			r.equal("trimmed", r.fetch(NewCaller(), 0).Overflow, 0)
		}, "garbage b@1s fail b=2/1/0@1s!x"},
		"garbage for ever": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x"))
			r.at(1e4 * time.Hour)
			r.tick()
		}, "garbage a@0s fail a=2/1/0@0s!x"},
		"garbage over its room": {func(r *rig) {
			for i := range 6 {
				r.at(time.Duration(i) * time.Second)
				name := "g" + strconv.Itoa(i)
				r.hand(msg(name, 0))
				r.done(ends(OutcomeGarbage, name, 1, 0, ""))
			}
			r.do("HDEL", r.Keys.State, "settings")                  // nobody asks for more any longer
			r.with.GarbageAge, r.with.GarbageMax = 4*time.Second, 2 // two are too old, two more are too many
			r.equal("trimmed", r.fetch(NewCaller(), 0).Overflow, 2)
			r.equal("trimmed", r.fetch(NewCaller(), 0).Overflow, 0)
			r.do("HDEL", r.Keys.State, "settings")
			r.with.GarbageMax = 1
			r.equal("trimmed", r.fetch(NewCaller(), 0).Overflow, 1)
		}, "garbage g5@5s fail g5=2/1/0@5s"},
	})
}

// TestScriptFetchSweeps: the records of old callers go, and big is forgotten in an empty queue.
func TestScriptFetchSweeps(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"old callers are forgotten": {func(r *rig) {
			call := func(age time.Duration) string { return fmt.Sprintf("3 %d ", r.now-age.Microseconds()) }
			r.do("HSET", r.Keys.State, "call:old", call(time.Hour+time.Microsecond), "call:fresh", call(time.Hour), "call:broken", "?",
				"call:ahead", call(-2*time.Hour))
			r.tick()
			fields := r.read().Fields
			r.equal("old, broken, from the future", fields["call:old"]+fields["call:broken"]+fields["call:ahead"], "")
			r.equal("fresh", fields["call:fresh"], call(time.Hour))
			r.do("HSET", r.Keys.State, "call:old", call(25*time.Hour)) // the next sweep is 10 minutes from now
			r.at(10 * time.Minute)
			r.tick()
			if r.read().Fields["call:old"] == "" {
				r.t.Error("swept again at once")
			}
			r.at(10*time.Minute + time.Microsecond)
			r.tick()
			r.equal("old", r.read().Fields["call:old"], "")
		}, ""},
		"many old callers are forgotten, some at a time": {func(r *rig) {
			args := []any{"HSET", r.Keys.State}
			for i := range 3000 {
				args = append(args, fmt.Sprintf("call:%d", i), fmt.Sprintf("3 %d some reply", r.now-int64(3600e6+1)*int64(i%2)))
			}
			r.do(args...)
			for range 100 {
				r.tick()
			}
			left := 0
			for field := range r.read().Fields {
				if strings.HasPrefix(field, "call:") {
					left++
				}
			}
			r.equal("left", left, 1500+1) // and the ticker's own
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
