package script

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"pgregory.net/rapid"
)

// put stores the messages one after the other, or does what they want instead.
func (m *model) put(batch []*SendMessage) any {
	out := SendReply{Now: m.now}
	var first int64
	for _, o := range batch {
		a, wait := m.putOne(o, "")
		first = sooner(first, wait)
		out.Answers = append(out.Answers, a)
	}
	m.armLater(sooner(first, m.sinceTurned()))
	return out
}

// putOne returns an answer, and for when something waits that did not before. own is the acked message that it follows.
func (m *model) putOne(o *SendMessage, own string) (a SendAnswer, wait int64) {
	if o.Put == nil {
		o = &SendMessage{ID: o.ID, Key: o.Key, When: o.When, Version: o.Version, Text: o.Text, Put: &PutOptions{}}
	}
	if digits := m.sequence[o.Put.Sequence]; digits != "" {
		if last, err := message.SequenceNumber(digits); err != nil || last >= o.Put.Number {
			return SendAnswer{Kind: AnswerPassed, Last: last}, 0
		}
	}
	if o.Put.Behind && m.sequence[o.Put.Sequence] < message.SequenceDigits(o.Put.After) {
		return SendAnswer{Kind: AnswerStopped}, 0
	}
	holder, held := m.holder(o.Key)
	if held && holder == own {
		holder, held = "", false
	}
	switch {
	case held && o.Put.On == ConflictKeep:
		a = SendAnswer{Kind: AnswerKept, Holder: holder}
	case held, holder != "" && o.Put.On == ConflictRefuse:
		return SendAnswer{Kind: AnswerTaken, Holder: holder, Held: held}, 0
	case holder != "" && o.Put.On == ConflictKeep:
		a = SendAnswer{Kind: AnswerKept, Holder: holder, Due: m.dueOf(holder)}
	case holder != "" && o.Put.On == ConflictAppend && m.envelope(holder).Group.Count == 0:
		return SendAnswer{Kind: AnswerTaken, Holder: holder}, 0
	case holder != "":
		a, wait = m.change(holder, o)
	}
	if a.Kind != AnswerKept {
		due := o.When.Due(m.now)
		if latest := m.latest(o); latest != 0 {
			due = min(due, latest)
		}
		counted := 0 // for the message that this one supersedes
		if holder != "" && m.record(holder).Superseded {
			counted, _ = m.countdown(holder)
		}
		if o.Put.Countdown > 0 && counted >= o.Put.Countdown {
			due = m.now
		}
		a.Due = due
		m.storeAt(o, due)
		if o.Put.Countdown > 0 {
			m.parts[o.ID+":0"] = fmt.Sprint(counted, " ", o.Put.Countdown)
		}
		m.putLatest(o.ID, m.latest(o))
		if m.laneOf(o.ID).Width == 0 {
			wait = sooner(wait, due)
		}
	}
	if o.Put.Sequence != "" {
		m.sequence[o.Put.Sequence] = message.SequenceDigits(o.Put.Number)
	}
	return a, wait
}

// dueOf is when a message comes, or comes again.
func (m *model) dueOf(id string) int64 {
	_, place, score := m.found(id, "")
	if place == "pending" || place == "retry" || place == "waiting" {
		return score
	}
	return m.now
}

// latest is when a message is due at the latest that is sent now; 0: at any time.
func (m *model) latest(o *SendMessage) int64 {
	if o.Put.MaxWait == 0 {
		return 0
	}
	return m.now + o.Put.MaxWait.Microseconds()
}

// putLatest writes that into an envelope which has room for it.
func (m *model) putLatest(id string, latest int64) {
	if e := m.envelope(id); latest != 0 && e.Latest != 0 {
		e.Latest = latest
		m.write(id, e)
	}
}

// envelope is that of a message; the zero value if there is none.
func (m *model) envelope(id string) message.Envelope { return decoded(m.msg[id]) }

func decoded(text string) message.Envelope {
	e, _ := message.DecodeEnvelope(text)
	return e
}

// stored is the envelope of a message that is sent, once it is due then.
func stored(o *SendMessage, due int64) string {
	version, tail := o.Version, o.Text
	if o.When.Absolute {
		version, tail = o.Text[0], o.Text[message.EnvelopeHead:]
	}
	return fmt.Sprintf("%c%016d%s", version, due, tail)
}

