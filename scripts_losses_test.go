package delayqueue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestScriptLosses: what is lost comes back later and later; a failure ends the row of losses, a release does not.
func TestScriptLosses(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"the first loss": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.tickTo(10 * time.Second)
			r.equal("lost", r.fetch(newCaller(), 0).lost, 0) // its lease ends a microsecond from now
			r.at(10*time.Second + time.Microsecond)
			f := r.fetch(newCaller(), 0)
			r.equal("lost", f.lost, 1)
			if f.next < serverTime(r.now) || f.next >= serverTime(r.now)+500_000 {
				r.t.Errorf("next is %v", r.since(int64(f.next)))
			}
		}, "retry 2:a@10.000001s~10.500001s fail a=2/0/1@10.000001s!lost key k=a wake 10.000001s~10.500001s"},
		"the first loss keeps failures and error": {func(r *rig) {
			r.hand(msg("a", 0))
			r.done(ends(outcomeReady, "a", 1, 0, "x y"))
			r.take("2:a")
			r.tickTo(11 * time.Second)
		}, "retry 3:a@11s~11.5s fail a=3/1/1@11s!lost wake 11s~11.5s"},
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
		}, "retry 3:a@22.5s~23.5s fail a=3/0/2@22.5s!lost wake 22.5s~23.5s"},
		"a failure ends the row": {func(r *rig) {
			r.hand(msg("a", 0))
			f := loseAgain(r, fetchReply{tags: []string{idOf("a")}})
			r.done(ends(outcomeRetry, names(f.tags[0]), 1, 0, "boom"))
			r.tickTo(r.since(r.now) + time.Second)
			at := r.since(r.now)
			r.take("3:a")
			r.tickTo(at + 11*time.Second)
			lost := at + 11*time.Second
			r.expect(fmt.Sprintf("retry 4:a@%v~%v fail a=4/1/1@%v!lost wake %v~%v", lost, lost+500*time.Millisecond, lost,
				lost, lost+500*time.Millisecond))
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
		"a repeat is not lost to its own call": {func(r *rig) {
			c := r.hand(msg("a", 0))
			r.at(30 * time.Second)
			f := r.fetchAgain(c, 1)
			r.equal("the repeat", handed(f), "a")
			r.equal("lost", f.lost, 0)
		}, "unack a@40.000001s"},
	})
}

// TestScriptLastChance: a message on its last chance is the only one of its kind in its consumer.
func TestScriptLastChance(t *testing.T) {
	runScripts(t, map[string]scriptCase{
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
				r.equal("handed out", handed(r.ask(c, fetchRequest{want: 10, holdsLastChance: true})), "")
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
	})
}

// TestScriptLastChanceOfMany: a consumer that holds one of them looks at the others seldom, and one that is free
// gets one soon.
func TestScriptLastChanceOfMany(t *testing.T) {
	t.Parallel()
	const n = 1500
	onBoth(t, func(r *rig) {
		var ms []*sendMessage
		for i := range n {
			ms = append(ms, msg(fmt.Sprintf("m%04d", i), 0))
		}
		for part := range slices.Chunk(ms, maxBatch) {
			r.hand(part...)
			var lost []settlement
			for _, m := range part {
				lost = append(lost, settlement{tag: m.id, id: m.id, number: 1, kind: outcomeRetry, delay: time.Second, losses: 2})
			}
			r.done(lost...)
		}
		r.at(time.Second)
		c, free := newCaller(), newCaller()
		const seconds = 4
		fetches, got := 0, 0
		for end := r.now + seconds*1_000_000; r.now < end; fetches++ {
			c.next()
			f := r.ask(c, fetchRequest{want: 10, holdsLastChance: true})
			if len(f.tags) > 0 {
				r.t.Fatalf("handed out %s", handed(f))
			}
			now := r.since(r.now)
			switch {
			case f.next == 0:
				r.at(now + time.Second)
			case f.next <= f.now:
				r.at(now + time.Millisecond)
			default:
				r.at(r.since(int64(f.next)))
			}
			if fetches%100 == 99 {
				for range 10 { // half a second
					f := r.fetch(free, 10)
					if len(f.tags) > 0 {
						got++
						r.done(ack(names(f.tags[0])))
						break
					}
					r.at(r.since(r.now) + 50*time.Millisecond)
				}
			}
		}
		r.t.Logf("%d fetches in %d s", fetches, seconds)
		if perSecond := fetches / seconds; perSecond > 50 {
			r.t.Errorf("%d fetches a second", perSecond)
		}
		if got < fetches/100 {
			r.t.Errorf("a free consumer got %d of %d", got, fetches/100)
		}
	})
}

// TestScriptPoison: one loss more than there may be makes garbage of a message.
func TestScriptPoison(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"the third is poison": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			f := loseAgain(r, loseAgain(r, fetchReply{tags: []string{idOf("a")}}))
			r.tickTo(r.since(r.now) + 9*time.Second)
			r.at(r.since(r.now) + 2*time.Second)
			f = r.fetch(newCaller(), 5)
			record := fmt.Sprintf("4 0 3 %d \x1e%[1]d 3 %s\x1e", r.now, ErrPoison)
			if len(f.dead) != 1 || f.dead[0].id != idOf("a") || !strings.HasPrefix(f.dead[0].fail, record) ||
				!strings.HasSuffix(f.dead[0].envelope, "\x03a") {
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
