package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// Lanes: all messages have lanes (WithLane). Half of the lanes handle one message at a time, and half of them three.
var lanes = []scenario{
	{
		name: "lanes: consumers killed, replies lost",
		holds: "50 lanes, of which half have the width 3: no message starts before those of its lane that are due before " +
			"it have ended for good, but for as many as its width allows; and no more are begun and not ended",
		setUp: wired(),
		load:  laned,
		hit:   losing(2*often, (*trial).killConsumer),
		every: 20 * time.Millisecond,
		rules: rules{lanes: true},
		check: func(t *trial, v *verdict) { v.wantTurns(t.load.Messages) },
	},
	{
		name: "lanes: consumer frozen past its lease",
		holds: "and the same, but for handlers that run on when their messages have started elsewhere; their results are " +
			"void",
		load: func(l *load) {
			laned(l)
			l.Messages, l.Slow, l.Workers, l.RunOn = 60*laneCount, 2*time.Second, 96, true
		},
		hit:   func(t *trial) { t.freeze(t.consumers[0]) },
		every: 2 * time.Second,
		rules: rules{lanes: true},
		check: func(t *trial, v *verdict) {
			v.wantTurns(t.load.Messages)
			if n := t.logged("its result is void") + t.logged("settlements came too late"); n == 0 {
				v.problem("no late settlement was void")
			}
		},
	},
	{
		name: "lanes: Sentinel: primary killed, WithReplicaAck(1)",
		holds: "and the same before a failover, and a lease after it, beside consumers that are killed: what the promoted " +
			"replica had not heard of, it forgets together: an ack, and the turn of the next message",
		setUp: sentinel,
		load: func(l *load) {
			laned(l)
			l.Messages, l.Over = 8*l.Messages/5, 8*l.Over/5
			l.Lease, l.Replicas = 3*time.Second, 1
		},
		hit: func(t *trial) {
			t.wait(t.load.Over / 4) // before the failover, turns are judged too
			t.failOverAmongKills()
		},
		times: 1,
		rules: rules{lanes: true, resume: 5 * time.Second, duplicate: unheard},
		check: func(t *trial, v *verdict) {
			v.wantTurns(t.load.Messages / 8)
			if !slices.Contains(v.causes, unheard) {
				v.problem("no ack was forgotten")
			}
		},
	},
}

const (
	laneCount = 50
	wideLane  = 3 // the width of every second one
)

func laned(l *load) {
	l.Lanes, l.Messages = laneCount, 120*laneCount
	l.Over, l.MaxDelay, l.Slow = 10*time.Second, 300*time.Millisecond, 300*time.Millisecond
}

// inLane puts the messages of a step into one lane, which has batches and single sends in turn. Half of both have no
// delay, so the order of a batch counts.
func inLane(l load, first int, batch []delayqueue.Outgoing) {
	n := first / step
	lane := laneName((n + n/l.Lanes) % l.Lanes)
	for i := range batch {
		m := &batch[i]
		m.Payload = lane + laneMark + m.Payload
		m.Options = []delayqueue.MsgOption{delayqueue.WithLane(lane, widthOf(lane))}
		if n%4 > 1 {
			m.Options = append(m.Options, withSomeDelay(l))
		}
	}
}

const laneMark = "/" // in a payload, after its lane

func laneName(i int) string { return fmt.Sprintf("lane%02d", i) }

// laneOf is the lane of a payload.
func laneOf(payload string) string {
	lane, _, _ := strings.Cut(payload, laneMark)
	return lane
}

// widthOf is the width of a lane, which its number says.
func widthOf(lane string) int {
	if n, _ := strconv.Atoi(strings.TrimPrefix(lane, "lane")); n%2 == 1 {
		return wideLane
	}
	return 1
}

// A span is a time in which each message has one holder at most, for all that Redis knows.
type span struct{ from, to int64 } // unix us

// spans are the times between failovers. After a failover, two consumers may hold a message until a lease is over.
func (ev *evidence) spans() (all []span) {
	from := int64(0)
	for _, st := range ev.strikes {
		if st.who == "" && st.why != "" {
			all = append(all, span{from, st.from})
			from = st.to + ev.rules.lease.Microseconds()
		}
	}
	return append(all, span{from, math.MaxInt64})
}

// A turn is what the ledgers say of the turn of a message within a span.
type turn struct {
	*story
	first int64 // the first start of a handler; 0: there was none
	last  int64 // the end for good
}

