package script

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// acked is what a script puts before the id of a message that was acked and keeps its key.
const acked = "acked:"

// This file has the typed calls of the scripts that take out, steer and pause.

// A Spot is where an entry stands: its score, as Redis writes it, and its tag. steer looks for what is there.
type Spot struct{ Score, Tag string }

// ScoreInstant is the instant of a score, which another program may have written.
func ScoreInstant(score string) int64 {
	f, err := strconv.ParseFloat(score, 64)
	if err != nil || f != f {
		return 0
	}
	return int64(max(min(f, message.LastInstant), message.FirstInstant))
}

// What steer can do.
const (
	SteerAt      = "at"      // make due at an instant
	SteerBy      = "by"      // make due so much later
	SteerRequeue = "requeue" // bring back from garbage
	SteerDelete  = "delete"
	SteerCancel  = "cancel"  // delete, also what is being handled
	SteerRelease = "release" // of a key: end its hold
	SteerGarbage = "garbage" // end its turn in its lane: Spot.Score is the error with which it goes to garbage
	SteerLast    = "last"    // end its turn in its lane: it waits behind those that are due
)

// A SteerRequest is what is to be done, and to what.
type SteerRequest struct {
	What    string
	Us      int64
	Step    int64  // us by which each is due later than the one before
	Only    string // "": each tag is an id; "key": a message key; else the structure in which it is a tag
	Anew    bool   // lift the deadline of what has expired
	Targets []Spot
}

// Steered is what became of one message.
type Steered struct {
	State   string // before
	Done    bool
	Stays   bool   // done, and it stays where it is
	Expired bool   // not done, because it would have expired when it is due
	Holder  string // of its key, if that is why it was not done
	Held    bool   // the holder was acked, and keeps the key
}

// Steer says what became of each message, or of the first of them, if these needed many turns of lanes.
func (s *Store) Steer(ctx context.Context, c *Caller, do SteerRequest) ([]Steered, error) {
	args := append(c.args(5+2*len(do.Targets)), do.What, do.Us, do.Step, do.Only, do.Anew)
	for i := range do.Targets {
		args = append(args, &do.Targets[i].Tag, &do.Targets[i].Score)
	}
	r := s.run(ctx, SteerScript, args)
	r.int64()
	words := strings.Fields(r.text())
	if len(words) == 0 || len(words) > len(do.Targets) {
		r.fail("%d answers for %d messages", len(words), len(do.Targets))
		return nil, r.err("steer")
	}
	out := make([]Steered, len(words))
	for i, word := range words {
		if holder, ok := strings.CutPrefix(word, "="); ok {
			holder, held := strings.CutPrefix(holder, acked)
			out[i] = Steered{State: stateGarbage, Holder: holder, Held: held}
			continue
		}
		name, not := strings.CutPrefix(word, "!")
		name, stays := strings.CutPrefix(name, "~")
		name, expired := strings.CutPrefix(name, "-")
		out[i] = Steered{State: r.state(name), Done: !not && !expired, Stays: stays, Expired: expired}
	}
	return out, r.err("steer")
}

// The words of drop.lua.
const (
	DropEmpty = "empty"
	DropAll   = "all"
	DropLook  = "look"
)

// A Holding is what is in a queue, or was until it was deleted.
type Holding struct{ Consumers, Messages, Schedules int }

// What keeps a queue from being deleted.
var (
	ErrConsumersAlive = errors.New("consumers of this queue are alive")
	ErrNotEmpty       = errors.New("the queue is not empty")
)

// Refusal is why the queue is not deleted without force; nil if it is.
func (h Holding) Refusal() error {
	alive := fmt.Errorf("%w: %d: stop them, or force it", ErrConsumersAlive, h.Consumers)
	full := fmt.Errorf("%w: messages: %d, schedules: %d: delete them, or force it", ErrNotEmpty, h.Messages, h.Schedules)
	switch {
	case h.Consumers > 0 && h.Messages+h.Schedules > 0:
		return fmt.Errorf("%w; %w", alive, full)
	case h.Consumers > 0:
		return alive
	case h.Messages+h.Schedules > 0:
		return full
	}
	return nil
}

