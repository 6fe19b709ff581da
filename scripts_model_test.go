package delayqueue

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A model is the queue in plain Go: maps and a clock. Each of its methods does what the script
// of that name should do, and answers what the typed call of that name should return.
type model struct {
	contents
	now     int64 // unix us
	with    fetchSettings
	calls   map[string]answered // by caller
	used    bool                // the queue has a key
	newer   bool                // the layout is one that this version does not know
	changed bool                // some message that waits was changed by a send
	swept   int64               // when a fetch last forgot callers

	graces []grace // as of the last fetch
	claims [5]claim
	limits modelLimits
}

// contents is what Redis holds of a queue, but for what shows in answers alone: the callers' last
// calls, the longest envelope, and how far callers have been swept.
type contents struct {
	pending, unack, retry, garbage, done map[string]int64 // tag -> instant
	ready                                []string
	msg, fail, key, sequence, result     map[string]string
	parts                                map[string]string
	holds                                map[string]int64 // message key -> until when an acked message keeps it
	holdAt                               int64            // the first of these
	wake                                 int64            // instant on the marker; 0: somebody took it, or there is none

	armed, seen, lent, pause, counted, doneAt, aging int64
	paused, grace, settings                          string

	counts  [10]int64 // not yet in history
	history map[string]string
}

// claim is the most that a consumer asked for of a setting, and when one did.
type claim struct{ value, at int64 }

// grace: leases that end up to an instant last until another.
type grace struct{ upto, till int64 }

// answered is a caller's last call.
type answered struct {
	n      int64
	answer any
	at     int64 // when it was carried out last
}

// errStale is the answer to a call that is older than its caller's last.
var errStale = errors.New("DQSTALE")

func newModel(with fetchSettings) *model {
	return &model{contents: newContents(), now: rigBase, with: with, calls: map[string]answered{}}
}

func newContents() contents {
	return contents{holds: map[string]int64{}, pending: map[string]int64{}, unack: map[string]int64{},
		retry: map[string]int64{}, garbage: map[string]int64{},
		done: map[string]int64{}, result: map[string]string{}, parts: map[string]string{},
		msg: map[string]string{}, fail: map[string]string{}, key: map[string]string{}, sequence: map[string]string{},
		history: map[string]string{}}
}

// once carries out a call that is new, and repeats the answer to one that is not.
func (m *model) once(c caller, carryOut func() any) any {
	if last, ok := m.calls[c.id]; ok && last.n > c.n {
		return errStale
	} else if ok && last.n == c.n {
		return last.answer
	}
	answer := carryOut()
	if _, refused := answer.(error); refused { // and forgotten
		return answer
	}
	m.calls[c.id], m.used = answered{c.n, answer, m.now}, true
	return answer
}

// existing is once for a call that changes something of a queue that is there.
func (m *model) existing(c caller, carryOut func() any) any {
	return m.once(c, func() any {
		if !m.used && !m.newer { // the layout is a field, too
			return ErrNoQueue
		}
		return carryOut()
	})
}

// holder is the message that has a key, or was acked and keeps it; "" if none does.
func (m *model) holder(key string) (id string, acked bool) {
	id, acked = strings.CutPrefix(m.key[key], "acked:")
	if acked && m.holds[key] <= m.now {
		return "", false
	}
	return id, acked
}

func (m *model) send(batch []*sendMessage) any {
	out := sendReply{now: m.now}
	var first int64
	for i, o := range batch {
		if holder, held := m.holder(o.key); holder != "" {
			if out.refused == nil {
				out.refused = map[int]string{}
			}
			if out.refused[i] = holder; held {
				out.refused[i] = acked + holder
			}
			continue
		}
		due := o.when.due(m.now)
		m.storeAt(o, due)
		if first == 0 || due < first {
			first = due
		}
	}
	m.armLater(first)
	return out
}

// counted is what is counted, in the order of history's numbers.
var counted = []string{"sent", "delivered", "acked", "failed", "lost", "garbage", "superseded", "started", "late", "latest"}

func (m *model) count(what string, n int) { m.counts[slices.Index(counted, what)] += int64(n) }

