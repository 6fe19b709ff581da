package delayqueue

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestScriptFetch: what is due is handed out, and nothing sooner.
func TestScriptFetch(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"nothing there": {func(r *rig) {
			f := r.fetch(newCaller(), 10)
			if len(f.tags)+len(f.fails)+len(f.dead)+f.lost+f.dropped+f.overflow != 0 || f.next != 0 {
				r.t.Errorf("fetched %+v", f)
			}
		}, ""},
		"never early": {func(r *rig) {
			r.put(msg("a", time.Second), msg("b", time.Second+time.Microsecond))
			r.at(time.Second - time.Microsecond)
			f := r.fetch(newCaller(), 10)
			r.equal("handed out", handed(f), "")
			r.equal("next", r.since(int64(f.next)), time.Second)
			r.expect("pending a@1s b@1.000001s wake 1s")
			r.at(time.Second)
			f = r.fetch(newCaller(), 10)
			r.equal("handed out", handed(f), "a")
			r.equal("next", r.since(int64(f.next)), time.Second+time.Microsecond)
		}, "pending b@1.000001s unack a@11.000001s wake 1.000001s"},
		"retries are never early": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeRetry, "a", 1, 0, "boom"))
			r.at(time.Second - time.Microsecond)
			r.equal("handed out", handed(r.fetch(newCaller(), 1)), "")
			r.at(time.Second)
			f := r.fetch(newCaller(), 1)
			r.equal("handed out", handed(f), "2:a")
			r.equal("record", f.records(), []string{fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 boom", rigBase)})
			r.equal("next", f.next, serverTime(0))
		}, "unack 2:a@11.000001s fail a=2/1/0@0s!boom"},
		"less than what is due": {func(r *rig) {
			r.put(msg("a", 2*time.Millisecond), msg("b", 3*time.Millisecond), msg("c", time.Millisecond), msg("d", 4*time.Millisecond))
			r.at(10 * time.Millisecond)
			f := r.fetch(newCaller(), 2)
			r.equal("handed out", handed(f), "c a")
			r.equal("next", r.since(int64(f.next)), 3*time.Millisecond)
			r.expect("pending b@3ms d@4ms unack a@10.010001s c@10.010001s wake 3ms")
			for range 2 { // whoever takes the marker and leaves some behind sets it again
				r.do("ZREM", r.keys.wake, "w")
				f = r.fetch(newCaller(), 0)
				r.equal("handed out", handed(f), "")
				r.equal("next", r.since(int64(f.next)), 3*time.Millisecond)
				r.expect("pending b@3ms d@4ms unack a@10.010001s c@10.010001s wake 3ms")
			}
			r.take("b d")
		}, "unack a@10.010001s c@10.010001s b@10.010003s d@10.010003s"},
		"two consumers never get the same": {func(r *rig) {
			dueInBoth(r, 30, 30)
			seen := map[string]bool{}
			a, b := newCaller(), newCaller()
			for i := range 30 {
				for _, c := range []*caller{a, b} {
					for _, tag := range r.fetch(c, i%4).tags {
						if seen[tag] {
							r.t.Errorf("%s was handed out twice", names(tag))
						}
						seen[tag] = true
					}
				}
			}
			r.equal("handed out", len(seen), 60)
			for tag := range seen {
				r.done(ack(names(tag)))
			}
		}, ""},
	})
}

