package script

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptGroupRaces: parts that come at the same time as a hand-out, or after the server has forgotten one, are handled
// once.
func TestScriptGroupRaces(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a part just before the hand-out": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "a=a,b")
			r.equal("just after", r.answers(NewCaller(), part("c", time.Second, 0)), "+1s")
			r.done(groupOf(2, ack("a", "k")))
		}, "pending c@1s key k=c wake 1s"},
		"the hand-out was lost": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			c := r.take("a")
			r.equal("a part", r.answers(NewCaller(), part("c", time.Second, 0)), "+1s")
			r.equal("the same again", r.partsFrom(r.fetchAgain(c, 1)), "a=a,b")
		}, "pending c@1s unack a@10s parts a:2=1 left k=a key k=c wake 1s"},
		"the hand-out is forgotten": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			r.forgot(r.Keys.pending, "a")
			r.equal("void", r.settle(NewCaller(), groupOf(2, ack("a", "k"))), []int{0})
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "a=a,b")
		}, "unack a@10s parts a:2=1 key k=a"},
		"the hand-out is forgotten, and a part, and another one comes": {func(r *rig) {
			three := func(name string) *SendMessage { return part(name, time.Hour, 3) }
			r.answers(NewCaller(), three("a"), three("b"))
			before := r.Cli.HGet(queuetest.CtxB, r.Keys.msg, queuetest.IDOf("a")).Val()
			r.answers(NewCaller(), three("c"))
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "a=a,b,c")
			r.forgot(r.Keys.pending, "a")
			r.do("ZADD", r.Keys.pending, r.now+time.Hour.Microseconds(), queuetest.IDOf("a"))
			r.do("HDEL", r.Keys.parts, queuetest.IDOf("a")+":3")
			r.do("HSET", r.Keys.msg, queuetest.IDOf("a"), before)
			r.do("HSET", r.Keys.key, "k", queuetest.IDOf("a"))
			r.equal("full again", r.answers(NewCaller(), three("d")), "~a@0s")
			r.equal("void", r.settle(NewCaller(), groupOf(3, ack("a", "k"))), []int{0})
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "a=a,b,d")
		}, "unack a@10s parts a:2=1 a:3=1 left k=a"},
		"the hand-out is forgotten, and the group grows and is handed out": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0))
			r.take("a")
			late := groupOf(1, ack("a", "k"))
			late.Lease = r.leases[queuetest.IDOf("a")]
			r.forgot(r.Keys.pending, "a")
			r.equal("appended", r.answers(NewCaller(), untimed(part("b", 0, 0))), "~a@0s")
			r.take("a")
			r.equal("void", r.settle(NewCaller(), late), []int{0})
			r.done(groupOf(2, ack("a", "k")))
		}, ""},
		"that of a retry": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			r.done(ends(OutcomeRetry, "a", 1, 0, "x"))
			r.at(time.Second)
			r.take("2:a")
			r.forgot(r.Keys.retry, "2:a")
			r.equal("appended", r.answers(NewCaller(), untimed(part("c", 0, 0))), "~a@1s")
			s := groupOf(2, kept("2:a", time.Hour, "v", "k"))
			r.equal("void", r.settle(NewCaller(), s), []int{0})
		}, "retry 2:a@1s parts a:2=1 a:3=1 fail a=2/1/0@0s!x key k=a wake 1s"},
		"a late ack": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			r.done(ends(OutcomeReady, "a", 0, 0, ""))
			r.answers(NewCaller(), untimed(part("c", 0, 0)))
			r.equal("void", r.settle(NewCaller(), groupOf(2, ack("a", "k"))), []int{0})
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "2:a=a,b,c")
		}, "unack 2:a@10s parts a:2=1 a:3=1 fail a=2/0/0@0s key k=a"},
		"an ack twice": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			c := NewCaller()
			r.equal("void", r.settle(c, groupOf(2, ack("a", "k"))), []int(nil))
			r.answers(NewCaller(), part("c", time.Second, 0), part("d", time.Second, 0))
			r.equal("again", r.settleAgain(c, groupOf(2, ack("a", "k"))), []int(nil))
		}, "pending c@1s parts c:2=1 key k=c wake 1s"},
		"an ack that a message follows": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			void, refused := r.follows(then(groupOf(2, ack("a", "k")), msg("n", time.Second, keyed("k"))))
			r.equal("void, refused", []any{len(void), refused}, []any{0, ""})
		}, "pending n@1s key k=n wake 1s"},
	})
}

