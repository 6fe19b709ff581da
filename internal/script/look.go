package script

import (
	"context"
	"crypto/sha1"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// This file has the typed calls of the scripts that look at messages.

// A lookReply is a message as Redis holds it.
type lookReply struct {
	Held         bool // no message has the key: the one with this id was acked, and holds it until at
	ID, State    string
	At           int64
	Text, Record string // its envelope, or what unread reads; its fail record
	Result       string
	Missing      int      // how many acks it still waits for
	Parts        []string // of a group, but the first
	Earlier      []string // ids of groups that have left the key
}

// Look finds a message by "id" or "key"; nil if it is nowhere. It reads no message of more than most bytes; 0: of any
// number.
func (s *Store) Look(ctx context.Context, by, what string, most int) (*lookReply, error) {
	args := []any{by, what}
	if most > 0 {
		args = append(args, most)
	}
	r := s.run(ctx, LookScript, args)
	if len(r.rest) == 0 {
		return nil, r.err("look")
	}
	r.int64()
	m := &lookReply{ID: r.text()}
	if word := r.text(); word == "hold" {
		m.Held, m.At = true, r.int64()
	} else {
		m.State, m.At, m.Text, m.Record, m.Result = r.state(word), r.int64(), r.text(), r.text(), r.text()
		m.Missing = r.missing()
		m.Parts = r.take(r.number())
		if by == "key" {
			m.Earlier = r.take(len(r.rest))
		}
	}
	if err := r.err("look"); err != nil {
		return nil, err
	}
	return m, nil
}

// Unread says whether a text stands for an envelope that is larger than what is read, and how large that is.
func Unread(text string) (size int64, large bool) {
	digits, large := strings.CutPrefix(text, "\x00large ")
	if large {
		size, _ = strconv.ParseInt(digits, 10, 64) // 0 of what is none, which nobody writes
	}
	return size, large
}

// What await says of a message besides its state.
const (
	AwaitLive       = "live"       // it is still to be handled
	AwaitSuperseded = "superseded" // it ended, and was not acked
)

// An AwaitReply is what became of a message.
type AwaitReply struct {
	Word string // AwaitLive, AwaitSuperseded or a state
	At   int64
	Text string // done: the result; garbage and superseded: the last error
}

// Await says what became of some messages, or of the first of them.
func (s *Store) Await(ctx context.Context, ids []string) ([]AwaitReply, error) {
	r := s.run(ctx, AwaitScript, pointersTo(ids, make([]any, 0, len(ids))))
	r.int64()
	var out []AwaitReply
	for len(r.rest) > 0 && r.bad == nil && len(out) < len(ids) {
		word := r.text()
		if word != AwaitLive && word != AwaitSuperseded {
			word = r.state(word)
		}
		out = append(out, AwaitReply{word, r.int64(), r.text()})
	}
	if len(out) == 0 && r.bad == nil {
		r.fail("no answer for %d messages", len(ids))
	}
	return out, r.err("await")
}

// What scripts call the states of a message. But for gone, structures have these names.
const (
	StateGone    = "gone"
	statePending = "pending"
	stateReady   = "ready"
	stateUnack   = "unack"
	stateRetry   = "retry"
	stateGarbage = "garbage"
	StateDone    = "done"
	stateWaiting = "waiting"
)

var StateWords = [...]string{StateGone, statePending, stateReady, stateUnack, stateRetry, stateGarbage, StateDone,
	stateWaiting}

// StateNumber is the number of a state that scripts call by this word.
func StateNumber(word string) int { return slices.Index(StateWords[:], word) }

// state checks a word that must be one of a state.
func (r *reply) state(word string) string {
	if !slices.Contains(StateWords[:], word) {
		r.fail("state %q", word)
		return StateGone
	}
	return word
}

// A ListRequest asks for a page of a structure.
type ListRequest struct {
	In       string // a state, as which the structure is called
	From, To int64  // scores, the upper one not included
	Part     string // "due", "later", or "" for both
	Back     bool   // from its end
	Most     int    // bytes of a message that are read; 0: any number
	Limit    int
	After    Spot // where the page before ended; zero: this is the first
}

// A PageReply is that page.
type PageReply struct {
	Now     int64
	Left    int // entries from here to the end, those of this page among them
	Bytes   int // of envelopes and records
	Entries []Listed
}

// Listed is what stands in a structure.
type Listed struct {
	Spot
	Text, Record string // its envelope, or what unread reads, "" if somebody else has deleted it; its fail record
	Missing      int    // how many acks it still waits for
	// behind which the next page begins: Spot, but of what is held a place in a scan, and in ready how many stand behind
	Next Spot
}

// Target is the entry for steer, which passes over it if the message stands elsewhere by then, or was changed by a
// send. The envelope of a message that was too large to be read is not compared.
func (l *Listed) Target() Spot {
	if _, large := Unread(l.Text); large {
		return l.Spot
	}
	return Spot{fmt.Sprintf("%s %x", l.Score, sha1.Sum([]byte(l.Text))), l.Tag}
}

// missing reads how many acks a message waits for; 0 if it has no countdown.
func (r *reply) missing() int {
	text := r.text()
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		r.fail("%q acks are missing", text)
	}
	return n
}

