package delayqueue

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"
)

func TestScriptSettle(t *testing.T) {
	ctx := context.Background()
	// lostAndHandedOn: a was lost by its first consumer, and another holds it as 2:a.
	lostAndHandedOn := func(r *rig, rest ...func(*envelope)) {
		r.hand(msg("a", 0, rest...))
		r.tickTo9(11 * time.Second)
		r.at(12 * time.Second)
		r.take("2:a")
	}
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
			if err != nil || record.text != "\x00 %s\n 9 \"é" {
				r.t.Errorf("record %+v, %v", record, err)
			}
			r.done(ack("2:a"))
		}, ""},
		"mixed": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0, keyed("1")), msg("e", 0, keyed("2")), msg("f", 0, keyed("3")), msg("g", 0))
			r.done(ack("a"), ack("b"), ends(outcomeRetry, "c", 1, 0, "x"), ends(outcomeGarbage, "d", 1, 0, "y", "1"),
				ends(outcomeReady, "e", 0, 0, "", "2"), ack("f", "3"))
		}, "ready 2:e unack g@10.000001s retry 2:c@1s garbage d@0s fail c=2/1/0@0s!x d=2/1/0@0s!y e=2/0/0@0s key 2=e wake 0s"},
		"stale in a mixed batch": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0))
			r.done(ack("c"), ends(outcomeReady, "d", 0, 0, ""))
			void := r.settle(newCaller(), ack("a"), ack("c"), ack("d"), ack("nobody"), ack("b"),
				ends(outcomeRetry, "d", 1, 0, "x"), ends(outcomeRetry, "e", 1, 0, "x"), ends(outcomeGarbage, "c", 1, 0, "x"), ends(outcomeReady, "2:d", 0, 0, ""))
			r.equal("void", void, []int{1, 2, 3, 5, 7, 8})
		}, "ready 2:d retry 2:e@1s fail d=2/0/0@0s e=2/1/0@0s!x wake 0s"},
		"the same delivery twice in a batch": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.equal("void", r.settle(newCaller(), ack("a"), ack("b"), ack("a"), ends(outcomeRetry, "b", 1, 0, "")), []int{2, 3})
		}, ""},
		"a late settlement of a lost delivery": {func(r *rig) {
			lostAndHandedOn(r, keyed("k"))
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
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s wake 11s~11.5s"},
		"of an intercepted message": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0, keyed("k")), msg("c", 0))
			for _, name := range []string{"a", "b", "c"} {
				r.equal("cancel", r.cancel("id", idOf(name)), StateUnack)
			}
			r.put(msg("d", time.Second, keyed("k")))
			r.equal("void", r.settle(newCaller(), ack("a"), ack("b", "k"), ends(outcomeRetry, "c", 1, 0, "")), []int{0, 1, 2})
		}, "pending d@1s key k=d wake 1s"},
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
		"repeated": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0))
			r.done(ack("e"))
			c := newCaller()
			batch := []settlement{ack("a"), ack("e"), ends(outcomeRetry, "b", 1, 0, "x"), ends(outcomeReady, "c", 0, 0, ""), ends(outcomeGarbage, "d", 1, 0, "x")}
			r.equal("void", r.settle(c, batch...), []int{1})
			r.expect("ready 2:c retry 2:b@1s garbage d@0s fail b=2/1/0@0s!x c=2/0/0@0s d=2/1/0@0s!x wake 0s")
			r.at(time.Second)
			r.take("2:c 2:b")
			r.done(ends(outcomeRetry, "2:c", 0, 0, "")) // and whoever got it has settled it
			r.equal("the repeat", r.settleAgain(c, batch...), []int{1})
		}, "unack 2:b@11.000001s retry 3:c@2s garbage d@0s fail b=2/1/0@0s!x c=3/0/0@1s d=2/1/0@0s!x wake 2s"},
		"in any order": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0, keyed("k")), msg("c", 0), msg("d", 0))
			void := r.settle(newCaller(), ends(outcomeRetry, "x", 1, 0, ""), ack("a"), ends(outcomeRetry, "b", 1, 0, "", "k"), ack("y"), ack("c"), ack("z", "k"))
			r.equal("void", void, []int{0, 3, 5})
		}, "unack d@10.000001s retry 2:b@1s fail b=2/1/0@0s key k=b wake 1s"},
		"an older call": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			c := newCaller()
			r.settle(c, ack("a"))
			r.settle(c, ack("b"))
			before := r.contents()
			for _, o := range []settlement{ack("a"), ack("c"), ends(outcomeGarbage, "c", 1, 0, "")} {
				_, err := r.store.settle(ctx, older(c), []settlement{o})
				r.tooLate(err)
			}
			r.equal("contents", r.contents(), before)
		}, "unack c@10.000001s"},
		"a key that points elsewhere stays": {func(r *rig) {
			r.hand(msg("a", 0, keyed("1")), msg("b", 0, keyed("2")))
			r.do("HDEL", r.keys.key, "1", "2")
			r.put(msg("c", time.Hour, keyed("1")), msg("d", time.Hour, keyed("2")))
			r.done(ack("a", "1"), ends(outcomeGarbage, "b", 1, 0, "", "2"))
		}, "pending c@1h0m0s d@1h0m0s garbage b@0s fail b=2/1/0@0s key 1=c 2=d wake 1h0m0s"},
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
		"garbage for which there is no room": {func(r *rig) {
			r.with.garbageMax = 2
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0, keyed("k")), msg("e", 0))
			r.done(ends(outcomeGarbage, "a", 1, 0, "x"))
			r.at(time.Second)
			c := newCaller()
			batch := []settlement{ends(outcomeGarbage, "b", 1, 0, "x"), ends(outcomeGarbage, "c", 1, 0, "x"), ends(outcomeGarbage, "d", 1, 0, "x", "k")}
			c.next()
			for range 2 { // the repeat says the same, and deletes nothing
				got, err := r.store.settle(ctx, c, batch)
				r.equal("error", err, nil)
				r.equal("settled", got, settleReply{trimmed: 2})
			}
			r.put(msg("f", time.Hour, keyed("k")))
		}, "pending f@1h0m1s unack e@10.000001s garbage c@1s d@1s fail c=2/1/0@1s!x d=2/1/0@1s!x key k=f wake 1h0m1s"},
		"garbage of which nobody has said how much there may be": {func(r *rig) {
			r.with.garbageMax = 1
			r.hand(msg("a", 0), msg("b", 0))
			r.at(time.Minute)
			r.done(ends(outcomeGarbage, "a", 1, 0, "x"), ends(outcomeGarbage, "b", 1, 0, "x"))
		}, "garbage a@1m0s b@1m0s fail a=2/1/0@1m0s!x b=2/1/0@1m0s!x"},
		"acks arm no alarm": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0, keyed("k")), msg("c", 0))
			r.done(ack("a"), ack("b", "k"), ends(outcomeGarbage, "c", 1, 0, ""))
		}, "garbage c@0s fail c=2/1/0@0s"},
	})
}