// TestScriptGroupRubbish: a group whose parts are missing or wrong is handed out as broken, never short. Envelopes that no
// version wrote stop nothing.
func TestScriptGroupRubbish(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(r *rig){
		"one is missing":  func(r *rig) { r.do("HDEL", r.Keys.parts, queuetest.IDOf("a")+":3") },
		"all are missing": func(r *rig) { r.do("DEL", r.Keys.parts) },
		"one is longer":   func(r *rig) { r.do("HSET", r.Keys.parts, queuetest.IDOf("a")+":2", "bb") },
	} {
		t.Run(name, func(t *testing.T) {
			onReal(t, func(r *rig) {
				r.answers(NewCaller(), part("a", time.Second, 0), part("b", time.Second, 0), part("c", time.Second, 0))
				spoil(r)
				if m := r.looks("id", queuetest.IDOf("a")); m.Delivered.Parts != nil || m.broken == nil || !strings.Contains(m.broken.Error(), "parts are missing") {
					r.t.Errorf("a look: %+v", m)
				}
				r.at(time.Second)
				r.equal("handed out", r.partsFrom(r.fetch(NewCaller(), 1)), "broken")
				r.done(ends(OutcomeGarbage, "a", 0, 0, "x", "k"))
				r.equal("delete", r.steers("delete", 0, "a"), "garbage")
				r.expect("")
			})
		})
	}
	t.Run("envelopes", func(t *testing.T) {
		onReal(t, func(r *rig) {
			for _, fields := range []string{"", "\x81", "\x81\x0b", "\x81\x0b0002", "\x81\x0b00020000000", "\x81\x0b99999999999",
				"\x81\x0b00000000000", "\x81\x0bxxxxxxxxxxx", "\x81\x0b 002      1",
				"\x81\x0300a", "\x84" + strings.Repeat("\xff", 20), strings.Repeat("\x85\x00", 1000), "\x81\x0b00020000001\x01\xff",
				"\x81\x0b00020000001\x01\x01a"} {
				r.put(msg("a", 0, keyed("k")))
				r.do("HSET", r.Keys.State, "parts", "1")
				r.do("HSET", r.Keys.msg, queuetest.IDOf("a"), fmt.Sprintf("\x02%d\x00\x01k", r.now)+fields)
				r.send(NewCaller(), part("b", 0, 0))
				c := newCall()
				f, err := r.Store.Fetch(queuetest.CtxB, c, FetchRequest{Want: 1, Settings: &r.with})
				if err != nil || len(f.Tags) != 1 {
					r.t.Fatalf("%q: %+v, %v", fields, f, err)
				}
				r.gave(f)
				r.done(groupOf(3, ack("a", "k")))
				r.do("DEL", r.Keys.parts, r.Keys.Wake, r.Keys.State, r.Keys.key)
			}
		})
	})
}

