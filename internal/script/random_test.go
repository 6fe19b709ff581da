package script

import (
	"cmp"
	"flag"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"pgregory.net/rapid"
)

var modelCalls = flag.Int64("model.calls", 0, "how many calls TestModel compares at least; 0: some thousand")

// TestModel makes random calls of four callers on a real server and on a model of the queue, some
// of them held up, repeated or late, and compares every answer and the whole state after each. A
// failure is shrunk to the shortest sequence, and printed with its seed.
func TestModel(t *testing.T) {
	for name, value := range map[string]string{"rapid.checks": "5",
		"rapid.steps": "600"} { // sequences, and steps of one on average
		queuetest.Must(t, flag.Set(name, value))
	}
	t.Parallel()
	calls := cmp.Or(*modelCalls, testkit.Size[int64](16_000, 6_000))
	var made atomic.Int64
	t.Run("with", func(t *testing.T) {
		for name, most := range map[string]int{"few": 4, "as few": 4, "many": MaxBatch} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, most, &made)
				for n := 0; n < 1 || most == 4 && made.Load() < calls; n++ {
					rapid.Check(t, m.sequence)
				}
			})
		}
	})
	if t.Logf("%d calls compared", made.Load()); !t.Failed() && made.Load() < calls {
		t.Errorf("want %d", calls)
	}
}

// sequence is one test of rapid's: random steps, then all that is left comes out.
func (m *machine) sequence(t *rapid.T) {
	m.delete()
	m.model = newModel(FetchSettings{Lease: rigLease, MaxLosses: rapid.IntRange(1, 4).Draw(t, "losses"),
		GarbageAge: rapid.SampledFrom([]time.Duration{2 * time.Second, time.Minute}).Draw(t, "age of garbage"),
		GarbageMax: rapid.SampledFrom([]int{0, 2, 20}).Draw(t, "room in garbage")})
	m.doneMax = rapid.SampledFrom([]int{0, 2, 20}).Draw(t, "room for what is done")
	m.limiting = rapid.IntRange(0, 2).Draw(t, "limits if 2") == 2
	m.held, m.blind, m.sent, m.given, m.spent, m.calls = newContents(), false, 0, nil, map[spent]bool{},
		[4][]func(*rapid.T){}
	m.alone, m.reserved, m.ticks = map[string]bool{}, "", map[string]bool{}
	for i := range m.who {
		m.who[i] = Caller{ID: "caller" + strconv.Itoa(i)}
	}
	t.Repeat(map[string]func(*rapid.T){ // rapid draws the first of these, in the order of their names, more often
		"a fetch": m.fetches, "b put": m.puts, "c settle": m.settles, "d pass": m.pass, "e steer": m.steers,
		"f send": m.sends, "g again": m.again,
		"a tick": m.tick, "h intercept": m.intercepts, "i late": m.late, "j extend": m.extends, "k lease ends": m.leaseEnds,
		"l forget": m.forgets, "m keep": m.keeps,
		"o limit": m.limit, "p marker": m.marker, "q pause": m.pauses, "r await": m.awaits, "s layout": m.layouts,
	})
	m.newer = true
	m.layouts(t) // as this version knows it
	s, err := check.Read(queuetest.CtxB, m.UniversalClient, "dq", m.store.Queue)
	must(t, err)
	for _, breach := range s.Breaches() {
		t.Error(names(breach))
	}
	m.model.with.GarbageAge = time.Microsecond
	m.who[0].N++
	m.doPause(t, m.who[0], 0, "", "")
	m.who[0].N++
	m.doLimit(t, m.who[0], RateLimits{})
	for _, waits := range []map[string]int64{m.pending, m.unack, m.retry, m.garbage, m.done,
		m.waiting} { // the clock may have been ahead of this
		for _, due := range waits {
			m.now = max(m.now, due)
		}
	}
	for round := 0; len(m.held.msg) > 0; round++ {
		m.blind = round > 100 && len(m.held.msg) > 10 // there is one round for each message on its last chance
		if round > 100+m.sent {
			t.Fatalf("%d messages do not come out", len(m.held.msg))
		}
		m.now += rigLease.Microseconds() / 3
		m.seed = 1
		m.who[0].N++
		if m.doFetch(t, m.who[0], FetchRequest{Want: MaxBatch, Alone: m.reserved}); m.told {
			m.doTick(t, m.who[0])
		}
		var acks []Settlement
		held := m.allHeld()
		for _, d := range m.given[:min(MaxBatch, len(m.given))] {
			if held[d.tag] == d.lease.Name {
				acks = append(acks, d.ends(OutcomeAck))
			}
		}
		if m.who[1].N++; acks != nil {
			m.doSettle(t, m.who[1], acks, false)
		}
	}
}

