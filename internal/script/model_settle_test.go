package script

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// A settling is what a call of settle has done so far.
type settling struct {
	out                   SettleReply
	first                 int64 // when any message is due again
	dead, kept            int
	garbageRoom, doneRoom int
}

// settle ends deliveries. fetches: a fetch follows if there is more, which sets the alarm.
func (m *model) settle(batch []Settlement, fetches bool) any {
	m.turnDue = false
	s := settling{out: SettleReply{Now: m.now}}
	alive, settled := map[string]bool{}, map[string]int{}
	for _, o := range batch {
		_, alive[o.Lease.Name] = m.listed[o.Lease.Name]
	}
	for i, o := range batch {
		if !m.ends(o, alive[o.Lease.Name]) {
			s.out.Void = append(s.out.Void, i)
			continue
		}
		settled[o.Lease.Name]++
		m.settleOne(&s, i, o)
		if o.Kind == OutcomeAck || o.Kind == OutcomeDone {
			m.follow(&s, i, o)
		}
	}
	for name, n := range settled {
		m.letGo(name, n)
	}
	putOff := m.limits.putOff
	more := fetches && m.turnDue && putOff == (heldBack{})
	if first := sooner(s.first, m.sinceTurned()); more && (m.armed == 0 || first < m.armed) {
		m.wake, m.armed = 0, first
	} else {
		m.arm(first)
	}
	if goes := fetches && putOff.full == 1 && putOff.open <= m.now; goes {
		more = true
	} else {
		m.freed()
	}
	s.out.More = more
	if s.dead > 0 {
		s.out.Overflow = m.trim(m.garbage, s.garbageRoom, 500)
	}
	if s.kept > 0 {
		if room := s.doneRoom; room > 0 && len(m.done) > room {
			s.out.DoneOverflow = min(len(m.done)-room, s.kept+100)
			for _, id := range m.toGo(s.out.DoneOverflow) {
				m.forget(id, "out:trimmed")
			}
		}
		m.doneAt = head(m.done)
	}
	return s.out
}

// follow sends what follows an ack, and counts it.
func (m *model) follow(s *settling, i int, o Settlement) {
	for j, next := range o.Follows {
		before := m.books["in:stored"]
		a, wait := m.putOne(next, o.ID)
		if stored := m.books["in:stored"] - before; stored > 0 {
			m.books["in:followed"] += stored
		}
		if s.first = sooner(s.first, wait); a.Kind != AnswerStored {
			s.out.Answers = append(s.out.Answers, FollowerAnswer{i, j, a})
		}
	}
	if superseded := slices.Contains(s.out.Superseded, i); o.Counts == "" || superseded {
		return
	}
	id := m.key[o.Counts]
	counted, n := m.countdown(id)
	if n == 0 {
		return
	}
	m.parts[id+":0"] = fmt.Sprint(counted+1, " ", n)
	due, waits := m.pending[id]
	if _, place, at := m.found(id, "waiting"); place != "" && m.record(id).Delivery == 1 {
		due, waits = at, true
	}
	if waits && counted+1 == n && due > m.now {
		m.shift(id, m.now)
		m.redue(id, m.now)
	}
}

// settleOne is what an outcome does whose delivery was held.
func (m *model) settleOne(s *settling, i int, o Settlement) {
	if o.Failed {
		m.count("failed", 1)
	}
	r, acks := m.record(o.ID), o.Kind == OutcomeAck || o.Kind == OutcomeDone
	if r.Superseded {
		s.out.Superseded = append(s.out.Superseded, i)
		m.count("superseded", 1)
	} else if acks {
		m.count("acked", 1)
		m.books["out:acked"]++
		if o.Kind == OutcomeDone {
			m.books["kept"]++
		}
	}
	if o.Hold > 0 && m.key[o.Key] == o.ID {
		m.key[o.Key], m.holds[o.Key] = "acked:"+o.ID, max(m.holds[o.Key], m.now+o.Hold.Microseconds())
		m.holdAt = sooner(m.holdAt, m.holds[o.Key])
	}
	if o.Kind == OutcomeThrottle && o.Delay > 0 {
		m.throttle(o.Delay)
	}
	next := message.FailRecord{Delivery: o.Number + 1, Failures: o.Failures, Losses: o.Losses, When: m.now,
		Errors: r.Errors}
	if o.Text != "" && o.Kind != OutcomeDone {
		next.Errors = m.withError(o.Number, o.Text, r.Errors, 200)
	}
	switch {
	case r.Superseded && !acks:
		if m.finish(o.ID, next) {
			s.kept++
		}
	case o.Kind == OutcomeAck && r.Superseded:
		m.forget(o.ID, "out:superseded")
	case o.Kind == OutcomeAck:
		m.forget(o.ID, "")
	default:
		m.note(o.ID, next)
		m.place(s, o, next)
	}
}

