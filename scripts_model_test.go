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
	now   int64 // unix us
	with  fetchSettings
	calls map[string]answered // by caller

	graces []grace // as of the last fetch
	claims [4]claim
}

// contents is what Redis holds of a queue, but for what shows in answers alone: the callers' last
// calls, the longest envelope, and how far callers have been swept.
type contents struct {
	pending, unack, retry, garbage map[string]int64 // tag -> instant
	ready                          []string
	msg, fail, key                 map[string]string
	wake                           int64 // instant on the marker; 0: somebody took it, or there is none

	armed, seen, lent, pause, counted int64
	grace, settings                   string

	counts  [6]int64 // not yet in history
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
	return contents{pending: map[string]int64{}, unack: map[string]int64{}, retry: map[string]int64{}, garbage: map[string]int64{},
		msg: map[string]string{}, fail: map[string]string{}, key: map[string]string{}, history: map[string]string{}}
}

// once carries out a call that is new, and repeats the answer to one that is not.
func (m *model) once(c caller, carryOut func() any) any {
	if last, ok := m.calls[c.id]; ok && last.n > c.n {
		return errStale
	} else if ok && last.n == c.n {
		return last.answer
	}
	answer := carryOut()
	m.calls[c.id] = answered{c.n, answer, m.now}
	return answer
}

func (m *model) send(batch []*sendMessage) any {
	out := sendReply{now: m.now}
	var first int64
	for i, o := range batch {
		if holder := m.key[o.key]; holder != "" {
			if out.refused == nil {
				out.refused = map[int]string{}
			}
			out.refused[i] = holder
			continue
		}
		due := m.now + o.when.us
		if o.when.absolute {
			due = max(m.now, o.when.us)
		}
		m.pending[o.id] = due
		tail := o.text
		if o.when.absolute {
			tail = o.text[envelopeHead:]
		}
		m.msg[o.id] = fmt.Sprintf("\x01%016d%s", due, tail)
		if o.key != "" {
			m.key[o.key] = o.id
		}
		m.count("sent", 1)
		if first == 0 || due < first {
			first = due
		}
	}
	m.armLater(first)
	return out
}

// armLater is arm for work that waits until a pause is over.
func (m *model) armLater(first int64) {
	if first != 0 {
		first = max(first, m.pause)
	}
	m.arm(first)
}

// counted is what is counted, in the order of history's numbers.
var counted = []string{"sent", "delivered", "acked", "failed", "lost", "garbage"}

func (m *model) count(what string, n int) { m.counts[slices.Index(counted, what)] += int64(n) }

// keepHistory moves what was counted to this hour's field and this day's, once a second at most.
func (m *model) keepHistory() {
	if m.counts == ([6]int64{}) || m.counted <= m.now && m.now-m.counted < 1_000_000 {
		return
	}
	hour, day := m.now/3_600_000_000, m.now/86_400_000_000
	_, old := m.history[fmt.Sprint(hour)]
	for _, span := range []string{fmt.Sprint(hour), fmt.Sprint("d", day)} {
		var sums [6]int64
		_, _ = fmt.Sscan(m.history[span], &sums[0], &sums[1], &sums[2], &sums[3], &sums[4], &sums[5])
		for i, n := range m.counts {
			sums[i] += n
		}
		m.history[span] = strings.Trim(fmt.Sprint(sums), "[]")
	}
	if !old {
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
	m.counts, m.counted = [6]int64{}, m.now
}

// arm sets the alarm for work that is sooner than what it is set for.
func (m *model) arm(first int64) {
	if first != 0 && (m.armed == 0 || first < m.armed) {
		m.wake, m.armed = first, first
	}
}

func (m *model) settle(batch []settlement) any {
	var void []int
	var first int64
	dead := 0
	for i, o := range batch {
		if !m.ends(o) {
			void = append(void, i)
			continue
		}
		if o.failed {
			m.count("failed", 1)
		}
		if o.kind == outcomeAck {
			m.count("acked", 1)
			m.forget(o.id)
			continue
		}
		if o.text == "" {
			o.text = m.record(o.id).text
		}
		m.note(o.id, failRecord{o.number + 1, o.failures, o.losses, m.now, o.text})
		next := m.now
		switch o.kind {
		case outcomeGarbage:
			dead++
			m.count("garbage", 1)
			m.bury(o.id)
			continue
		case outcomeReady:
			m.ready = append(m.ready, tagOf(o.id, o.number+1))
		case outcomeRetry:
			next += o.delay.Microseconds()
			m.retry[tagOf(o.id, o.number+1)] = next
		}
		if first == 0 || next < first {
			first = next
		}
	}
	m.arm(first)
	out := settleReply{void: void}
	if room := m.roomForGarbage(); dead > 0 && room > 0 {
		trimmed := until(m.garbage, math.MaxInt64, min(len(m.garbage)-room, 500))
		for _, id := range trimmed {
			m.forget(id)
		}
		out.trimmed = len(trimmed)
	}
	return out
}

// roomForGarbage is how much there may be, as far as anybody has said so lately; 0 if that is not known or any number.
func (m *model) roomForGarbage() int {
	lease := m.claims[0].value
	if m.forgotten(0) {
		lease = 0
	}
	if since := m.now - m.claims[3].at; since > lease || since < -lease {
		return 0
	}
	return int(m.claims[3].value % unbounded)
}

// ends takes a delivery from where it is held, and what was handled also from where it was before, if the server
// forgot that it was handed out.
func (m *model) ends(o settlement) bool {
	places := []map[string]int64{m.unack, m.pending, m.retry}
	if o.kind != outcomeAck {
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
		} else if answers[i] = leaseGone; m.msg[d.id] != "" {
			answers[i] = leaseLost
		}
	}
	return answers
}