// call begins a new call of some caller, which may be held up: it is made later, or never.
func (m *machine) call(t *rapid.T, do func(t *rapid.T, c Caller)) {
	i := rapid.IntRange(0, len(m.who)-1).Draw(t, "caller")
	m.who[i].N++
	c := m.who[i]
	m.calls[i] = append(m.calls[i], func(t *rapid.T) {
		// after an hour it is forgotten, also if the clock stepped: a repeat comes within minutes
		if _, remembered := m.model.calls[c.ID]; remembered {
			do(t, c)
		}
	})
	if rapid.IntRange(0, 15).Draw(t, "held up if 9") != 9 {
		do(t, c)
	}
}

// again makes one of a caller's last calls, whether that was made or not.
func (m *machine) again(t *rapid.T) {
	calls := m.calls[rapid.IntRange(0, len(m.who)-1).Draw(t, "caller")]
	if len(calls) == 0 {
		return
	}
	m.draw(t)
	back := rapid.IntRange(1, min(3, len(calls))).Draw(t, "back")
	calls[len(calls)-back](t)
}

// late repeats a fetch when its lease has ended, or another caller has settled some of what it handed out.
func (m *machine) late(t *rapid.T) {
	c := &m.who[rapid.IntRange(1, len(m.who)-1).Draw(t, "caller")]
	c.N++
	late, a := *c, m.ask(t)
	m.draw(t)
	m.doFetch(t, late, a)
	if rapid.Bool().Draw(t, "after the end") {
		m.leaseEnds(t)
	} else {
		m.settles(t)
	}
	m.draw(t)
	m.doFetch(t, late, a)
}

func (m *machine) draw(t *rapid.T) { m.seed = rapid.Int64Range(1, 1<<31-2).Draw(t, "seed") }

func (m *machine) pass(t *rapid.T) {
	next := m.now
	if m.armed < m.now+3600e6 { // not until the end of a pause without end
		next = max(m.armed, m.now)
	}
	m.now = rapid.OneOf(
		rapid.Int64Range(m.now, m.now+4),
		rapid.Int64Range(m.now, m.now+1e5),
		rapid.Int64Range(m.now, m.now+1e6),
		rapid.Int64Range(m.now, m.now+5e6),
		rapid.SampledFrom([]int64{next - 1, next, next + 1}),
		rapid.OneOf(rapid.Int64Range(m.now, m.now+16e6),
			rapid.SampledFrom([]int64{m.now + 30e6, m.now + 61e6, m.now - 1, m.now - 4e6,
				m.now + 3602e6, m.now - 3602e6})),
	).Draw(t, "to")
}

// leaseEnds lets time pass until a lease ends, or nearly, with a consumer that looks often enough.
func (m *machine) leaseEnds(t *rapid.T) {
	end := max(head(m.unack), m.now) + rapid.Int64Range(-1, 1e6).Draw(t, "after the end")
	for m.now < end {
		m.now = min(m.now+rigLease.Microseconds()/3, end)
		var a FetchRequest
		if m.now == end {
			a = m.ask(t)
		}
		m.draw(t)
		m.who[0].N++
		if m.doFetch(t, m.who[0], a); m.told {
			m.doTick(t, m.who[0])
		}
	}
}

