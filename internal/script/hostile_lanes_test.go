package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// laneCalls makes each call that may touch a lane once, on messages of the lanes l and m that it sends, and says
// which failed.
func laneCalls(r *rig, i int) (errs []error) {
	name := func(s string) string { return fmt.Sprintf("%s%d", s, i) }
	try := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	send := func(ms ...*SendMessage) {
		try("send", queuetest.Failure(r.Store.Send(queuetest.CtxB, newCall(), SendRequest{Messages: ms})))
	}
	send(inLane("l", 1, name("a"), 0, keyed(name("k"))), inLane("l", 1, name("b"), 0),
		inLane("l", 2, name("c"), time.Second),
		inLane("m", 3, name("d"), 0), inLane("m", 3, name("e"), time.Hour), inLane("m", 1, name("f"), 0))
	c := newCall()
	for range 2 { // the second time, as a repeat
		got, err := r.Store.Fetch(queuetest.CtxB, c, FetchRequest{Want: 10, Settings: &r.with})
		try("fetch", err)
		r.gave(got)
		all := r.endsAll(got, func(name string) Settlement { return ends(OutcomeRetry, name, 0, 0, "") })
		for i := range all {
			all[i].Leaves = strings.HasSuffix(all[i].Lane, "m")
		}
		try("settle", queuetest.Failure(r.Store.Settle(queuetest.CtxB, newCall(), r.leased(all), false)))
		try("tick", queuetest.Failure(r.Store.Tick(queuetest.CtxB, c, TickRequest{Settings: &r.with})))
	}
	replaced := inLane("m", 1, name("g"), 0, keyed(name("k")))
	replaced.Put.On = ConflictReplace
	send(replaced)
	for _, do := range []SteerRequest{{What: "by", Us: 1}, {What: "at", Us: r.now + 1e6}, {What: SteerDelete}} {
		do.Targets = []Spot{{Tag: queuetest.IDOf(name("b"))}, {Tag: queuetest.IDOf(name("e"))}}
		try("steer", queuetest.Failure(r.Store.Steer(queuetest.CtxB, newCall(), do)))
	}
	try("intercept",
		queuetest.Failure(r.Store.Intercept(queuetest.CtxB, newCall(), "id", queuetest.IDOf(name("c")), true)))
	try("counts", queuetest.Failure(r.Store.Counts(queuetest.CtxB)))
	try("forecast", queuetest.Failure(r.Store.Forecast(queuetest.CtxB, 0, time.Minute, 3)))
	try("look", queuetest.Failure(r.Store.Look(queuetest.CtxB, "id", queuetest.IDOf(name("f")), 0)))
	return errs
}

// endsAll ends each delivery of a fetch, with its lane.
func (r *rig) endsAll(f FetchReply, with func(name string) Settlement) (all []Settlement) {
	for i, tag := range f.Tags {
		e, _ := message.DecodeEnvelope(f.Envelopes[i])
		s := with(names(tag))
		s.Lane = e.Lane.Text()
		all = append(all, s)
	}
	return all
}

// comesOut acks whatever is handed out for half an hour, and returns the names of these messages in that order.
func (r *rig) comesOut(want ...string) []string {
	r.t.Helper()
	c, seen := NewCaller(), []string(nil)
	for range 60 {
		r.at(r.since(r.now) + 30*time.Second)
		c.Next()
		f, err := r.Store.Fetch(queuetest.CtxB, c, FetchRequest{Want: 10, Settings: &r.with})
		if r.gave(f); err != nil {
			r.t.Fatal(err)
		}
		r.tickOf(c)
		for _, tag := range f.Tags {
			id, _ := message.SplitTag(tag)
			seen = append(seen, names(id))
		}
		r.done(r.endsAll(f, func(name string) Settlement { return ack(name) })...)
		if f.Next > 1<<53 {
			r.t.Errorf("next %d at %d is no instant", f.Next, f.Now)
		}
	}
	return slices.DeleteFunc(seen, func(name string) bool { return !slices.Contains(want, name) })
}

// comesInOrder wants these messages to come out in this order.
func (r *rig) comesInOrder(want ...string) {
	r.t.Helper()
	r.equal("handed out", r.comesOut(want...), want)
}

// readAsItIs is the whole state, which may break invariants.
func (r *rig) readAsItIs() *check.State {
	r.t.Helper()
	s, err := check.Read(queuetest.CtxB, r.Cli, "dq", r.name)
	queuetest.Must(r.t, err)
	return s
}

// lanesHave is how many members lanes has.
func (r *rig) lanesHave() int { return len(r.readAsItIs().Lanes) }