// Drop deletes the queue, or what is in this shard of it, by a word of drop.lua. DropEmpty has deleted nothing if
// Refusal of what it found is not nil.
func (s *Store) Drop(ctx context.Context, how string) (found Holding, err error) {
	r := s.run(ctx, DropScript, []any{how})
	found = Holding{r.number(), r.number(), r.number()}
	return found, r.err("drop")
}

// A Flaw is one thing that doctor found wrong: a word of repair.lua, and what it is about.
type Flaw struct{ What, Item string }

// Repair mends flaws, and says what became of each, or of the first of them, as repair.lua does.
func (s *Store) Repair(ctx context.Context, flaws []Flaw) ([]string, error) {
	args := make([]any, 0, 2*len(flaws))
	for i := range flaws {
		args = append(args, flaws[i].What, &flaws[i].Item)
	}
	r := s.run(ctx, repairScript, args)
	words := r.take(max(min(len(r.rest), len(flaws)), 1))
	return words, r.err("repair")
}

// An InterceptReply is where a message was that was taken out, or is.
type InterceptReply struct{ State, ID string }

// Out reports whether a call took the message out; running: whether it took also one that was being handled.
func (r InterceptReply) Out(running bool) bool {
	return r.State != StateGone && r.State != StateDone && (running || r.State != stateUnack)
}

// Intercept takes out a message, named by "id" and its id or by "key" and its key; with running also one that is being
// handled.
func (s *Store) Intercept(ctx context.Context, c *Caller, by, what string, running bool) (InterceptReply, error) {
	r := s.run(ctx, InterceptScript, append(c.args(3), by, what, running))
	got := InterceptReply{r.state(r.text()), r.text()}
	return got, r.err("intercept")
}

// What is kept of who acts and of the reason, in bytes.
const (
	MaxBy  = 200
	MaxWhy = 1000
)

// Pause stops hand-outs until an instant, or resumes them if that is 0.
func (s *Store) Pause(ctx context.Context, c *Caller, until int64, by, why string) error {
	_, _, err := s.set(ctx, c, "until", until, by+"\n"+why)
	return err
}

// PauseFor pauses for so many us by the server's clock, and returns until when.
func (s *Store) PauseFor(ctx context.Context, c *Caller, us int64, by, why string) (until int64, err error) {
	now, _, err := s.set(ctx, c, "for", us, by+"\n"+why)
	return min(now+us, message.Forever), err
}

// set makes one attempt at a call of set, and returns the server's now and what was set before.
func (s *Store) set(ctx context.Context, c *Caller, word ...any) (now int64, before string, err error) {
	r := s.run(ctx, SetScript, append(c.args(len(word)), word...))
	now, before = r.int64(), r.text()
	return now, before, r.err("set")
}

// pausedOf reads the field paused: since when, who says so, and why. It counts if it is about this pause.
func pausedOf(field string, until, now int64) (since time.Time, by, why string) {
	start, rest, _ := strings.Cut(field, " ")
	end, said, _ := strings.Cut(rest, " ")
	us, err := strconv.ParseInt(start, 10, 64)
	if err != nil || us <= 0 || us > now || end != strconv.FormatInt(until, 10) {
		return since, "", ""
	}
	by, why, _ = strings.Cut(said, "\n")
	return message.InstantTime(us), OneLine(by, MaxBy), OneLine(why, MaxWhy)
}

// OneLine is a text as it is kept: valid UTF-8, without control characters, of at most so many bytes.
func OneLine(text string, most int) string {
	text = strings.ToValidUTF8(text[:min(len(text), 4*most)], "\uFFFD") // of which most are kept
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text))
	return strings.ToValidUTF8(text[:min(len(text), most)], "") // without the half of a character
}