func (m *model) intercept(by, id string, running bool) any {
	if by == "key" {
		id = m.key[id]
	}
	if m.msg[id] == "" {
		return interceptReply{}
	}
	tag, state := tagOf(id, m.record(id).delivery), StateReady
	if due, ok := m.pending[tag]; ok && due > m.now {
		state = StatePending
	} else if _, ok := m.unack[tag]; ok {
		state = StateUnack
	} else if _, ok := m.retry[tag]; ok {
		state = StateRetry
	} else if _, ok := m.garbage[id]; ok {
		state = StateGarbage
	}
	if state == StateUnack && !running {
		return interceptReply{state, id}
	}
	m.ready = slices.DeleteFunc(m.ready, func(other string) bool { return other == tag })
	for _, set := range []map[string]int64{m.pending, m.unack, m.retry} {
		delete(set, tag)
	}
	m.forget(id)
	return interceptReply{state, id}
}

// found is where a delivery is, and its score there; only: in that structure alone.
func (m *model) found(id, only string) (tag, place string, score int64) {
	tag = tagOf(id, m.record(id).delivery)
	for _, set := range []struct {
		name string
		of   map[string]int64
		tag  string
	}{{"pending", m.pending, tag}, {"unack", m.unack, tag}, {"garbage", m.garbage, id}, {"retry", m.retry, tag}} {
		if at, ok := set.of[set.tag]; ok && (only == "" || only == set.name) {
			return set.tag, set.name, at
		}
	}
	if slices.Contains(m.ready, tag) && (only == "" || only == "ready") {
		return tag, "ready", 0
	}
	return tag, "", 0
}

// steer moves or deletes what waits.
func (m *model) steer(do steerRequest) any {
	out := make([]steered, len(do.marks))
	var first, nth int64
	for i, listed := range do.marks {
		id, _ := splitTag(listed.tag)
		r := m.record(id)
		tag, place, score := m.found(id, do.only)
		if do.only != "" && (tag != listed.tag || listed.score != "" && listed.score != strconv.FormatInt(score, 10)) || m.msg[id] == "" {
			place = ""
		}
		due := place == "ready" || (place == "pending" || place == "retry") && score <= m.now
		out[i].state = max(0, State(slices.Index(stateNames[:], place)))
		if due {
			out[i].state = StateReady
		}
		deletes := do.what == "delete" || do.what == "cancel"
		if place == "" || place == "unack" && do.what != "cancel" || place == "garbage" != (do.what == "requeue") && !deletes {
			continue
		}
		e, err := decodeEnvelope(m.msg[id])
		if err != nil {
			panic(err)
		}
		if holder := m.key[e.key]; do.what == "requeue" && holder != "" {
			out[i].holder = holder
			continue
		}
		out[i].done = true
		next := do.us + nth*do.step
		if do.what == "by" {
			next = do.us + max(score, 0)
			if place == "ready" {
				next = do.us + m.now
			}
		}
		nth++
		if next = min(next, forever); !deletes && next <= m.now && due {
			out[i].stays = true
			continue
		}
		next = max(next, m.now)
		m.ready = slices.DeleteFunc(m.ready, func(other string) bool { return other == tag })
		delete(m.pending, tag)
		delete(m.retry, tag)
		delete(m.unack, tag)
		if deletes {
			m.forget(id)
			continue
		}
		if place == "pending" {
			m.pending[tag] = next
			m.msg[id] = fmt.Sprintf("%s%016d%s", m.msg[id][:1], next, m.msg[id][envelopeHead:])
		} else {
			m.retry[tagOf(id, max(r.delivery, 2))] = next
		}
		if place == "garbage" {
			delete(m.garbage, id)
			m.note(id, failRecord{delivery: r.delivery, when: m.now, text: r.text})
			if e.key != "" {
				m.key[e.key] = id
			}
		}
		if first == 0 || next < first {
			first = next
		}
	}
	m.armLater(first)
	return out
}

