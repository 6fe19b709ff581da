package delayqueue

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestScriptGroupRaces: what comes at the same time as a hand-out, or after the server has forgotten one.
func TestScriptGroupRaces(t *testing.T) {
	forget := func(r *rig, key, tag string) { // a hand-out, as a failover does
		r.do("ZREM", r.keys.unack, tagFor(tag))
		r.do("ZADD", key, r.now, tagFor(tag))
		r.do("ZADD", r.keys.wake, r.now, "w")
		r.do("HSET", r.keys.state, "armed", r.now)
	}
	runScripts(t, map[string]scriptCase{
		"a part just before the hand-out": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.equal("parts", r.partsFrom(r.fetch(newCaller(), 1)), "a=a,b")
			r.equal("just after", r.answers(newCaller(), part("c", time.Second, 0)), "+1s")
			r.done(groupOf(2, ack("a", "k")))
		}, "pending c@1s key k=c wake 1s"},
		"the hand-out was lost": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			c := r.take("a")
			r.equal("a part", r.answers(newCaller(), part("c", time.Second, 0)), "+1s")
			r.equal("the same again", r.partsFrom(r.fetchAgain(c, 1)), "a=a,b")
		}, "pending c@1s unack a@10.000003s parts a:2=1 left k=a key k=c wake 1s"},
		"the hand-out is forgotten": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			forget(r, r.keys.pending, "a")
			r.equal("void", r.settle(newCaller(), groupOf(2, ack("a", "k"))), []int{0})
			r.equal("parts", r.partsFrom(r.fetch(newCaller(), 1)), "a=a,b")
		}, "unack a@10.000003s parts a:2=1 key k=a"},
		"the hand-out is forgotten, and a part, and another one comes": {func(r *rig) {
			three := func(name string) *sendMessage { return part(name, time.Hour, 3) }
			r.answers(newCaller(), three("a"), three("b"))
			before := r.cli.HGet(ctxB, r.keys.msg, idOf("a")).Val()
			r.answers(newCaller(), three("c"))
			r.equal("parts", r.partsFrom(r.fetch(newCaller(), 1)), "a=a,b,c")
			forget(r, r.keys.pending, "a")
			r.do("ZADD", r.keys.pending, r.now+time.Hour.Microseconds(), idOf("a"))
			r.do("HDEL", r.keys.parts, idOf("a")+":3")
			r.do("HSET", r.keys.msg, idOf("a"), before)
			r.do("HSET", r.keys.key, "k", idOf("a"))
			r.equal("full again", r.answers(newCaller(), three("d")), "~a@0s")
			r.equal("void", r.settle(newCaller(), groupOf(3, ack("a", "k"))), []int{0})
			r.equal("parts", r.partsFrom(r.fetch(newCaller(), 1)), "a=a,b,d")
		}, "unack a@10.000003s parts a:2=1 a:3=1 left k=a"},
		"the hand-out is forgotten, and the group grows and is handed out": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0))
			r.take("a")
			forget(r, r.keys.pending, "a")
			r.equal("appended", r.answers(newCaller(), untimed(part("b", 0, 0))), "~a@0s")
			r.take("a")
			r.equal("void", r.settle(newCaller(), groupOf(1, ack("a", "k"))), []int{0})
			r.done(groupOf(2, ack("a", "k")))
		}, ""},
		"the hand-out is forgotten, and the group grows": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0))
			r.take("a")
			forget(r, r.keys.pending, "a")
			r.equal("appended", r.answers(newCaller(), untimed(part("b", 0, 0))), "~a@0s")
			r.equal("void", r.settle(newCaller(), groupOf(1, ack("a", "k"))), []int{0})
			r.equal("parts", r.partsFrom(r.fetch(newCaller(), 1)), "a=a,b")
		}, "unack a@10.000003s parts a:2=1 key k=a"},
		"that of a retry": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			r.done(ends(outcomeRetry, "a", 1, 0, "x"))
			r.at(time.Second)
			r.take("2:a")
			forget(r, r.keys.retry, "2:a")
			r.equal("appended", r.answers(newCaller(), untimed(part("c", 0, 0))), "~a@1s")
			s := groupOf(2, kept("2:a", time.Hour, "v", "k"))
			r.equal("void", r.settle(newCaller(), s), []int{0})
		}, "retry 2:a@1s parts a:2=1 a:3=1 fail a=2/1/0@0s!x key k=a wake 1s"},
		"a late ack": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			r.done(ends(outcomeReady, "a", 0, 0, ""))
			r.answers(newCaller(), untimed(part("c", 0, 0)))
			r.equal("void", r.settle(newCaller(), groupOf(2, ack("a", "k"))), []int{0})
			r.equal("parts", r.partsFrom(r.fetch(newCaller(), 1)), "2:a=a,b,c")
		}, "unack 2:a@10.000003s parts a:2=1 a:3=1 fail a=2/0/0@0s key k=a"},
		"an ack twice": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			c := newCaller()
			r.equal("void", r.settle(c, groupOf(2, ack("a", "k"))), []int(nil))
			r.answers(newCaller(), part("c", time.Second, 0), part("d", time.Second, 0))
			r.equal("again", r.settleAgain(c, groupOf(2, ack("a", "k"))), []int(nil))
		}, "pending c@1s parts c:2=1 key k=c wake 1s"},
		"an ack that a message follows": {func(r *rig) {
			r.answers(newCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			void, refused := r.follows(then(groupOf(2, ack("a", "k")), msg("n", time.Second, keyed("k"))))
			r.equal("void, refused", []any{len(void), refused}, []any{0, ""})
		}, "pending n@1s key k=n wake 1s"},
	})
}

