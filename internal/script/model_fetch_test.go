package script

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

func (m *model) fetch(c Caller, a FetchRequest, seed int64) any {
	defer m.sinceTurned() // it looks for what is next
	every := int64(20e6)
	counted := m.counts[0] != 0 || m.counts[1] != 0 || m.counts[2] != 0 || m.counts[3] != 0
	over := m.doneAt != 0 && m.doneAt <= m.now
	if counted || over || len(m.pending)+len(m.retry)+len(m.ready)+len(m.unack) > 0 {
		every = 1e6
	}
	call, called := m.calls[c.ID]
	if called && call.n > c.N {
		return errStale
	}
	repeat := called && call.n == c.N
	out := FetchReply{Now: message.ServerTime(m.now), Tags: []string{}, Envelopes: []string{}, Agreed: m.agree()}
	before := struct{ n, at int64 }{call.n, call.at}
	if repeat {
		before = call.before
	}
	out.Totals = Totals{before.n, message.ServerTime(before.at), m.books["in:stored"], m.books["out:acked"]}
	jitter := generator(seed)
	limit, agreed := m.agreeLimits(a.Limits)
	out.Limits = agreed
	marker := m.armed
	if p := limit.before; p != (heldBack{}) && p.armed == marker {
		marker = p.marker
	}
	if m.seen == 0 {
		out.First = 1
	}
	if m.pause > m.now {
		a.Want = 0
	}
	if m.seen > m.now { // the clock was stepped back
		m.seen = 0
	}
	out.Lease = &Lease{Name: c.lease()}
	out.Lease.Canceled.Store(m.canceled)
	if _, there := m.listed[c.lease()]; repeat && there {
		out.Tags = append(out.Tags, m.heldOf(c.lease())...)
		m.endLease(c.lease())
	}
	byAlarm := a.ByAlarm && !a.Rearm && called && !repeat && !limit.on && m.quiet()
	m.graceAfter(called, call.at)
	m.seen = m.now

	a.Want = m.bound(&limit, a.Want, len(out.Tags))
	leased := head(m.unack)
	given := 0
	if !repeat && !byAlarm {
		room := MaxBatch
		taken, reserved := m.take(a, m.opens(&limit), &room, jitter)
		out.Tags, out.Reserved = append(out.Tags, taken...), reserved
		over := m.takeOver(&limit, out.Tags, room-len(out.Tags))
		m.count("delivered", len(out.Tags)+len(over))
		m.countLate(out.Tags, over)
		out.Tags = append(out.Tags, over...)
		given = len(out.Tags)
		limit.free -= given
	}
	ends := m.now + m.longest()
	if len(out.Tags) > 0 {
		if m.lend(c.lease(), ends, out.Tags); repeat {
			leased = head(m.unack) // its own lease counts, too, which ends first if the clock was stepped back
		}
	}
	for _, tag := range out.Tags {
		out.Envelopes = append(out.Envelopes, m.msg[queuetest.IDIn(tag)])
		m.addParts(&out.Extras, len(out.Envelopes)-1, queuetest.IDIn(tag), m.msg[queuetest.IDIn(tag)])
	}
	next, off, full := m.armed, int64(0), false
	if !byAlarm {
		if next, off, full = m.limitNext(&limit, m.nextDue(), given-m.spared(out.Tags[:given])); full {
			if next = m.firstOver(leased, ends); next <= m.now {
				next = m.now + 1e6
			}
		}
		next = m.nextInstant(next)
	}
	if out.Next = message.ServerTime(next); out.Limits.Bounded {
		out.Limits.Left, out.Limits.Full = m.left(&limit), full
	}
	if next == 0 {
		if marker != 0 {
			m.wake, m.armed = 0, 0
		}
	} else if next != marker || next <= m.now || a.Rearm {
		m.wake, m.armed = next, next
	}
	m.noteLimit(&limit, next, off, full)
	for _, at := range m.unack {
		out.Tick = out.Tick || m.lasts(at) <= m.now
	}
	out.Tick = out.Tick || !byAlarm && (m.ticked > m.now || m.now-m.ticked >= every)
	m.calls[c.ID], m.used = answered{n: c.N, at: m.now, before: before}, true
	return out
}

