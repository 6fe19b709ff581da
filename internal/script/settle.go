package script

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// This file has the typed call of settle.

// A Settlement ends one delivery.
type Settlement struct {
	Tag, ID, Key string
	Number       int // of the delivery
	Kind         OutcomeKind
	Failed       bool           // it counts as a failure
	Delay        time.Duration  // of OutcomeRetry and OutcomeThrottle; of OutcomeDone for how long it is kept
	Failures     int            // as they are from now on
	Losses       int            // in a row
	Text         string         // error, "": they are as they were; of OutcomeDone the result
	Errors       string         // of the record before
	Hold         time.Duration  // of OutcomeAck and OutcomeDone: for which its key stays taken
	Parts        int            // of those two: how many parts the handler had; 0: it is no group
	Follows      []*SendMessage // of OutcomeAck and OutcomeDone: what is stored with it
	Overrun      time.Duration  // its handler runs on, and keeps its place for so long; 0: it does not
}

type OutcomeKind int

const (
	OutcomeAck OutcomeKind = iota
	OutcomeRetry
	OutcomeReady
	OutcomeGarbage
	OutcomeDone     // an ack, after which the message is kept to be looked at
	OutcomeThrottle // a retry before which nothing of the queue is handed out
)

// outcomeWords are what settle calls them.
var outcomeWords = [...]any{OutcomeAck: "ack", OutcomeRetry: "retry", OutcomeReady: "ready", OutcomeGarbage: "garbage",
	OutcomeDone: "done", OutcomeThrottle: "throttle"}

// record appends its word and the fields of that, as settle has them.
func (s *Settlement) record(args []any) []any {
	if s.Hold > 0 {
		args = append(args, "hold", s.Hold.Microseconds())
	}
	if s.Parts > 0 {
		args = append(args, "group", s.Parts)
	}
	if s.Overrun > 0 {
		args = append(args, "overrun", s.Overrun.Microseconds())
	}
	args = append(args, outcomeWords[s.Kind], &s.Tag, &s.ID)
	switch s.Kind {
	case OutcomeAck, OutcomeDone:
		args = append(args, &s.Key, len(s.Follows))
		if s.Kind == OutcomeDone {
			args = append(args, s.Number+1, s.counts(), s.Delay.Microseconds(), &s.Text)
		}
		for _, m := range s.Follows {
			args = append(args, &m.ID, &m.Key, m.delay(), m.Version, &m.Text)
		}
		return args
	}
	text := ""
	if s.Text != "" {
		text = message.WithError(s.Number, s.Text, s.Errors)
	}
	args = append(args, s.Number+1, s.counts(), text, s.Failed)
	switch s.Kind {
	case OutcomeGarbage:
		return append(args, &s.Key)
	case OutcomeRetry, OutcomeThrottle:
		return append(args, s.Delay.Microseconds())
	}
	return args
}

// counts are its failures and losses as they are from now on.
func (s *Settlement) counts() string { return strconv.Itoa(s.Failures) + " " + strconv.Itoa(s.Losses) }

// plain settlements, nearly all, need nothing but the tag.
func (s *Settlement) plain() bool {
	return s.Kind == OutcomeAck && s.Number == 1 && s.Key == "" && len(s.Follows) == 0 && s.Parts == 0
}

// A SettleReply is what a settle did besides.
type SettleReply struct {
	Now          int64 // unix us
	Void         []int // indices of the settlements whose delivery was not held any more
	Overflow     int   // garbage deleted for want of room
	DoneOverflow int   // done messages deleted for want of room
	Refused      []refusedFollower
	Superseded   []int // indices of those that ended their messages because their deliveries were superseded
}

// A refusedFollower was not stored with the ack that it follows.
type refusedFollower struct {
	Settlement, Follower int    // indices
	Holder               string // of its key
}

// A settleCall is a call of settle: its arguments, and how its reply is read.
type settleCall struct {
	args      []any
	order     []int             // of the script's indices
	followers []refusedFollower // in the order of the script, none of them refused yet
}

// Settle ends deliveries.
func (s *Store) Settle(ctx context.Context, c *Caller, all []Settlement) (SettleReply, error) {
	call := newSettleCall(c, all, "")
	return call.read(s.run(ctx, SettleScript, call.args))
}

// newSettleCall makes one; before is what stands before the number of plain settlements.
func newSettleCall(c *Caller, all []Settlement, before string) settleCall {
	plain, acks := make([]int, 0, len(all)), make([]any, 0, len(all))
	var others []int
	var records []any
	var followers []refusedFollower
	for i := range all {
		if o := &all[i]; o.plain() {
			plain, acks = append(plain, i), append(acks, &o.Tag)
		} else {
			others = append(others, i)
			records = o.record(records)
			for j := range o.Follows {
				followers = append(followers, refusedFollower{Settlement: i, Follower: j})
			}
		}
	}
	return settleCall{slices.Concat(c.args(0), []any{before + strconv.Itoa(len(plain))}, acks, records), append(plain, others...), followers}
}

// read reads the reply.
func (c *settleCall) read(r *reply) (SettleReply, error) {
	got := SettleReply{Now: r.int64()}
	got.Overflow, got.DoneOverflow = r.number(), r.number()
	got.Void = r.ordered(c.order)
	refused := r.refused(len(c.followers))
	for _, i := range slices.Sorted(maps.Keys(refused)) {
		c.followers[i].Holder = strings.TrimPrefix(refused[i], acked)
		got.Refused = append(got.Refused, c.followers[i])
	}
	got.Superseded = r.ordered(c.order)
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