// turnOf finds the turn of a message. It ends with the last delivery: a handler of an earlier one that runs on, or
// begins, has lost its lease.
func (ev *evidence) turnOf(s *story, in span) turn {
	t, before, after := turn{story: s, last: in.to}, false, false
	var last *run
	for i, r := range s.runs {
		switch {
		case r.start.At < in.from:
			before = true
		case r.start.At >= in.to:
			after = true
		default:
			t.first = cmp.Or(t.first, r.start.At)
			if last == nil ||
				r.start.Delivery >= last.start.Delivery { // a consumer that was frozen may start an earlier one late
				last = &s.runs[i]
			}
		}
	}
	switch {
	case last != nil && last.concludes():
		t.last = last.end.At
	case last == nil && before:
		t.last = in.from // it was over before, or it began again where nothing is judged
	case !after:
		for _, e := range ev.state.Garbage { // poison
			if e.ID == s.id() {
				t.last = min(t.last, e.Score)
			}
		}
	}
	return t
}

// concludes says whether no delivery follows, if what the handler came to counts.
func (r *run) concludes() bool {
	return r.word() == succeeded || r.word() == gaveUp || r.word() == failed && r.start.Failures == retries
}

// id is that of the message, by the producer or by a consumer.
func (s *story) id() string {
	if s.sent == nil {
		return s.runs[0].start.ID
	}
	return s.sent.ID
}

// hasTurn says whether it has its turn at an instant.
func (t *turn) hasTurn(at int64) bool { return t.first > 0 && t.first <= at && at < t.last }

// over says whether its turn has ended before an instant.
func (t *turn) over(at int64) bool { return t.last <= at }

// goesBefore says whether the turn of a message comes first. A message is in Redis at the instant at which it is due,
// so one that is due later is handed out after that. One that began before it was due was sent anew, because a
// failover forgot it.
func (t *turn) goesBefore(other *turn) bool {
	a, b := t.sent, other.sent
	switch {
	case a == nil || b == nil || other.first < b.Due:
		return false
	case a.Due == b.Due:
		return stepOf(a.Payload) == stepOf(b.Payload) && a.Payload < b.Payload
	}
	return a.Due < b.Due
}

// stepOf is the producer and the step that sent a payload.
func stepOf(payload string) string {
	i := strings.LastIndexByte(payload, '-')
	n, _ := strconv.Atoi(payload[i+1:])
	return fmt.Sprint(payload[:i+1], n/step)
}

// weighLanes judges the order and the number of turns in each lane.
func (v *verdict) weighLanes(ev *evidence, stories []*story) {
	if !ev.rules.lanes {
		return
	}
	byLane := map[string][]*story{}
	for _, s := range stories {
		if len(s.runs) > 0 || s.sent != nil {
			byLane[laneOf(s.payload)] = append(byLane[laneOf(s.payload)], s)
		}
	}
	for _, in := range ev.spans() {
		judged := 0
		for _, lane := range slices.Sorted(maps.Keys(byLane)) {
			var turns []turn
			for _, s := range byLane[lane] {
				turns = append(turns, ev.turnOf(s, in))
			}
			judged += v.weighLane(lane, turns)
		}
		v.turns = append(v.turns, judged)
	}
	if n := len(ev.state.Lanes) + len(ev.state.Waiting); n > 0 {
		v.problem("%d messages are left in lanes", n)
	}
}

// weighLane judges one lane at each first start, and returns how many there are.
func (v *verdict) weighLane(lane string, turns []turn) (starts int) {
	width := widthOf(lane)
	for i := range turns {
		t := &turns[i]
		if t.first == 0 {
			continue
		}
		starts++
		var beside, ahead []string
		for j := range turns {
			other := &turns[j]
			if other.hasTurn(t.first) {
				beside = append(beside, other.payload)
			}
			if other.goesBefore(t) && !other.over(t.first) {
				ahead = append(ahead, other.payload)
			}
		}
		if v.beside = max(v.beside, len(beside)); len(beside) > width {
			v.problem("%s: %d messages have a turn at %s, and the width is %d: %q", lane, len(beside), clock(t.first), width,
				beside)
		}
		if len(ahead) >= width {
			v.problem("%s: started at %s, and the turns of %d messages before it were not over: %q", t.payload, clock(t.first),
				len(ahead), ahead)
		}
	}
	return starts
}

// wantTurns wants as many turns to have been judged between failovers, wide lanes to have been full, and messages to
// have come again.
func (v *verdict) wantTurns(most int) {
	for _, n := range v.turns {
		if n < most/2 {
			v.problem("%d turns were judged between failovers, want %d", n, most/2)
		}
	}
	if v.beside < wideLane {
		v.problem("at most %d messages of a lane had a turn at a time, want %d", v.beside, wideLane)
	}
	if v.duplicated == 0 {
		v.problem("no message came again because of a fault")
	}
}
