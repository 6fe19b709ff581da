package script

import (
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// inLane makes a message that has a lane.
func inLane(lane string, width int, name string, d time.Duration, rest ...func(*message.Envelope)) *SendMessage {
	m := msg(name, d, append(rest, func(e *message.Envelope) { e.Lane = message.Lane{Name: lane, Width: width} })...)
	m.Put = &PutOptions{Laned: true, Timed: true}
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
func TestScriptLane(t *testing.T) {
	inL := func(name string, d time.Duration) *SendMessage { return inLane("l", 1, name, d) }
	ackL := func(name string) Settlement { return lane("l", ack(name)) }
	runScripts(t, map[string]scriptCase{
		"one at a time, in the order of the batch": {func(r *rig) {
			r.put(inL("a", 0), inL("b", 0), inL("c", 0), msg("x", 0))
			r.expect("pending a@0s x@0s waiting b@0s c@0s places l=a wake 0s")
			r.equal("handed out", names(strings.Join(r.fetch(NewCaller(), 10).Tags, " ")), "a x")
			r.done(ackL("a"), ack("x"))
			r.handsOutInOrder("b c", ackL)
		}, ""},
		"a delayed message blocks nobody": {func(r *rig) {
			r.put(inL("a", time.Hour))
			r.put(inL("b", 2*time.Hour))
			r.put(inL("c", time.Second))
			r.expect("pending c@1s waiting a@1h0m0s b@2h0m0s places l=c wake 1s")
			r.at(time.Second)
			r.handsOutInOrder("c", ackL)
			r.expect("pending a@1h0m0s waiting b@2h0m0s places l=a wake 1h0m0s")
		}, "pending a@1h0m0s waiting b@2h0m0s places l=a wake 1h0m0s"},
		"of two at one instant, the second yields its turn": {func(r *rig) {
			two := func(name string, d time.Duration) *SendMessage { return inLane("l", 2, name, d) }
			r.put(two("a", time.Hour), two("b", time.Hour))
			r.put(two("c", time.Second))
		}, "pending c@1s a@1h0m0s waiting b@1h0m0s places l=a l=c wake 1s"},
		"a failure keeps the lane": {func(r *rig) {
			r.put(inL("a", 0), inL("b", 0))
			r.take("a")
			s := lane("l", ends(OutcomeRetry, "a", 1, 0, "x"))
			s.Delay = time.Minute
			r.done(s)
			r.equal("handed out", len(r.fetch(NewCaller(), 10).Tags), 0)
			r.at(time.Minute)
			r.take("2:a")
			r.done(lane("l", ends(OutcomeGarbage, "2:a", 2, 0, "x")))
			r.handsOutInOrder("b", ackL)
		}, "garbage a@1m0s fail a=3/2/0@1m0s!x"},
	})
}
