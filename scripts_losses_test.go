package delayqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

func TestScriptFetchLosses(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"the first loss": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.tickTo(10 * time.Second)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 0) // its lease ends a microsecond from now
			r.at(10*time.Second + time.Microsecond)
			f := r.fetch(newCaller(), 0)
			r.equal("lost", f.lost, 1)
			if f.next < r.now || f.next >= r.now+500_000 {
				r.t.Errorf("next is %v", r.since(f.next))
			}
		}, "retry 2:a@10.000001s~10.500001s fail a=2/0/1@10.000001s key k=a wake 10.000001s~10.500001s"},
		"the first loss keeps failures and error": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeReady, "a", 1, 0, "x y"))
			r.take("2:a")
			r.tickTo(11 * time.Second)
		}, "retry 3:a@11s~11.5s fail a=3/1/1@11s!x_y wake 11s~11.5s"},
		"several lost together come back apart": {func(r *rig) {
			var ms []*sendMessage
			for i := range 40 {
				ms = append(ms, msg("m"+strconv.Itoa(i), 0))
			}
			r.hand(ms...)
			r.tickTo(11 * time.Second)
			scores := map[int64]bool{}
			for _, e := range r.read().Retry {
				scores[e.Score] = true
				if d := r.since(e.Score); d < 11*time.Second || d >= 11500*time.Millisecond {
					r.t.Errorf("%s comes back at %v", names(e.Tag), d)
				}
			}
			if len(scores) < 35 {
				r.t.Errorf("40 messages share %d instants", len(scores))
			}
			r.at(12 * time.Second)
			for _, tag := range r.fetch(newCaller(), 40).tags {
				r.done(ack(names(tag)))
			}
		}, ""},
		"the second loss": {func(r *rig) {
			lostTwice(r, "a")
			r.equal("lost at", r.since(r.now), 22500*time.Millisecond)
		}, "retry 3:a@22.5s~23.5s fail a=3/0/2@22.5s wake 22.5s~23.5s"},
		"on its last chance a message is alone in its consumer": {func(r *rig) {
			lostTwice(r, "a", "b", "c", "d")
			r.at(r.since(r.now) + time.Second)
			r.put(msg("new1", 0), msg("new2", 0))
			c := newCaller()
			f := r.fetch(c, 10)
			r.equal("of them, others", []int{len(f.fails), len(f.tags)}, []int{1, 3})
			r.equal("set back", len(r.read().Retry), 3)
			if wait := f.next - f.now; wait < 10_000 || wait > 1_000_000 {
				r.t.Errorf("the others are looked at again after %v", time.Duration(wait)*time.Microsecond)
			}
			r.done(ack("new1"), ack("new2"))
			again := r.fetchAgain(c, 10)
			r.equal("the repeat", again.tags, f.tags[:1])
			for range 3 { // none is handed to who holds one
				r.at(r.since(r.now) + time.Second)
				c.next()
				r.equal("handed out", handed(r.ask(c, fetchRequest{want: 10, holdsLastAttempt: true})), "")
				r.extend(names(f.tags[0]))
			}
			r.at(r.since(r.now) + time.Second)
			other := r.fetch(newCaller(), 10)
			r.equal("handed to another consumer", len(other.tags), 1)
			r.done(ends(outcomeReady, names(other.tags[0]), 0, 2, ""))
			r.done(ack(names(f.tags[0])))
			for _, free := range []func(tag string){
				func(tag string) {
					o := ends(outcomeRetry, names(tag), 1, 0, "x")
					o.delay = time.Hour
					r.done(o)
				},
				func(tag string) {
					r.equal("cancel", r.cancel("id", ack(names(tag)).id), StateUnack)
				},
				func(tag string) { r.done(ends(outcomeGarbage, names(tag), 1, 0, "x")) },
			} {
				r.at(r.since(r.now) + 500*time.Millisecond)
				f := r.fetch(newCaller(), 10)
				r.equal("handed out", len(f.tags), 1)
				free(f.tags[0])
			}
			r.at(r.since(r.now) + 2*time.Hour)
			f = r.fetch(newCaller(), 10) // the one that failed is not on its last chance any more
			r.done(ack(names(f.tags[0])))
			for _, e := range r.read().Garbage {
				r.equal("intercept", r.intercept(newCaller(), "id", e.ID), StateGarbage)
			}
		}, ""},
		"a released one keeps its last chance to itself": {func(r *rig) {
			lostTwice(r, "a", "b")
			r.at(r.since(r.now) + time.Second)
			f := r.fetch(newCaller(), 10)
			tag := names(f.tags[0])
			r.done(ends(outcomeReady, tag, 0, 2, ""))
			r.at(r.since(r.now) + time.Second)
			f = r.fetch(newCaller(), 10)
			r.equal("handed out", len(f.tags), 1)
			r.done(ack(names(f.tags[0])))
			r.at(r.since(r.now) + time.Second)
			f = r.fetch(newCaller(), 10)
			r.equal("handed out", len(f.tags), 1)
			r.done(ack(names(f.tags[0])))
			r.tick()
		}, ""},
		"the third is poison": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			f := loseAgain(r, loseAgain(r, fetchReply{tags: []string{idOf("a")}}))
			r.tickTo(r.since(r.now) + 9*time.Second)
			r.at(r.since(r.now) + 2*time.Second)
			f = r.fetch(newCaller(), 5)
			record := fmt.Sprintf("4 0 3 %d %s", r.now, ErrPoison.Error())
			if len(f.dead) != 1 || f.dead[0].id != idOf("a") || f.dead[0].fail != record || !strings.HasSuffix(f.dead[0].envelope, "\x03a") {
				r.t.Errorf("dead %q, want record %q", f.dead, record)
			}
			r.equal("lost", f.lost, 1)
			at := r.since(r.now)
			r.expect(fmt.Sprintf("garbage a@%v fail a=4/0/3@%v!poison", at, at))
			r.put(msg("b", time.Hour, keyed("k"))) // the key is free
			r.equal("intercept", r.intercept(newCaller(), "id", idOf("a")), StateGarbage)
			r.equal("intercept", r.intercept(newCaller(), "key", "k"), StatePending)
			r.tick()
		}, ""},
		"poison at once": {func(r *rig) {
			r.with.maxLosses = 1
			r.hand(msg("a", 0), msg("b", 0))
			r.tickTo(11 * time.Second)
		}, "garbage a@11s b@11s fail a=2/0/1@11s!poison b=2/0/1@11s!poison"},
		"poison whose key another has": {func(r *rig) {
			r.with.maxLosses = 1
			r.hand(msg("a", 0, keyed("k")))
			r.do("HDEL", r.keys.key, "k")
			r.put(msg("b", time.Hour, keyed("k")))
			r.tickTo9(11 * time.Second)
		}, "pending b@1h0m0s garbage a@11s fail a=2/0/1@11s!poison key k=b wake 1h0m0s"},
		"a failure ends the row": {func(r *rig) {
			r.hand(msg("a", 0))
			f := loseAgain(r, fetchReply{tags: []string{idOf("a")}})
			r.done(ends(outcomeRetry, names(f.tags[0]), 1, 0, "boom"))
			r.tickTo(r.since(r.now) + time.Second)
			at := r.since(r.now)
			r.take("3:a")
			r.tickTo(at + 11*time.Second)
			lost := at + 11*time.Second
			r.expect(fmt.Sprintf("retry 4:a@%v~%v fail a=4/1/1@%v!boom wake %v~%v", lost, lost+500*time.Millisecond, lost, lost, lost+500*time.Millisecond))
			r.equal("intercept", r.intercept(newCaller(), "id", idOf("a")), StateRetry)
			r.tick()
		}, ""},
		"a release does not end the row": {func(r *rig) {
			r.hand(msg("a", 0))
			f := loseAgain(r, fetchReply{tags: []string{idOf("a")}})
			r.done(ends(outcomeReady, names(f.tags[0]), 0, 1, ""))
			f = r.fetch(newCaller(), 1)
			at := r.since(r.now)
			r.tickTo(at + 9*time.Second)
			r.at(at + 11*time.Second)
			r.tick()
			s := r.read()
			r.equal("losses", s.Fail[idOf("a")].Losses, int64(2))
			r.equal("intercept", r.intercept(newCaller(), "id", idOf("a")), StateRetry)
			r.tick()
		}, ""},
		"renewed leases are not lost": {func(r *rig) {
			r.hand(msg("a", 0))
			r.tickTo(9 * time.Second)
			r.extend("a")
			r.tickTo(18 * time.Second)
		}, "unack a@19s wake 19s"},
		"grace after an outage": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(16 * time.Second)
			r.put(msg("b", 0))
			f := r.fetch(newCaller(), 1) // the first of any consumer since 0 s
			r.equal("lost", f.lost, 0)
			r.expect("unack a@10.000001s b@26.000001s")
			r.tickTo(25 * time.Second)
			r.extend("b")
			r.tickTo(28500*time.Millisecond - time.Microsecond)
			r.expect("unack a@10.000001s b@35s wake 28.5s")
			r.tickTo(28500 * time.Millisecond)
		}, "unack b@35s retry 2:a@28.5s~29s fail a=2/0/1@28.5s wake 28.5s~29s"},
		"no grace within two thirds of a lease": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(4 * time.Second)
			r.tick()
			r.at(4*time.Second + r.with.lease*2/3)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 1)
		}, "retry 2:a@10.666666s~11.166666s fail a=2/0/1@10.666666s wake 10.666666s~11.166666s"},
		"grace just beyond": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(4 * time.Second)
			r.tick()
			r.at(4*time.Second + r.with.lease*2/3 + time.Microsecond)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 0)
		}, "unack a@10.000001s"},
		"grace is for what ran out in the outage": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(8 * time.Second) // an outage that ended before the lease did
			r.tick()
			r.at(11 * time.Second)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 1)
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s wake 11s~11.5s"},
		"who comes back gives the others time": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.at(r.with.lease/2 + time.Microsecond)
			r.fetch(c, 0)
			r.tickTo(17*time.Second + 500*time.Millisecond)
			r.expect("unack a@10.000001s wake 17.500001s")
			r.at(17*time.Second + 500001*time.Microsecond) // once only
			r.equal("lost", r.fetch(newCaller(), 0).lost, 1)
		}, "retry 2:a@17.500001s~18.000001s fail a=2/0/1@17.500001s wake 17.500001s~18.000001s"},
		"no time for others within half a lease": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.at(r.with.lease / 2)
			r.fetch(c, 0)
			r.at(10*time.Second + 2*time.Microsecond)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 1)
		}, "retry 2:a@10.000002s~10.500002s fail a=2/0/1@10.000002s wake 10.000002s~10.500002s"},
		"a repeat is not lost to its own call": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.at(30 * time.Second)
			f := r.fetchAgain(c, 1)
			r.equal("the repeat", handed(f), "a")
			r.equal("lost", f.lost, 0)
		}, "unack a@40.000001s"},
	})
}