func (s *Store) List(ctx context.Context, q ListRequest) (PageReply, error) {
	kind, from, to := "set", "-inf", "+inf"
	if q.In == stateReady {
		kind = "list"
	}
	if q.From != math.MinInt64 {
		from = strconv.FormatInt(q.From, 10)
	}
	if q.To != math.MaxInt64 {
		to = "(" + strconv.FormatInt(q.To, 10)
	}
	args := []any{kind, q.Limit, from, to, q.After.Score, &q.After.Tag, q.Back, q.Part}
	if q.Most > 0 {
		args = append(args, q.Most)
	}
	r := s.run(ctx, ListScripts[q.In], args)
	var out PageReply
	out.Now, out.Left = r.int64(), r.number()
	n := r.number()
	for i := range min(n, q.Limit) {
		tag, score, text, record, missing := r.text(), r.text(), r.text(), r.text(), r.missing()
		l := Listed{Spot{score, tag}, text, record, missing, Spot{score, tag}}
		switch q.In {
		case stateUnack:
			cursor, lease := r.text(), r.text()
			l.Next = Spot{cursor, lease + " " + tag}
		case stateReady:
			l.Next.Score = strconv.Itoa(out.Left - i - 1)
		}
		out.Bytes += len(text) + len(record)
		out.Entries = append(out.Entries, l)
	}
	return out, r.err("list")
}

// A LanesRequest asks for a page of the lanes, or for one of them.
type LanesRequest struct {
	Name   string // of one; "": a page
	Before string // of one: Waiting counts what waits before this message (BeforeIn); "": all
	After  string // the lane behind which the page begins; "": this is the first
	Limit  int    // lanes, at most 100
}

// A LanesReply is that page.
type LanesReply struct {
	Now   int64
	Last  string // the lane behind which the next page begins; "": this page is the last
	Lanes []LaneReply
}

// A LaneReply says what a lane is doing, as lanes.lua does.
type LaneReply struct {
	Name           string
	Width          int
	Turns, Waiting int64
	Due            int64
	First          []TurnReply
}

// A TurnReply is a message that has a turn.
type TurnReply struct {
	ID, State string
	At        int64
	Record    string
}

// BeforeIn names a message that waits, with its due instant, for LanesRequest.
func BeforeIn(due int64, id string) string { return fmt.Sprintf("%016d%s", due, id) }

func (s *Store) Lanes(ctx context.Context, q LanesRequest) (out LanesReply, err error) {
	if q.Name != "" {
		q.After = q.Before
	}
	r := s.run(ctx, LanesScript, []any{&q.Name, &q.After, q.Limit})
	out.Now, out.Last = r.int64(), r.text()
	for len(r.rest) > 0 && r.bad == nil {
		lane := LaneReply{Name: r.text(), Width: r.number(), Turns: r.int64(), Waiting: r.int64(), Due: r.int64()}
		for range r.number() {
			if r.bad != nil {
				break
			}
			lane.First = append(lane.First, TurnReply{r.text(), r.state(r.text()), r.int64(), r.text()})
		}
		out.Lanes = append(out.Lanes, lane)
	}
	return out, r.err("lanes")
}