// redue writes another instant into an envelope.
func (m *model) redue(id string, due int64) {
	m.msg[id] = fmt.Sprintf("%s%016d%s", m.msg[id][:1], due, m.msg[id][message.EnvelopeHead:])
}

// change makes a message that waits another one, or due at another time.
func (m *model) change(id string, o *SendMessage) (a SendAnswer, wait int64) {
	tag, place, score := m.found(id, "")
	if place == "unack" && o.Put.On == ConflictAppend {
		m.leave(id)
		return a, 0
	}
	if place == "unack" {
		r := m.record(id)
		r.Superseded = true
		m.note(id, r)
		return a, 0
	}
	fresh := tag == id
	if place == "ready" {
		score = m.now
	}
	a = SendAnswer{Kind: AnswerKept, Holder: id, Due: score}
	due, latest := o.When.Due(m.now), m.latest(o)
	said, added, full := o.Put.On == ConflictReschedule || o.Put.Timed, true, false
	if o.Put.On == ConflictAppend && m.isOver(id, m.record(id).Delivery) {
		m.leave(id)
		return SendAnswer{}, 0
	}
	m.changed = true
	if o.Put.On == ConflictAppend {
		added, full = m.append(id, o)
	}
	if o.Put.On == ConflictReplace {
		m.recount(id, o.Put.Countdown)
	}
	if counted, n := m.countdown(id); n > 0 && counted >= n && fresh {
		said, due, latest = true, m.now, 0
	}
	movable := o.Put.On != ConflictAppend || fresh
	if full {
		delete(m.key, o.Key)
		m.leave(id)
		said, due, latest = true, m.now, 0
	}
	if !movable {
		said, latest = false, 0
	}
	if !said {
		due = score
	}
	if movable {
		latest = m.bounded(id, o, latest, fresh)
	}
	if latest != 0 {
		due = max(min(due, latest), m.now)
	}
	moves := (said || due < score) && (score > m.now || due > m.now)
	anew := fresh && !moves && score <= m.now && o.Put.On != ConflictAppend
	lane := m.laneOf(id)
	relanes := o.Put.On == ConflictReplace && lane != decoded(stored(o, 1)).Lane
	if moves {
		a.Due = due
		if !relanes {
			m.shift(id, due)
		}
		if fresh {
			m.redue(id, due)
		}
		if o.Put.On != ConflictReplace && !full {
			m.putLatest(id, latest)
		}
	}
	if !added {
		return SendAnswer{}, wait
	}
	if o.Put.On == ConflictReplace {
		at := m.envelope(id).Due
		if moves {
			at = due
		}
		if relanes {
			m.takeUp(id, lane)
		}
		left, counts := m.parts[id+":0"]
		if m.dropParts(id); counts {
			m.parts[id+":0"] = left
		}
		m.msg[id] = stored(o, at)
		if relanes && fresh && place == "pending" {
			m.layDown(id, at) // not when it got its turn
		} else if relanes {
			m.layDown(id, a.Due)
		}
		m.putLatest(id, latest)
		if !fresh {
			r := m.record(id)
			m.note(id, message.FailRecord{Delivery: r.Delivery, When: r.When, Errors: r.Errors})
		}
	}
	if e := m.envelope(id); anew && e.Since != 0 {
		e.Since = m.now
		m.write(id, e)
	}
	return a, wait
}

// bounded is latest, unless an earlier send has said until when the message may be put off, and it was not handed out
// since.
func (m *model) bounded(id string, o *SendMessage, latest int64, fresh bool) int64 {
	limit := m.envelope(id).Latest
	since := latest != 0 && limit-o.Put.MaxWait.Microseconds() > m.record(id).When
	if limit > message.LatestUnknown && (latest != 0 || o.Put.On != ConflictReplace) && (fresh || limit > m.now || since) {
		return limit
	}
	return latest
}

// isOver says whether the time of a delivery's message is over, by its deadline or, of a first delivery, by its TTL.
func (m *model) isOver(id string, delivery int) bool {
	return isOver(m.envelope(id), delivery == 1, m.now)
}

func isOver(e message.Envelope, first bool, at int64) bool {
	return e.Deadline != 0 && e.Deadline <= at ||
		e.TTL > 0 && first && message.Microseconds(at-max(e.Due, e.Since)) > e.TTL
}

// deadlineField is the deadline of a message in its envelope, where a deadline that was lifted stays as 0.
func deadlineField(us int64) string { return fmt.Sprintf("\x82\x10%016d", us) }