// tick is what one consumer does for all.
func (m *model) tick(c Caller, a TickRequest) any {
	out := TickReply{Now: message.ServerTime(m.now)}
	jitter := generator(int64(a.Seed))
	byAge, byPages := m.age(a.Again)
	m.shorten()
	m.turned, m.again = 0, 0
	ended, more := false, false
	if seen := m.seen; seen <= m.now && 3*(m.now-seen) <= 2*m.longest() {
		ended, more = m.reclaim(&out, jitter)
	}
	for i, d := range out.Dead { // before one is deleted for want of room in garbage
		m.addParts(&out.Extras, -1-i, d.ID, d.Envelope)
	}
	var swept int
	swept, out.Overflow = m.sweepMessages(len(out.Dead), byAge)
	held := m.freeKeys(byAge)
	out.More = more || swept >= 100 && (out.Overflow > 0 || !byPages) || held && !byPages
	if byAge {
		m.sweep(c)
	}
	m.count("lost", out.Lost)
	m.count("superseded", out.Replaced)
	m.keepHistory(byAge)
	if m.armLater(sooner(m.again, m.sinceTurned())); ended {
		m.freed()
	}
	if m.ticked, m.used = m.now, true; out.More {
		m.ticked -= 20e6
	}
	return out
}

// generator is the scripts' own.
func generator(seed int64) func(width int) int64 {
	return func(width int) int64 {
		seed = seed * 16807 % (1<<31 - 1)
		return int64(float64(seed) / (1<<31 - 1) * float64(width))
	}
}

// age says whether anything may be deleted by age, and whether no more than a page by each call: after a step of the
// clock. again: this consumer has ticked before.
func (m *model) age(again bool) (byAge, byPages bool) {
	const hour, minute = 3600e6, 60e6
	last := m.now // when somebody ticked who would know of it
	if m.ticked != 0 && (again || m.aging == 0) {
		last = m.ticked
	}
	if max(m.now-last, last-m.now) > hour || m.aging > m.now+minute {
		m.aging = m.now + minute
	} else if m.now-m.aging > hour {
		m.aging = 0
	}
	return m.aging <= m.now, m.aging != 0
}

// sweepMessages deletes what is too old, too much or over, where so many have just died: how many, and how many of
// those were too much.
func (m *model) sweepMessages(dead int, byAge bool) (swept, overflow int) {
	old, trimmed := m.aged(dead, byAge)
	for _, id := range old {
		m.forget(id, "out:aged")
	}
	for _, id := range trimmed {
		m.forget(id, "out:trimmed")
	}
	gone := slices.Concat(old, trimmed)
	if byAge && m.doneAt != 0 && m.doneAt <= m.now && len(gone) < 100 {
		over := until(m.done, m.now, 100-len(gone))
		for _, id := range over {
			m.forget(id, "out:over")
		}
		m.doneAt = head(m.done)
		gone = append(gone, over...)
	}
	return len(gone), len(trimmed)
}

// freeKeys frees the keys whose holds are over.
func (m *model) freeKeys(byAge bool) (more bool) {
	if !byAge || m.holdAt == 0 || m.holdAt > m.now {
		return false
	}
	over := until(m.holds, m.now, MaxBatch)
	for _, key := range over {
		if strings.HasPrefix(m.key[key], "acked:") {
			delete(m.key, key)
		}
		delete(m.holds, key)
	}
	m.holdAt = head(m.holds)
	return len(over) == MaxBatch
}

// sweep is what a tick does every ten minutes: old callers are forgotten, but the one who calls, and in a queue
// without messages nothing is left that a send has changed.
func (m *model) sweep(c Caller) {
	if since := m.now - m.swept; since >= 0 && since <= 600e6 {
		return
	}
	m.swept = m.now
	maps.DeleteFunc(m.calls, func(id string, last answered) bool {
		return id != c.ID && max(m.now-last.at, last.at-m.now) > 3600e6
	})
	m.changed = m.changed && len(m.msg) > 0
}

