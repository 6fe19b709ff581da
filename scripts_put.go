package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// This file has the typed calls of put, which stores messages that are sent under a condition, and of the scripts for
// sequences.

// maxPut is how many messages one call of put takes.
const maxPut = 100

// putOptions are what a message asks for that put stores.
type putOptions struct {
	sequence   string // its name; "": none
	number     int64
	behind     bool  // another number of the sequence stands before it in the same SendBatch
	after      int64 // that number
	on         Conflict
	payloadKey bool          // its key is to be made of its payload
	timed      bool          // it says when it is due
	maxWait    time.Duration // 0: none
	maxParts   int           // 0: as many as there may be
}

// wanted says whether a message has any of them, so that send cannot store it.
func (o *putOptions) wanted() bool { return o.sequence != "" || o.on != Refuse }

// most is for how many us a message may be put off, as an argument.
func (o *putOptions) most() any {
	if o.maxWait == 0 {
		return ""
	}
	return o.maxWait.Microseconds()
}

// room is how many parts the message may have, as an argument.
func (o *putOptions) room() any {
	if o.on != Append {
		return ""
	}
	return cmp.Or(o.maxParts, maxParts)
}

// moves says whether a message that is there in its place may have been made due at another instant.
func (o *putOptions) moves() bool {
	return o.on == Reschedule || o.on > Keep && (o.timed || o.maxWait > 0)
}

// follows notes which number stands before it in the same batch, of those that are in last by the name of their sequence,
// and refuses one that is not greater.
func (o *putOptions) follows(last map[string]int64) error {
	if o.sequence == "" {
		return nil
	}
	before, some := last[o.sequence]
	if some && o.number <= before {
		return fmt.Errorf("%w: WithSequence(%q, %d): number %d stands before it in the same batch, which must rise", ErrBadOption,
			o.sequence, o.number, before)
	}
	last[o.sequence] = o.number
	o.behind, o.after = some, before
	return nil
}

// digits are those of its number, and of the one that must have been reached.
func (o *putOptions) digits() string {
	digits := sequenceDigits(o.number)
	if o.behind {
		digits += sequenceDigits(o.after)
	}
	return digits
}

// putArgs are the arguments of put.
func (q *sendRequest) putArgs(c *caller) []any {
	args := append(make([]any, 0, 2+10*len(q.messages)), c.name(), c.number())
	for _, m := range q.messages {
		args = append(args, m.delay(), m.version, &m.id, &m.text, &m.put.sequence, m.put.digits(), conflictWords[m.put.on],
			m.put.timed, m.put.most(), m.put.room())
	}
	return args
}

// A sendAnswer is what became of one message.
type sendAnswer struct {
	kind   answerKind
	due    int64  // unix us, of the message that is there
	holder string // id of the message that has its key
	held   bool   // that one was acked, and keeps it
	last   int64  // of its sequence
}

type answerKind int

const (
	answerStored  answerKind = iota
	answerTaken              // another message has its key
	answerPassed             // its sequence has passed its number
	answerStopped            // its sequence has not come to the number before it in its batch
	answerKept               // holder is there in its place, perhaps changed
)

// answer says what became of message i of a request, which is m.
func (r *sendReply) answer(i int, m *sendMessage) sendAnswer {
	if r.answers != nil {
		return r.answers[i]
	}
	if holder, taken := r.refused[i]; taken {
		holder, held := strings.CutPrefix(holder, acked)
		return sendAnswer{kind: answerTaken, holder: holder, held: held}
	}
	return sendAnswer{due: m.when.due(r.now)}
}

// put reads the reply to a put of n messages: it may be about the first of them alone.
func (r *reply) put(n int) (sendReply, error) {
	out := sendReply{now: r.int64()}
	words := strings.Fields(r.text())
	if len(words) == 0 || len(words) > n {
		r.fail("%d answers for %d messages", len(words), n)
	}
	for _, word := range words {
		a, err := putAnswer(word[:1], word[1:])
		if err != nil {
			r.fail("answer %q", word)
		}
		out.answers = append(out.answers, a)
	}
	if err := r.err("put"); err != nil {
		return sendReply{}, err
	}
	return out, nil
}

func putAnswer(kind, text string) (a sendAnswer, err error) {
	switch kind {
	case "+":
		a.due, err = strconv.ParseInt(text, 10, 64)
	case "=":
		a.kind = answerTaken
		a.holder, a.held = strings.CutPrefix(text, acked)
	case "~":
		a.kind = answerKept
		text, a.holder, _ = strings.Cut(text, ":")
		a.due, err = strconv.ParseInt(text, 10, 64)
	case "#":
		a.kind = answerPassed
		a.last, err = sequenceNumber(text)
	case "!":
		if a.kind = answerStopped; text != "" {
			err = ErrBadReply
		}
	default:
		err = ErrBadReply
	}
	return a, err
}

// A sequencesReply is a page of sequences.
type sequencesReply struct {
	found  []Sequence
	cursor string // "0": there is no other page
}

// sequences finds one sequence, or, without a name, a page of all.
func (s *store) sequences(ctx context.Context, name, cursor string) (got sequencesReply, err error) {
	r := s.run(ctx, sequencesScript, []any{&name, cursor})
	r.int64()
	got.cursor = r.text()
	for len(r.rest) > 0 && r.bad == nil {
		q := Sequence{Name: r.text()}
		if q.Last, err = sequenceNumber(r.text()); err == nil { // else somebody else wrote it, and put takes it for none
			got.found = append(got.found, q)
		}
	}
	return got, r.err("sequences")
}

// dropSequence says whether there was one.
func (s *store) dropSequence(ctx context.Context, c *caller, name string) (bool, error) {
	r := s.run(ctx, dropSequenceScript, append(c.args(1), &name))
	n := r.number()
	if n < 0 || n > 1 {
		r.fail("%d sequences", n)
	}
	return n == 1, r.err("dropsequence")
}

// passSequence moves a sequence on to n, if it is not further, and says where it was; false if there was none.
func (s *store) passSequence(ctx context.Context, c *caller, name string, n int64) (before int64, was bool, err error) {
	r := s.run(ctx, passSequenceScript, append(c.args(2), &name, sequenceDigits(n)))
	digits := r.text()
	if was = digits != ""; was {
		if before, err = sequenceNumber(digits); err != nil {
			r.fail("%v", err)
		}
	}
	return before, was, r.err("passsequence")
}