func TestScriptExtend(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"held": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.at(3*time.Second + time.Microsecond)
			r.equal("answers", r.extend("a"), []leaseState{leaseRenewed})
		}, "unack b@10.000001s a@13s"}, // even, whereas those of fetches are odd
		"a shorter lease": {func(r *rig) {
			r.hand(msg("a", 0))
			r.with.lease = time.Second
			r.extend("a")
			r.expect("unack a@10s") // another consumer asks for more
			r.at(10*time.Second + time.Microsecond)
			r.extend("a") // that one is gone
		}, "unack a@11s"},
		"lost, gone, and mixed": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0, keyed("k")), msg("d", 0), msg("e", 0))
			r.done(ends(outcomeReady, "a", 0, 0, ""), ends(outcomeGarbage, "d", 1, 0, ""))
			r.take("2:a")
			r.equal("cancel", r.cancel("key", "k"), StateUnack)
			names := []string{"a", "b", "c", "2:a", "d", "nobody", "e"}
			want := []leaseState{leaseLost, leaseRenewed, leaseGone, leaseRenewed, leaseLost, leaseGone, leaseRenewed}
			for range 2 { // it may come twice
				r.at(r.since(r.now) + time.Second)
				r.equal("answers", r.extend(names...), want)
			}
		}, "unack b@12s e@12s 2:a@12s garbage d@0s fail a=2/0/0@0s d=2/1/0@0s"},
		"all lost": {func(r *rig) {
			r.hand(msg("a", 0))
			r.tickTo9(11 * time.Second)
			r.equal("answers", r.extend("a"), []leaseState{leaseLost})
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s wake 11s~11.5s"},
		"ran out, not yet noticed": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(time.Minute)
			r.equal("answers", r.extend("a"), []leaseState{leaseRenewed})
			r.tick()
		}, "unack a@1m10s"},
		"a repeat of the fetch does not find what was renewed": {func(r *rig) {
			c := r.hand(msg("a", 0), msg("b", 0))
			r.extend("a")
			r.at(time.Second)
			r.equal("the repeat", handed(r.fetchAgain(c, 2)), "b")
		}, "unack a@10s b@11.000001s"},
		"many": {func(r *rig) {
			var ms []*sendMessage
			var all []string
			var want []leaseState
			for i := range maxBatch {
				ms, all, want = append(ms, msg(strconv.Itoa(i), 0)), append(all, strconv.Itoa(i)), append(want, leaseRenewed)
			}
			r.hand(ms...)
			r.equal("answers", r.extend(all...), want)
			for _, name := range all {
				r.done(ack(name))
			}
		}, ""},
	})
}

