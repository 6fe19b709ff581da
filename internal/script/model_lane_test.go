package script

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// laneOf is the lane of a message.
func (m *model) laneOf(id string) message.Lane { return m.envelope(id).Lane }

// begun says whether a message was handed out since it got its turn.
func (m *model) begun(id string) bool {
	tag := m.placed[id]
	_, fresh := m.pending[tag]
	_, later := m.retry[tag]
	return tag != "" && !fresh && !later
}

// takeUp takes a message out of its lane and from where it waits.
func (m *model) takeUp(id string, l message.Lane) {
	tag := queuetest.TagOf(id, m.record(id).Delivery)
	m.ready = slices.DeleteFunc(m.ready, func(other string) bool { return other == tag })
	for _, set := range []map[string]int64{m.pending, m.retry, m.waiting} {
		delete(set, tag)
	}
	delete(m.placed, id)
	m.turns(l.Name, "")
}

// layDown puts a message where it waits until an instant.
func (m *model) layDown(id string, due int64) {
	tag, l := queuetest.TagOf(id, m.record(id).Delivery), m.laneOf(id)
	if l.Width > 0 {
		m.waiting[tag] = due
		m.turns(l.Name, id)
		return
	}
	m.layAt(tag, due)
	m.turned = sooner(m.turned, due)
}

// shift makes a message that waits due at another instant. One that has begun and is not made due later keeps its turn.
func (m *model) shift(id string, due int64) {
	tag := queuetest.TagOf(id, m.record(id).Delivery)
	_, waits := m.waiting[tag]
	before, later := m.retry[tag]
	if !later {
		before = m.now
	}
	if !waits && m.begun(id) && due <= before {
		m.ready = slices.DeleteFunc(m.ready, func(other string) bool { return other == tag })
		m.retry[tag] = due
		m.turned = sooner(m.turned, due)
		return
	}
	m.takeUp(id, m.laneOf(id))
	m.layDown(id, due)
}

// skip ends the turn of a message that no handler has: it goes to garbage, or waits behind those of its lane that are
// due.
func (m *model) skip(id, what, text string) Steered {
	tag, place, score := m.found(id, "")
	r, l := m.record(id), m.laneOf(id)
	at := score
	if place == "ready" {
		at = m.now
	}
	out := Steered{State: cmp.Or(place, StateGone)}
	waits := place == "pending" || place == "retry" || place == "ready"
	if waits && at <= m.now {
		out.State = stateReady
	}
	if m.msg[id] == "" || !waits || l.Width == 0 {
		return out
	}
	out.Done = true
	if what == SteerGarbage {
		r.When, r.Errors = m.now, m.withError(0, text, r.Errors, message.MaxErrorText)
		m.bury(id, r)
		return out
	}
	last := int64(0)
	for tag, due := range m.waiting {
		if m.laneOf(queuetest.IDIn(tag)).Name == l.Name && due <= m.now {
			last = max(last, due)
		}
	}
	if out.Stays = last == 0; out.Stays {
		return out
	}
	due := max(last+1, at)
	m.takeUp(id, l)
	m.layDown(id, due)
	if tag == id {
		m.redue(id, due)
	}
	return out
}

// A laned message is one of a lane, and where it stands there.
type laned struct {
	id, tag string
	due     int64
	width   int
}

// turns gives the turns of a lane. The message that is due first of those that wait gets one, if as many as it and
// those that have one ask for are not reached. Else, if that message is me, the last of those that are not due, and
// have not begun, loses its turn, if it comes after me.
func (m *model) turns(lane, me string) {
	for {
		n, most := 0, message.MaxWidth
		var next, last *laned
		for id, tag := range m.placed {
			if l := m.laneOf(id); l.Name == lane && l.Width > 0 {
				n, most = n+1, min(most, l.Width)
				if due, lies := m.lies(tag); lies && due > m.now && (last == nil || last.before(tag, due)) {
					last = &laned{id, tag, due, l.Width}
				}
			}
		}
		for tag, due := range m.waiting {
			id := queuetest.IDIn(tag)
			if l := m.laneOf(id); l.Name == lane && (next == nil || !next.before(tag, due)) {
				next = &laned{id, tag, due, l.Width}
			}
		}
		switch {
		case next == nil:
			return
		case n < min(most, next.width):
			delete(m.waiting, next.tag)
			m.placed[next.id] = next.tag
			m.layAt(next.tag, max(next.due, m.now))
			m.turned = sooner(m.turned, max(next.due, m.now))
			m.turnDue = m.turnDue || next.due <= m.now
		case next.id == me && last != nil && !last.before(next.tag, next.due):
			delete(m.pending, last.tag)
			delete(m.retry, last.tag)
			delete(m.placed, last.id)
			m.waiting[last.tag] = last.due
		default:
			return
		}
	}
}