// countLate counts how late messages are handed out for the first time, in ms. Of more than 16, every few stand for those after
// them, but for those that are over: each of them counts.
func (m *model) countLate(tags, over []string) {
	first := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return idIn(tag) != tag })
	step := (len(first) + 15) / 16
	var late, latest int64
	for i := 0; i < len(first); i += step {
		due, _ := strconv.ParseInt(m.msg[first[i]][1:17], 10, 64)
		late, latest = late+max(m.now-due, 0)*int64(min(step, len(first)-i)), max(latest, m.now-due)
	}
	for _, tag := range over {
		if idIn(tag) == tag {
			first = append(first, tag)
			due, _ := strconv.ParseInt(m.msg[tag][1:17], 10, 64)
			late, latest = late+max(m.now-due, 0), max(latest, m.now-due)
		}
	}
	m.count("started", len(first))
	m.count("late", int(late+500)/1000)
	last := &m.counts[len(m.counts)-1]
	*last = max(*last, (latest+500)/1000)
}

// keepHistory moves what was counted to this hour's field and this day's, once a second at most.
func (m *model) keepHistory(byAge bool) {
	if m.counts == ([10]int64{}) || m.counted <= m.now && m.now-m.counted < 1_000_000 {
		return
	}
	hour, day := m.now/3_600_000_000, m.now/86_400_000_000
	_, old := m.history[fmt.Sprint(hour)]
	for _, span := range []string{fmt.Sprint(hour), fmt.Sprint("d", day)} {
		sums := m.counts
		for i, text := range strings.Fields(m.history[span]) {
			if n, _ := strconv.ParseInt(text, 10, 64); counted[i] == "latest" {
				sums[i] = max(sums[i], n)
			} else {
				sums[i] += n
			}
		}
		m.history[span] = strings.Trim(fmt.Sprint(sums), "[]")
	}
	if byAge && !old {
		maps.DeleteFunc(m.history, func(span, _ string) bool {
			text, daily := strings.CutPrefix(span, "d")
			at, err := strconv.ParseInt(text, 10, 64)
			now, most := hour, int64(historyHours)
			if daily {
				now, most = day, historyDays
			}
			return err != nil || at > now || at <= now-most
		})
	}
	m.counts, m.counted = [10]int64{}, m.now
}

// arm sets the alarm for work that is sooner than what it is set for.
func (m *model) arm(first int64) {
	if first != 0 && (m.armed == 0 || first < m.armed) {
		m.wake, m.armed = first, first
	}
}

// armLater is arm for work that waits until a pause is over.
func (m *model) armLater(first int64) {
	if first != 0 {
		first = max(first, m.pause)
	}
	m.arm(first)
}

func (m *model) settle(batch []settlement) any {
	out := settleReply{now: m.now}
	var void, acked []int
	var first int64
	dead, kept := 0, 0
	for i, o := range batch {
		if !m.ends(o) {
			void = append(void, i)
			continue
		}
		if o.overrun > 0 {
			m.unack["overrun:"+o.tag] = (m.now + o.overrun.Microseconds()) &^ 1
		}
		if o.failed {
			m.count("failed", 1)
		}
		acks := o.kind == outcomeAck || o.kind == outcomeDone
		if acks {
			acked = append(acked, i)
		}
		r := m.record(o.id)
		if r.superseded {
			out.superseded = append(out.superseded, i)
			m.count("superseded", 1)
		} else if acks {
			m.count("acked", 1)
		}
		if o.hold > 0 && m.key[o.key] == o.id {
			m.key[o.key], m.holds[o.key] = "acked:"+o.id, max(m.holds[o.key], m.now+o.hold.Microseconds())
			if m.holdAt == 0 || m.holds[o.key] < m.holdAt {
				m.holdAt = m.holds[o.key]
			}
		}
		if o.kind == outcomeThrottle && o.delay > 0 {
			m.throttle(o.delay)
		}
		value, errors := o.text, r.errors
		if o.text != "" && o.kind != outcomeDone {
			errors = m.withError(o.number, o.text, errors, maxOlderText)
		}
		next := failRecord{o.number + 1, o.failures, o.losses, m.now, errors, false}
		if r.superseded && !acks {
			if m.finish(o.id, next) {
				kept++
			}
			continue
		}
		if o.kind == outcomeAck {
			m.forget(o.id)
			continue
		}
		m.note(o.id, next)
		due := m.now
		switch o.kind {
		case outcomeGarbage:
			dead++
			m.count("garbage", 1)
			m.freeKey(o.id)
			m.garbage[o.id] = m.now
			continue
		case outcomeDone:
			kept++
			m.freeKey(o.id)
			m.done[o.id] = m.now + o.delay.Microseconds()
			if value != "" {
				m.result[o.id] = value
			}
			continue
		case outcomeReady:
			m.ready = append(m.ready, tagOf(o.id, o.number+1))
		case outcomeRetry, outcomeThrottle:
			due += o.delay.Microseconds()
			m.retry[tagOf(o.id, o.number+1)] = due
		}
		if first == 0 || due < first {
			first = due
		}
	}
	for _, i := range acked {
		for j, next := range batch[i].follows {
			holder, held := m.holder(next.key)
			if holder != "" && !(held && holder == batch[i].id) {
				out.refused = append(out.refused, refusedFollower{i, j, holder})
				continue
			}
			due := next.when.due(m.now)
			m.storeAt(next, due)
			if first == 0 || due < first {
				first = due
			}
		}
	}
	m.arm(first)
	m.freed()
	out.void = void
	if dead > 0 {
		out.overflow = m.trim(m.garbage, m.room(3), 500)
	}
	if kept > 0 {
		if room := m.room(4); room > 0 && len(m.done) > room {
			out.doneOverflow = min(len(m.done)-room, kept+100)
			for _, id := range m.toGo(out.doneOverflow) {
				m.forget(id)
			}
		}
		m.doneAt = head(m.done)
	}
	return out
}