func TestScriptIntercept(t *testing.T) {
	ctx := context.Background()
	// In each state stands the message a, which has the key k, beside its like.
	into := map[State]func(r *rig){
		StatePending: func(r *rig) { r.put(msg("a", time.Second, keyed("k")), msg("b", time.Second, keyed("K"))) },
		StateReady: func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K")))
			r.done(ends(outcomeReady, "b", 0, 0, "", "K"), ends(outcomeReady, "a", 0, 0, "", "k"))
		},
		StateUnack: func(r *rig) { r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K"))) },
		StateRetry: func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K")))
			r.done(ends(outcomeRetry, "a", 1, 0, "x", "k"), ends(outcomeRetry, "b", 1, 0, "x", "K"))
		},
		StateGarbage: func(r *rig) {
			r.hand(msg("a", 0, keyed("k")), msg("b", 0, keyed("K")))
			r.done(ends(outcomeGarbage, "a", 1, 0, "x", "k"), ends(outcomeGarbage, "b", 1, 0, "x", "K"))
		},
	}
	left := map[State]string{
		StatePending: "pending b@1s key K=b wake 1s",
		StateReady:   "ready 2:b fail b=2/0/0@0s key K=b wake 0s",
		StateUnack:   "unack b@10.000001s key K=b",
		StateRetry:   "retry 2:b@1s fail b=2/1/0@0s!x key K=b wake 1s",
		StateGarbage: "garbage b@0s fail b=2/1/0@0s!x",
	}
	cases := map[string]scriptCase{
		"due, not handed out": {func(r *rig) {
			r.put(msg("a", time.Second))
			r.at(time.Second)
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StateReady)
		}, "wake 1s"},
		"not yet due": {func(r *rig) {
			r.put(msg("a", time.Second))
			r.at(time.Second - time.Microsecond)
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StatePending)
		}, "wake 1s"},
		"a later delivery that is held": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeReady, "a", 0, 0, ""))
			r.take("2:a")
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StateUnack)
			r.expect("unack 2:a@10.000003s fail a=2/0/0@0s")
			r.equal("state", r.cancel("id", idOf("a")), StateUnack)
		}, ""},
		"a key whose entry somebody else wrote": {func(r *rig) {
			r.put(msg("a", time.Second, keyed("k")), msg("b", time.Second))
			r.do("HSET", r.keys.key, "x", idOf("a"), "y", idOf("b"))
			r.equal("another's key", r.intercept(newCaller(), "key", "x"), StateGone)
			r.equal("the key of a message without one", r.intercept(newCaller(), "key", "y"), StateGone)
			r.do("HDEL", r.keys.key, "x", "y")
		}, "pending a@1s b@1s key k=a wake 1s"},
		"at an infinite instant": {func(r *rig) {
			r.put(msg("a", time.Second), msg("b", time.Second))
			r.do("ZADD", r.keys.pending, "+inf", idOf("a"), "-inf", idOf("b"))
			r.equal("later", r.intercept(newCaller(), "id", idOf("a")), StatePending)
			r.equal("sooner", r.intercept(newCaller(), "id", idOf("b")), StateReady)
		}, "wake 1s"},
		"delivery 12": {func(r *rig) {
			r.hand(msg("a", 0))
			for n := 1; n < 12; n++ {
				tag := "a"
				if n > 1 {
					tag = fmt.Sprintf("%d:a", n)
				}
				r.done(ends(outcomeReady, tag, 0, 0, ""))
				if n < 11 {
					r.take(fmt.Sprintf("%d:a", n+1))
				}
			}
			r.expect("ready 12:a fail a=12/0/0@0s wake 0s")
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StateReady)
		}, "wake 0s"},
		"never sent": {func(r *rig) {
			r.put(msg("a", time.Second, keyed("k")))
			r.equal("by id", r.intercept(newCaller(), "id", idOf("x")), StateGone)
			r.equal("by key", r.intercept(newCaller(), "key", "x"), StateGone)
			r.equal("a key as an id", r.intercept(newCaller(), "id", "k"), StateGone)
			r.equal("an id as a key", r.intercept(newCaller(), "key", idOf("a")), StateGone)
			r.equal("nothing", r.intercept(newCaller(), "id", ""), StateGone)
		}, "pending a@1s key k=a wake 1s"},
		"a key that points nowhere": {func(r *rig) {
			r.do("HSET", r.keys.key, "k", idOf("x"))
			r.equal("state", r.intercept(newCaller(), "key", "k"), StateGone)
			r.put(msg("a", time.Second, keyed("k")))
		}, "pending a@1s key k=a wake 1s"},
		"acked": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(ack("a", "k"))
			r.equal("by id", r.intercept(newCaller(), "id", idOf("a")), StateGone)
			r.equal("by key", r.intercept(newCaller(), "key", "k"), StateGone)
		}, ""},
		"a key that another has stays": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(ends(outcomeGarbage, "a", 1, 0, "", "k"))
			r.put(msg("b", time.Second, keyed("k")))
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), StateGarbage)
		}, "pending b@1s key k=b wake 1s"},
		"repeated": {func(r *rig) {
			r.put(msg("a", time.Second, keyed("k")))
			c := newCaller()
			r.equal("state", r.intercept(c, "key", "k"), StatePending)
			r.put(msg("b", time.Second, keyed("k"))) // another of that key must stay
			for range 2 {
				r.at(r.since(r.now) + time.Second)
				r.equal("the repeat", r.interceptAgain(c, "key", "k"), StatePending)
			}
			r.equal("a new call", r.intercept(c, "key", "k"), StateReady)
		}, "wake 1s"},
		"repeated, of nothing": {func(r *rig) {
			c := newCaller()
			r.equal("state", r.intercept(c, "key", "k"), StateGone)
			r.put(msg("b", time.Second, keyed("k")))
			r.equal("the repeat", r.interceptAgain(c, "key", "k"), StateGone)
		}, "pending b@1s key k=b wake 1s"},
		"an older call": {func(r *rig) {
			r.put(msg("a", time.Second), msg("b", time.Second), msg("c", time.Second))
			c := newCaller()
			r.intercept(c, "id", idOf("a"))
			r.intercept(c, "id", idOf("b"))
			before := r.contents()
			_, err := r.store.intercept(ctx, older(c), interceptRequest{"id", idOf("c"), false})
			r.tooLate(err)
			r.equal("contents", r.contents(), before)
		}, "pending c@1s wake 1s"},
	}
	for state, build := range into {
		cases["cancel, "+state.String()] = scriptCase{func(r *rig) {
			build(r)
			r.equal("state", r.cancel("id", idOf("a")), state)
			r.equal("again", r.cancel("id", idOf("a")), StateGone)
		}, left[state]}
		if state == StateUnack {
			cases["unack, which stays"] = scriptCase{func(r *rig) {
				build(r)
				for range 2 {
					r.equal("by id", r.intercept(newCaller(), "id", idOf("a")), StateUnack)
					r.equal("by key", r.intercept(newCaller(), "key", "k"), StateUnack)
				}
				r.equal("cancel by key", r.cancel("key", "k"), StateUnack)
			}, left[state]}
			continue
		}
		cases[state.String()+" by id"] = scriptCase{func(r *rig) {
			build(r)
			r.equal("state", r.intercept(newCaller(), "id", idOf("a")), state)
			r.equal("again", r.intercept(newCaller(), "id", idOf("a")), StateGone)
		}, left[state]}
		if state == StateGarbage {
			cases["garbage by key, which is free"] = scriptCase{func(r *rig) {
				build(r)
				r.equal("state", r.intercept(newCaller(), "key", "k"), StateGone)
				r.equal("by id", r.intercept(newCaller(), "id", idOf("a")), StateGarbage)
			}, left[state]}
			continue
		}
		cases[state.String()+" by key"] = scriptCase{func(r *rig) {
			build(r)
			r.equal("state", r.intercept(newCaller(), "key", "k"), state)
			r.equal("again", r.intercept(newCaller(), "key", "k"), StateGone)
		}, left[state]}
	}
	runScripts(t, cases)
}