// before says whether it stands before another one.
func (l *laned) before(tag string, due int64) bool {
	return l.due < due || l.due == due && l.id < queuetest.IDIn(tag)
}

// lies is when a delivery is due that waits with a turn.
func (m *model) lies(tag string) (due int64, lies bool) {
	if due, lies = m.pending[tag]; !lies {
		due, lies = m.retry[tag]
	}
	return due, lies
}

// layAt lays a delivery down.
func (m *model) layAt(tag string, due int64) {
	if tag == queuetest.IDIn(tag) {
		m.pending[tag] = due
	} else {
		m.retry[tag] = due
	}
}

// sinceTurned is when the first message is due that has got a turn since it was last asked.
func (m *model) sinceTurned() int64 {
	first := m.turned
	m.turned = 0
	return first
}

// laneMembers are the members of lanes.
func (m *model) laneMembers() map[string]int64 {
	all := map[string]int64{}
	for id, tag := range m.placed {
		l := m.laneOf(id)
		all[l.Name+"\x00\x00"+l.Text()[:3]+tag] = 0
	}
	for tag, due := range m.waiting {
		id, n := message.SplitTag(tag)
		l := m.laneOf(id)
		all[fmt.Sprintf("%s\x00%016d%s %d %s", l.Name, due, id, n, l.Text()[:3])] = 0
	}
	return all
}

// write stores an envelope, as it reads.
func (m *model) write(id string, e message.Envelope) {
	lifted := e.Deadline == 0 && strings.Contains(m.msg[id], deadlineField(0))
	if lifted {
		e.Deadline = 1
	}
	m.msg[id] = e.Encode(message.When{Us: e.Due, Absolute: true})
	if lifted {
		m.lift(id)
	}
}

// keyless takes the key from the envelope of a group, which goes on by it.
func (m *model) keyless(id string) {
	e, text := m.envelope(id), m.msg[id]
	numbers := fmt.Sprintf("%04d%07d", e.Group.Count, e.Group.Bytes)
	field := string(binary.AppendUvarint([]byte("\x81"), uint64(len(numbers)+len(e.Key)))) + numbers + e.Key
	m.msg[id] = text[:message.EnvelopeHead] + "\x00\x00" + strings.Replace(text[message.EnvelopeHead+2+len(e.Key):],
		"\x81\x0b"+numbers, field, 1)
}

// keyBefore is the key that a group had, if it goes on without.
func keyBefore(e message.Envelope) string {
	if e.Key != "" {
		return ""
	}
	return e.Delivered("", 0, 0).Key
}

// append adds the payload of another message to a group, if it has room, and says whether it is full.
func (m *model) append(id string, o *SendMessage) (added, full bool) {
	e, most := m.envelope(id), cmp.Or(o.Put.MaxParts, message.MaxParts)
	if e.Group.Count >= most {
		return false, true
	}
	payload := decoded(stored(o, 1)).Payload
	e.Group.Count++
	e.Group.Bytes += len(payload)
	m.parts[fmt.Sprint(id, ":", e.Group.Count)] = payload
	m.write(id, e)
	return true, e.Group.Count >= most
}

// leave takes the key from a group, which lives on.
func (m *model) leave(id string) {
	key := m.envelope(id).Key
	m.keyless(id)
	m.setLeft(key, id, true)
}

// leftBy are the groups that left a key, the newest first.
func (m *model) leftBy(key string) []string { return strings.Fields(m.parts[":"+key]) }

// setLeft notes that a group that left a key lives, or does not any more.
func (m *model) setLeft(key, id string, lives bool) {
	ids := slices.DeleteFunc(m.leftBy(key), func(other string) bool { return other == id })
	if lives {
		ids = append([]string{id}, ids...)
	}
	m.parts[":"+key] = strings.Join(ids[:min(len(ids), 100)], " ")
	if len(ids) == 0 {
		delete(m.parts, ":"+key)
	}
}

func (m *model) dropParts(id string) {
	maps.DeleteFunc(m.parts, func(field, _ string) bool { return strings.HasPrefix(field, id+":") })
}

// addParts adds those of a group to a reply.
func (m *model) addParts(out *Extras, nth int, id, envelope string) {
	e := decoded(envelope)
	if e.Countdown > 0 {
		if out.Missing == nil {
			out.Missing = map[int]int{}
		}
		counted, n := m.countdown(id)
		out.Missing[nth] = max(n-counted, 0)
	}
	if e.Group.Count > 1 && out.Parts == nil {
		out.Parts = map[int][]string{}
	}
	for n := 2; n <= e.Group.Count; n++ {
		out.Parts[nth] = append(out.Parts[nth], m.parts[fmt.Sprint(id, ":", n)])
	}
}