// finish ends a message that was superseded, with a record if it is kept, and says whether it is.
func (m *model) finish(id string, r failRecord) bool {
	keep := m.envelope(id).retention
	if keep == 0 {
		m.forget(id)
		return false
	}
	r.superseded = true
	m.note(id, r)
	m.done[id] = m.now + keep.Microseconds()
	if m.doneAt == 0 || m.done[id] < m.doneAt {
		m.doneAt = m.done[id]
	}
	return true
}

// trim forgets the oldest of a set in which there is room for so many, at most some, and says how many those are.
func (m *model) trim(set map[string]int64, room, most int) int {
	if room == 0 {
		return 0
	}
	oldest := until(set, math.MaxInt64, min(len(set)-room, most))
	for _, id := range oldest {
		m.forget(id)
	}
	return len(oldest)
}

// room is how many a structure may hold, by a setting, as far as anybody has said so lately; 0 if that is not known or any number.
func (m *model) room(setting int) int {
	lease := m.claims[0].value
	if m.forgotten(0) {
		lease = 0
	}
	if since := m.now - m.claims[setting].at; since > lease || since < -lease {
		return 0
	}
	return int(m.claims[setting].value % unbounded)
}

// ends takes a delivery from where it is held, and what was handled also from where it was before, if the server
// forgot that it was handed out.
func (m *model) ends(o settlement) bool {
	if o.parts > 0 && m.msg[o.id] != "" && m.envelope(o.id).group.count > o.parts { // another one has it, under the same tag
		return false
	}
	places := []map[string]int64{m.unack, m.pending, m.retry}
	if m.changed && o.key != "" || o.parts > 0 || o.kind != outcomeAck && o.kind != outcomeDone { // it may be another one since
		places = places[:1]
	}
	for _, set := range places {
		if _, there := set[o.tag]; there {
			delete(set, o.tag)
			return true
		}
	}
	return false
}

func (m *model) extend(ds []*delivery) any {
	answers := make([]leaseState, len(ds))
	for i, d := range ds {
		if _, held := m.unack[d.tag]; held {
			m.unack[d.tag] = m.renewal()
		} else if answers[i] = leaseGone; m.msg[d.msg.ID] != "" {
			answers[i] = leaseLost
		}
	}
	return answers
}

// freeKey lets go of a message's key, which stays taken if it is held.
func (m *model) freeKey(id string) {
	for key, holder := range m.key {
		if holder == id && m.holds[key] > m.now {
			m.key[key] = acked + id
		} else if holder == id {
			delete(m.key, key)
		}
	}
	if e, err := decodeEnvelope(m.msg[id]); err == nil && e.group.key != "" {
		m.setLeft(e.group.key, id, false)
	}
}

func (m *model) forget(id string) {
	m.freeKey(id)
	delete(m.garbage, id)
	delete(m.done, id)
	delete(m.result, id)
	delete(m.msg, id)
	m.dropParts(id)
	delete(m.fail, id)
}

func idIn(tag string) string { return tag[len(tag)-len(idHead)-12:] }

// until is at most limit of those whose instant has come, in the order of a sorted set.
func until(set map[string]int64, instant int64, limit int) []string {
	var tags []string
	for tag, at := range set {
		if at <= instant {
			tags = append(tags, tag)
		}
	}
	slices.SortFunc(tags, func(a, b string) int { return cmp.Or(cmp.Compare(set[a], set[b]), cmp.Compare(a, b)) })
	return tags[:max(0, min(limit, len(tags)))]
}

// head is the first instant of a set; 0 if it is empty.
func head(set map[string]int64) int64 {
	var first int64
	for _, at := range set {
		if first == 0 || at < first {
			first = at
		}
	}
	return first
}
