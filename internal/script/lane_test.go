package script

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// inLane makes a message that has a lane.
func inLane(lane string, width int, name string, d time.Duration, rest ...func(*message.Envelope)) *SendMessage {
	m := msg(name, d, append(rest, func(e *message.Envelope) { e.Lane = message.Lane{Name: lane, Width: width} })...)
	m.Put = &PutOptions{Laned: true, Timed: true}
	return m
}

// changes gives a message another policy for its key.
func changes(c Conflict, m *SendMessage) *SendMessage {
	laned := m.Put != nil && m.Put.Laned
	m.Put = &PutOptions{On: c, Timed: true, Laned: laned}
	return m
}

// lane gives the ending of a delivery a lane.
func lane(name string, s Settlement) Settlement {
	s.Lane = message.Lane{Name: name, Width: 1}.Text()
	return s
}

// handsOutInOrder wants fetches and acks to bring these, one after the other.
func (r *rig) handsOutInOrder(want string, ack func(name string) Settlement) {
	r.t.Helper()
	for _, name := range strings.Fields(want) {
		f := r.fetch(NewCaller(), 10)
		r.equal("handed out", names(strings.Join(f.Tags, " ")), name)
		r.read()
		r.done(ack(name))
		r.read()
	}
}

// TestScriptLane: messages of a lane have their turns one after the other, in order of their instants.
// TestModel compares the rest.
func TestScriptLane(t *testing.T) {
	inL := func(name string, d time.Duration) *SendMessage { return inLane("l", 1, name, d) }
	ackL := func(name string) Settlement { return lane("l", ack(name)) }
	runScripts(t, map[string]scriptCase{
		"Again ends the turn": {func(r *rig) {
			r.put(inL("a", 0), inL("b", 0), inL("c", time.Minute))
			r.take("a")
			s := lane("l", ends(OutcomeRetry, "a", 0, 0, ""))
			s.Leaves, s.Delay = true, time.Second
			r.done(s)
			r.expect("pending b@0s waiting 2:a@1s c@1m0s fail a=2/0/0@0s turns l=b wake 0s")
			r.handsOutInOrder("b", ackL)
			r.at(time.Minute)
			r.handsOutInOrder("2:a c", ackL)
		}, ""},
		"what is requeued stands behind what waits": {func(r *rig) {
			r.put(inL("a", 0), inL("b", 0), inL("c", 0))
			r.take("a")
			r.done(lane("l", ends(OutcomeGarbage, "a", 1, 0, "x")))
			r.at(time.Second)
			r.equal("requeue", r.steers(SteerRequeue, r.now, "a"), stateGarbage)
			r.handsOutInOrder("b c 2:a", ackL)
		}, ""},
		"what is put off gives up its turn, and what is put forward gets it": {func(r *rig) {
			r.put(inL("a", time.Minute), inL("b", 2*time.Minute), inL("c", 3*time.Minute))
			r.equal("reschedule", r.steers(SteerAt, r.now+4*time.Minute.Microseconds(), "a"), "pending")
			r.expect("pending b@2m0s waiting c@3m0s a@4m0s turns l=b wake 1m0s")
			r.equal("reschedule", r.steers(SteerAt, r.now, "c"), "waiting")
			r.expect("pending c@0s waiting b@2m0s a@4m0s turns l=c wake 0s")
		}, "pending c@0s waiting b@2m0s a@4m0s turns l=c wake 0s"},
		"what was released, has expired and is made due anew keeps its turn": {func(r *rig) {
			r.put(inLane("l", 1, "a", 0, func(e *message.Envelope) { e.Deadline = rigBase + 1e6 }), inL("b", 0))
			r.take("a")
			r.done(ends(OutcomeReady, "a", 0, 0, ""))
			r.at(2 * time.Second)
			r.equal("steer", r.steered(SteerRequest{What: SteerAt, Us: r.now, Anew: true, Targets: targetsOf("a")}), stateReady)
		}, "retry 2:a@2s waiting b@0s fail a=2/0/0@0s turns l=a wake 0s"},
		"a message that its consumer cannot read": {func(r *rig) {
			r.put(inL("a", 0), inL("b", 0))
			r.take("a")
			s := ends(OutcomeGarbage, "a", 1, 0, "x")
			s.Lane = LaneUnknown
			r.done(s)
		}, "pending b@0s garbage a@0s fail a=2/1/0@0s!x turns l=b wake 0s"},
	})
}

