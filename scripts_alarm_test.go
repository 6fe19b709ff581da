package delayqueue

import (
	"testing"
	"time"
)

// byAlarm is a tick of an idle consumer.
func (r *rig) byAlarm(c *caller) fetchReply {
	r.t.Helper()
	c.next()
	return r.ask(c, fetchRequest{want: 10, byAlarm: true})
}

// idleCaller is an idle consumer that has looked once.
func (r *rig) idleCaller() *caller {
	r.t.Helper()
	c := newCaller()
	r.fetch(c, 10)
	return c
}

// TestScriptByAlarm: a tick that goes by the alarm does whatever another one does, unless nothing is due before the alarm.
func TestScriptByAlarm(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"nothing there": {func(r *rig) { r.equal("next", r.byAlarm(r.idleCaller()).next, serverTime(0)) }, ""},
		"before the alarm": {func(r *rig) {
			r.put(msg("a", time.Second))
			c := r.idleCaller()
			r.at(time.Second - time.Microsecond)
			f := r.byAlarm(c)
			r.equal("handed out", handed(f), "")
			r.equal("next", r.since(int64(f.next)), time.Second)
			r.do("ZREM", r.keys.wake, "w") // it is lost: nothing is set again before it is due
			r.byAlarm(c)
			r.at(time.Second)
			r.equal("handed out", handed(r.byAlarm(c)), "a")
		}, "unack a@11.000001s"},
		"more is due": {func(r *rig) {
			c := r.idleCaller()
			r.put(msg("a", 0), msg("b", 0))
			c.next()
			r.equal("handed out", handed(r.ask(c, fetchRequest{want: 1, byAlarm: true})), "a")
			r.equal("then", handed(r.byAlarm(c)), "b")
		}, "unack a@10.000001s b@10.000003s"},
		"a caller that is not known": {func(r *rig) {
			r.put(msg("a", time.Second))
			r.do("HDEL", r.keys.state, "armed")
			r.do("ZREM", r.keys.wake, "w")
			r.byAlarm(newCaller())
		}, "pending a@1s wake 1s"},
		"a queue with limits": {func(r *rig) {
			r.put(msg("a", time.Second))
			c := r.idleCaller()
			r.do("HDEL", r.keys.state, "armed")
			r.do("ZREM", r.keys.wake, "w")
			r.limits.Concurrency = 1
			r.byAlarm(c)
			r.limits.Concurrency = 0
			r.expect("pending a@1s wake 1s")
			r.do("HDEL", r.keys.state, "armed")
			r.do("ZREM", r.keys.wake, "w")
			r.byAlarm(c) // that somebody has asked for
		}, "pending a@1s wake 1s"},
		"rubbish for an alarm": {func(r *rig) {
			r.put(msg("a", time.Second))
			c := r.idleCaller()
			r.do("HSET", r.keys.state, "armed", "soon")
			r.byAlarm(c)
		}, "pending a@1s wake 1s"},
		"a reply that was lost": {func(r *rig) {
			c := r.idleCaller()
			r.put(msg("a", 0))
			r.equal("handed out", handed(r.byAlarm(c)), "a")
			r.at(time.Second)
			r.equal("again", handed(r.ask(c, fetchRequest{want: 10, byAlarm: true})), "a")
		}, "unack a@11.000001s"},
		"twice, with nothing there": {func(r *rig) {
			c := r.idleCaller()
			r.byAlarm(c)
			r.put(msg("a", 0))
			r.equal("handed out", handed(r.ask(c, fetchRequest{want: 10, byAlarm: true})), "")
			r.equal("then", handed(r.byAlarm(c)), "a")
		}, "unack a@10.000001s"},
		"paused": {func(r *rig) {
			c := r.idleCaller()
			r.put(msg("a", time.Second))
			paused := newCaller()
			paused.next()
			if err := r.store.pause(ctxB, paused, r.now+5e6, onBehalf{}); err != nil {
				r.t.Fatal(err)
			}
			r.at(time.Second) // the alarm's
			r.equal("next", r.since(int64(r.byAlarm(c).next)), 5*time.Second)
			r.at(3 * time.Second)
			r.equal("handed out", handed(r.byAlarm(c)), "")
			r.at(5 * time.Second)
			r.equal("handed out", handed(r.byAlarm(c)), "a")
		}, "unack a@15.000001s"},
	})
}

// TestScriptByAlarmLeases: somebody's death is noticed at the end of the lease, by the alarm that such a tick sets, with no
// time added to the lease.
func TestScriptByAlarmLeases(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"the alarm is set in the second half": {func(r *rig) {
			c := r.idleCaller()
			r.hand(msg("a", 0))
			r.at(5 * time.Second)
			r.equal("next", r.byAlarm(c).next, serverTime(0))
			r.at(5*time.Second + 2*time.Microsecond)
			r.equal("next", r.since(int64(r.byAlarm(c).next)), 10*time.Second+time.Microsecond)
		}, "unack a@10.000001s wake 10.000001s"},
		"at its end": {func(r *rig) {
			c := r.idleCaller()
			r.hand(msg("a", 0))
			for _, at := range []time.Duration{10 * time.Second / 3, 20 * time.Second / 3} {
				r.at(at)
				r.byAlarm(c)
			}
			r.at(10*time.Second + time.Microsecond)
			r.equal("lost", r.byAlarm(c).lost, 1)
		}, "retry 2:a@10.000001s~10.5s fail a=2/0/1@10.000001s!lost wake 10.000001s~10.5s"},
		"at its end, after ticks for a minute": {func(r *rig) {
			c := r.idleCaller()
			for at := time.Duration(0); at < time.Minute; at += 10 * time.Second / 3 {
				r.at(at)
				r.byAlarm(c)
			}
			r.hand(msg("a", 0))
			for range 3 {
				r.at(r.since(r.now) + 10*time.Second/3)
				r.byAlarm(c)
			}
			r.at(r.since(r.now) + time.Microsecond)
			r.byAlarm(c)
			r.equal("lost", len(r.read().Retry), 1)
		}, "retry 2:a@60s~70.5s fail a=2/0/1@60s~70.5s!lost wake 60s~70.5s"},
		"a lease that a clock made too long": {func(r *rig) {
			c := r.idleCaller()
			r.hand(msg("a", 0))
			r.do("ZADD", r.keys.unack, rigBase+time.Hour.Microseconds(), idOf("a"))
			r.byAlarm(c)
		}, "unack a@10s"},
	})
}

// TestScriptByAlarmAges: what is over by the state's own instants goes with such a tick, and garbage with the next full one.
func TestScriptByAlarmAges(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"done": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(kept("a", time.Second, "v"))
			c := r.idleCaller()
			r.at(time.Second)
			r.byAlarm(c)
		}, ""},
		"a key that is held": {func(r *rig) {
			r.hand(dueAlike(1, 0, "k")...)
			r.done(withHolds(keyedAcks(1))...)
			c := r.idleCaller()
			r.at(time.Hour)
			r.byAlarm(c)
		}, ""},
		"garbage": {func(r *rig) {
			r.with.garbageAge = time.Second
			r.hand(msg("a", 0))
			r.done(ends(outcomeGarbage, "a", 1, 0, "boom"))
			c := r.idleCaller()
			r.at(2 * time.Second)
			r.byAlarm(c)
			r.equal("garbage", len(r.read().Garbage), 1)
			r.fetch(c, 0)
		}, ""},
	})
}