func TestScriptCounts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		want := func(what string, want Counts) {
			r.t.Helper()
			before := r.contents()
			got, err := r.store.counts(context.Background())
			if err != nil {
				r.t.Fatal(err)
			}
			r.equal(what, got.Counts, want)
			r.equal("contents", r.contents(), before)
		}
		at := func(d time.Duration) time.Time { return time.UnixMicro(rigBase).Add(d) }
		want("nothing", Counts{})
		r.put(msg("a", 2*time.Second), msg("b", 2*time.Second), msg("c", 3*time.Second), msg("d", 3*time.Second), msg("e", time.Hour))
		want("pending", Counts{Pending: 5, NextDue: at(2 * time.Second)})
		r.at(2*time.Second - time.Microsecond)
		want("not yet due", Counts{Pending: 5, NextDue: at(2 * time.Second)})
		r.at(2100 * time.Millisecond)
		want("due", Counts{Pending: 3, Ready: 2, Behind: 100 * time.Millisecond, NextDue: at(3 * time.Second)})
		r.take("a b")
		want("handed out", Counts{Pending: 3, Unack: 2, NextDue: at(3 * time.Second)})
		r.done(ends(outcomeReady, "a", 0, 0, ""), ends(outcomeRetry, "b", 1, 0, ""))
		want("released and failed", Counts{Pending: 3, Ready: 1, Retry: 1, NextDue: at(3 * time.Second)})
		r.at(3*time.Second - time.Microsecond)
		want("waiting since it was released", Counts{Pending: 3, Ready: 1, Retry: 1, Behind: 900*time.Millisecond - time.Microsecond, NextDue: at(3 * time.Second)})
		r.at(4 * time.Second)
		want("retry due", Counts{Pending: 1, Ready: 4, Behind: 1900 * time.Millisecond, NextDue: at(time.Hour)})
		r.equal("handed out", len(r.fetch(newCaller(), 10).tags), 4)
		r.done(ends(outcomeGarbage, "2:a", 1, 0, ""), ends(outcomeGarbage, "c", 1, 0, ""))
		want("garbage", Counts{Pending: 1, Unack: 2, Garbage: 2, NextDue: at(time.Hour)})
		r.done(ack("2:b"), ack("d"))
		r.equal("intercept", r.intercept(newCaller(), "id", idOf("e")), StatePending)
		want("all settled", Counts{Garbage: 2})
		r.read()
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