// TestScriptLaneWidths: put says where messages of a lane ask for different widths, and the smallest of those that
// have a turn holds.
func TestScriptLaneWidths(t *testing.T) {
	onBoth(t, func(r *rig) {
		sends := func(uneven string, ms ...*SendMessage) {
			r.t.Helper()
			r.equal("uneven", r.send(NewCaller(), ms...).Uneven, uneven)
		}
		sends("", inLane("l", 3, "a", 0), inLane("l", 3, "b", 0), inLane("k", 1, "x", 0))
		sends("l", inLane("l", 1, "c", 0), inLane("l", 3, "d", 0), inLane("l", 3, "e", 0))
		r.expect("pending a@0s b@0s x@0s waiting c@0s d@0s e@0s turns k=x l=a l=b wake 0s")
	})
}

// skipped ends the turn of a message.
func (r *rig) skipped(what, name string) string {
	r.t.Helper()
	return r.steered(SteerRequest{What: what, Targets: []Spot{{Tag: queuetest.IDOf(name), Score: "skipped"}}})
}

// TestScriptSkip: a turn ends by hand, for good or for later, unless a handler has the message.
func TestScriptSkip(t *testing.T) {
	inL := func(name string, d time.Duration) *SendMessage { return inLane("l", 1, name, d) }
	ackL := func(name string) Settlement { return lane("l", ack(name)) }
	fails := func(r *rig) { // a waits a minute for its retry
		r.take("a")
		s := lane("l", ends(OutcomeRetry, "a", 1, 0, "x"))
		s.Delay = time.Minute
		r.done(s)
	}
	runScripts(t, map[string]scriptCase{
		"garbage, and it was never handed out": {func(r *rig) {
			r.put(inL("a", 0), inL("b", 0))
			r.equal("skip", r.skipped(SteerGarbage, "a"), "ready")
			r.handsOutInOrder("b", ackL)
		}, "garbage a@0s fail a=1/0/0@0s!skipped"},
		"to the end of what is due": {func(r *rig) {
			r.put(inL("a", 0), inL("b", 0), inL("c", 0), inL("d", time.Hour))
			r.equal("skip", r.skipped(SteerLast, "a"), "ready")
			r.at(time.Second)
			r.handsOutInOrder("b c a", ackL)
		}, "pending d@1h0m0s turns l=d wake 1h0m0s"},
		"to the end, and its retry is to come": {func(r *rig) {
			r.put(inL("a", 0), inL("b", 0))
			fails(r)
			r.equal("skip", r.skipped(SteerLast, "a"), "retry")
			r.handsOutInOrder("b", ackL)
		}, "retry 2:a@1m0s fail a=2/1/0@0s!x turns l=2:a wake 1m0s"},
		"nobody that is due waits": {func(r *rig) {
			r.put(inL("a", 0), inL("b", time.Hour))
			got, err := r.Store.Steer(queuetest.CtxB, newCall(), SteerRequest{What: SteerLast, Targets: targetsOf("a")})
			r.equal("skip", fmt.Sprint(got, err), fmt.Sprint([]Steered{{State: stateReady, Done: true, Stays: true}}, nil))
		}, "pending a@0s waiting b@1h0m0s turns l=a wake 0s"},
		"garbage": {func(r *rig) {
			r.put(inLane("l", 1, "a", 0, keyed("k")), inL("b", 0))
			fails(r)
			r.equal("skip", r.skipped(SteerGarbage, "a"), "retry")
			r.equal("again", r.skipped(SteerGarbage, "a"), "!garbage")
			r.handsOutInOrder("b", ackL)
		}, "garbage a@0s fail a=2/1/0@0s!skipped"},
		"who has no turn": {func(r *rig) {
			r.put(inL("a", 0), inL("b", 0), msg("x", 0))
			r.take("a x")
			for name, state := range map[string]string{"a": "!unack", "b": "!waiting", "x": "!unack", "nobody": "!gone"} {
				r.equal(name, r.skipped(SteerLast, name)+" "+r.skipped(SteerGarbage, name), state+" "+state)
			}
			r.done(ackL("a"), ack("x"))
			r.put(msg("y", 0))
			r.equal("y", r.skipped(SteerGarbage, "y"), "!ready")
		}, "pending b@0s y@0s turns l=b wake 0s"},
	})
}

