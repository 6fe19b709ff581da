package script

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"pgregory.net/rapid"
)

// modelLimits is what a model knows of limits.
type modelLimits struct {
	there      bool // the field limits
	rate       RateLimits
	rateAt     int64 // when somebody asked for it
	crowd      int
	crowdAt    int64
	set        RateLimits // by a Monitor
	tat        int64
	from, till int64 // of a throttle
	putOff     heldBack
}

// heldBack is what the last fetch could not hand out because of a limit.
type heldBack struct{ since, armed, open, marker, full int64 }

// fields are those of state that are about limits, as Redis has them.
func (l *modelLimits) fields() (all [5]string) {
	if l.there && (l.rateAt != 0 || l.crowdAt != 0) {
		all[0] = fmt.Sprintf("%d %d %d %d %d %d", l.rate.Rate, l.rate.Per.Microseconds(), l.rate.Burst, l.crowd, l.rateAt,
			l.crowdAt)
	}
	all[1] = l.set.text()
	if l.tat != 0 {
		all[2] = fmt.Sprint(l.tat)
	}
	if l.till != 0 {
		all[3] = fmt.Sprintf("%d %d", l.from, l.till)
	}
	if p := l.putOff; p != (heldBack{}) {
		all[4] = fmt.Sprintf("%d %d %d %d %d", p.since, p.armed, p.open, p.marker, p.full)
	}
	return all
}

// slower says whether a rate holds beside another.
func slower(a, b RateLimits) bool {
	x, y := int64(a.Rate)*b.Per.Microseconds(), int64(b.Rate)*a.Per.Microseconds()
	return x < y || x == y && a.Burst < b.Burst
}

// aFetchLimit bounds one fetch.
type aFetchLimit struct {
	on     bool
	idle   bool
	l      RateLimits
	open   int64
	before heldBack
	free   int // places, if they are bounded

	throttled bool
}

// agreeLimits says what holds for a fetch of a consumer that asks for some limits.
func (m *model) agreeLimits(asked RateLimits) (f aFetchLimit, said AgreedLimits) {
	l := &m.limits
	if !l.there && asked == (RateLimits{}) {
		return f, said
	}
	lease := m.longest()
	recent := func(at int64) bool { return at-m.now <= lease && m.now-at <= lease }
	rate := RateLimits{Rate: asked.Rate, Per: asked.Per, Burst: asked.Burst}
	if l.rate.Rate == 0 || !recent(l.rateAt) || rate.Rate != 0 && !slower(l.rate, rate) {
		l.rate, l.rateAt = rate, m.now
	}
	if l.crowd == 0 || !recent(l.crowdAt) || asked.Concurrency != 0 && asked.Concurrency <= l.crowd {
		l.crowd, l.crowdAt = asked.Concurrency, m.now
	}
	l.there = true
	f.on, f.l = true, l.over(RateLimits{l.rate.Rate, l.rate.Per, l.rate.Burst, l.crowd})
	if l.till > m.now && l.from <= m.now {
		f.open, f.throttled = l.till, true
	}
	f.before = l.putOff
	if f.idle = f.l == (RateLimits{}) && f.open == 0; f.idle {
		*l = modelLimits{}
		return f, said
	}
	return f, AgreedLimits{RateLimits: f.l, BySet: l.set != (RateLimits{}), Bounded: true}
}

// over puts what a Monitor has set over what consumers ask for.
func (l *modelLimits) over(asked RateLimits) RateLimits {
	if l.set.Rate != 0 {
		asked.Rate, asked.Per, asked.Burst = l.set.Rate, l.set.Per, l.set.Burst
	}
	asked.Concurrency = cmp.Or(l.set.Concurrency, asked.Concurrency)
	return asked
}

// tokens is how many may go by the rate.
func (m *model) tokens(l RateLimits) int64 {
	per := l.Per.Microseconds()
	return (int64(l.Burst)*per - (max(m.limits.tat, m.now)-m.now)*int64(l.Rate)) / per
}

// takes is how long n take by a rate.
func takes(l RateLimits, n int) int64 {
	return (int64(n)*l.Per.Microseconds() + int64(l.Rate) - 1) / int64(l.Rate)
}

// bound cuts what a fetch wants to what may go, beside so many that it repeats.
func (m *model) bound(f *aFetchLimit, want, repeated int) int {
	if !f.on {
		return want
	}
	if f.open > 0 {
		want = 0
	}
	if f.l.Concurrency > 0 {
		f.free = f.l.Concurrency - m.taken(f.l.Concurrency, repeated)
		want = max(min(want, f.free), 0)
	}
	if f.l.Rate > 0 {
		m.limits.tat = min(m.limits.tat, m.now+takes(f.l, f.l.Burst))
		want = max(min(want, int(m.tokens(f.l))), 0)
	}
	return want
}

// next is when a consumer must fetch next, of what is due at next without limits; so many were handed out.
func (m *model) limitNext(f *aFetchLimit, next int64, given int) (at int64, off int64, full bool) {
	if !f.on {
		return next, 0, false
	}
	if f.l.Rate > 0 {
		if given > 0 {
			m.limits.tat = max(m.limits.tat, m.now) + takes(f.l, given)
		}
		f.open = m.opens(f)
	}
	switch {
	case next != 0 && next <= m.now && f.l.Concurrency > 0 && f.free <= 0:
		return 0, next, true
	case next != 0 && f.open > max(next, m.now):
		return f.open, next, false
	}
	return next, 0, false
}

// opens is when a throttle ends, or the rate lets the next go; 0: now.
func (m *model) opens(f *aFetchLimit) int64 {
	if f.on && f.l.Rate > 0 && m.tokens(f.l) < 1 {
		return max(f.open, m.limits.tat-int64(f.l.Burst-1)*f.l.Per.Microseconds()/int64(f.l.Rate), m.now+1)
	}
	return f.open
}

