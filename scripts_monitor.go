package delayqueue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file has the typed calls of the scripts that look at a queue and steer it, and its events.

// A countsReply is Counts, and what else is known of the queue.
type countsReply struct {
	Counts
	now    int64  // the server's clock, unix us
	used   bool   // it was ever used
	layout string // as it stands in state; 1 if it does not
	limits QueueLimits
}

func (s *store) counts(ctx context.Context) (n countsReply, err error) {
	r := s.run(ctx, countsScript, nil)
	n.now = r.int64()
	n.Pending, n.Ready, n.Unack, n.Retry, n.Garbage, n.Done = r.int64(), r.int64(), r.int64(), r.int64(), r.int64(), r.int64()
	if oldest := r.int64(); oldest > 0 {
		n.Behind = max(time.Duration(n.now-oldest)*time.Microsecond, 0)
	}
	n.NextDue = instantTime(r.int64())
	pause := r.int64()
	if n.Paused = pause > 0; pause < forever {
		n.PausedUntil = instantTime(pause)
	}
	n.used = r.number() > 0 || n.Counts != (Counts{})
	n.layout = r.text()
	n.limits = QueueLimits{Asked: limitsOf(strings.Fields(r.text())), Set: limitsOf(strings.Fields(r.text()))}
	n.LimitedSince, n.LimitedUntil = instantTime(r.int64()), instantTime(r.int64())
	n.Limited = !n.LimitedSince.IsZero()
	n.ThrottledUntil = instantTime(r.int64())
	if said := r.text(); n.Paused {
		n.PausedSince, n.PausedBy, n.PauseReason = pausedOf(said, pause, n.now)
	}
	n.Overruns = r.int64()
	return n, r.err("counts")
}

// instantTime is an instant of a script; zero for none.
func instantTime(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(max(min(us, lastInstant), firstInstant))
}

// The years 1 to 9999 are those that JSON has room for; what another program wrote may lie beyond.
const (
	firstInstant = -62135596800_000000 // unix us
	lastInstant  = 253402214400_000000 // a day before the end of it, for zones east of here
)

// forever is the instant until which a queue is paused that is paused until Resume: the year 2200.
var forever = maxDue.UnixMicro()

// look returns nil if the message is nowhere, and a *KeyHeldError if there is none because an acked one keeps the key.
func (s *store) look(ctx context.Context, by, what string) (*MessageStatus, error) {
	return s.lookWithin(ctx, by, what, 0)
}

// lookWithin is look that reads no message of more than so many bytes; 0: of any number.
func (s *store) lookWithin(ctx context.Context, by, what string, most int) (*MessageStatus, error) {
	args := []any{by, what}
	if most > 0 {
		args = append(args, most)
	}
	r := s.run(ctx, lookScript, args)
	if len(r.rest) == 0 {
		return nil, r.err("look")
	}
	r.int64()
	id, word := r.text(), r.text()
	if word == "held" {
		held := &KeyHeldError{Queue: s.queue, Key: what, ID: id, Until: instantTime(r.int64())}
		return nil, cmp.Or[error](r.err("look"), held)
	}
	state := stateOf(r, word)
	at, text, record := r.int64(), r.text(), r.text()
	result := r.text()
	m := statusOf(id, state, at, text, record)
	if size, large := unread(text); large && most > 0 {
		m = withoutEnvelope(id, state, at, size, record)
	}
	m.Result = result
	m.setParts(r.take(r.number()))
	if by == "key" {
		m.Earlier = r.take(len(r.rest))
	}
	if err := r.err("look"); err != nil {
		return nil, err
	}
	if m.State != StateUnack {
		return m, nil
	}
	for c, err := range s.consumers(ctx) {
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(c.Handling, func(h Handling) bool { return h.ID == id }) {
			m.Consumer = c.ID
			break
		}
	}
	return m, nil
}

// stateLive is what await says of a message that is still to be handled.
const stateLive State = -1

// await says what became of some messages, or of the first of them: StateDone, StateGarbage, StateGone or stateLive.
func (s *store) await(ctx context.Context, ids []string) ([]Result, error) {
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = &ids[i]
	}
	r := s.run(ctx, awaitScript, args)
	r.int64()
	var out []Result
	for len(r.rest) > 0 && r.bad == nil && len(out) < len(ids) {
		result := Result{ID: ids[len(out)], State: stateLive}
		switch word := r.text(); word {
		case "live":
		case "superseded":
			result.State, result.Superseded = StateDone, true
		default:
			result.State = stateOf(r, word)
		}
		result.At = instantTime(r.int64())
		if text := r.text(); result.State == StateDone && !result.Superseded {
			result.Value = text
		} else {
			result.Err = text
		}
		out = append(out, result)
	}
	if len(out) == 0 && r.bad == nil {
		r.fail("no answer for %d messages", len(ids))
	}
	return out, r.err("await")
}

