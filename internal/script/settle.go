package script

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// This file has the typed call of settle.

// A Settlement ends one delivery.
type Settlement struct {
	Lease        *Lease
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
	Counts       string         // of those two: the key of the message for whose countdown it counts; "": none
	Countdown    bool           // of those two: it has a countdown of its own
	Follows      []*SendMessage // of OutcomeAck and OutcomeDone: what is stored with it
	Lane         string         // as message.Lane.Text, or LaneUnknown
	Room         int            // of OutcomeGarbage and OutcomeDone: how many such messages there may be; 0: any number
	Leaves       bool           // of OutcomeRetry: it enters its lane anew, behind those that are due before it
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

// record appends its word and the fields of that, as settle has them. lease is the number of its lease.
func (s *Settlement) record(args []any, lease int) []any {
	if s.Hold > 0 {
		args = append(args, "hold", s.Hold.Microseconds())
	}
	if s.Parts > 0 || s.Countdown {
		args = append(args, "group", s.Parts)
	}
	if s.EndsTurn() {
		args = append(args, "lane", &s.Lane)
	}
	args = append(args, outcomeWords[s.Kind], lease, s.Tag, s.ID)
	switch s.Kind {
	case OutcomeAck, OutcomeDone:
		args = append(args, s.Key)
		if s.Kind == OutcomeDone {
			args = append(args, s.Number+1, s.counts(), s.Delay.Microseconds(), s.Text, s.Room)
		}
		for _, m := range s.Follows {
			args = m.record(args)
		}
		if s.Counts != "" {
			args = append(args, "counts", s.Counts)
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
		return append(args, s.Key, s.Room)
	case OutcomeRetry, OutcomeThrottle:
		return append(args, s.Delay.Microseconds())
	}
	return args
}

// LaneUnknown is the lane of a message that the consumer cannot read. The script reads it.
const LaneUnknown = "?"

// EndsTurn says whether the message has a lane, and its turn ends.
func (s *Settlement) EndsTurn() bool {
	return s.Lane != "" && (s.Leaves || s.Kind == OutcomeAck || s.Kind == OutcomeDone || s.Kind == OutcomeGarbage)
}

// laned says whether it may touch a lane.
func (s *Settlement) laned() bool {
	return s.Lane != "" || s.Counts != "" || slices.ContainsFunc(s.Follows, (*SendMessage).laned)
}

// counts are its failures and losses as they are from now on.
func (s *Settlement) counts() string { return strconv.Itoa(s.Failures) + " " + strconv.Itoa(s.Losses) }

// plain settlements, nearly all, need nothing but the tag.
func (s *Settlement) plain() bool {
	return s.Kind == OutcomeAck && s.Number == 1 && s.Key == "" && len(s.Follows) == 0 && s.Parts == 0 && s.Counts == "" &&
		!s.Countdown && s.Lane == ""
}

// A SettleReply is what a settle did besides.
type SettleReply struct {
	Now int64 // unix us
	// indices of the settlements whose delivery was not held any more; a message that another program deleted may be
	// missing
	Void         []int
	Overflow     int // garbage deleted for want of room
	DoneOverflow int // done messages deleted for want of room
	Answers      []FollowerAnswer
	Superseded   []int // indices of those that ended their messages because their deliveries were superseded
	Left         []int // indices of those that were not settled, because the call had no room for them
	More         bool  // messages of lanes, or for places, may go now, and nobody else was woken for them
	TooMuch      []int // index of the one of these whose followers would change too much, if there is one
}

// A FollowerAnswer is what became of a message that was to follow an ack and was not stored: another message has its
// key.
type FollowerAnswer struct {
	Settlement, Follower int // indices
	SendAnswer
}

// A settleCall is a call of settle: its arguments, and how its reply is read.
type settleCall struct {
	script    *Script
	args      []any
	order     []int            // of the script's indices
	followers []FollowerAnswer // in the order of the script, without answers
}

// Settle ends deliveries. fetches says that a fetch follows if the reply says More.
func (s *Store) Settle(ctx context.Context, c *Caller, all []Settlement, fetches bool) (SettleReply, error) {
	call := newSettleCall(c, all, fetches)
	return call.read(s.run(ctx, call.script, call.args))
}

// newSettleCall makes one. The call keeps nothing of the slice, because an attempt that nobody waits for any longer
// may still write its arguments.
func newSettleCall(c *Caller, all []Settlement, fetches bool) settleCall {
	leases, of := leasesOf(all)
	canceled := int64(math.MaxInt64)
	plain := 0
	for i := range leases {
		l := &leases[i]
		canceled = min(canceled, l.Canceled.Load())
		l.from, plain = plain, plain+l.acks
	}
	call, tags := settleCall{script: plainSettle, order: make([]int, plain, len(all))}, make([]string, plain)
	n := strconv.Itoa(plain)
	if fetches {
		n = "+" + n
	}
	args := append(c.args(3+2*len(leases)+len(all)), n, canceled, len(leases))
	for i := range leases {
		args = append(args, &leases[i].Name)
	}
	for i := range leases {
		args = append(args, leases[i].acks)
	}
	acks := len(args)
	args = args[:acks+plain]
	for i := range all {
		o, l := &all[i], &leases[of[i]]
		if o.laned() {
			call.script = SettleScript
		}
		if o.plain() {
			call.order[l.from], tags[l.from], args[acks+l.from] = i, o.Tag, &tags[l.from]
			l.from++
			continue
		}
		call.order = append(call.order, i)
		args = o.record(args, of[i]+1)
		for j := range o.Follows {
			call.followers = append(call.followers, FollowerAnswer{Settlement: i, Follower: j})
		}
	}
	call.args = args
	return call
}

// A settledLease is a lease, and what one call settles of it.
type settledLease struct {
	*Lease
	acks int // plain settlements of it
	from int // where the next of these stands among all plain ones
}

// leasesOf are the leases of some settlements, and which of them each settlement has.
func leasesOf(all []Settlement) (leases []settledLease, of []int) {
	of = make([]int, len(all))
	numbers := map[string]int{}
	for i := range all {
		l := all[i].Lease
		n := 0
		if i > 0 && all[i-1].Lease == l {
			n = of[i-1]
		} else if known, ok := numbers[l.Name]; ok {
			n = known
		} else {
			n = len(leases)
			numbers[l.Name] = n
			leases = append(leases, settledLease{Lease: l})
		}
		of[i] = n
		if all[i].plain() {
			leases[n].acks++
		}
	}
	return leases, of
}

func (c *settleCall) read(r *reply) (SettleReply, error) {
	got := SettleReply{Now: r.int64()}
	parts := strings.SplitN(r.text(), ";", 7)
	r.rest = append(parts, r.rest...)
	got.Overflow, got.DoneOverflow = r.number(), r.number()
	got.Void, got.Superseded = r.ordered(c.order), r.ordered(c.order)
	digits, tooMuch := strings.CutSuffix(r.text(), "!")
	if first, err := strconv.Atoi(digits); err != nil || first < 0 || first > len(c.order) || tooMuch && first == 0 {
		r.fail("stopped at %q of %d", digits, len(c.order))
	} else if first > 0 {
		if tooMuch {
			got.TooMuch = []int{c.order[first-1]}
		}
		got.Left = slices.Sorted(slices.Values(c.order[first-1:]))
	}
	got.More = r.number() == 1
	for _, word := range strings.Fields(r.text()) {
		digits := len(word) - len(strings.TrimLeft(word, "0123456789"))
		i, err := strconv.Atoi(word[:digits])
		if err != nil || i < 1 || i > len(c.followers) || digits == len(word) {
			r.fail("answer %q to %d sends", word, len(c.followers))
			break
		}
		answer := c.followers[i-1]
		if answer.SendAnswer, err = putAnswer(word[digits:digits+1], word[digits+1:]); err != nil {
			r.fail("answer %q", word)
		}
		got.Answers = append(got.Answers, answer)
	}
	return got, r.err("settle")
}