// left is how many more may go once a fetch has taken what it takes.
func (m *model) left(f *aFetchLimit) int {
	n := 2 * MaxBatch
	if f.throttled {
		n = 0
	}
	if f.l.Concurrency > 0 {
		n = min(n, f.free)
	}
	if f.l.Rate > 0 {
		n = int(min(int64(n), m.tokens(f.l)))
	}
	return max(n, 0)
}

// firstOver is when the first lease is over; leased: the soonest end before this fetch handed out what ends then.
func (m *model) firstOver(leased, ends int64) int64 {
	if leased == 0 {
		return ends
	}
	over := m.lasts(leased)
	if over != leased {
		for _, at := range m.unack {
			over = min(over, m.lasts(at))
		}
	}
	return over
}

// spared is how many of these come to no handler, for their time is over, and so do not count for a rate.
func (m *model) spared(tags []string) (n int) {
	for _, tag := range tags {
		if id, number := message.SplitTag(tag); m.isOver(id, number) {
			n++
		}
	}
	return n
}

// takeOver takes what has expired, and waits before the next that has not, if a fetch has come upon such with limits.
func (m *model) takeOver(f *aFetchLimit, tags []string, room int) (all []string) {
	if !f.on || f.idle || m.spared(tags) == 0 {
		return nil
	}
	for _, waiting := range []map[string]int64{m.pending, m.retry} {
		for _, tag := range until(waiting, m.now, room-len(all)) {
			if m.spared([]string{tag}) == 0 || queuetest.IDIn(tag) != tag && m.lastChance(tag) {
				break
			}
			delete(waiting, tag)
			all = append(all, tag)
		}
	}
	return all
}

// noteLimit notes what is put off, once the marker stands at next.
func (m *model) noteLimit(f *aFetchLimit, next, off int64, full bool) {
	if !f.on {
		return
	}
	m.armed = next
	if off != 0 {
		m.armed = min(off, next)
	}
	if f.idle {
		return
	}
	m.limits.putOff = heldBack{}
	if off != 0 {
		m.limits.putOff = heldBack{since: cmp.Or(f.before.since, m.now), armed: m.armed, open: f.open, marker: next}
		if full {
			m.limits.putOff.full = 1
		}
	}
}

// taken is how many places are taken: what leases count, but what was canceled lately; so many are those of a fetch
// that is repeated.
func (m *model) taken(places, repeated int) int {
	taken := repeated
	for _, name := range m.leases() {
		n, _ := strconv.Atoi(m.listed[name+"#"])
		taken += n
	}
	if taken >= places && m.now-m.canceled <= 2*m.longest() {
		return min(taken, repeated+len(m.allHeld()))
	}
	return taken
}

// freed wakes one for a place that is free.
func (m *model) freed() {
	if p := &m.limits.putOff; p.full == 1 {
		m.wake = max(m.now, p.open)
		p.armed, p.marker, p.full = m.armed, m.wake, 0
	}
}

// throttle holds back the queue.
func (m *model) throttle(d time.Duration) {
	ends := m.now + min(d, time.Hour).Microseconds()
	if l := &m.limits; l.from > m.now || l.till <= m.now || l.till < ends {
		l.from, l.till = m.now, ends
	}
	m.limits.there = true
}

func (m *model) setLimits(to RateLimits) any {
	l := &m.limits
	before := l.set
	if to != (RateLimits{}) || l.there {
		l.set, l.there = to, true
	}
	m.mayGoNow()
	return before
}

// mayGoNow wakes one for what a limit puts off.
func (m *model) mayGoNow() {
	if p := &m.limits.putOff; *p != (heldBack{}) {
		m.wake = m.now
		p.armed, p.marker, p.full = m.armed, m.now, 0
	}
}

func (m *model) liftThrottle() any {
	l := &m.limits
	lifted := l.till > m.now && l.from <= m.now
	if l.from, l.till = 0, 0; lifted {
		m.mayGoNow()
	}
	return lifted
}

// drawLimits are some that let each of a sequence's messages out in time.
func drawLimits(t *rapid.T) (l RateLimits) {
	if rapid.Bool().Draw(t, "a rate") {
		l.Rate, l.Per, l.Burst = rapid.SampledFrom([]int{1, 3, 7}).Draw(t, "n"),
			rapid.SampledFrom([]time.Duration{7 * time.Microsecond, 100 * time.Millisecond, time.Second}).Draw(t, "per"),
			rapid.IntRange(1, 5).Draw(t, "burst")
	}
	if rapid.Bool().Draw(t, "places") {
		l.Concurrency = rapid.IntRange(1, 6).Draw(t, "so many")
	}
	return l
}

// limit sets limits, as a Monitor does.
func (m *machine) limit(t *rapid.T) {
	if !m.limiting {
		return
	}
	if rapid.IntRange(0, 2).Draw(t, "lifts a throttle if 0") == 0 {
		m.call(t, func(t *rapid.T, c Caller) {
			got, err := m.store.LiftThrottle(queuetest.CtxB, &c)
			m.same(t, "lift", got, err, m.existing(c, func() any { return m.liftThrottle() }))
		})
		return
	}
	l := drawLimits(t)
	m.call(t, func(t *rapid.T, c Caller) { m.doLimit(t, c, l) })
}

func (m *machine) doLimit(t *rapid.T, c Caller, l RateLimits) {
	got, err := m.store.SetLimits(queuetest.CtxB, &c, l)
	m.same(t, "limit", got, err, m.existing(c, func() any { return m.setLimits(l) }))
}