// quiet reports whether there is no work before the alarm, as far as a fetch that goes by it looks.
func (m *model) quiet() bool {
	for _, ends := range m.unack {
		if 2*(ends-m.now) < m.longest() || ends > m.now+m.longest() {
			return false
		}
	}
	return m.armed == 0 || m.armed > m.now
}

// reclaim takes back deliveries whose leases ran out. It returns whether any lease was over, and whether there may be
// more.
func (m *model) reclaim(out *TickReply, jitter func(int) int64) (ended, more bool) {
	var expired []string // leases, and places
	for _, tag := range until(m.unack, m.now, len(m.unack)) {
		if len(expired) < 100 && m.lasts(m.unack[tag]) <= m.now {
			expired = append(expired, tag)
		}
	}
	moved, looked := 0, 0
	ended, more = len(expired) > 0, len(expired) == 100
	full := func() bool { return moved >= 100 || looked >= 500 }
	for _, name := range expired {
		if full() {
			return true, true
		}
		tags, ends := strings.Fields(m.listed[name]), m.unack[name]
		m.endLease(name)
		for len(tags) > 0 && !full() {
			looked++
			if m.isHeld(tags[0]) {
				moved++
				m.lose(tags[0], out, jitter)
			}
			tags = tags[1:]
		}
		if len(tags) > 0 {
			m.lendRest(name, ends, tags)
			more = true
		}
	}
	return ended, more
}

// lose is what a loss does to a message.
func (m *model) lose(tag string, out *TickReply, jitter func(int) int64) {
	out.Lost++
	id := queuetest.IDIn(tag)
	r := m.record(id)
	r.Losses++
	poison, text := !r.Superseded && r.Losses >= m.with.MaxLosses, queuetest.LostText
	if poison {
		text = PoisonText
	}
	r.Errors = m.withError(r.Delivery, text, r.Errors, message.MaxErrorText)
	if poison {
		r.Delivery, r.When = r.Delivery+1, m.now
		m.bury(id, r)
		out.Dead = append(out.Dead, DeadMessage{id, m.msg[id], m.fail[id]})
	} else if again, lives := m.next(id, r, &out.Replaced); lives {
		m.retry[again] = m.now + jitter(500_000*r.Losses)
		m.again = sooner(m.again, m.retry[again])
	}
}

// nextDue is when something that waits may be handed out next, 0: nothing waits.
func (m *model) nextDue() (next int64) {
	if len(m.ready) > 0 {
		next = m.now
	}
	if next = sooner(next, sooner(head(m.pending), head(m.retry))); next != 0 {
		next = max(next, m.pause)
	}
	return next
}

// nextInstant is when a consumer must fetch next, 0: never, as long as nothing changes; next is for what waits.
func (m *model) nextInstant(next int64) int64 {
	// A lease that its holder should have renewed is work as well. For those that are over there is a tick.
	var first int64
	for _, ends := range m.unack {
		first = sooner(first, m.lasts(ends))
	}
	switch {
	case first != 0 && first <= m.now: // if the tick does not come
		next = sooner(next, m.now+1e6)
	case 2*(first-m.now) < m.longest():
		next = sooner(next, first)
	}
	return next
}