// laneText writes a page of lanes.
func (r *rig) laneText(q LanesRequest) string {
	r.t.Helper()
	got, err := r.Store.Lanes(queuetest.CtxB, q)
	queuetest.Must(r.t, err)
	var text strings.Builder
	for _, l := range got.Lanes {
		fmt.Fprintf(&text, "%s/%d %d+%d", l.Name, l.Width, l.Turns, l.Waiting)
		if l.Due > 0 {
			fmt.Fprintf(&text, " from %v", r.since(l.Due))
		}
		for _, one := range l.First {
			fmt.Fprintf(&text, " %s %s", names(one.ID), one.State)
			if one.At > 0 {
				fmt.Fprintf(&text, "@%v", r.since(one.At))
			}
		}
		text.WriteString("; ")
	}
	return text.String() + got.Last
}

// TestScriptLanes: lanes come in pages, or one alone with all its turns.
func TestScriptLanes(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.equal("no lane", r.laneText(LanesRequest{Limit: 10}), "")
		r.put(inLane("a", 1, "a", 0), inLane("a", 1, "b", time.Second), inLane("ab", 3, "c", 0), inLane("ab", 2, "d", 0),
			inLane("ab", 2, "e", 0),
			inLane("\xff", 1, "f", time.Hour), msg("x", 0))
		r.equal("all", r.laneText(LanesRequest{Limit: 10}),
			"a/1 1+1 from 1s a ready@0s; ab/2 2+1 from 0s d ready@0s; \xff/1 1+0 f pending@1h0m0s; ")
		r.equal("first", r.laneText(LanesRequest{Limit: 1}), "a/1 1+1 from 1s a ready@0s; a")
		r.equal("second", r.laneText(LanesRequest{Limit: 1, After: "a"}), "ab/2 2+1 from 0s d ready@0s; ab")
		r.equal("behind all", r.laneText(LanesRequest{Limit: 1, After: "\xff"}), "")
		r.equal("one", r.laneText(LanesRequest{Name: "ab"}), "ab/2 2+1 from 0s d ready@0s c ready@0s; ")
		r.equal("none", r.laneText(LanesRequest{Name: "b"}), "")
		r.take("a c d x")
		r.done(lane("ab", ends(OutcomeReady, "c", 0, 0, "")), lane("ab", ends(OutcomeRetry, "d", 1, 0, "x")))
		r.equal("handed out", r.laneText(LanesRequest{Name: "a"}), "a/1 1+1 from 1s a unack; ")
		r.equal("released, and failed", r.laneText(LanesRequest{Name: "ab"}), "ab/2 2+1 from 0s d retry@1s c ready; ")
		r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
		r.equal("deleted", r.laneText(LanesRequest{Name: "a"}), "a/1 1+1 from 1s a gone; ")
		r.do("HSET", r.Keys.msg, queuetest.IDOf("a"), "x")
		for _, member := range []string{"", "\x00", "\x00x", "rubbish", "a\x00", "b\x00\x00", "b\x00123 7"} {
			r.do("ZADD", r.Keys.of("lanes"), 0, member)
		}
		if got := r.laneText(LanesRequest{Limit: 100}); !strings.Contains(got, "\xff/1 1+0") {
			r.t.Errorf("behind rubbish: %q", got)
		}
		r.do("DEL", r.Keys.of("lanes"))
	})
}

// TestScriptPutLooksAtFewTurns: each message takes a turn of a wide lane from one that is due later, so all turns are
// looked at for each. The call ends when it has looked at 1,000, and says of the others nothing.
func TestScriptPutLooksAtFewTurns(t *testing.T) {
	onReal(t, func(r *rig) {
		by, batch := NewCaller(), many(2*message.MaxWidth, func(i int) *SendMessage {
			return inLane("l", message.MaxWidth, fmt.Sprintf("m%03d", i), time.Hour-time.Duration(i)*time.Second)
		})
		for i, want := range []int{message.MaxWidth, 10, 10} { // each of the first hundred gets a turn that is free
			out := r.send(by, batch[:min(message.MaxWidth, len(batch))]...)
			r.equal(fmt.Sprint("answers of call ", i), len(out.Answers), want)
			batch = batch[len(out.Answers):]
		}
		r.read()
	})
}