// lostTwice makes messages lose two leases, the second time together, so that each is on its last chance.
func lostTwice(r *rig, each ...string) {
	r.t.Helper()
	var ms []*sendMessage
	for _, name := range each {
		ms = append(ms, msg(name, 0))
	}
	r.hand(ms...)
	r.tickTo9(r.with.lease + r.with.lease/10)
	r.at(r.since(r.now) + 500*time.Millisecond)
	if f := r.fetch(newCaller(), len(each)); len(f.tags) != len(each) {
		r.t.Fatalf("%d came back of %d", len(f.tags), len(each))
	}
	r.tickTo9(r.since(r.now) + r.with.lease + r.with.lease/10)
}

// tickTo9 ticks at 90 % of a lease before the end, and at the end.
func (r *rig) tickTo9(d time.Duration) {
	r.t.Helper()
	r.tickTo(d - r.with.lease/5)
	r.at(d)
	r.tick()
}

// loseAgain lets the lease of the one message run out and fetches it again when it is back.
func loseAgain(r *rig, f fetchReply) fetchReply {
	r.t.Helper()
	r.tickTo9(r.since(r.now) + 11*time.Second)
	r.at(r.since(r.now) + time.Second)
	again := r.fetch(newCaller(), 5)
	if len(again.tags) != 1 || again.tags[0] == f.tags[0] {
		r.t.Fatalf("after %s was lost: %s", names(f.tags[0]), handed(again))
	}
	return again
}

