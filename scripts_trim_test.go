package delayqueue

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestScriptFetchDrops: what has no envelope goes, is counted once, and stops nothing.
func TestScriptFetchDrops(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"tags without envelope": {func(r *rig) {
			r.hand(msg("r", 0), msg("R", 0), msg("q", 0), msg("Q", 0))
			r.done(ends(outcomeReady, "r", 0, 0, ""), ends(outcomeReady, "R", 1, 0, "x"), ends(outcomeRetry, "q", 1, 0, ""),
				ends(outcomeRetry, "Q", 1, 0, "y"))
			r.put(msg("p", 0), msg("P", 0), msg("L", time.Hour))
			r.do("HDEL", r.keys.msg, idOf("r"), idOf("p"), idOf("q"))
			r.at(time.Second)
			f := r.fetch(newCaller(), 20)
			r.equal("handed out", handed(f), "2:R 2:Q P")
			r.equal("records", f.records(), []string{fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 x", rigBase), fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 y", rigBase)})
			r.equal("dropped", f.dropped, 3)
			f = r.fetch(newCaller(), 20)
			r.equal("dropped again", f.dropped, 0)
			r.equal("next", r.since(int64(f.next)), time.Hour)
		}, "pending L@1h0m0s unack P@11.000001s 2:Q@11.000001s 2:R@11.000001s fail Q=2/1/0@0s!y R=2/1/0@0s!x wake 1h0m0s dropped 3"},
		"rubbish tags": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.done(ends(outcomeReady, "a", 1, 0, "x"), ends(outcomeRetry, "b", 1, 0, "y"))
			r.put(msg("c", 0))
			for _, rubbish := range []string{"1:" + idOf("a"), "02:" + idOf("a"), "x:y", ":", "2:"} {
				r.do("LPUSH", r.keys.ready, rubbish)
				r.do("ZADD", r.keys.retry, 0, rubbish)
			}
			r.at(time.Second)
			f := r.fetch(newCaller(), 20)
			r.equal("handed out", handed(f), "2:a 2:b c")
			r.equal("records", f.fails, []string{fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 x", rigBase), fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 y", rigBase)})
			r.equal("dropped", f.dropped, 10)
		}, "unack c@11.000001s 2:a@11.000001s 2:b@11.000001s fail a=2/1/0@0s!x b=2/1/0@0s!y dropped 10"},
		"expired tags without envelope": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.done(ends(outcomeReady, "b", 0, 0, ""))
			r.put(msg("c", 0))
			r.take("2:b c")
			r.do("HDEL", r.keys.msg, idOf("a"), idOf("b"))
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			f := r.fetch(newCaller(), 0)
			r.equal("lost, dropped", []int{f.lost, f.dropped}, []int{1, 2})
			r.equal("dropped again", r.fetch(newCaller(), 0).dropped, 0)
		}, "retry 2:c@11s~11.5s fail c=2/0/1@11s!lost wake 11s~11.5s dropped 2"},
	})
}

// TestScriptFetchTrims: garbage goes when it is too old, or too much.
func TestScriptFetchTrims(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"garbage ages": {func(r *rig) {
			r.with.garbageAge = time.Minute
			r.hand(msg("a", 0, keyed("k")), msg("b", 0))
			r.done(ends(outcomeGarbage, "a", 1, 0, "x", "k"))
			r.at(time.Second)
			r.done(ends(outcomeGarbage, "b", 1, 0, "x"))
			r.at(time.Minute - time.Microsecond)
			r.tick()
			r.expect("garbage a@0s b@1s fail a=2/1/0@0s!x b=2/1/0@1s!x")
			r.at(time.Minute)
			r.equal("trimmed", r.fetch(newCaller(), 0).overflow, 0)
		}, "garbage b@1s fail b=2/1/0@1s!x"},
		"garbage for ever": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeGarbage, "a", 1, 0, "x"))
			r.at(1e4 * time.Hour)
			r.tick()
		}, "garbage a@0s fail a=2/1/0@0s!x"},
		"garbage over its room": {func(r *rig) {
			for i := range 6 {
				r.at(time.Duration(i) * time.Second)
				name := "g" + strconv.Itoa(i)
				r.hand(msg(name, 0))
				r.done(ends(outcomeGarbage, name, 1, 0, ""))
			}
			r.do("HDEL", r.keys.state, "settings")                  // nobody asks for more any longer
			r.with.garbageAge, r.with.garbageMax = 4*time.Second, 2 // two are too old, two more are too many
			r.equal("trimmed", r.fetch(newCaller(), 0).overflow, 2)
			r.equal("trimmed", r.fetch(newCaller(), 0).overflow, 0)
			r.do("HDEL", r.keys.state, "settings")
			r.with.garbageMax = 1
			r.equal("trimmed", r.fetch(newCaller(), 0).overflow, 1)
		}, "garbage g5@5s fail g5=2/1/0@5s"},
		"much garbage over its room": {func(r *rig) {
			var ms []*sendMessage
			var dead []settlement
			for i := range 350 {
				name := fmt.Sprintf("g%03d", i)
				ms = append(ms, msg(name, 0))
				dead = append(dead, ends(outcomeGarbage, name, 1, 0, ""))
			}
			r.hand(ms...)
			r.done(dead...)
			r.do("HDEL", r.keys.state, "settings")
			r.with.garbageMax = 1
			calls := 1
			for f := r.fetch(newCaller(), 0); f.next != 0 && f.next <= f.now; f = r.fetch(newCaller(), 0) {
				calls++
			}
			r.equal("at once", calls, 4)
		}, "garbage g349@0s fail g349=2/1/0@0s"},
	})
}

// TestScriptFetchSweeps: what old callers left goes, and big is that of the messages that are there.
func TestScriptFetchSweeps(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"old callers are forgotten": {func(r *rig) {
			call := func(age time.Duration) string { return fmt.Sprintf("3 %d ", r.now-age.Microseconds()) }
			r.do("HSET", r.keys.state, "call:old", call(time.Hour+time.Microsecond), "call:fresh", call(time.Hour), "call:broken", "?",
				"call:ahead", call(-2*time.Hour))
			r.tick()
			fields := r.read().Fields
			r.equal("old, broken, from the future", fields["call:old"]+fields["call:broken"]+fields["call:ahead"], "")
			r.equal("fresh", fields["call:fresh"], call(time.Hour))
			r.do("HSET", r.keys.state, "call:old", call(25*time.Hour)) // the next sweep is 10 minutes from now
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
			args := []any{"HSET", r.keys.state}
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
			r.equal("intercept", r.intercept(newCaller(), "id", idOf("a")), StateReady)
			r.at(time.Hour)
			r.tick()
			r.equal("big", r.read().Fields["big"], "")
		}, ""},
	})
}