func stateOf(r *reply, name string) State {
	state := slices.Index(stateNames[:], name)
	if state < 0 {
		r.fail("state %q", name)
		return StateGone
	}
	return State(state)
}

// A place is a structure that messages wait in, and what part of it is wanted.
type place struct {
	in       State  // the structure is called like the state
	state    State  // of what is in it
	from, to int64  // scores, the upper one not included
	part     string // "due", "later", or "" for both
	back     bool   // from its end
	most     int    // bytes of a message that are read; 0: any number
}

// acked is what a script puts before the id of a message that was acked and keeps its key.
const acked = "acked:"

// A spot is where an entry stands: its score, as Redis writes it, and its tag. steer looks for what is there.
type spot struct{ score, tag string }

// A listRequest asks for a page of a place.
type listRequest struct {
	place
	limit int
	after spot // where the page before ended; zero: this is the first
}

// A listReply is that page.
type listReply struct {
	now     int64
	left    int // entries from here to the end, those of this page among them
	bytes   int // of envelopes and records
	entries []entry
}

// entry is what stands in a structure.
type entry struct {
	spot
	msg *MessageStatus // nil if somebody else has deleted it
}

func (l *listReply) more() bool { return l.left > len(l.entries) }

func (s *store) list(ctx context.Context, q listRequest) (listReply, error) {
	kind, from, to := "set", "-inf", "+inf"
	if q.in == StateReady {
		kind = "list"
	}
	if q.from != math.MinInt64 {
		from = strconv.FormatInt(q.from, 10)
	}
	if q.to != math.MaxInt64 {
		to = "(" + strconv.FormatInt(q.to, 10)
	}
	args := []any{kind, q.limit, from, to, q.after.score, &q.after.tag, q.back, q.part}
	if q.most > 0 {
		args = append(args, q.most)
	}
	r := s.run(ctx, listScripts[q.in], args)
	var out listReply
	out.now, out.left = r.int64(), r.number()
	n := r.number()
	for range min(n, q.limit) {
		tag, score, text, record := r.text(), r.text(), r.text(), r.text()
		out.bytes += len(text) + len(record)
		e := entry{spot: spot{score, tag}}
		if text != "" {
			id, _ := splitTag(tag)
			if size, large := unread(text); large && q.most > 0 {
				e.msg = withoutEnvelope(id, q.state, scoreInstant(score), size, record)
			} else {
				e.msg = statusOf(id, q.state, scoreInstant(score), text, record)
			}
			if kind == "list" { // its record says since when it is there
				e.msg.At = e.msg.EndedAt
			}
		}
		out.entries = append(out.entries, e)
	}
	return out, r.err("list")
}

// scoreInstant is the instant of a score, which another program may have written.
func scoreInstant(score string) int64 {
	f, err := strconv.ParseFloat(score, 64)
	if err != nil || f != f {
		return 0
	}
	return int64(max(min(f, lastInstant), firstInstant))
}

// What steer can do.
const (
	steerAt      = "at"      // make due at an instant
	steerBy      = "by"      // make due so much later
	steerRequeue = "requeue" // bring back from garbage
	steerDelete  = "delete"
	steerCancel  = "cancel"  // delete, also what is being handled
	steerRelease = "release" // of a key: end its hold
)

// errTakenOver: somebody has asked whether this call was carried out before it was, so that it never will be.
var errTakenOver = errors.New("another process goes on with this")

// claimed is what the word of who continues a call for many begins with: no answer about a message does.
const claimed = "#"

// A steerRequest is what is to be done, and to what.
type steerRequest struct {
	what    string
	us      int64
	step    int64  // us by which each is due later than the one before
	only    string // "": each tag is an id; "key": a message key; else the structure in which it is a tag
	targets []spot
}

// steered is what became of one message.
type steered struct {
	state  State // before
	done   bool
	stays  bool   // done, and it stays where it is
	holder string // of its key, if that is why it was not done
	held   bool   // the holder was acked, and keeps the key
}