// take removes as many as are wanted of what is due: the ready ones first, then pending and retry, half and half where
// both have more. It moves no more than room. Messages on their last chance are put off, and the first is reserved.
// One that is asked for stays reserved if the limits open within a lease.
func (m *model) take(a FetchRequest, opens int64, room *int, jitter func(int) int64) (tags []string, reserved string) {
	later := func() int64 {
		spread := min(int64(len(m.retry))*500, 60_000_000)
		return ((m.now+jitter(int(spread)))/50_000 + 2) * 50_000
	}
	if a.Alone != "" && a.Alone != HasReserved {
		tag, at, _ := strings.Cut(a.Alone, " ")
		switch score, there := m.retry[tag]; {
		case !there || at != strconv.FormatInt(score, 10):
			return nil, ""
		case a.Want == 0 && opens > m.now && opens <= m.now+m.longest():
			return nil, a.Alone
		case a.Want == 0:
			return nil, ""
		}
		delete(m.retry, tag)
		return []string{tag}, ""
	}
	n := max(0, min(a.Want, *room))
	fromReady := m.ready[:min(len(m.ready), n)]
	m.ready = m.ready[len(fromReady):]
	n -= len(fromReady)
	retry, pending := until(m.retry, m.now, n), until(m.pending, m.now, n)
	r := min(len(retry), max(n-len(pending), (n+int(jitter(2)))/2))
	pending = pending[:min(len(pending), n-r)]

	for _, tag := range retry[:r] {
		delete(m.retry, tag)
	}
	for _, tag := range slices.Concat(fromReady, retry[:r]) {
		switch {
		case !m.lastChance(tag):
			tags = append(tags, tag)
		case reserved == "" && a.Alone == "":
			m.retry[tag] = m.now + 2*m.longest()
			reserved = fmt.Sprint(tag, " ", m.retry[tag])
		default:
			m.retry[tag] = later()
		}
	}
	for _, tag := range pending {
		delete(m.pending, tag)
	}
	return append(tags, pending...), reserved
}

// aged is the garbage that is too old, and what is too much. Nobody looks at garbage where there
// was none before this call, which buried some.
func (m *model) aged(buried int, byAge bool) (old, trimmed []string) {
	if len(m.garbage) == buried {
		return nil, nil
	}
	if age := m.with.GarbageAge.Microseconds(); byAge && age > 0 {
		old = until(m.garbage, m.now-age, 100)
	}
	if room := m.with.GarbageMax; room > 0 {
		n := min(len(m.garbage)-len(old)-room, 100-len(old))
		trimmed = until(m.garbage, math.MaxInt64, len(old)+max(0, n))[len(old):]
	}
	return old, trimmed
}

// longest is the longest lease that a consumer asks for.
func (m *model) longest() int64 {
	if asked := m.with.Lease.Microseconds(); asked >= m.claim.value ||
		max(m.now-m.claim.at, m.claim.at-m.now) > m.claim.value {
		return asked
	}
	return m.claim.value
}

// agree is the lease that holds for all consumers once this one has asked.
func (m *model) agree() time.Duration {
	if lease := m.longest(); lease == m.with.Lease.Microseconds() {
		m.claim = claim{lease, m.now}
	}
	m.lease = fmt.Sprintf("%d %d", m.claim.value, m.claim.at)
	return message.Microseconds(m.claim.value)
}

// shorten bounds leases that end later than one from now could.
func (m *model) shorten() {
	all := until(m.unack, math.MaxInt64, len(m.unack))
	for _, tag := range all[max(0, len(all)-100):] {
		if m.unack[tag] > m.now+m.longest() {
			m.unack[tag] = m.now + m.longest()
		}
	}
}

// graceAfter gives leases that there are time where consumers may have been cut off.
func (m *model) graceAfter(called bool, heard int64) {
	lease, g := m.longest(), &m.lasting
	if g.begun > m.now {
		*g, m.grace = grace{}, ""
	}
	cutOff := called && 2*(m.now-heard) > lease
	unseen := head(m.unack) != 0 && head(m.unack) <= m.now && 3*(m.now-m.seen) > 2*lease
	if cutOff || unseen {
		back := m.now + min(max(lease/2, 2_000_000), lease)
		if g.ends(lease) <= m.now {
			*g = grace{m.now, back, g.upto}
		} else if 2*(back-g.begun) <= 3*lease {
			g.upto = max(g.upto, back)
		}
		m.grace = fmt.Sprintf("%d %d %d", g.begun, g.upto, g.before)
	}
}

func (g *grace) ends(lease int64) int64 { return min(g.upto+lease*3/4, g.begun+2*lease) }

// lasts is until when a lease lasts that ends then.
func (m *model) lasts(ends int64) int64 {
	over := m.lasting.ends(m.longest())
	if m.lasting.begun > m.now || ends <= m.lasting.before || ends > m.lasting.upto || over <= m.now {
		return ends
	}
	return over
}
