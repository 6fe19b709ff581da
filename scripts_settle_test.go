package delayqueue

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// TestScriptSettle: each outcome puts its message where it belongs.
func TestScriptSettle(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"ack": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			r.done(ack("a"), ack("c"))
		}, "unack b@10.000001s"},
		"ack with key": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K")))
			r.done(ack("a", "k"))
			r.put(msg("c", time.Second, keyed("k")))
		}, "pending c@1s unack b@10.000001s key K=b k=c wake 1s"},
		"ack of a later delivery": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeRetry, "a", 1, 0, "x"))
			r.at(time.Second)
			r.take("2:a")
			r.done(ack("2:a"))
		}, ""},
		"acks in bulk": {func(r *rig) {
			var ms []*sendMessage
			var acks []settlement
			for i := range maxBatch {
				ms = append(ms, msg(strconv.Itoa(i), 0))
				acks = append(acks, ack(strconv.Itoa(i)))
			}
			r.hand(ms...)
			r.done(acks...)
		}, ""},
		"retry": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.at(2 * time.Second)
			r.done(ends(outcomeRetry, "a", 1, 0, "two words", "k"))
		}, "retry 2:a@3s fail a=2/1/0@2s!two_words key k=a wake 3s"},
		"snooze": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeRetry, "a", 0, 0, ""))
			r.at(time.Second)
			r.take("2:a")
			r.done(ends(outcomeRetry, "2:a", 0, 0, ""))
		}, "retry 3:a@2s fail a=3/0/0@1s wake 2s"},
		"retry at once": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(time.Microsecond)
			o := ends(outcomeRetry, "a", 0, 0, "")
			o.delay = 0
			r.done(o)
		}, "retry 2:a@1µs fail a=2/0/0@1µs wake 1µs"},
		"release": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0))
			r.at(2 * time.Second)
			r.done(ends(outcomeReady, "b", 0, 0, ""), ends(outcomeReady, "a", 0, 0, "", "k"))
		}, "ready 2:b 2:a fail a=2/0/0@2s b=2/0/0@2s key k=a wake 2s"},
		"garbage": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.at(2 * time.Second)
			r.done(ends(outcomeGarbage, "a", 1, 0, "x", "k"))
		}, "garbage a@2s fail a=2/1/0@2s!x"},
		"text of any bytes": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeReady, "a", 1, 0, "\x00 %s\n 9 \"é"))
			f := r.fetch(newCaller(), 1)
			record, err := parseFail(f.fails[0])
			if err != nil || lastError(record.errors) != "\x00 %s\n 9 \"é" {
				r.t.Errorf("record %+v, %v", record, err)
			}
			r.done(ack("2:a"))
		}, ""},
		"mixed": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0, keyed("1")), msg("e", 0, keyed("2")), msg("f", 0, keyed("3")), msg("g", 0))
			r.done(ack("a"), ack("b"), ends(outcomeRetry, "c", 1, 0, "x"), ends(outcomeGarbage, "d", 1, 0, "y", "1"),
				ends(outcomeReady, "e", 0, 0, "", "2"), ack("f", "3"))
		}, "ready 2:e unack g@10.000001s retry 2:c@1s garbage d@0s fail c=2/1/0@0s!x d=2/1/0@0s!y e=2/0/0@0s key 2=e wake 0s"},
		"in any order": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0, keyed("k")), msg("c", 0), msg("d", 0))
			void := r.settle(newCaller(), ends(outcomeRetry, "x", 1, 0, ""), ack("a"), ends(outcomeRetry, "b", 1, 0, "", "k"),
				ack("y"), ack("c"), ack("z", "k"))
			r.equal("void", void, []int{0, 3, 5})
		}, "unack d@10.000001s retry 2:b@1s fail b=2/1/0@0s key k=b wake 1s"},
		"a key that points elsewhere stays": {func(r *rig) {
			r.hand(msg("a", 0, keyed("1")), msg("b", 0, keyed("2")))
			r.do("HDEL", r.keys.key, "1", "2")
			r.put(msg("c", time.Hour, keyed("1")), msg("d", time.Hour, keyed("2")))
			r.done(ack("a", "1"), ends(outcomeGarbage, "b", 1, 0, "", "2"))
		}, "pending c@1h0m0s d@1h0m0s garbage b@0s fail b=2/1/0@0s key 1=c 2=d wake 1h0m0s"},
	})
}