// TestScriptGroupRubbish: parts that are missing or other than they should be, or an envelope that no version wrote: the
// delivery is broken and goes to garbage, never short.
func TestScriptGroupRubbish(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(r *rig){
		"one is missing":  func(r *rig) { r.do("HDEL", r.keys.parts, idOf("a")+":3") },
		"all are missing": func(r *rig) { r.do("DEL", r.keys.parts) },
		"one is longer":   func(r *rig) { r.do("HSET", r.keys.parts, idOf("a")+":2", "bb") },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(r *rig) {
				r.answers(newCaller(), part("a", time.Second, 0), part("b", time.Second, 0), part("c", time.Second, 0))
				spoil(r)
				m, err := r.store.look(ctxB, "id", idOf("a"))
				if err != nil || m.Parts != nil || !errors.Is(m.Broken, errPartsMissing) {
					r.t.Errorf("a look: %+v, %v", m, err)
				}
				r.at(time.Second)
				r.equal("handed out", r.partsFrom(r.fetch(newCaller(), 1)), "broken")
				r.done(ends(outcomeGarbage, "a", 0, 0, "x", "k"))
				r.equal("delete", r.steers("delete", 0, "a"), "garbage")
				r.expect("")
			})
		})
	}
	t.Run("envelopes", func(t *testing.T) {
		onBoth(t, func(r *rig) {
			for _, fields := range []string{"", "\x81", "\x81\x0b", "\x81\x0b0002", "\x81\x0b00020000000", "\x81\x0b99999999999",
				"\x81\x0b00000000000", "\x81\x0bxxxxxxxxxxx", "\x81\x0b 002      1",
				"\x81\x0300a", "\x84" + strings.Repeat("\xff", 20), strings.Repeat("\x85\x00", 1000), "\x81\x0b00020000001\x01\xff",
				"\x81\x0b00020000001\x01\x01a"} {
				r.put(msg("a", 0, keyed("k")))
				r.do("HSET", r.keys.state, "parts", "1")
				r.do("HSET", r.keys.msg, idOf("a"), fmt.Sprintf("\x02%d\x00\x01k", r.now)+fields)
				r.send(newCaller(), part("b", 0, 0))
				c := newCaller()
				c.next()
				f, err := r.store.fetch(ctxB, c, fetchRequest{want: 1, settings: &r.with})
				if err != nil || len(f.tags) != 1 {
					r.t.Fatalf("%q: %+v, %v", fields, f, err)
				}
				r.done(groupOf(3, ack("a", "k")))
				r.do("DEL", r.keys.parts, r.keys.wake, r.keys.state, r.keys.key)
			}
		})
	})
}