func (m *machine) ask(t *rapid.T) FetchRequest {
	var l RateLimits
	if m.limiting && rapid.IntRange(0, 3).Draw(t, "asks for limits if not 0") > 0 {
		l = drawLimits(t)
	}
	a := FetchRequest{
		Limits: l,
		Want: min(2*m.most-rapid.IntRange(0, 2*m.most).Draw(t, "wants less"),
			MaxBatch), // rapid draws small numbers more often
		Rearm:   rapid.Bool().Draw(t, "rearm"),
		ByAlarm: rapid.Bool().Draw(t, "by alarm"),
		Alone:   rapid.SampledFrom([]string{"", "", m.reserved, HasReserved, queuetest.IDOf("nobody")}).Draw(t, "alone"),
		Apart:   rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "apart from"),
	}
	a.ByAlarm = a.ByAlarm && a.Alone == "" // a consumer that asks for one is not idle
	return a
}

func (m *machine) marker(t *rapid.T) {
	if m.wake == 0 {
		return
	}
	must(t, m.ZPopMin(queuetest.CtxB, m.store.Keys.Wake).Err())
	m.wake = 0
}

func (m *machine) sends(t *rapid.T) {
	if len(m.msg) > max(20, 2*m.most) { // each call compares them all
		return
	}
	batch := make([]*SendMessage, rapid.IntRange(1, m.most).Draw(t, "n"))
	for i := range batch {
		if i < 4 {
			batch[i] = m.message(t, nil)
		} else { // the others are like the fourth
			batch[i] = m.message(t, &batch[3].When)
		}
	}
	m.call(t, func(t *rapid.T, c Caller) {
		got, err := m.store.Send(queuetest.CtxB, &c, SendRequest{Messages: batch})
		m.same(t, "send", got, err, m.once(c, func() any { return m.send(batch) }))
	})
}

func (m *machine) fetches(t *rapid.T) {
	m.draw(t)
	a := m.ask(t)
	m.call(t, func(t *rapid.T, c Caller) {
		if m.doFetch(t, c, a); m.told && rapid.Bool().Draw(t, "and ticks") {
			m.doTick(t, c)
		}
	})
}

func (m *machine) doFetch(t *rapid.T, c Caller, a FetchRequest) {
	before := m.whereabouts()
	a.Settings = &m.with
	got, err := m.store.Fetch(queuetest.CtxB, &c, a)
	ds := takenOf(got)
	m.reserved = got.Reserved
	m.told = got.Tick
	got.Fails, got.Big = nil, 0 // they are in ds, and not of the model
	m.same(t, "fetch", got, err, m.fetch(c, a, m.seed))
	for _, d := range ds {
		m.alone[d.msg.ID] = strings.HasPrefix(a.Alone, d.tag+" ")
		if r := m.record(d.msg.ID); d.broken != nil || d.msg.Delivery != r.Delivery || d.msg.Failures != r.Failures ||
			d.losses != r.Losses {
			t.Fatalf("handed out %s with %d failures and %d losses, %v; its record is %+v", names(d.tag), d.msg.Failures,
				d.losses, d.broken, r)
		}
		repeated := slices.ContainsFunc(m.given, func(old taken) bool { return old.tag == d.tag })
		if d.msg.Delivery == 1 && d.msg.Due.UnixMicro() > m.now &&
			!repeated { // since then the clock may have been stepped back
			t.Fatalf("handed out %s at %d, before %d", names(d.tag), m.now, d.msg.Due.UnixMicro())
		}
	}
	m.bounded(t, before)
	m.given = append(ds, slices.DeleteFunc(m.given, func(old taken) bool {
		return slices.ContainsFunc(ds, func(d taken) bool { return d.tag == old.tag && d.lease.Name == old.lease.Name })
	})...)
}

// tick makes one, as a consumer does after a fetch that says so, and at other times.
func (m *machine) tick(t *rapid.T) {
	who := &m.who[rapid.IntRange(0, len(m.who)-1).Draw(t, "caller")]
	m.draw(t)
	m.doTick(t, *who)
}