// TestScriptSettleVoid: of a delivery that is settled, lost or intercepted nothing is settled, and the others of a batch are.
func TestScriptSettleVoid(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"stale in a mixed batch": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0))
			r.done(ack("c"), ends(outcomeReady, "d", 0, 0, ""))
			void := r.settle(newCaller(), ack("a"), ack("c"), ack("d"), ack("nobody"), ack("b"),
				ends(outcomeRetry, "d", 1, 0, "x"), ends(outcomeRetry, "e", 1, 0, "x"), ends(outcomeGarbage, "c", 1, 0, "x"),
				ends(outcomeReady, "2:d", 0, 0, ""))
			r.equal("void", void, []int{1, 2, 3, 5, 7, 8})
		}, "ready 2:d retry 2:e@1s fail d=2/0/0@0s e=2/1/0@0s!x wake 0s"},
		"the same delivery twice in a batch": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.equal("void", r.settle(newCaller(), ack("a"), ack("b"), ack("a"), ends(outcomeRetry, "b", 1, 0, "")), []int{2, 3})
		}, ""},
		"a late settlement of a lost delivery": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.tickTo9(11 * time.Second)
			r.at(12 * time.Second)
			r.take("2:a") // another holds it
			for _, o := range []settlement{ack("a"), ack("a", "k"), ends(outcomeRetry, "a", 1, 0, "x", "k"), ends(outcomeReady, "a", 0, 0, "", "k"),
				ends(outcomeGarbage, "a", 1, 0, "x", "k"), ack("3:a", "k")} {
				before := r.text(r.read())
				r.equal("void", r.settle(newCaller(), o), []int{0})
				r.expect(before)
			}
			r.equal("void", r.settle(newCaller(), ack("a"), ack("2:a", "k")), []int{0})
		}, ""},
		"a late settlement of a lost delivery that waits": {func(r *rig) {
			r.hand(msg("a", 0))
			r.tickTo9(11 * time.Second)
			r.equal("void", r.settle(newCaller(), ack("a")), []int{0})
			r.equal("void", r.settle(newCaller(), ends(outcomeRetry, "a", 1, 0, "x")), []int{0})
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s!lost wake 11s~11.5s"},
		"of an intercepted message": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0, keyed("k")), msg("c", 0))
			for _, name := range []string{"a", "b", "c"} {
				r.equal("cancel", r.cancel("id", idOf(name)), StateUnack)
			}
			r.put(msg("d", time.Second, keyed("k")))
			r.equal("void", r.settle(newCaller(), ack("a"), ack("b", "k"), ends(outcomeRetry, "c", 1, 0, "")), []int{0, 1, 2})
		}, "pending d@1s key k=d wake 1s"},
	})
}

// forgot makes a first delivery one that the server forgot, as it may in a failover.
func (r *rig) forgot(name string) {
	r.t.Helper()
	r.do("ZREM", r.keys.unack, idOf(name))
	r.do("ZADD", r.keys.pending, r.now, idOf(name))
	r.do("HSET", r.keys.state, "armed", r.now)
}