// TestScriptGroupBudget: parts count for what a reply holds.
func TestScriptGroupBudget(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		group := func(key, name string) {
			for i := range 3 {
				m := msg(fmt.Sprint(name, i), 0, keyed(key), grouped, sized(100<<10))
				m.put = &putOptions{on: Append}
				r.send(newCaller(), m)
			}
		}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			group(name, name)
		}
		first := newCaller()
		f := r.fetch(first, 5)
		r.equal("in 1 MB", handed(f), "a0 b0 c0")
		c := newCaller()
		c.next()
		r.equal("in 400 KB", handed(r.ask(c, fetchRequest{want: 5, bytes: 400 << 10})), "d0")
		r.equal("a repeat in 400 KB", handed(r.ask(first, fetchRequest{want: 5, bytes: 400 << 10})), "a0")
		s := r.read()
		r.equal("big", s.Fields["big"], fmt.Sprint(s.Messages[idOf("a0")].Size+200<<10+3*256))
	})
}

// TestScriptGroupOfMany: a group of as many parts as there may be comes, and goes.
func TestScriptGroupOfMany(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for i := range maxParts / maxPut {
			var some []*sendMessage
			for j := range maxPut {
				some = append(some, untimed(part(fmt.Sprint("p", i*maxPut+j), time.Second, 0, sized(3))))
			}
			r.send(newCaller(), some...)
		}
		page, err := r.store.list(ctxB, listRequest{place{in: StatePending, from: math.MinInt64, to: math.MaxInt64}, 10, spot{}})
		if err != nil || len(page.entries) != 1 || page.entries[0].msg.PartCount != maxParts || page.entries[0].msg.PartBytes != 3*maxParts {
			r.t.Errorf("%+v, %v", page, err)
		}
		m, err := r.store.look(ctxB, "id", idOf("p0"))
		if err != nil || len(m.Parts) != maxParts || m.Broken != nil || m.Key != "k" {
			r.t.Errorf("%+v, %v", m, err)
		}
		r.at(time.Second)
		f := r.fetch(newCaller(), 1)
		if ds := decode(nil, &f, 3, time.Time{}, time.Time{}); len(ds) != 1 || len(ds[0].msg.Parts) != maxParts || ds[0].broken != nil {
			r.t.Fatalf("%+v", ds)
		}
		r.equal("void", r.settle(newCaller(), groupOf(maxParts, ack("p0", "k"))), []int(nil))
		r.expect("")
	})
}

// TestScriptGroupDoneLimit: where there are groups, as much of what is done goes as without, however long messages are.
func TestScriptGroupDoneLimit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.with.doneMax = 1
		r.answers(newCaller(), part("g", time.Hour, 0), part("h", time.Hour, 0))
		for range 2 {
			var all []settlement
			for i := range 4 {
				name := fmt.Sprint("m", r.now%1000, i)
				r.put(msg(name, 0, sized(600<<10)))
				r.take(name)
				all = append(all, kept(name, time.Hour, ""))
			}
			r.done(all...)
			r.equal("done", len(r.read().Done), 1)
			r.at(time.Second + time.Microsecond)
		}
	})
}

// TestScriptGroupBounds: no call deletes more than some thousand parts.
func TestScriptGroupBounds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.with.garbageAge = time.Second
		const groups, parts = 4, 600
		for g := range groups {
			batch := make([]*sendMessage, 0, parts)
			for i := range parts {
				m := msg(fmt.Sprint("g", g, "p", i), 0, keyed(fmt.Sprint(g)), grouped, sized(1))
				m.put = &putOptions{on: Append}
				batch = append(batch, m)
			}
			for some := range slices.Chunk(batch, maxPut) {
				r.send(newCaller(), some...)
			}
			name := fmt.Sprint("g", g, "p0")
			r.take(name)
			r.done(ends(outcomeGarbage, name, 0, 0, "x", fmt.Sprint(g)))
		}
		r.at(2 * time.Second)
		for left := range groups {
			r.equal("garbage", len(r.read().Garbage), groups-left)
			if f := r.fetch(newCaller(), 0); left < groups-1 && f.next == 0 {
				r.t.Error("nobody is to come back for the rest")
			}
		}
		r.expect("")
	})
}