// rubbishMembers are members of lanes that no script writes, around the ids of a message that lives, and of none.
func rubbishMembers(lives string) (all []string) {
	due := fmt.Sprintf("%016d", rigBase)
	for _, id := range []string{queuetest.IDOf(lives), queuetest.IDOf("nobody")} {
		for _, first := range []string{"nan", "-nan", "inf", "-inf", "0x10", "1e300", "-5", "1.5", " 5", "",
			"9999999999999999", "0000000000000000", due} {
			all = append(all, "l\x00"+fmt.Sprintf("%-16s", first)+id+" 1 001", "m\x00"+first+id)
		}
		for _, width := range []string{"000", "999", "-01", "nan", "inf", "1", "", "\xff\x00\n"} {
			all = append(all, "l\x00\x00"+width+id, "l\x00"+due+id+" 1 "+width, "l\x00"+due+id+" 2 "+width, "l\x00"+due+id+" "+
				width)
		}
		all = append(all, "\x00\x00001"+id, "\x00"+due+id+" 1 001", strings.Repeat("l", 300)+"\x00\x00001"+id,
			"l\x00\x000011:"+id)
	}
	for _, text := range rubbish {
		all = append(all, text, "l\x00"+text, "l\x00\x00"+text, "m\x00\x00001"+text, text+"\x00\x00001", "\x00"+text)
	}
	return all
}

// TestScriptRubbishInLanes: no member of lanes makes a script raise, and after a sweep what is in a lane comes out in
// its order.
func TestScriptRubbishInLanes(t *testing.T) {
	t.Parallel()
	for _, score := range []string{"0", "5", "-inf", "+inf"} {
		subtest(t, score, onReal, func(r *rig) {
			r.put(inLane("l", 1, "first", 0), inLane("l", 1, "second", 0), inLane("l", 1, "third", 0))
			for i, member := range rubbishMembers("second") {
				if i%8 != 0 && score != "0" {
					continue
				}
				r.do("ZADD", r.Keys.of("lanes"), score, member)
				for _, err := range laneCalls(r, i) {
					r.t.Fatalf("with %q: %v", member, err)
				}
				r.at(r.since(r.now) + time.Second)
			}
			r.at(r.since(r.now) + time.Hour)
			got := r.comesOut("first", "second", "third")
			if score != "0" { // such members hide others until a sweep, so more than one has a turn
				slices.Sort(got)
			}
			r.equal("handed out", got, []string{"first", "second", "third"})
		})
	}
}

// TestScriptRubbishInWaiting: no tag and no score in waiting makes a script raise or come to an impossible instant,
// and what is in the lane of a message comes out.
func TestScriptRubbishInWaiting(t *testing.T) {
	onReal(t, func(r *rig) {
		r.put(inLane("l", 1, "first", 0), inLane("l", 1, "second", 0), inLane("l", 1, "third", time.Second))
		for i, score := range []string{"+inf", "-inf", "1.79e18", "9.1e15", "1.5", "0", "-5", "1e300"} {
			for _, tag := range append(rubbish, "2:nobody", queuetest.IDOf("nobody")) {
				r.do("ZADD", r.Keys.of("waiting"), score, tag)
			}
			r.do("ZADD", r.Keys.of("waiting"), score, queuetest.IDOf("third"))
			for _, err := range laneCalls(r, i) {
				r.t.Fatalf("with %s: %v", score, err)
			}
			r.at(r.since(r.now) + time.Second)
		}
		r.do("DEL", r.Keys.of("waiting"))
		r.at(r.since(r.now) + time.Hour)
		r.comesInOrder("first")
		mended, err := r.Store.Repair(queuetest.CtxB,
			[]Flaw{{"place", queuetest.IDOf("second")}, {"place", queuetest.IDOf("third")}})
		r.equal("repair", []any{mended, err}, []any{[]string{"done", "done"}, nil})
		r.comesInOrder("second", "third")
	})
}

// TestScriptLanesAreGone: another program deletes lanes. What waits is found and taken out, and has a lane again if
// it is made due at another instant.
func TestScriptLanesAreGone(t *testing.T) {
	onReal(t, func(r *rig) {
		r.put(inLane("l", 1, "a", 0), inLane("l", 1, "b", time.Minute), inLane("l", 1, "c", time.Minute),
			inLane("l", 1, "d", time.Minute))
		r.do("DEL", r.Keys.of("lanes"))
		r.equal("intercept", r.cancel("id", queuetest.IDOf("b")), stateWaiting)
		r.equal("delete", r.steered(SteerRequest{What: SteerDelete, Targets: []Spot{{Tag: queuetest.IDOf("c")}}}),
			stateWaiting)
		r.equal("reschedule", r.steered(SteerRequest{What: "by", Us: 1, Targets: []Spot{{Tag: queuetest.IDOf("d")}}}),
			stateWaiting)
		s := r.readAsItIs()
		r.equal("messages, waiting, pending", []int{len(s.Messages), len(s.Waiting), len(s.Pending)}, []int{2, 0, 2})
		r.comesInOrder("a", "d")
	})
}

// inLaneMany stores n messages of a lane. The function that it returns deletes their envelopes.
func (r *rig) inLaneMany(lane string, n int) (gone func()) {
	all := many(n, func(i int) *SendMessage { return inLane(lane, 1, fmt.Sprint("m", i), 0) })
	for some := range slices.Chunk(all, MaxPut) {
		r.put(some...)
	}
	return func() {
		for _, m := range all {
			r.do("HDEL", r.Keys.msg, m.ID)
		}
	}
}