// TestScriptSettleForgottenFetch: where a failover undid the fetch, an ack counts all the same.
func TestScriptSettleForgottenFetch(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"after the server forgot the fetch": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0, keyed("k")), msg("d", 0))
			for _, name := range []string{"a", "b", "c"} { // back as they were before
				r.do("ZREM", r.keys.unack, idOf(name))
			}
			r.do("ZADD", r.keys.pending, rigBase, idOf("a"), rigBase, idOf("b"), rigBase, idOf("c"))
			r.do("HSET", r.keys.state, "armed", rigBase)
			// What was handled needs no other delivery; what failed gets one.
			r.equal("void", r.settle(newCaller(), ack("d"), ack("a"), ack("c", "k"), ends(outcomeRetry, "b", 1, 0, "x")), []int{3})
			r.expect("pending b@0s armed 0s")
			r.equal("void", r.settle(newCaller(), ack("a"), ack("c", "k"), ack("nobody")), []int{0, 1, 2})
		}, "pending b@0s armed 0s"},
		"after the server forgot the fetch, and another message was replaced": {func(r *rig) {
			r.put(msg("o", time.Hour, keyed("o")))
			r.answers(newCaller(), on(Reschedule, true, msg("p", 0, keyed("o"))))
			r.take("o")
			r.done(ack("o", "o"))
			r.tickTo(11 * time.Minute)
			r.hand(msg("a", 0, keyed("k")))
			r.forgot("a")
			r.done(ack("a", "k")) // nothing was there meanwhile, so nothing is left that a send has changed
		}, "armed 11m0s"},
		"after the server forgot the fetch, and it was replaced": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.forgot("a")
			r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("b", 3*time.Second, keyed("k")))), "~a@3s")
			r.equal("void", r.settle(newCaller(), ack("a", "k")), []int{0})
			r.equal("void", r.settle(newCaller(), kept("a", time.Hour, "v", "k")), []int{0})
			r.equal("payload", r.read().Messages[idOf("a")].Payload, "b")
			r.at(3 * time.Second)
			r.equal("void, when it is due", r.settle(newCaller(), ack("a", "k")), []int{0})
			r.take("a")
			r.done(ack("a", "k"))
		}, ""},
		"after the server forgot the fetch, and it was replaced by what is due now": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.forgot("a")
			r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("b", 0, keyed("k")))), "~a@0s")
			r.equal("void", r.settle(newCaller(), ack("a", "k")), []int{0})
			r.equal("payload", r.read().Messages[idOf("a")].Payload, "b")
		}, "pending a@0s key k=a armed 0s"},
		"after the server forgot the fetch, and a part was refused": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.forgot("a")
			r.equal("answer", r.answers(newCaller(), part("b", 0, 0)), "=a")
			r.done(ack("a", "k"))
		}, "armed 0s"},
		"after the server forgot the fetch of a later delivery, and it was replaced": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(ends(outcomeReady, "a", 0, 0, "", "k"))
			r.take("2:a")
			r.do("ZREM", r.keys.unack, tagFor("2:a"))
			r.do("RPUSH", r.keys.ready, tagFor("2:a"))
			r.do("HSET", r.keys.state, "armed", rigBase)
			r.equal("answer", r.answers(newCaller(), on(Replace, true, msg("b", 3*time.Second, keyed("k")))), "~a@3s")
			r.equal("void", r.settle(newCaller(), ack("2:a", "k")), []int{0})
		}, "retry 2:a@3s fail a=2/0/0@0s key k=a armed 0s"},
		"after the server forgot the fetch, and it was rescheduled without a key": {func(r *rig) {
			r.hand(msg("a", 0))
			r.forgot("a")
			c := newCaller()
			c.next()
			if _, err := r.store.steer(ctxB, c, steerRequest{what: steerAt, us: r.now + 60e6, targets: []spot{{tag: idOf("a")}}}); err != nil {
				r.t.Error(err)
			}
			r.done(ack("a"))
		}, "armed 0s"},
		"after the server forgot the fetch, and another has it": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.do("ZREM", r.keys.unack, idOf("a"), idOf("b"))
			r.do("ZADD", r.keys.pending, rigBase, idOf("a"), rigBase, idOf("b"))
			r.take("a b") // under the same tag: that one is told that it is gone
			r.done(ends(outcomeReady, "b", 0, 0, ""))
			r.equal("void", r.settle(newCaller(), ack("a"), ack("b")), []int{1})
			r.equal("answers", r.extend("a", "b"), []leaseState{leaseGone, leaseLost})
		}, "ready 2:b fail b=2/0/0@0s wake 0s"},
		"after the server forgot the fetch of a later delivery": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeReady, "a", 0, 0, ""))
			r.take("2:a")
			r.do("ZREM", r.keys.unack, tagFor("2:a"))
			r.do("RPUSH", r.keys.ready, tagFor("2:a"))
			r.do("HSET", r.keys.state, "armed", rigBase)
			r.equal("void", r.settle(newCaller(), ack("2:a")), []int{0}) // it would be looked for from end to end
			r.expect("ready 2:a fail a=2/0/0@0s armed 0s")
			r.do("LPOP", r.keys.ready)
			r.do("ZADD", r.keys.retry, rigBase, tagFor("2:a"))
			r.equal("void", r.settle(newCaller(), ack("2:a")), []int(nil))
		}, "armed 0s"},
	})
}

