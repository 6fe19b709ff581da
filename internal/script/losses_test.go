package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptLosses: messages that were lost together come back apart, and later after each loss.
func TestScriptLosses(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"several lost together come back apart": {func(r *rig) {
			var ms []*SendMessage
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
			for _, tag := range r.fetch(NewCaller(), 40).Tags {
				r.done(ack(names(tag)))
			}
		}, ""},
		"the second loss": {func(r *rig) {
			lostTwice(r, "a")
			r.equal("lost at", r.since(r.now), 22500*time.Millisecond)
		}, "retry 3:a@22.5s~23.5s fail a=3/0/2@22.5s!lost wake 22.5s~23.5s"},
	})
}

// TestScriptLastChance: a consumer holds at most one message on its last chance.
func TestScriptLastChance(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"on its last chance a message is alone in its consumer": {func(r *rig) {
			lostTwice(r, "a", "b", "c", "d")
			r.at(r.since(r.now) + time.Second)
			r.put(msg("new1", 0), msg("new2", 0))
			c := NewCaller()
			f := r.fetch(c, 10)
			r.equal("of them, others", []int{len(f.Fails), len(f.Tags)}, []int{1, 3})
			r.equal("set back", len(r.read().Retry), 3)
			if wait := f.Next - f.Now; wait < 10_000 || wait > 1_000_000 {
				r.t.Errorf("the others are looked at again after %v", time.Duration(wait)*time.Microsecond)
			}
			r.done(ack("new1"), ack("new2"))
			again := r.fetchAgain(c, 10)
			r.equal("the repeat", again.Tags, f.Tags[:1])
			for range 3 { // none is handed to who holds one
				r.at(r.since(r.now) + time.Second)
				c.Next()
				r.equal("handed out", handed(r.ask(c, FetchRequest{Want: 10, HoldsLastChance: true})), "")
				r.extend(names(f.Tags[0]))
			}
			r.at(r.since(r.now) + time.Second)
			other := r.fetch(NewCaller(), 10)
			r.equal("handed to another consumer", len(other.Tags), 1)
			r.done(ends(OutcomeReady, names(other.Tags[0]), 0, 2, ""))
			r.done(ack(names(f.Tags[0])))
			for _, free := range []func(tag string){
				func(tag string) {
					o := ends(OutcomeRetry, names(tag), 1, 0, "x")
					o.Delay = time.Hour
					r.done(o)
				},
				func(tag string) {
					r.equal("cancel", r.cancel("id", ack(names(tag)).ID), stateUnack)
				},
				func(tag string) { r.done(ends(OutcomeGarbage, names(tag), 1, 0, "x")) },
			} {
				r.at(r.since(r.now) + 500*time.Millisecond)
				f := r.fetch(NewCaller(), 10)
				r.equal("handed out", len(f.Tags), 1)
				free(f.Tags[0])
			}
			r.at(r.since(r.now) + 2*time.Hour)
			f = r.fetch(NewCaller(), 10) // the one that failed is not on its last chance any more
			r.done(ack(names(f.Tags[0])))
			for _, e := range r.read().Garbage {
				r.equal("intercept", r.intercept(NewCaller(), "id", e.ID), stateGarbage)
			}
		}, ""},
	})
}

// TestScriptLastChanceOfMany: a consumer that holds a message on its last chance looks at the others seldom, and a free
// consumer gets one soon.
func TestScriptLastChanceOfMany(t *testing.T) {
	t.Parallel()
	const n = 1500
	onReal(t, func(r *rig) {
		var ms []*SendMessage
		for i := range n {
			ms = append(ms, msg(fmt.Sprintf("m%04d", i), 0))
		}
		for part := range slices.Chunk(ms, MaxBatch) {
			r.hand(part...)
			var lost []Settlement
			for _, m := range part {
				lost = append(lost, Settlement{Tag: m.ID, ID: m.ID, Number: 1, Kind: OutcomeRetry, Delay: time.Second, Losses: 2})
			}
			r.done(lost...)
		}
		r.at(time.Second)
		c, free := NewCaller(), NewCaller()
		const seconds = 4
		fetches, got := 0, 0
		for end := r.now + seconds*1_000_000; r.now < end; fetches++ {
			c.Next()
			f := r.ask(c, FetchRequest{Want: 10, HoldsLastChance: true})
			if len(f.Tags) > 0 {
				r.t.Fatalf("handed out %s", handed(f))
			}
			now := r.since(r.now)
			switch {
			case f.Next == 0:
				r.at(now + time.Second)
			case f.Next <= f.Now:
				r.at(now + time.Millisecond)
			default:
				r.at(r.since(int64(f.Next)))
			}
			if fetches%100 == 99 {
				for range 10 { // half a second
					f := r.fetch(free, 10)
					if len(f.Tags) > 0 {
						got++
						r.done(ack(names(f.Tags[0])))
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

// TestScriptPoison: the last loss that there may be makes garbage of a message.
func TestScriptPoison(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"the third is poison": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			f := loseAgain(r, loseAgain(r, FetchReply{Tags: []string{queuetest.IDOf("a")}}))
			r.tickTo(r.since(r.now) + 9*time.Second)
			r.at(r.since(r.now) + 2*time.Second)
			f = r.fetch(NewCaller(), 5)
			record := fmt.Sprintf("4 0 3 %d \x1e%[1]d 3 %s\x1e", r.now, PoisonText)
			if len(f.Dead) != 1 || f.Dead[0].ID != queuetest.IDOf("a") || !strings.HasPrefix(f.Dead[0].Fail, record) ||
				!strings.HasSuffix(f.Dead[0].Envelope, "\x03a") {
				r.t.Errorf("dead %q, want record %q", f.Dead, record)
			}
			r.equal("lost", f.Lost, 1)
			at := r.since(r.now)
			r.expect(fmt.Sprintf("garbage a@%v fail a=4/0/3@%v!poison", at, at))
			r.put(msg("b", time.Hour, keyed("k"))) // the key is free
			r.equal("intercept", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), stateGarbage)
			r.equal("intercept", r.intercept(NewCaller(), "key", "k"), statePending)
			r.tick()
		}, ""},
	})
}

// lostTwice makes messages lose two leases, the second time together. Each is on its last chance then.
func lostTwice(r *rig, each ...string) {
	r.t.Helper()
	var ms []*SendMessage
	for _, name := range each {
		ms = append(ms, msg(name, 0))
	}
	r.hand(ms...)
	r.lapse(r.with.Lease + r.with.Lease/10)
	r.at(r.since(r.now) + 500*time.Millisecond)
	if f := r.fetch(NewCaller(), len(each)); len(f.Tags) != len(each) {
		r.t.Fatalf("%d came back of %d", len(f.Tags), len(each))
	}
	r.lapse(r.since(r.now) + r.with.Lease + r.with.Lease/10)
}

// loseAgain lets the lease of the one message run out, and fetches the message again.
func loseAgain(r *rig, f FetchReply) FetchReply {
	r.t.Helper()
	r.lapse(r.since(r.now) + 11*time.Second)
	r.at(r.since(r.now) + time.Second)
	again := r.fetch(NewCaller(), 5)
	if len(again.Tags) != 1 || again.Tags[0] == f.Tags[0] {
		r.t.Fatalf("after %s was lost: %s", names(f.Tags[0]), handed(again))
	}
	return again
}