// setPause pauses until an instant, or, if that is not after now, goes on.
func (m *model) setPause(until int64) any {
	m.pause = 0
	if until > m.now {
		m.pause = until
	}
	var first int64
	for _, at := range []int64{head(m.pending), head(m.retry)} {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	if len(m.ready) > 0 && (first == 0 || m.now < first) {
		first = m.now
	}
	m.armLater(first)
	return nil
}

func (m *model) fetch(c caller, a fetchRequest, seed int64) any {
	call, called := m.calls[c.id]
	if called && call.n > c.n {
		return errStale
	}
	repeat := called && call.n == c.n
	out := fetchReply{now: m.now, tags: []string{}, envelopes: []string{}, agreed: m.agree()}
	jitter := func(width int) int64 { // the script's own generator
		seed = seed * 16807 % (1<<31 - 1)
		return int64(float64(seed) / (1<<31 - 1) * float64(width))
	}
	if m.seen == 0 {
		out.first = 1
	}
	if m.pause > m.now {
		a.want = 0
	}
	if m.seen > m.now { // the clock was stepped back
		m.seen, m.grace = 0, ""
	}
	// A repeat brings what is still held under the lease of the call that it repeats.
	var ends int64
	if repeat && call.answer != int64(0) {
		for _, tag := range until(m.unack, call.answer.(int64), len(m.unack)) {
			if m.unack[tag] == call.answer {
				out.tags = append(out.tags, tag)
			}
		}
		out.tags = m.fitting(out.tags, a)
		ends = m.lend(out.tags)
	}
	m.shorten()
	m.graceAfter(called, call.at)
	m.seen = m.now

	var expired []string
	for _, tag := range until(m.unack, m.now, len(m.unack)) {
		if len(expired) < 100 && !a.probe && m.lasts(m.unack[tag]) <= m.now {
			expired = append(expired, tag)
		}
	}
	for _, tag := range expired {
		delete(m.unack, tag)
		out.lost++
		id := idIn(tag)
		r := m.record(id)
		r.delivery, r.losses, r.when = r.delivery+1, r.losses+1, m.now
		if r.losses >= int(m.claims[1].value) {
			r.text = ErrPoison.Error()
			m.bury(id)
			m.note(id, r)
			out.dead = append(out.dead, deadMessage{id, m.msg[id], m.fail[id]})
		} else {
			m.note(id, r)
			m.retry[tagOf(id, r.delivery)] = m.now + jitter(500_000*r.losses)
		}
	}

	old, trimmed := m.aged(len(out.dead))
	out.trimmed = len(trimmed)
	for _, id := range slices.Concat(old, trimmed) {
		m.forget(id)
	}

	if !repeat {
		out.tags = append(out.tags, m.take(a, 500-len(expired)-len(old)-len(trimmed), jitter)...)
		ends = m.lend(out.tags)
	}
	for _, tag := range out.tags {
		out.envelopes = append(out.envelopes, m.msg[idIn(tag)])
	}

	if len(m.ready) > 0 {
		out.next = m.now
	}
	for _, at := range []int64{head(m.pending), head(m.retry)} {
		if at != 0 && (out.next == 0 || at < out.next) {
			out.next = at
		}
	}
	if out.next != 0 {
		out.next = max(out.next, m.pause)
	}
	// A lease that its holder should have renewed is work as well, and so is more garbage.
	for _, ends := range m.unack {
		if at := m.lasts(ends); 2*(at-m.now) < m.lease() && (out.next == 0 || at < out.next) {
			out.next = at
		}
	}
	if len(old)+len(trimmed) >= 100 && (out.next == 0 || m.now < out.next) {
		out.next = m.now
	}
	if out.next == 0 {
		if m.armed != 0 {
			m.wake, m.armed = 0, 0
		}
	} else if out.next != m.armed || out.next <= m.now || a.rearm {
		m.wake, m.armed = out.next, out.next
	}
	if !repeat {
		m.count("delivered", len(out.tags))
	}
	m.count("lost", out.lost)
	m.count("garbage", len(out.dead))
	m.keepHistory()
	m.calls[c.id] = answered{c.n, ends, m.now}
	return out
}

// take removes as many as are wanted of what is due: the ready ones first, then pending and retry, half and
// half where both have more. It moves no more than room.
func (m *model) take(a fetchRequest, room int, jitter func(int) int64) []string {
	spread := int64(-1)
	later := func() int64 {
		if spread < 0 {
			spread = min(int64(len(m.retry))*500, 60_000_000)
		}
		return ((m.now+jitter(int(spread)))/50_000 + 2) * 50_000
	}
	if a.holdsLastAttempt && a.want > 0 { // a consumer has one on its last chance at a time
		for _, tag := range until(m.retry, m.now, 100) {
			if m.lastChance(tag) {
				m.retry[tag] = -later() // they are moved together
				room--
			}
		}
	}
	for tag, at := range m.retry {
		m.retry[tag] = max(at, -at)
	}
	n := max(0, min(a.want, room))
	fromReady := m.ready[:min(len(m.ready), n)]
	m.ready = m.ready[len(fromReady):]
	n -= len(fromReady)
	retry, pending := until(m.retry, m.now, n), until(m.pending, m.now, n)
	r := min(len(retry), max(n-len(pending), (n+int(jitter(2)))/2))
	pending = pending[:min(len(pending), n-r)]

	var tags []string
	for _, tag := range retry[:r] {
		delete(m.retry, tag)
	}
	for _, tag := range slices.Concat(fromReady, retry[:r]) {
		if m.lastChance(tag) {
			if a.holdsLastAttempt {
				m.retry[tag] = later()
				continue
			}
			a.holdsLastAttempt = true
		}
		tags = append(tags, tag)
	}
	for _, tag := range pending {
		delete(m.pending, tag)
	}
	return append(tags, pending...)
}

// aged is the garbage that is too old, and what is too much. Nobody looks at garbage where there
// was none before this call, which buried some.
func (m *model) aged(buried int) (old, trimmed []string) {
	if len(m.garbage) == buried {
		return nil, nil
	}
	if age := m.claims[2].value; age < unbounded {
		old = until(m.garbage, m.now-age, 100)
	}
	if room := int(m.claims[3].value); room < unbounded {
		n := min(len(m.garbage)-len(old)-room, 100-len(old))
		trimmed = until(m.garbage, math.MaxInt64, len(old)+max(0, n))[len(old):]
	}
	return old, trimmed
}

// lend gives deliveries a lease end that no other has and the fetch before had not.
func (m *model) lend(tags []string) int64 {
	if len(tags) == 0 {
		return 0
	}
	ends := m.renewal() + 1
	for ends == m.lent || slices.Contains(slices.Collect(maps.Values(m.unack)), ends) {
		ends += 2
	}
	m.lent = ends
	for _, tag := range tags {
		m.unack[tag] = ends
	}
	return ends
}

// renewal is the even lease end of what is renewed now.
func (m *model) renewal() int64 { return (m.now + m.lease()) &^ 1 }

// lease is the longest that a consumer asks for.
func (m *model) lease() int64 {
	if asked := m.with.lease.Microseconds(); asked > m.claims[0].value || m.forgotten(0) {
		return asked
	}
	return m.claims[0].value
}

// forgotten: nobody has asked for that much in a lease.
func (m *model) forgotten(i int) bool {
	lease := m.claims[0].value
	return m.now-m.claims[i].at > lease || m.claims[i].at-m.now > lease
}

// agree is what holds for all consumers once this one has asked.
func (m *model) agree() fetchSettings {
	m.settings = ""
	for i, asked := range []int64{m.with.lease.Microseconds(), int64(m.with.maxLosses), cmp.Or(m.with.garbageAge.Microseconds(), unbounded),
		cmp.Or(int64(m.with.garbageMax), unbounded)} {
		if asked >= m.claims[i].value || m.forgotten(i) {
			m.claims[i] = claim{asked, m.now}
		}
		m.settings += fmt.Sprintf("%d %d ", m.claims[i].value, m.claims[i].at)
	}
	return fetchSettings{lease: microseconds(m.claims[0].value), maxLosses: int(m.claims[1].value),
		garbageAge: microseconds(m.claims[2].value % unbounded), garbageMax: int(m.claims[3].value % unbounded)}
}

// shorten bounds leases that end later than one from now could.
func (m *model) shorten() {
	all := until(m.unack, math.MaxInt64, len(m.unack))
	for _, tag := range all[max(0, len(all)-100):] {
		if m.unack[tag] > m.now+m.lease()+1000 {
			m.unack[tag] = m.renewal()
		}
	}
}

// graceAfter gives leases that there are time where consumers may have been cut off: those that end up to `upto`
// last until `till`.
func (m *model) graceAfter(called bool, heard int64) {
	lease := m.lease()
	m.graces = []grace{{}}
	var upto, till int64
	for rest := strings.Fields(m.grace); len(rest) > 0; rest = rest[2:] {
		_, _ = fmt.Sscan(rest[0]+" "+rest[1], &upto, &till)
		if till <= m.now+2*lease {
			m.graces = append(m.graces, grace{upto, till})
		}
	}
	m.graces = m.graces[1:]
	for len(m.graces) > 1 && m.graces[1].till <= m.now {
		m.graces = m.graces[1:]
	}
	cutOff := called && 2*(m.now-heard) > lease
	unseen := head(m.unack) != 0 && head(m.unack) <= m.now && 3*(m.now-m.seen) > 2*lease
	if !cutOff && !unseen {
		return
	}
	last := grace{}
	if n := len(m.graces); n > 0 {
		last = m.graces[n-1]
	}
	back := min(max(lease/2, 2_000_000), lease)
	if 2*(m.now+back)+lease <= 2*last.till {
		m.graces[len(m.graces)-1].upto = max(last.upto, m.now+back)
	} else {
		m.graces = append(m.graces, grace{max(m.now+back, last.upto+1), max(m.now+back+lease*3/4, last.till)})
	}
	m.grace = ""
	for _, g := range m.graces {
		m.grace += fmt.Sprintf(" %d %d", g.upto, g.till)
	}
	m.grace = m.grace[1:]
}

// lasts is until when a lease lasts that ends then.
func (m *model) lasts(ends int64) int64 {
	if n := len(m.graces); n == 0 || m.graces[n-1].till <= m.now {
		return ends
	}
	for _, g := range m.graces {
		if ends <= g.upto {
			return g.till
		}
	}
	return ends
}

// fitting gives back what has no room in the reply to a repeat.
func (m *model) fitting(tags []string, a fetchRequest) []string {
	bytes, total := cmp.Or(a.bytes, maxBatchBytes), 0
	fit := slices.DeleteFunc(slices.Clone(tags), func(tag string) bool {
		size := len(m.msg[idIn(tag)])
		if total+size > bytes {
			return true
		}
		total += size
		return false
	})
	if len(fit) == 0 && len(tags) > 0 {
		fit = tags[:1]
	}
	for _, tag := range tags {
		if !slices.Contains(fit, tag) {
			delete(m.unack, tag)
			r := m.record(idIn(tag))
			m.note(idIn(tag), failRecord{r.delivery + 1, r.failures, r.losses, m.now, r.text})
			m.ready = append(m.ready, tagOf(idIn(tag), r.delivery+1))
		}
	}
	return fit
}

func (m *model) bury(id string) {
	maps.DeleteFunc(m.key, func(_, holder string) bool { return holder == id })
	m.garbage[id] = m.now
}

func (m *model) forget(id string) {
	m.bury(id)
	delete(m.garbage, id)
	delete(m.msg, id)
	delete(m.fail, id)
}

// record is what is known of earlier deliveries; delivery is the current one.
func (m *model) record(id string) failRecord {
	r, err := parseFail(m.fail[id])
	if err != nil {
		return failRecord{delivery: 1}
	}
	return r
}

func (m *model) note(id string, r failRecord) {
	m.fail[id] = fmt.Sprintf("%d %d %d %d %s", r.delivery, r.failures, r.losses, r.when, r.text)
}

// lastChance: one more loss would make it poison.
func (m *model) lastChance(tag string) bool {
	losses := m.record(idIn(tag)).losses
	return losses > 0 && losses >= int(m.claims[1].value)-1
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