// TestScriptGroupBudget: parts count for the bytes of a reply.
func TestScriptGroupBudget(t *testing.T) {
	t.Parallel()
	onReal(t, func(r *rig) {
		group := func(key, name string) {
			for i := range 3 {
				m := msg(fmt.Sprint(name, i), 0, keyed(key), grouped, sized(100<<10))
				m.Put = &PutOptions{On: ConflictAppend}
				r.send(NewCaller(), m)
			}
		}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			group(name, name)
		}
		first := NewCaller()
		f := r.fetch(first, 5)
		r.equal("in 1 MB", handed(f), "a0 b0 c0")
		c := newCall()
		r.equal("in 400 KB", handed(r.ask(c, FetchRequest{Want: 5, Bytes: 400 << 10})), "d0")
		r.equal("a repeat in 400 KB", handed(r.ask(first, FetchRequest{Want: 5, Bytes: 400 << 10})), "a0")
		s := r.read()
		r.equal("big", s.Fields["big"], fmt.Sprint(s.Messages[queuetest.IDOf("a0")].Size+200<<10+3*256))
	})
}

// TestScriptGroupOfMany: a group of 1,000 parts, the most that there may be, is handed out and acked.
func TestScriptGroupOfMany(t *testing.T) {
	t.Parallel()
	onReal(t, func(r *rig) {
		for i := range message.MaxParts / MaxPut {
			var some []*SendMessage
			for j := range MaxPut {
				some = append(some, untimed(part(fmt.Sprint("p", i*MaxPut+j), time.Second, 0, sized(3))))
			}
			r.send(NewCaller(), some...)
		}
		page, err := r.Store.List(queuetest.CtxB, ListRequest{In: statePending, From: math.MinInt64, To: math.MaxInt64, Limit: 10})
		if err != nil || len(page.Entries) != 1 {
			r.t.Fatalf("%+v, %v", page, err)
		}
		if e, err := message.DecodeEnvelope(page.Entries[0].Text); err != nil || e.Group.Count != message.MaxParts || len(e.Payload)+e.Group.Bytes != 3*message.MaxParts {
			r.t.Errorf("%+v, %v", e, err)
		}
		if m := r.looks("id", queuetest.IDOf("p0")); len(m.Delivered.Parts) != message.MaxParts || m.broken != nil || m.Key != "k" {
			r.t.Errorf("%+v", m)
		}
		r.at(time.Second)
		if ds := takenOf(r.fetch(NewCaller(), 1)); len(ds) != 1 || len(ds[0].msg.Parts) != message.MaxParts || ds[0].broken != nil {
			r.t.Fatalf("%+v", ds)
		}
		r.equal("void", r.settle(NewCaller(), groupOf(message.MaxParts, ack("p0", "k"))), []int(nil))
		r.expect("")
	})
}

// TestScriptGroupDoneLimit: the bound of done messages holds in a queue with groups, however long messages are.
func TestScriptGroupDoneLimit(t *testing.T) {
	t.Parallel()
	onReal(t, func(r *rig) {
		r.with.DoneMax = 1
		r.answers(NewCaller(), part("g", time.Hour, 0), part("h", time.Hour, 0))
		for range 2 {
			var all []Settlement
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

// TestScriptGroupBounds: one call deletes at most some thousand parts.
func TestScriptGroupBounds(t *testing.T) {
	t.Parallel()
	onReal(t, func(r *rig) {
		r.with.GarbageAge = time.Second
		const groups, parts = 4, 600
		for g := range groups {
			batch := make([]*SendMessage, 0, parts)
			for i := range parts {
				m := msg(fmt.Sprint("g", g, "p", i), 0, keyed(fmt.Sprint(g)), grouped, sized(1))
				m.Put = &PutOptions{On: ConflictAppend}
				batch = append(batch, m)
			}
			for some := range slices.Chunk(batch, MaxPut) {
				r.send(NewCaller(), some...)
			}
			name := fmt.Sprint("g", g, "p0")
			r.take(name)
			r.done(ends(OutcomeGarbage, name, 0, 0, "x", fmt.Sprint(g)))
		}
		r.at(2 * time.Second)
		for left := range groups {
			r.equal("garbage", len(r.read().Garbage), groups-left)
			if f := r.fetch(NewCaller(), 0); left < groups-1 && f.Next == 0 {
				r.t.Error("nobody is to come back for the rest")
			}
		}
		r.expect("")
	})
}