// TestScriptLaneWithoutEnvelopes: another program deletes messages of a lane. A sweep ends the turn of one that is
// gone, and many that waited do not hold up a call.
func TestScriptLaneWithoutEnvelopes(t *testing.T) {
	onReal(t, func(r *rig) {
		r.put(inLane("l", 1, "first", 0))
		gone := r.inLaneMany("l", 3*500)
		r.put(inLane("l", 1, "last", time.Second), inLane("k", 1, "k", 0), inLane("k", 1, "l", 0))
		r.do("HDEL", r.Keys.msg, queuetest.IDOf("first"), queuetest.IDOf("k"))
		gone()
		c := NewCaller()
		r.fetch(c, 0)
		r.at(11 * time.Minute)
		before, fetches := r.lanesHave(), 0
		for r.lanesHave() > 2 && fetches < 10 {
			r.fetch(c, 0)
			if now := r.lanesHave(); before-now > 503 {
				r.t.Errorf("a fetch dropped %d messages of lanes", before-now)
			}
			before, fetches = r.lanesHave(), fetches+1
		}
		r.equal("fetches", fetches, 2)
		r.comesInOrder("l", "last")
		r.equal("left", r.lanesHave(), 0)
		r.read()
	})
}

// TestScriptLanesBesideOneThatIsGone: a call that ends turns of a lane of which many messages are gone gives turns of
// other lanes.
func TestScriptLanesBesideOneThatIsGone(t *testing.T) {
	onReal(t, func(r *rig) {
		const many = 600
		r.put(inLane("a", 1, "a", 0), inLane("b", 1, "b", 0))
		gone := r.inLaneMany("a", many)
		r.put(inLane("b", 1, "next", 0))
		gone()
		r.take("a b")
		r.done(lane("a", ack("a")), lane("b", ack("b")))
		r.equal("left", r.lanesHave(), many-500+1)
		r.take("next")
	})
}

// TestScriptSweepOfForeignLanes: if a key that only a tick reads is another program's, a tick says so, and consumers
// go on. With the key back it gives the turns that were forgotten.
func TestScriptSweepOfForeignLanes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lanes", "waiting", "done"} {
		subtest(t, name, onReal, func(r *rig) {
			r.put(inLane("l", 1, "a", time.Hour), inLane("l", 1, "b", time.Hour))
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
			sane := r.snapshot()
			r.restore(sane, fault{key: name})
			c := newCall()
			_, err := r.Store.Tick(queuetest.CtxB, c, TickRequest{Settings: &r.with})
			if !errors.Is(err, ErrWrongType) {
				r.t.Errorf("%v, want %v", err, ErrWrongType)
			}
			r.askFirst(c, FetchRequest{Want: 10})
			r.restore(sane)
			r.equal("swept", r.readAsItIs().Fields["swept"], "")
			r.fetch(NewCaller(), 10)
			r.equal("turns", names(r.readAsItIs().Lanes[0].Tag.ID), "b")
		})
	}
}

// forgedLane is the envelope of a message, with these bytes as field 136.
func forgedLane(name, field string) string {
	b := append(fmt.Appendf(nil, "\x02%016d\x00\x00\x88", int64(rigBase)),
		binary.AppendUvarint(nil, uint64(len(field)))...)
	return string(append(b, field...)) + fmt.Sprintf("\x01%c%s", len(name), name)
}

// TestScriptForgedLane: another program writes another lane, or none that can be read, into the envelopes of messages
// that have a turn, and wait for one. None is lost.
func TestScriptForgedLane(t *testing.T) {
	t.Parallel()
	fields := []string{"", "0", "001", "000l", "101l", "-01l", "nanl", "1e1l", "001\x00", "001l\x00", "001k", "002l",
		"100" + strings.Repeat("k", 200), "001" + strings.Repeat("k", 201)}
	for n, field := range fields {
		subtest(t, fmt.Sprint(n), onReal, func(r *rig) {
			for _, other := range []string{"a", "b", "c", "d"} {
				r.put(inLane("l", 1, other, 0))
			}
			for _, name := range []string{"a", "b", "d"} {
				r.do("HSET", r.Keys.msg, queuetest.IDOf(name), forgedLane(name, field))
			}
			for _, err := range laneCalls(r, 1) {
				r.t.Error(err)
			}
			for _, do := range []SteerRequest{{What: "at", Us: r.now + 1e6, Targets: []Spot{{Tag: queuetest.IDOf("b")}}},
				{What: SteerDelete, Targets: []Spot{{Tag: queuetest.IDOf("d")}}}} {
				if got := r.steered(do); got != stateWaiting && got != stateReady {
					r.t.Errorf("%s: %s", do.What, got)
				}
			}
			if s := r.readAsItIs(); s.Where(queuetest.IDOf("d")) != "gone" {
				r.t.Errorf("d is in %s", s.Where(queuetest.IDOf("d")))
			}
			r.equal("handed out", slices.Sorted(slices.Values(r.comesOut("a", "b", "c"))), []string{"a", "b", "c"})
		})
	}
}
