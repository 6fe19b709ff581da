package script

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// This file has the typed calls of put, which stores messages that are sent under a condition, and of the scripts for
// sequences.

// A Conflict says what becomes of a message whose key another one has; the numbers are those of Conflict.
type Conflict int

const (
	ConflictRefuse Conflict = iota
	ConflictKeep
	ConflictReplace
	ConflictReschedule
	ConflictAppend
)

// conflictWords are what put calls them.
var conflictWords = [...]any{"refuse", "keep", "replace", "reschedule", "append"}

// MaxPut is how many messages one call of put takes.
const MaxPut = 100

// PutOptions are what a message asks for that put stores.
type PutOptions struct {
	Sequence   string // its name; "": none
	Number     int64
	Behind     bool  // another number of the sequence stands before it in the same SendBatch, or in WithReached
	After      int64 // that number
	On         Conflict
	PayloadKey bool          // its key is to be made of its payload
	Timed      bool          // it says when it is due
	MaxWait    time.Duration // 0: none
	MaxParts   int           // 0: as many as there may be
	Countdown  int           // how many acks it waits for; 0: none
	Laned      bool          // it has a lane
}

// reachedKey is the key of what WithReached notes in a context.
type reachedKey struct{}

// WithReached makes SendBatch store messages of these sequences only if they have come to these numbers; otherwise the
// error is ErrSequenceStopped. PassSequence passes them only then. It is for schedules and outboxes.
func WithReached(ctx context.Context, numbers map[string]int64) context.Context {
	return context.WithValue(ctx, reachedKey{}, numbers)
}

// Reached are the numbers of WithReached; nil: none.
func Reached(ctx context.Context) map[string]int64 {
	numbers, _ := ctx.Value(reachedKey{}).(map[string]int64)
	return numbers
}

// Wanted says whether a message has any of them, so that send cannot store it.
func (o *PutOptions) Wanted() bool {
	return o.Sequence != "" || o.On != ConflictRefuse || o.Countdown > 0 || o.Laned
}

// Moves says whether a message that is there in its place may have been made due at another instant.
func (o *PutOptions) Moves() bool {
	return o.On == ConflictReschedule || o.On > ConflictKeep && (o.Timed || o.MaxWait > 0)
}

// laned says whether it may touch a lane: its own, or that of a message which has its key.
func (m *SendMessage) laned() bool {
	return m.Put != nil && (m.Put.Laned || m.Put.On != ConflictRefuse)
}

func (q *SendRequest) putArgs(c *Caller, shards any) []any {
	args := c.args(2 + 12*len(q.Messages))
	if shards != "1" {
		args = append(args, "shards", shards)
	}
	for _, m := range q.Messages {
		args = m.record(args)
	}
	return args
}

// noPut are the options of a message that asks for none.
var noPut PutOptions

// record appends what a message needs and the word of what is to be done, each with its fields, as put.lua and
// lib/put.lua have them.
func (m *SendMessage) record(args []any) []any {
	o := m.Put
	if o == nil {
		o = &noPut
	}
	if o.Sequence != "" {
		after := ""
		if o.Behind {
			after = message.SequenceDigits(o.After)
		}
		args = append(args, "sequence", &o.Sequence, message.SequenceDigits(o.Number), after)
	}
	if o.Countdown > 0 {
		args = append(args, "countdown", o.Countdown)
	}
	args = append(args, conflictWords[o.On], m.delay(), m.Version, m.id(), &m.Text)
	if o.On >= ConflictReplace {
		args = append(args, o.MaxWait.Microseconds())
	}
	switch o.On {
	case ConflictReplace:
		args = append(args, o.Timed)
	case ConflictAppend:
		args = append(args, o.Timed, cmp.Or(o.MaxParts, message.MaxParts))
	}
	return args
}

// put reads the reply to a put of n messages: it may be about the first of them alone.
func (r *reply) put(n int) (SendReply, error) {
	out := SendReply{Now: r.int64()}
	words := strings.Fields(r.text())
	if len(words) == 0 || len(words) > n {
		r.fail("%d answers for %d messages", len(words), n)
	}
	for _, word := range words {
		a, err := putAnswer(word[:1], word[1:])
		if err != nil {
			r.fail("answer %q", word)
		}
		out.Answers = append(out.Answers, a)
	}
	if len(r.rest) > 0 {
		out.Uneven = r.text()
	}
	if err := r.err("put"); err != nil {
		return SendReply{}, err
	}
	return out, nil
}

func putAnswer(kind, text string) (a SendAnswer, err error) {
	switch kind {
	case "+":
		a.Due, err = strconv.ParseInt(text, 10, 64)
	case "=":
		a.Kind = AnswerTaken
		a.Holder, a.Held = strings.CutPrefix(text, acked)
	case "~":
		a.Kind = AnswerKept
		text, a.Holder, _ = strings.Cut(text, ":")
		a.Due, err = strconv.ParseInt(text, 10, 64)
	case "#":
		a.Kind = AnswerPassed
		a.Last, err = message.SequenceNumber(text)
	case "!":
		if a.Kind = AnswerStopped; text != "" {
			err = ErrBadReply
		}
	default:
		err = ErrBadReply
	}
	return a, err
}

// Sequence has the fields of Sequence.
type Sequence struct {
	Name string
	Last int64
}

// A SequencesReply is a page of sequences.
type SequencesReply struct {
	Found  []Sequence
	Cursor string // "0": there is no other page
}

// Sequences finds one sequence, or, without a name, a page of all.
func (s *Store) Sequences(ctx context.Context, name, cursor string) (got SequencesReply, err error) {
	r := s.run(ctx, SequencesScript, []any{&name, cursor})
	r.int64()
	got.Cursor = r.text()
	for len(r.rest) > 0 && r.bad == nil {
		q := Sequence{Name: r.text()}
		if q.Last, err = message.SequenceNumber(
			r.text()); err == nil { // else somebody else wrote it, and put takes it for none
			got.Found = append(got.Found, q)
		}
	}
	return got, r.err("sequences")
}

// DropSequence says whether there was one.
func (s *Store) DropSequence(ctx context.Context, c *Caller, name string) (bool, error) {
	r := s.run(ctx, sequenceScript, append(c.args(2), "drop", &name))
	n := r.number()
	if n < 0 || n > 1 {
		r.fail("%d sequences", n)
	}
	return n == 1, r.err("sequence")
}

// PassSequence moves a sequence on to n, if it is not further, and says where it was; false if there was none. If it
// has not come to the number of WithReached, it stays.
func (s *Store) PassSequence(ctx context.Context, c *Caller, name string, n int64) (before int64, was bool, err error) {
	after := ""
	if number, some := Reached(ctx)[name]; some {
		after = message.SequenceDigits(number)
	}
	r := s.run(ctx, sequenceScript, append(c.args(4), "pass", &name, message.SequenceDigits(n), after))
	digits := r.text()
	if was = digits != ""; was {
		if before, err = message.SequenceNumber(digits); err != nil {
			r.fail("%v", err)
		}
	}
	return before, was, r.err("sequence")
}