// TestScriptFetchOrder: ready comes first; pending and retry share what is left, so that neither starves.
func TestScriptFetchOrder(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"ready comes first, in its order": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			r.done(ends(outcomeReady, "c", 0, 0, ""), ends(outcomeReady, "a", 0, 0, ""), ends(outcomeReady, "b", 1, 0, "x"))
			r.put(msg("d", 0), msg("e", 0))
			f := r.fetch(newCaller(), 2)
			r.equal("handed out", handed(f), "2:c 2:a")
			r.equal("next", r.since(int64(f.next)), time.Duration(0))
			f = r.fetch(newCaller(), 2)
			r.equal("handed out", handed(f), "2:b d")
			r.equal("record", f.records(), []string{fmt.Sprintf("2 1 0 %d \x1e%[1]d 1 x", rigBase)})
		}, "pending e@0s unack d@10.000001s 2:b@10.000001s 2:a@10.000003s 2:c@10.000003s fail a=2/0/0@0s b=2/1/0@0s!x c=2/0/0@0s wake 0s"},
		"only ready is left": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.done(ends(outcomeReady, "a", 0, 0, ""), ends(outcomeReady, "b", 0, 0, ""))
			r.at(time.Second)
			f := r.fetch(newCaller(), 1)
			r.equal("next", r.since(int64(f.next)), time.Second)
		}, "ready 2:b unack 2:a@11.000001s fail a=2/0/0@0s b=2/0/0@0s wake 1s"},
		"pending and retry share": {func(r *rig) {
			dueInBoth(r, 6, 6)
			for _, want := range []int{4, 4} {
				f := r.fetch(newCaller(), want)
				r.equal("retries", len(f.records()), want/2)
			}
			r.equal("retries", len(r.fetch(newCaller(), 100).fails), 2)
			for _, e := range r.read().Unack {
				r.done(ack(names(e.Tag)))
			}
		}, ""},
		"one of both has little": {func(r *rig) {
			dueInBoth(r, 1, 8)
			r.equal("retries", len(r.fetch(newCaller(), 6).fails), 5)
			r.take("2:r6 2:r7 2:r8")
			r.done(ack("p1"), ack("2:r1"), ack("2:r2"), ack("2:r3"), ack("2:r4"), ack("2:r5"), ack("2:r6"), ack("2:r7"), ack("2:r8"))
			r.put(msg("a", 0), msg("b", 0), msg("c", 0))
			r.take("a b c")
		}, "unack a@11.000001s b@11.000001s c@11.000001s"},
		"one at a time starves neither": {func(r *rig) {
			dueInBoth(r, 60, 60)
			c, retries := newCaller(), 0
			for range 60 {
				f := r.fetch(c, 1)
				r.equal("handed out", len(f.tags), 1)
				retries += len(f.records())
			}
			if retries < 10 || retries > 50 { // the odd one goes to either at random
				r.t.Errorf("%d retries among 60", retries)
			}
			for r.fetch(c, 1).next != 0 {
			}
			for _, e := range r.read().Unack {
				r.done(ack(names(e.Tag)))
			}
		}, ""},
	})
}

// dueInBoth makes p messages due in pending and r in retry, and lets a second pass.
func dueInBoth(r *rig, p, q int) {
	r.t.Helper()
	var ms []*sendMessage
	var outcomes []settlement
	for i := range q {
		ms = append(ms, msg("r"+strconv.Itoa(i+1), 0))
		outcomes = append(outcomes, ends(outcomeRetry, "r"+strconv.Itoa(i+1), 1, 0, ""))
	}
	r.hand(ms...)
	r.done(outcomes...)
	ms = nil
	for i := range p {
		ms = append(ms, msg("p"+strconv.Itoa(i+1), 0))
	}
	r.put(ms...)
	r.at(time.Second)
}