// TestScriptFetchBounds: what one call moves, and how long its reply gets.
func TestScriptFetchBounds(t *testing.T) {
	t.Parallel()
	const n = 2000
	some := func(r *rig, prefix string, n int) {
		var ms []*sendMessage
		for i := range n {
			ms = append(ms, msg(fmt.Sprintf("%s%04d", prefix, i), 0))
		}
		r.put(ms...)
	}
	many := func(r *rig, prefix string) { some(r, prefix, n) }
	outcomes := func(f fetchReply, kind outcomeKind) []settlement {
		var all []settlement
		for _, tag := range f.tags {
			all = append(all, ends(kind, names(tag), 1, 0, ""))
		}
		return all
	}
	inAll := func(r *rig, s *check.State) []int {
		return []int{len(s.Pending), len(s.Ready), len(s.Unack), len(s.Retry), len(s.Garbage)}
	}
	t.Run("moves", func(t *testing.T) {
		onBoth(t, func(r *rig) {
			many(r, "g")
			for range n / maxBatch {
				r.done(outcomes(r.fetch(newCaller(), maxBatch), outcomeGarbage)...)
			}
			many(r, "r")
			for range n / maxBatch {
				r.done(outcomes(r.fetch(newCaller(), maxBatch), outcomeRetry)...)
			}
			many(r, "q")
			for range n / maxBatch {
				r.done(outcomes(r.fetch(newCaller(), maxBatch), outcomeReady)...)
			}
			many(r, "u")
			for range 4 { // out of ready first
				if f := r.fetch(newCaller(), maxBatch); len(f.tags) != maxBatch {
					r.t.Fatalf("fetched %d", len(f.tags))
				}
			}
			r.equal("before", inAll(r, r.read()), []int{n, 0, n, n, n})
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			r.with.garbageAge = time.Second
			garbage := n
			for call := 0; ; call++ {
				f := r.fetch(newCaller(), maxBatch)
				counts, err := r.store.counts(context.Background())
				if err != nil {
					r.t.Fatal(err)
				}
				aged := garbage - int(counts.Garbage)
				garbage -= aged
				if moved := len(f.tags) + f.lost + aged; moved > maxBatch || len(f.tags) < 300 || f.lost > 100 {
					r.t.Fatalf("one call moved %d: %d handed out, %d lost, %d aged", moved, len(f.tags), f.lost, aged)
				}
				if f.next == 0 || f.next > f.now {
					r.t.Fatalf("next is %v with more to do", r.since(f.next))
				}
				var acks []settlement
				for _, tag := range f.tags {
					acks = append(acks, ack(names(tag)))
				}
				slices.SortFunc(acks, func(a, b settlement) int { return a.number - b.number })
				r.done(acks...)
				if f.lost == 0 && aged == 0 {
					r.equal("calls", call >= n/100, true)
					break
				}
				many := make([]*sendMessage, 0, len(f.tags))
				for i := range f.tags {
					many = append(many, msg(fmt.Sprintf("%02d%03d", call, i), 0))
				}
				r.put(many...)
			}
			r.read()
		})
	})
	t.Run("moves, with many on their last chance", func(t *testing.T) {
		onBoth(t, func(r *rig) {
			r.with.maxLosses = 2
			some(r, "l", 150)
			f := r.fetch(newCaller(), maxBatch)
			lasts := outcomes(f, outcomeRetry)
			for i := range lasts {
				lasts[i].failures, lasts[i].losses = 0, 1
			}
			r.done(lasts...)
			r.at(time.Second)
			r.equal("handed out, one alone", len(r.fetch(newCaller(), 1).tags), 1)
			r.at(2 * time.Second)
			some(r, "p", maxBatch)
			f = r.fetch(newCaller(), maxBatch)
			aside := 0
			for _, e := range r.read().Retry {
				if e.Score > r.now {
					aside++
				}
			}
			r.equal("set some aside", aside > 0, true)
			r.equal("moved", len(f.tags)+aside, maxBatch)
			r.read()
		})
	})
	t.Run("more is wanted than one call gives", func(t *testing.T) {
		onBoth(t, func(r *rig) {
			many(r, "a")
			r.equal("handed out", len(r.fetch(newCaller(), maxBatch).tags), maxBatch)
		})
	})
	t.Run("size", func(t *testing.T) {
		onBoth(t, func(r *rig) {
			big := sized(225 << 10)
			r.hand(msg("q1", 0, big), msg("q2", 0, big), msg("r1", 0, big), msg("r2", 0, big))
			r.done(ends(outcomeReady, "q1", 0, 0, ""), ends(outcomeReady, "q2", 0, 0, ""), ends(outcomeRetry, "r1", 0, 0, ""), ends(outcomeRetry, "r2", 0, 0, ""))
			for i := range 6 {
				r.put(msg("p"+strconv.Itoa(i), 0, big))
			}
			r.at(time.Second)
			var all []string
			for {
				f := r.fetch(newCaller(), 20)
				size := 0
				for _, e := range f.envelopes {
					size += len(e)
				}
				if size > 1<<20 || len(f.tags) == 0 {
					r.t.Fatalf("a reply of %d bytes, %s", size, handed(f))
				}
				all = append(all, strings.Fields(handed(f))...)
				if f.next == 0 {
					break
				}
				r.equal("next", f.next <= f.now, true)
			}
			r.equal("first", all[:2], []string{"2:q1", "2:q2"})
			slices.Sort(all)
			r.equal("handed out", strings.Join(all, " "), "2:q1 2:q2 2:r1 2:r2 p0 p1 p2 p3 p4 p5")
			r.put(msg("huge", 0, sized(5<<19)), msg("small", 0))
			r.equal("handed out", handed(r.fetch(newCaller(), 20)), "huge")
			c := r.take("small")
			r.equal("the repeat", handed(r.fetchAgain(c, 1)), "small")
			// Of ready too: the rest stays in its order.
			r.done(ends(outcomeReady, "huge", 0, 0, ""), ends(outcomeReady, "small", 0, 0, ""), ends(outcomeReady, "p2", 0, 0, ""))
			r.equal("handed out", handed(r.fetch(newCaller(), 20)), "2:huge")
			r.equal("handed out", handed(r.fetch(newCaller(), 20)), "2:small 2:p2")
			r.read()
		})
	})
	t.Run("size, with retries", func(t *testing.T) { // neither starves the other of room
		onBoth(t, func(r *rig) {
			for range 4 { // of each in turn, so as not to fetch what is not wanted yet
				name := strconv.Itoa(int(r.now - rigBase))
				r.hand(msg("r"+name, 0, sized(225<<10)))
				r.done(ends(outcomeRetry, "r"+name, 1, 0, ""))
				r.at(r.since(r.now) + time.Microsecond)
			}
			for i := range 4 {
				r.put(msg("p"+strconv.Itoa(i), 0, sized(225<<10)))
			}
			r.at(2 * time.Second)
			f := r.fetch(newCaller(), 20)
			if n := len(f.fails); n == 0 || n == len(f.tags) {
				r.t.Errorf("handed out %s with 4 of each due", handed(f))
			}
			r.read()
		})
	})
	t.Run("size of the dead", func(t *testing.T) {
		onBoth(t, func(r *rig) {
			r.with.maxLosses = 1
			var ms []*sendMessage
			for i := range 12 {
				ms = append(ms, msg(fmt.Sprintf("d%02d", i), 0, sized(225<<10)))
			}
			for part := range slices.Chunk(ms, 4) {
				r.hand(part...)
			}
			r.tickTo(9 * time.Second)
			r.at(11 * time.Second)
			dead := 0
			for dead < 12 {
				f := r.fetch(newCaller(), 0)
				if len(f.dead) == 0 || len(f.dead) > 5 {
					r.t.Fatalf("%d dead in one reply", len(f.dead))
				}
				dead += len(f.dead)
				if len(f.dead) != f.lost || (dead < 12) != (f.next != 0 && f.next <= f.now) {
					r.t.Errorf("%d dead, %d lost, next %v", len(f.dead), f.lost, r.since(f.next))
				}
			}
			r.equal("dead", dead, 12)
			r.read()
		})
	})
}
