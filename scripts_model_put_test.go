package delayqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"
)

// put stores the messages one after the other, or does what they want instead.
func (m *model) put(batch []*sendMessage) any {
	out := sendReply{now: m.now}
	var first int64
	for _, o := range batch {
		a, wait := m.putOne(o)
		if wait != 0 && (first == 0 || wait < first) {
			first = wait
		}
		out.answers = append(out.answers, a)
	}
	m.armLater(first)
	return out
}

// putOne returns an answer, and for when something waits that did not before.
func (m *model) putOne(o *sendMessage) (a sendAnswer, wait int64) {
	if digits := m.sequence[o.put.sequence]; digits != "" {
		if last, err := sequenceNumber(digits); err != nil || last >= o.put.number {
			return sendAnswer{kind: answerPassed, last: last}, 0
		}
	}
	if o.put.behind && m.sequence[o.put.sequence] < sequenceDigits(o.put.after) {
		return sendAnswer{kind: answerStopped}, 0
	}
	holder, held := m.holder(o.key)
	switch {
	case held && o.put.on == Keep:
		a = sendAnswer{kind: answerKept, holder: holder}
	case held, holder != "" && o.put.on == Refuse:
		return sendAnswer{kind: answerTaken, holder: holder, held: held}, 0
	case holder != "" && o.put.on == Keep:
		a = sendAnswer{kind: answerKept, holder: holder, due: m.dueOf(holder)}
	case holder != "" && o.put.on == Append && m.envelope(holder).group.count == 0:
		return sendAnswer{kind: answerTaken, holder: holder}, 0
	case holder != "":
		a, wait = m.change(holder, o)
	}
	if a.kind != answerKept {
		due := o.when.due(m.now)
		if latest := m.latest(o); latest != 0 {
			due = min(due, latest)
		}
		a.due = due
		m.storeAt(o, due)
		m.putLatest(o.id, m.latest(o))
		if wait == 0 || due < wait {
			wait = due
		}
	}
	if o.put.sequence != "" {
		m.sequence[o.put.sequence] = sequenceDigits(o.put.number)
	}
	return a, wait
}

// dueOf is when a message comes, or comes again.
func (m *model) dueOf(id string) int64 {
	_, place, score := m.found(id, "")
	if place == "pending" || place == "retry" {
		return score
	}
	return m.now
}

// latest is when a message is due at the latest that is sent now; 0: at any time.
func (m *model) latest(o *sendMessage) int64 {
	if o.put.maxWait == 0 {
		return 0
	}
	return m.now + o.put.maxWait.Microseconds()
}

// putLatest writes that into an envelope which has room for it.
func (m *model) putLatest(id string, latest int64) {
	if e := m.envelope(id); latest != 0 && e.latest != 0 {
		e.latest = latest
		m.msg[id] = e.encode(when{us: e.due, absolute: true})
	}
}

func (m *model) envelope(id string) envelope {
	e, err := decodeEnvelope(m.msg[id])
	if err != nil {
		panic(err)
	}
	return e
}

// change makes a message that waits another one, or due at another time.
func (m *model) change(id string, o *sendMessage) (a sendAnswer, wait int64) {
	tag, place, score := m.found(id, "")
	if place == "unack" && o.put.on == Append {
		m.leave(id)
		return a, 0
	}
	if place == "unack" {
		r := m.record(id)
		r.superseded = true
		m.note(id, r)
		return a, 0
	}
	if place == "ready" {
		score = m.now
	}
	a = sendAnswer{kind: answerKept, holder: id, due: score}
	due, latest := o.when.due(m.now), m.latest(o)
	said, added, full := o.put.on == Reschedule || o.put.timed, true, false
	e := m.envelope(id)
	if o.put.on == Append && (m.pastTTL(e, m.record(id).delivery) || e.deadline != 0 && e.deadline <= m.now) {
		m.leave(id)
		return sendAnswer{}, 0
	}
	m.changed = true
	if o.put.on == Append {
		added, full = m.append(id, o)
	}
	movable := o.put.on != Append || place == "pending"
	if full {
		delete(m.key, o.key)
		m.leave(id)
		said, due, latest = true, m.now, 0
	}
	if !movable {
		said, latest = false, 0
	}
	if !said {
		due = score
	}
	limit := m.envelope(id).latest
	if limit != 0 && movable && (latest != 0 || o.put.on != Replace) {
		since := latest != 0 && limit-o.put.maxWait.Microseconds() > m.record(id).when
		if place == "pending" || limit > m.now || since {
			latest = limit
		}
	}
	if latest != 0 {
		due = max(min(due, latest), m.now)
	}
	moves := (said || due < score) && (score > m.now || due > m.now)
	anew := place == "pending" && !moves && score <= m.now && o.put.on != Append
	if moves {
		a.due, wait = due, due
		if place == "pending" {
			m.pending[tag] = due
			m.msg[id] = fmt.Sprintf("%s%016d%s", m.msg[id][:1], due, m.msg[id][envelopeHead:])
		} else {
			m.ready = slices.DeleteFunc(m.ready, func(other string) bool { return other == tag })
			m.retry[tag] = due
		}
		if o.put.on != Replace && !full {
			m.putLatest(id, latest)
		}
	}
	if !added {
		return sendAnswer{}, wait
	}
	if o.put.on == Replace {
		at := m.envelope(id).due
		if wait != 0 {
			at = due
		}
		version, tail := o.version, o.text
		if o.when.absolute {
			version, tail = o.text[0], o.text[envelopeHead:]
		}
		m.dropParts(id)
		m.msg[id] = fmt.Sprintf("%c%016d%s", version, at, tail)
		m.putLatest(id, latest)
		if place != "pending" {
			r := m.record(id)
			m.note(id, failRecord{delivery: r.delivery, when: r.when, errors: r.errors})
		}
	}
	if e := m.envelope(id); anew && e.since != 0 {
		e.since = m.now
		m.write(id, e)
	}
	return a, wait
}