func (m *machine) doTick(t *rapid.T, c Caller) {
	before := m.whereabouts()
	a := TickRequest{Again: m.ticks[c.ID], Seed: int32(m.seed), Settings: &m.with}
	got, err := m.store.Tick(queuetest.CtxB, &c, a)
	for _, dead := range got.Dead {
		if m.with.MaxLosses > 1 && !m.alone[dead.ID] {
			t.Fatalf("%s is poison, and was not alone", names(dead.ID))
		}
	}
	m.ticks[c.ID] = true
	m.same(t, "tick", got, err, m.model.tick(c, a))
	m.bounded(t, before)
}

// bounded wants that the last call moved 500 messages at most.
func (m *machine) bounded(t *rapid.T, before map[string]string) {
	moved := 0
	for id, place := range m.whereabouts() {
		if _, turn := m.held.pending[id]; before[id] != place && !turn { // a turn comes with the end of another message
			moved++
		}
	}
	if moved > 500 {
		t.Fatalf("one call moved %d messages", moved)
	}
}

// some are deliveries: mostly those that are held, and some older ones.
func (m *machine) some(t *rapid.T) []taken {
	var ds []taken
	older, held := 0, m.allHeld()
	for _, d := range m.given {
		if held[d.tag] == d.lease.Name {
			ds = append(ds, d)
		} else if older++; older < 3 {
			ds = append(ds, d)
		}
	}
	if len(ds) == 0 {
		return nil
	}
	if m.most > 4 {
		return ds[:rapid.IntRange(1, min(len(ds), m.most)).Draw(t, "n")]
	}
	return rapid.SliceOfN(rapid.SampledFrom(ds), 1, m.most).Draw(t, "deliveries")
}

func (m *machine) settles(t *rapid.T) {
	ds := m.some(t)
	if ds == nil {
		return
	}
	var batch []Settlement
	for i, d := range ds {
		key := spent{d.lease.Name, d.tag}
		if m.spent[key] { // a consumer settles each delivery once
			continue
		}
		m.spent[key] = true
		s := d.ends(OutcomeAck)
		if i < 4 {
			s = m.ends(t, d)
		}
		batch = append(batch, s)
	}
	if batch == nil {
		return
	}
	plain := slices.DeleteFunc(slices.Clone(batch), func(o Settlement) bool { return !o.plain() })
	batch = append(plain, slices.DeleteFunc(batch, func(o Settlement) bool { return o.plain() })...)
	fetches := rapid.IntRange(0, 2).Draw(t, "it fetches if 0") == 0
	m.call(t, func(t *rapid.T, c Caller) { m.doSettle(t, c, batch, fetches) })
}

// ends draws how a delivery ends.
func (m *machine) ends(t *rapid.T, d taken) Settlement {
	s := d.ends(rapid.SampledFrom([]OutcomeKind{OutcomeAck, OutcomeAck, OutcomeAck, OutcomeReady, OutcomeGarbage,
		OutcomeRetry}).Draw(t, "outcome"))
	delay := time.Duration(rapid.Int64Range(0, 5e6).Draw(t, "delay")) * time.Microsecond
	result := rapid.SampledFrom([]string{"", "yes"}).Draw(t, "result")
	switch s.Kind {
	case OutcomeAck, OutcomeDone:
		for range rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "follow") {
			follows := m.message
			if rapid.Bool().Draw(t, "with a policy") {
				follows = func(t *rapid.T, _ *message.When) *SendMessage { return m.withPut(t) }
			}
			s.Follows = append(s.Follows, follows(t, nil))
		}
		if s.Kind == OutcomeDone {
			s.Text, s.Room = result, m.doneMax
		}
		return s
	}
	if s.Delay = delay; s.Kind == OutcomeGarbage {
		s.Room = m.with.GarbageMax
	}
	if s.Kind != OutcomeReady && rapid.Bool().Draw(t, "failed") {
		return s.fails(rapid.SampledFrom([]string{"no", "1 2\n", strings.Repeat("語", 300)}).Draw(t, "error"))
	}
	if s.Kind == OutcomeRetry && rapid.Bool().Draw(t, "again") {
		s.Failures, s.Losses, s.Leaves = 0, 0, s.Lane != ""
	} else if s.Kind == OutcomeRetry && m.limiting && rapid.Bool().Draw(t, "throttle") {
		s.Kind = OutcomeThrottle
	}
	return s
}