// lift takes the deadline from a message.
func (m *model) lift(id string) {
	m.msg[id] = strings.Replace(m.msg[id], deadlineField(m.envelope(id).Deadline), deadlineField(0), 1)
}

// storeAt makes a message pending.
func (m *model) storeAt(o *SendMessage, due int64) {
	if _, there := m.msg[o.ID]; !there { // a late repeat may find it
		m.count("sent", 1)
		m.books["in:stored"]++
		if o.Put != nil && strings.HasPrefix(o.Put.Sequence, "schedule/") {
			m.books["in:scheduled"]++
		} else if o.Put != nil && strings.HasPrefix(o.Put.Sequence, "import ") {
			m.books["in:imported"]++
		}
	}
	m.msg[o.ID] = stored(o, due)
	if m.laneOf(o.ID).Width > 0 {
		m.layDown(o.ID, due)
	} else {
		m.pending[o.ID] = due
	}
	if o.Key != "" {
		m.key[o.Key] = o.ID
	}
}

// countdown is how many acks have counted for a message, and for how many it waits; 0: for none.
func (m *model) countdown(id string) (counted, n int) {
	_, _ = fmt.Sscan(m.parts[id+":0"], &counted, &n)
	return counted, n
}

// recount gives a message another countdown; 0: none.
func (m *model) recount(id string, n int) {
	counted, _ := m.countdown(id)
	if delete(m.parts, id+":0"); n > 0 {
		m.parts[id+":0"] = fmt.Sprint(counted, " ", n)
	}
}

func (m *machine) puts(t *rapid.T) {
	if len(m.msg) > 5*m.most {
		return
	}
	batch := make([]*SendMessage, rapid.IntRange(1, min(m.most, MaxPut)).Draw(t, "n"))
	for i := range batch {
		batch[i] = m.withPut(t)
		put := batch[i].Put
		put.Sequence = rapid.SampledFrom([]string{"", "s1", "schedule/s2", "import s3"}).Draw(t, "sequence")
		put.Number = rapid.Int64Range(-20, 20).Draw(t, "number")
		if put.Behind = put.Sequence != "" && rapid.Bool().Draw(t, "behind another"); put.Behind {
			put.After = put.Number - rapid.Int64Range(1, 5).Draw(t, "by so much")
		}
	}
	m.call(t, func(t *rapid.T, c Caller) {
		got, err := m.store.Send(queuetest.CtxB, &c, SendRequest{Messages: batch})
		got.Uneven = "" // it has a test of its own, and is not in the reply to a repeat
		m.same(t, "put", got, err, m.once(c, func() any { return m.put(batch) }))
	})
}

// withPut draws a message with a policy for its key, and perhaps a countdown.
func (m *machine) withPut(t *rapid.T) *SendMessage {
	e, due := m.content(t, nil)
	if e.TTL > 0 && rapid.Bool().Draw(t, "since it is due anew") {
		e.Since = message.LatestUnknown
	}
	if e.Key != "" {
		e.Countdown = rapid.SampledFrom([]int{0, 1, 1, 2, 5}).Draw(t, "countdown")
	}
	if rapid.IntRange(0, 2).Draw(t, "no lane if 0") > 0 {
		e.Lane = message.Lane{Name: rapid.SampledFrom([]string{"a", "b", "b"}).Draw(t, "lane"),
			Width: rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "width")}
		if e.Lane.Name == "a" {
			e.Lane.Width = 1
		}
	}
	put := &PutOptions{Laned: e.Lane.Width > 0,
		On: min(Conflict(rapid.IntRange(0, len(conflictWords)+1).Draw(t, "if its key is taken")),
			ConflictAppend), // mostly parts
		Timed: rapid.Bool().Draw(t, "timed"), Countdown: e.Countdown}
	if put.On >= ConflictReplace && rapid.Bool().Draw(t, "bounded") {
		put.MaxWait, e.Latest = time.Duration(rapid.Int64Range(1000, 8e6).Draw(t, "most"))*time.Microsecond,
			message.LatestUnknown
	}
	if put.On == ConflictAppend {
		e.Group.Count, put.MaxParts = 1, rapid.SampledFrom([]int{0, 1, 2, 3, 5}).Draw(t, "parts")
	}
	return &SendMessage{ID: queuetest.IDOf(e.Payload), Key: e.Key, When: due, Text: e.Encode(due), Version: e.Version(),
		Put: put}
}