// TestScriptFetchRepeated: a call that comes again hands out what it handed out, as far as that is still in its hands.
func TestScriptFetchRepeated(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"repeated": {func(r *rig) {
			r.put(msg("a", 0), msg("b", time.Millisecond), msg("c", time.Hour))
			r.at(time.Millisecond)
			c := newCaller()
			first := r.fetch(c, 2)
			r.take("") // another's
			r.put(msg("d", 0))
			for i := range 3 {
				r.at(time.Duration(2+i) * time.Second)
				again := r.fetchAgain(c, 2)
				r.equal("the repeat", []any{again.tags, again.envelopes, again.records()}, []any{first.tags, first.envelopes, first.records()})
			}
		}, "pending d@1ms c@1h0m0s unack a@14.000001s b@14.000001s wake 1ms"},
		"repeated, of nothing": {func(r *rig) {
			c := newCaller()
			r.fetch(c, 2)
			r.put(msg("a", 0))
			f := r.fetchAgain(c, 2)
			r.equal("the repeat", handed(f), "")
			r.equal("next", r.since(int64(f.next)), time.Duration(0))
		}, "pending a@0s wake 0s"},
		"repeated with numbered ones": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.done(ends(outcomeReady, "b", 1, 0, "x"))
			r.put(msg("c", 0))
			c := newCaller()
			first := r.fetch(c, 5)
			r.at(time.Second)
			again := r.fetchAgain(c, 5)
			slices.Sort(first.tags)
			slices.Sort(again.tags)
			r.equal("the repeat", again.tags, first.tags)
			r.equal("records", again.records(), first.records())
		}, "unack a@10.000001s c@11.000001s 2:b@11.000001s fail b=2/1/0@0s!x"},
		"repeated when some are out of its hands": {func(r *rig) {
			c := r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0))
			r.equal("cancel", r.cancel("id", idOf("b")), StateUnack)
			r.do("HDEL", r.keys.msg, idOf("d"))
			f := r.fetchAgain(c, 4)
			r.equal("the repeat", handed(f), "a c")
			r.equal("dropped", f.dropped, 1)
		}, "unack a@10.000003s c@10.000003s dropped 1"},
		"repeated when all were lost and handed to another": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.tickTo(11 * time.Second)
			r.at(12 * time.Second)
			r.take("2:a")
			f := r.fetchAgain(c, 1)
			r.equal("the repeat", handed(f), "")
		}, "unack 2:a@22.000001s fail a=2/0/1@11s!lost"},
		"repeated when the leases ran out unnoticed": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.equal("the repeat", handed(r.fetchAgain(c, 1)), "a")
		}, "unack a@21.000001s"},
		"an older call": {func(r *rig) {
			r.put(msg("a", 0), msg("b", 0))
			c := newCaller()
			r.fetch(c, 1)
			r.fetch(c, 0)
			before := r.contents()
			r.at(time.Hour)
			_, err := r.store.fetch(ctxB, older(c), fetchRequest{want: 10, rearm: true, settings: &r.with})
			r.tooLate(err)
			r.equal("contents", r.contents(), before)
		}, "pending b@0s unack a@10.000001s wake 0s"},
		"each fetch has a lease end of its own": {func(r *rig) {
			r.put(msg("a", 0), msg("b", 0), msg("c", 0))
			a, b := r.take("a"), r.take("b")
			r.at(time.Microsecond)
			r.take("c")
			r.equal("of the first", handed(r.fetchAgain(a, 1)), "a")
			r.equal("of the second", handed(r.fetchAgain(b, 1)), "b")
		}, "unack b@10.000001s c@10.000005s a@10.000007s"},
	})
}

// TestScriptFetchArms: the alarm is that of the next thing to do, and none is armed twice.
func TestScriptFetchArms(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"the alarm goes when nothing waits": {func(r *rig) {
			r.put(msg("a", 0))
			r.take("a")
			r.equal("armed", r.read().Fields["armed"], "0")
		}, "unack a@10.000001s"},
		"the alarm stands for leases that were not renewed": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(5 * time.Second)
			r.tick()
			r.expect("unack a@10.000001s")
			r.at(5*time.Second + 2*time.Microsecond)
			r.equal("next", r.since(int64(r.fetch(newCaller(), 0).next)), 10*time.Second+time.Microsecond)
		}, "unack a@10.000001s wake 10.000001s"},
		"the same instant is armed once": {func(r *rig) {
			r.put(msg("a", 5*time.Second))
			r.do("ZREM", r.keys.wake, "w")
			r.tick()
		}, "pending a@5s armed 5s"},
		"armed again where the marker could not be served": {func(r *rig) {
			r.put(msg("a", 5*time.Second))
			r.do("ZREM", r.keys.wake, "w")
			c := newCaller()
			c.next()
			r.equal("next", r.since(int64(r.ask(c, fetchRequest{rearm: true}).next)), 5*time.Second)
		}, "pending a@5s wake 5s"},
		"no empty marker is armed": {func(r *rig) {
			c := newCaller()
			c.next()
			r.equal("next", r.ask(c, fetchRequest{rearm: true}).next, serverTime(0))
		}, ""},
	})
}