func (m *machine) doSettle(t *rapid.T, c Caller, batch []Settlement, fetches bool) {
	got, err := m.store.Settle(queuetest.CtxB, &c, batch, fetches)
	m.same(t, "settle", got, err, m.once(c, func() any { return m.settle(batch, fetches) }))
}

func (m *machine) extends(t *rapid.T) {
	ds := m.some(t)
	if ds == nil {
		return
	}
	var names, ids []string
	for _, d := range ds {
		if ids = append(ids, d.msg.ID); !slices.Contains(names, d.lease.Name) {
			names = append(names, d.lease.Name)
		}
	}
	got, err := m.store.Extend(queuetest.CtxB, rigLease, names, ids)
	m.same(t, "extend", got, err, m.extend(names, ids))
}

// keeps parts a lease. What goes on without its holder is not settled any more, but by calls that were held up.
func (m *machine) keeps(t *rapid.T) {
	ds := m.some(t)
	if ds == nil {
		return
	}
	name := ds[0].lease.Name
	var tags []string
	for _, d := range m.given {
		if d.lease.Name == name && rapid.Bool().Draw(t, "it is held") {
			tags = append(tags, d.tag)
		}
	}
	if len(tags) == 0 {
		return
	}
	for _, d := range m.given {
		if d.lease.Name == name && !slices.Contains(tags, d.tag) {
			m.spent[spent{name, d.tag}] = true
		}
	}
	got, err := m.store.Keep(queuetest.CtxB, name, tags)
	m.same(t, "keep", got, err, m.keep(name, tags))
}

// forgets a fetch, as the server does that takes over from one which did not pass it on: all is where it was before.
func (m *machine) forgets(t *rapid.T) {
	names := slices.DeleteFunc(m.leases(), func(name string) bool {
		held := m.heldOf(name) // who forgets the fetch has forgotten what came after it
		return len(held) != len(strings.Fields(m.listed[name])) ||
			slices.ContainsFunc(held, func(tag string) bool {
				id := queuetest.IDIn(tag)
				return m.record(id).Superseded ||
					m.laneOf(id).Width > 0 // another of its lane may have been sent since, for an earlier instant
			})
	})
	if len(names) == 0 {
		return
	}
	name := rapid.SampledFrom(names).Draw(t, "lease")
	keys := m.store.Keys
	calls := [][]any{{"zrem", keys.of("unack"), name}, {"hdel", keys.of("lease"), name, name + "#"}}
	tags := m.heldOf(name)
	m.endLease(name)
	for _, tag := range tags {
		id, n := message.SplitTag(tag)
		at, key, set := m.now, keys.of("retry"), m.retry
		if n == 1 {
			at, key, set = m.envelope(id).Due, keys.of("pending"), m.pending
		}
		set[tag] = at
		calls = append(calls, []any{"zadd", key, at, tag})
		switch p := m.limits.putOff; {
		case m.armed == 0 || at < m.armed:
			m.armed, m.wake = at, at
		case p != (heldBack{}) && p.armed == m.armed: // it waits for a limit, as what was due before it
			m.wake = p.marker
		default:
			m.wake = m.armed
		}
	}
	for _, args := range append(calls, []any{"zadd", keys.Wake, m.wake, "w"},
		[]any{"hset", keys.State, "armed", m.armed}) {
		must(t, m.UniversalClient.Do(queuetest.CtxB, args...).Err())
	}
	m.held = m.contents
}