// steer says of each message what became of it. Without targets it says what this call did, if it was carried out
// already, and nothing if not; then it never will be.
func (s *store) steer(ctx context.Context, c *caller, do steerRequest) ([]steered, error) {
	args := append(c.args(4+2*len(do.targets)), do.what, do.us, do.step, do.only)
	for i := range do.targets {
		args = append(args, &do.targets[i].tag, &do.targets[i].score)
	}
	r := s.run(ctx, steerScript, args)
	r.int64()
	words := strings.Fields(r.text())
	if len(words) > 0 && strings.HasPrefix(words[0], claimed) {
		return nil, errTakenOver
	}
	if len(words) != len(do.targets) && do.targets != nil {
		if r.fail("%d answers for %d messages", len(words), len(do.targets)); len(words) == 0 && r.failed == nil {
			return nil, fmt.Errorf("%w: %w", errTakenOver, r.err("steer"))
		}
		return nil, r.err("steer")
	}
	out := make([]steered, len(words))
	for i, word := range words {
		if holder, ok := strings.CutPrefix(word, "="); ok {
			holder, held := strings.CutPrefix(holder, acked)
			out[i] = steered{state: StateGarbage, holder: holder, held: held}
			continue
		}
		name, not := strings.CutPrefix(word, "!")
		name, stays := strings.CutPrefix(name, "~")
		out[i] = steered{state: stateOf(r, name), done: !not, stays: stays}
	}
	return out, r.err("steer")
}

func (s *store) pause(ctx context.Context, c *caller, until int64, who onBehalf) error {
	said := who.by + "\n" + who.why
	r := s.run(ctx, pauseScript, append(c.args(2), until, &said))
	r.int64()
	return r.err("pause")
}

// pauseFor pauses for so many us by the server's clock, and returns until when.
func (s *store) pauseFor(ctx context.Context, c *caller, us int64, who onBehalf) (until int64, err error) {
	said := who.by + "\n" + who.why
	r := s.run(ctx, pauseScript, append(c.args(3), us, &said, true))
	until = min(r.int64()+us, forever)
	return until, r.err("pause")
}

// drop returns how many consumers are alive, and how many messages were deleted.
func (s *store) drop(ctx context.Context, force bool) (alive, messages int, err error) {
	r := s.run(ctx, dropScript, []any{force})
	alive, messages = r.number(), r.number()
	return alive, messages, r.err("drop")
}

// consumersPages bounds how many pages of consumers are read, 25 on each.
const consumersPages = 1000

// consumers are those that are alive. It ends after the first error.
func (s *store) consumers(ctx context.Context) iter.Seq2[Consumer, error] {
	return func(yield func(Consumer, error) bool) {
		seen := map[string]bool{} // a page may name one again
		cursor := "0"
		for range consumersPages {
			r := s.run(ctx, consumersScript, []any{cursor})
			now := r.int64()
			cursor = r.text()
			for len(r.rest) > 0 && r.bad == nil {
				name, said := r.text(), r.text()
				if c, alive := consumerOf(name, said, now); alive && !seen[name] {
					seen[name] = true
					if !yield(c, nil) {
						return
					}
				}
			}
			if err := r.err("consumers"); err != nil {
				yield(Consumer{}, err)
				return
			}
			if cursor == "0" {
				return
			}
		}
	}
}

// A historyReply is what was counted in each hour and day, by hours and by days since 1970.
type historyReply struct {
	now         int64 // the server's clock, unix us
	hours, days map[int64]Tally
}

func (s *store) history(ctx context.Context) (historyReply, error) {
	r := s.run(ctx, historyScript, nil)
	out := historyReply{hours: map[int64]Tally{}, days: map[int64]Tally{}}
	out.now = r.int64()
	for len(r.rest) > 0 && r.bad == nil {
		span, daily := strings.CutPrefix(r.text(), "d")
		start, err := strconv.ParseInt(span, 10, 64)
		if err != nil {
			r.fail("span %q", span)
		}
		t := tallyOf(r.text())
		if daily {
			out.days[start] = t
		} else {
			out.hours[start] = t
		}
	}
	return out, r.err("history")
}

// publish tells the Monitors of all machines, over the user's client: an event that is late or lost delays no message.
// In a Cluster any node would do, as it does for a client of the user's own type, but from one to the next events overtake each other; so it is the queue's own, which a
// subscriber asks too.
func (s *store) publish(limit time.Duration, batch []Event) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	text, err := json.Marshal(batch)
	if err != nil {
		return err
	}
	if !linkable(s.cli) {
		return s.cli.Publish(ctx, s.keys.events, text).Err()
	}
	node, err := s.node(ctx)
	if err != nil {
		return err
	}
	return node.Publish(ctx, s.keys.events, text).Err()
}
