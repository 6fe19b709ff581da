package delayqueue

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file has the typed call of settle.

// A settlement ends one delivery.
type settlement struct {
	tag, id, key string
	number       int // of the delivery
	kind         outcomeKind
	failed       bool           // it counts as a failure
	delay        time.Duration  // of outcomeRetry and outcomeThrottle; of outcomeDone for how long it is kept
	failures     int            // as they are from now on
	losses       int            // in a row
	text         string         // error, "": they are as they were; of outcomeDone the result
	errors       string         // of the record before
	hold         time.Duration  // of outcomeAck and outcomeDone: for which its key stays taken
	parts        int            // of those two: how many parts the handler had; 0: it is no group
	follows      []*sendMessage // of outcomeAck and outcomeDone: what is stored with it
	overrun      time.Duration  // its handler runs on, and keeps its place for so long; 0: it does not
}

// said is the error as settle takes it, with those that are kept beside it, or the result.
func (s *settlement) said() any {
	if s.text == "" || s.kind == outcomeDone {
		return &s.text
	}
	return withError(s.number, s.text, s.errors)
}

// more is the last argument of a record.
func (s *settlement) more() any {
	if s.hold > 0 {
		return s.hold.Microseconds()
	}
	return s.failed
}

type outcomeKind int

const (
	outcomeAck outcomeKind = iota
	outcomeRetry
	outcomeReady
	outcomeGarbage
	outcomeDone     // an ack, after which the message is kept to be looked at
	outcomeThrottle // a retry before which nothing of the queue is handed out
)

// outcomeWords are what settle calls them.
var outcomeWords = [...]any{outcomeAck: "ack", outcomeRetry: "retry", outcomeReady: "ready", outcomeGarbage: "garbage",
	outcomeDone: "done", outcomeThrottle: "throttle"}

// plain settlements, nearly all, need nothing but the tag.
func (s *settlement) plain() bool {
	return s.kind == outcomeAck && s.number == 1 && s.key == "" && len(s.follows) == 0 && s.parts == 0
}

// A settleReply is what a settle did besides.
type settleReply struct {
	now          int64 // unix us
	void         []int // indices of the settlements whose delivery was not held any more
	overflow     int   // garbage deleted for want of room
	doneOverflow int   // done messages deleted for want of room
	refused      []refusedFollower
	superseded   []int // indices of those that ended their messages because their deliveries were superseded
}

// A refusedFollower was not stored with the ack that it follows.
type refusedFollower struct {
	settlement, follower int    // indices
	holder               string // of its key
}

// A settleCall is a call of settle: its arguments, and how its reply is read.
type settleCall struct {
	args      []any
	order     []int             // of the script's indices
	followers []refusedFollower // in the order of the script, none of them refused yet
}

// settle ends deliveries.
func (s *store) settle(ctx context.Context, c *caller, all []settlement) (settleReply, error) {
	call := newSettleCall(c, all, "")
	return call.read(s.run(ctx, settleScript, call.args))
}

// newSettleCall makes one; before is what stands before the number of plain settlements.
func newSettleCall(c *caller, all []settlement, before string) settleCall {
	plain, acks := make([]int, 0, len(all)), make([]any, 0, len(all))
	var others []int
	var records []any
	var followers []refusedFollower
	for i := range all {
		if o := &all[i]; o.plain() {
			plain, acks = append(plain, i), append(acks, &o.tag)
		} else {
			others = append(others, i)
			if o.parts > 0 {
				records = append(records, "parts", "", &o.id, "", o.parts, "", "", "", "")
			}
			if o.overrun > 0 {
				records = append(records, "overrun", "", &o.id, "", o.overrun.Microseconds(), "", "", "", "")
			}
			records = append(records, outcomeWords[o.kind], &o.tag, &o.id, &o.key, o.delay.Microseconds(),
				o.number+1, strconv.Itoa(o.failures)+" "+strconv.Itoa(o.losses), o.said(), o.more())
			for j, m := range o.follows {
				followers = append(followers, refusedFollower{settlement: i, follower: j})
				records = append(records, "then", "", &m.id, &m.key, m.delay(), m.version, "", &m.text, "")
			}
		}
	}
	return settleCall{slices.Concat(c.args(0), []any{before + strconv.Itoa(len(plain))}, acks, records), append(plain, others...), followers}
}

// read reads the reply.
func (c *settleCall) read(r *reply) (settleReply, error) {
	got := settleReply{now: r.int64()}
	got.overflow, got.doneOverflow = r.number(), r.number()
	got.void = r.ordered(c.order)
	refused := r.refused(len(c.followers))
	for _, i := range slices.Sorted(maps.Keys(refused)) {
		c.followers[i].holder = strings.TrimPrefix(refused[i], acked)
		got.refused = append(got.refused, c.followers[i])
	}
	got.superseded = r.ordered(c.order)
	return got, r.err("settle")
}

// ordered reads a list of the script's indices, of which order has the caller's.
func (r *reply) ordered(order []int) (list []int) {
	for _, i := range r.indices(len(order)) {
		list = append(list, order[i])
	}
	slices.Sort(list)
	return list
}