// pastTTL says whether a first delivery comes too late, by the TTL of its message.
func (m *model) pastTTL(e envelope, delivery int) bool {
	return e.ttl > 0 && delivery == 1 && microseconds(m.now-max(e.due, e.since)) > e.ttl
}

// storeAt makes a message pending.
func (m *model) storeAt(o *sendMessage, due int64) {
	version, tail := o.version, o.text
	if o.when.absolute {
		version, tail = o.text[0], o.text[envelopeHead:]
	}
	m.pending[o.id] = due
	m.msg[o.id] = fmt.Sprintf("%c%016d%s", version, due, tail)
	if o.key != "" {
		m.key[o.key] = o.id
	}
	m.count("sent", 1)
}

func (m *machine) puts(t *rapid.T) {
	if len(m.msg) > 5*m.most {
		return
	}
	batch := make([]*sendMessage, rapid.IntRange(1, min(m.most, maxPut)).Draw(t, "n"))
	for i := range batch {
		m.sent++
		e := envelope{payload: strconv.Itoa(m.sent), retries: 3}
		due := when{us: rapid.Int64Range(0, 8e6).Draw(t, "delay")}
		if rapid.Bool().Draw(t, "at an instant") {
			due = when{us: m.now + rapid.Int64Range(-1e6, 8e6).Draw(t, "when"), absolute: true}
		}
		e.key = rapid.SampledFrom([]string{"", "k1", "k2", "k3"}).Draw(t, "key")
		if e.key != "" && rapid.Bool().Draw(t, "its key is held") {
			e.keyHold = time.Duration(rapid.Int64Range(1000, 8e6).Draw(t, "hold")) * time.Microsecond
		}
		if rapid.IntRange(0, 2).Draw(t, "a TTL if 2") == 2 {
			e.ttl, e.since = time.Second, latestUnknown
		}
		if rapid.IntRange(0, 7).Draw(t, "a deadline if 7") == 7 {
			e.deadline = m.now + 4e6
		}
		put := &putOptions{sequence: rapid.SampledFrom([]string{"", "s1", "s2"}).Draw(t, "sequence"),
			number: rapid.Int64Range(-20, 20).Draw(t, "number"),
			on:     Conflict(rapid.IntRange(0, len(conflictNames)-1).Draw(t, "if its key is taken")), timed: rapid.Bool().Draw(t, "timed")}
		if put.behind = put.sequence != "" && rapid.Bool().Draw(t, "behind another"); put.behind {
			put.after = put.number - rapid.Int64Range(1, 5).Draw(t, "by so much")
		}
		if put.on >= Replace && rapid.Bool().Draw(t, "bounded") {
			put.maxWait, e.latest = time.Duration(rapid.Int64Range(1000, 8e6).Draw(t, "most"))*time.Microsecond, latestUnknown
		}
		if put.on == Append {
			e.group.count, put.maxParts = 1, rapid.SampledFrom([]int{0, 2, 3, 5}).Draw(t, "parts")
		}
		batch[i] = &sendMessage{id: idOf(e.payload), key: e.key, when: due, text: e.encode(due), version: e.version(), put: put}
	}
	m.call(t, func(t *rapid.T, c caller) {
		got, err := m.store.send(context.Background(), &c, sendRequest{messages: batch})
		m.same(t, "put", got, err, m.once(c, func() any { return m.put(batch) }))
	})
}