// TestScriptSettleRepeated: a call that comes again says the same and changes nothing.
func TestScriptSettleRepeated(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"repeated": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0))
			r.done(ack("e"))
			c := newCaller()
			batch := []settlement{ack("a"), ack("e"), ends(outcomeRetry, "b", 1, 0, "x"), ends(outcomeReady, "c", 0, 0, ""),
				ends(outcomeGarbage, "d", 1, 0, "x")}
			r.equal("void", r.settle(c, batch...), []int{1})
			r.expect("ready 2:c retry 2:b@1s garbage d@0s fail b=2/1/0@0s!x c=2/0/0@0s d=2/1/0@0s!x wake 0s")
			r.at(time.Second)
			r.take("2:c 2:b")
			r.done(ends(outcomeRetry, "2:c", 0, 0, "")) // and whoever got it has settled it
			r.equal("the repeat", r.settleAgain(c, batch...), []int{1})
		}, "unack 2:b@11.000001s retry 3:c@2s garbage d@0s fail b=2/1/0@0s!x c=3/0/0@1s d=2/1/0@0s!x wake 2s"},
		"an older call": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			c := newCaller()
			r.settle(c, ack("a"))
			r.settle(c, ack("b"))
			before := r.contents()
			for _, o := range []settlement{ack("a"), ack("c"), ends(outcomeGarbage, "c", 1, 0, "")} {
				_, err := r.store.settle(ctxB, older(c), []settlement{o})
				r.tooLate(err)
			}
			r.equal("contents", r.contents(), before)
		}, "unack c@10.000001s"},
	})
}

// TestScriptSettleArms: an alarm is armed for what is sooner than the others, and for nothing else.
func TestScriptSettleArms(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"no alarm for what is later than the head": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.put(msg("c", 500*time.Millisecond))
			r.do("ZREM", r.keys.wake, "w")
			r.done(ends(outcomeRetry, "a", 1, 0, ""))
			r.expect("pending c@500ms unack b@10.000001s retry 2:a@1s fail a=2/1/0@0s armed 500ms")
			o := ends(outcomeRetry, "b", 1, 0, "")
			o.delay = 500*time.Millisecond - time.Microsecond
			r.done(o)
		}, "pending c@500ms retry 2:b@499.999ms 2:a@1s fail a=2/1/0@0s b=2/1/0@0s wake 499.999ms"},
		"acks arm no alarm": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0, keyed("k")), msg("c", 0))
			r.done(ack("a"), ack("b", "k"), ends(outcomeGarbage, "c", 1, 0, ""))
		}, "garbage c@0s fail c=2/1/0@0s"},
	})
}

// TestScriptSettleTrims: garbage for which there is no room goes at once.
func TestScriptSettleTrims(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"garbage for which there is no room": {func(r *rig) {
			r.with.garbageMax = 2
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0, keyed("k")), msg("e", 0))
			r.done(ends(outcomeGarbage, "a", 1, 0, "x"))
			r.at(time.Second)
			c := newCaller()
			batch := []settlement{ends(outcomeGarbage, "b", 1, 0, "x"), ends(outcomeGarbage, "c", 1, 0, "x"),
				ends(outcomeGarbage, "d", 1, 0, "x", "k")}
			c.next()
			for range 2 { // the repeat says the same, and deletes nothing
				got, err := r.store.settle(ctxB, c, batch)
				r.equal("error", err, nil)
				r.equal("settled", got, settleReply{now: r.now, overflow: 2})
			}
			r.put(msg("f", time.Hour, keyed("k")))
		}, "pending f@1h0m1s unack e@10.000001s garbage c@1s d@1s fail c=2/1/0@1s!x d=2/1/0@1s!x key k=f wake 1h0m1s"},
		"garbage of which nobody has said how much there may be": {func(r *rig) {
			r.with.garbageMax = 1
			r.hand(msg("a", 0), msg("b", 0))
			r.at(time.Minute)
			r.done(ends(outcomeGarbage, "a", 1, 0, "x"), ends(outcomeGarbage, "b", 1, 0, "x"))
		}, "garbage a@1m0s b@1m0s fail a=2/1/0@1m0s!x b=2/1/0@1m0s!x"},
	})
}

// TestGarbageIsBounded: a burst of failures leaves no more garbage than there may be, at any instant.
func TestGarbageIsBounded(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.with.garbageMax = 100
		for round := range 5 {
			var ms []*sendMessage
			var dead []settlement
			for i := range maxBatch {
				name := fmt.Sprint(round, ".", i)
				ms, dead = append(ms, msg(name, 0)), append(dead, ends(outcomeGarbage, name, 1, 0, "x"))
			}
			r.hand(ms...)
			r.done(dead...)
			r.equal("garbage", len(r.read().Garbage), 100)
		}
	})
}