// place puts a message that lives on where its outcome says.
func (m *model) place(s *settling, o Settlement, next message.FailRecord) {
	at := m.now + o.Delay.Microseconds()
	switch {
	case o.Kind == OutcomeGarbage:
		s.garbageRoom = o.Room
		s.dead++
		m.bury(o.ID, next)
	case o.Kind == OutcomeDone:
		s.doneRoom = o.Room
		s.kept++
		m.freeKey(o.ID)
		m.takeUp(o.ID, m.laneOf(o.ID))
		m.done[o.ID] = at
		if o.Text != "" {
			m.result[o.ID] = o.Text
		}
	case o.Kind == OutcomeReady:
		m.ready = append(m.ready, queuetest.TagOf(o.ID, o.Number+1))
		s.first = sooner(s.first, m.now)
	case o.Leaves:
		m.takeUp(o.ID, m.laneOf(o.ID))
		m.layDown(o.ID, at)
	default:
		m.retry[queuetest.TagOf(o.ID, o.Number+1)] = at
		s.first = sooner(s.first, at)
	}
}

// bury puts a message into garbage.
func (m *model) bury(id string, r message.FailRecord) {
	m.note(id, r)
	m.count("garbage", 1)
	m.freeKey(id)
	m.takeUp(id, m.laneOf(id))
	m.garbage[id] = m.now
}

// next is a message's next delivery, which it gets unless it was superseded: then it has ended.
func (m *model) next(id string, r message.FailRecord, replaced *int) (tag string, lives bool) {
	over := r.Superseded
	r.Delivery, r.When, r.Superseded = r.Delivery+1, m.now, false
	if over {
		*replaced++
		m.finish(id, r)
		return "", false
	}
	m.note(id, r)
	return queuetest.TagOf(id, r.Delivery), true
}

// finish ends a message that was superseded, with a record if it is kept, and says whether it is.
func (m *model) finish(id string, r message.FailRecord) bool {
	keep := m.envelope(id).Retention
	if keep == 0 {
		m.forget(id, "out:superseded")
		return false
	}
	r.Superseded = true
	m.takeUp(id, m.laneOf(id))
	m.note(id, r)
	m.done[id] = m.now + keep.Microseconds()
	m.doneAt = sooner(m.doneAt, m.done[id])
	return true
}

// trim forgets the oldest of a set in which there is room for so many, at most some, and says how many those are.
func (m *model) trim(set map[string]int64, room, most int) int {
	if room == 0 {
		return 0
	}
	oldest := until(set, math.MaxInt64, min(len(set)-room, most))
	for _, id := range oldest {
		m.forget(id, "out:trimmed")
	}
	return len(oldest)
}

// ends says whether an outcome counts: its delivery is held under a lease that is alive, or it was handled and waits
// again where it was before, because the server forgot that it was handed out.
func (m *model) ends(o Settlement, alive bool) bool {
	if alive {
		return m.isHeld(o.Tag) && slices.Contains(strings.Fields(m.listed[o.Lease.Name]), o.Tag)
	}
	if m.changed && o.Key != "" || o.Parts > 0 || o.Kind != OutcomeAck &&
		o.Kind != OutcomeDone { // it may be another one since
		return false
	}
	for _, set := range []map[string]int64{m.pending, m.retry} {
		if _, there := set[o.Tag]; there {
			delete(set, o.Tag)
			return true
		}
	}
	return false
}

// record is what is known of earlier deliveries; delivery is the current one.
func (m *model) record(id string) message.FailRecord {
	r, err := message.ParseFail(m.fail[id])
	if err != nil {
		return message.FailRecord{Delivery: 1}
	}
	return r
}

func (m *model) note(id string, r message.FailRecord) {
	mark := ""
	if r.Superseded {
		mark = "\x1f"
	}
	m.fail[id] = fmt.Sprintf("%d %d %d %d %s%s", r.Delivery, r.Failures, r.Losses, r.When, mark, r.Errors)
}

// withError puts one error more before those of a record, of which each is cut to so many bytes.
func (m *model) withError(delivery int, text, errors string, most int) string {
	out := fmt.Sprintf("\x1e%d %d %s", m.now, delivery, text)
	for i, one := range strings.Split(errors, "\x1e")[1:] {
		if words := strings.SplitN(one, " ", 3); i < 4 {
			out += "\x1e" + words[0] + " " + words[1] + " " + strings.ToValidUTF8(words[2][:min(len(words[2]), most)], "")
		}
	}
	return out
}

// lastChance: one more loss would make it poison.
func (m *model) lastChance(tag string) bool {
	losses := m.record(queuetest.IDIn(tag)).Losses
	return losses > 0 && losses >= m.with.MaxLosses-1
}

// toGo are n of what is done: those that are over soonest, but for what was acked within the last 5 s, as far as
// there is anything else behind that.
func (m *model) toGo(n int) (going []string) {
	const spare = 5_000_000
	var spared []string
	from := int64(math.MinInt64)
	for range 4 {
		page := slices.DeleteFunc(until(m.done, math.MaxInt64, len(m.done)), func(id string) bool {
			return m.done[id] < from
		})
		upto := int64(math.MaxInt64)
		for _, id := range page[:min(n-len(going), len(page))] {
			if m.done[id] > upto {
				break
			}
			if at := m.record(id).When; at <= m.now && at > m.now-spare {
				spared = append(spared, id)
				upto = min(upto, m.done[id]+spare)
			} else {
				going = append(going, id)
			}
		}
		if upto == math.MaxInt64 {
			break
		}
		from = upto + 1
	}
	slices.SortFunc(spared, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.record(a).When, m.record(b).When), cmp.Compare(a, b))
	})
	for _, id := range slices.Concat(spared, until(m.done, math.MaxInt64, n)) {
		if len(going) < n && !slices.Contains(going, id) {
			going = append(going, id)
		}
	}
	return going
}
