package delayqueue

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

// TestScriptInterleavings makes random calls of several callers, some of them repeated or
// late, and holds every answer and the whole state against a ledger in plain Go.
func TestScriptInterleavings(t *testing.T) {
	t.Parallel()
	for n := range 6 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			r, seed := newRig(t, n == 0), rand.Uint64() // the embedded server takes thrice as long
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			l := &ledger{rig: r, rand: rand.New(rand.NewPCG(seed, 0)), keyOf: map[string]string{}, known: map[string]*entry{}}
			l.run(1430)
		})
	}
}

// A ledger is what must be so, from the answers alone; only who holds what is read from Redis.
type ledger struct {
	*rig
	rand   *rand.Rand
	known  map[string]*entry // by id
	keyOf  map[string]string // caller's key -> id of the live message that has it
	actors []*actor
	sent   int
	live   int   // not ended, as of the last audit
	next   int64 // what the last fetch said
}

// An entry is a message that was accepted.
type entry struct {
	id, key  string
	notUntil int64 // the next delivery comes at this instant or later
	ended    bool  // acked, intercepted, aged or trimmed
	died     int64 // when it came to garbage; 0: it lives
	failures int

	// The last delivery, and until when its lease is known to run.
	number int
	lease  int64
	held   bool // not settled by a call that took effect
}

// An actor is a caller and its last call.
type actor struct {
	*caller
	again func() // repeats the last call and compares
	tags  []string
}

func (l *ledger) run(steps int) {
	for range 6 {
		l.actors = append(l.actors, &actor{caller: newCaller()})
	}
	l.with.garbageAge, l.with.garbageMax = time.Minute, 20
	for step := 0; step < steps && !l.t.Failed(); step++ {
		l.step()
		if step%8 == 0 {
			l.audit()
		}
	}
	// All that is left comes out in the end.
	l.with.garbageAge = time.Microsecond
	for round := 0; len(l.audit().Messages) > 0 && !l.t.Failed(); round++ {
		if round > 1000 {
			l.t.Errorf("%d messages do not come out", len(l.audit().Messages))
		}
		l.at(l.since(l.now) + l.with.lease/3)
		a := l.actors[0]
		l.doFetch(a, 50)
		if len(a.tags) > 0 {
			l.doSettle(l.actors[1], a.tags, func() outcomeKind { return outcomeAck })
		}
	}
	if s := l.audit(); len(s.Fail)+len(s.Keys) > 0 {
		l.t.Errorf("left over: fail %v, key %v", s.Fail, s.Keys)
	}
}

func (l *ledger) step() {
	a := l.actors[l.rand.IntN(len(l.actors))]
	switch n := l.rand.IntN(100); {
	case n < 20: // time passes
		switch l.rand.IntN(20) {
		case 0:
			l.pass(30 * time.Second)
		case 1, 2, 3, 4, 5, 6:
			l.pass(5 * time.Second)
		default:
			l.pass(300 * time.Millisecond)
		}
	case n < 38:
		if l.live < 40 {
			l.doSend(a)
		}
	case n < 60:
		l.doFetch(a, l.rand.IntN(8))
	case n < 80:
		l.doSettle(a, l.someTags(), func() outcomeKind { return outcomeKind(l.rand.IntN(4)) })
	case n < 85:
		l.doExtend(l.someTags())
	case n < 90:
		l.doIntercept(a)
	case n < 98:
		if a.again != nil {
			a.again()
		}
	default:
		l.doLate(a)
	}
}

func (l *ledger) pass(atMost time.Duration) {
	l.at(l.since(l.now) + time.Duration(l.rand.Int64N(atMost.Microseconds()))*time.Microsecond)
}

// someTags are tags of deliveries, current ones and older ones.
func (l *ledger) someTags() []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(l.known)) {
		if e := l.known[id]; e.held || e.number > 0 && l.rand.IntN(100) == 0 {
			ids = append(ids, id)
		}
	}
	l.rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	var tags []string
	for _, id := range ids[:min(len(ids), 1+l.rand.IntN(5))] {
		n := l.known[id].number
		if n > 1 && l.rand.IntN(8) == 0 {
			n--
		}
		tags = append(tags, tagOf(id, n))
	}
	return tags
}

func (l *ledger) doSend(a *actor) {
	var batch []*outgoing
	var want []string
	claimed := map[string]string{}
	for i := range 1 + l.rand.IntN(4) {
		l.sent++
		delay := time.Duration(l.rand.Int64N(8e6)) * time.Microsecond
		if l.rand.IntN(3) == 0 {
			delay = 0
		}
		var key string
		if l.rand.IntN(3) == 0 {
			key = "k" + strconv.Itoa(l.rand.IntN(12))
		}
		m := msg(strconv.Itoa(l.sent), delay, keyed(key))
		if l.rand.IntN(4) == 0 {
			m = msgAt(strconv.Itoa(l.sent), l.since(l.now)+delay-time.Second, keyed(key))
			delay = max(0, delay-time.Second)
		}
		batch = append(batch, m)
		holder := l.keyOf[key]
		if holder == "" {
			holder = claimed[key]
		}
		if key != "" && holder != "" {
			want = append(want, fmt.Sprintf("%d=%s", i, names(holder)))
			continue
		}
		if key != "" {
			claimed[key] = m.id
		}
		l.known[m.id] = &entry{id: m.id, key: key, notUntil: l.now + delay.Microseconds()}
	}
	for key, id := range claimed {
		l.keyOf[key] = id
	}
	out := l.send(a.caller, batch...)
	l.equal("refused", refused(out), strings.Join(want, " "))
	l.equal("due from", out.now, l.now)
	a.again = func() { l.equal("a repeated send", l.sendAgain(a.caller, batch...), out) }
}

func (l *ledger) doFetch(a *actor, want int) {
	l.pass(time.Millisecond)
	l.at(l.since(l.now) + 2*time.Microsecond)    // see lend in fetch.lua: two fetches of one instant never are
	if l.rand.IntN(3) == 0 && l.next > l.now+1 { // as close as it gets
		l.at(l.since(l.next) - time.Duration(l.rand.IntN(2))*time.Microsecond)
	}
	f := l.fetch(a.caller, want)
	l.next = f.next
	if len(f.tags) > want {
		l.t.Errorf("handed out %d, wanted %d", len(f.tags), want)
	}
	l.died(f)
	for _, tag := range f.tags {
		id, n := splitTag(tag)
		e := l.known[id]
		switch {
		case e == nil || e.ended || e.died != 0:
			l.t.Fatalf("handed out %s, of which the ledger has %+v", names(tag), e)
		case n <= e.number:
			l.t.Errorf("handed out %s after delivery %d", names(tag), e.number)
		case e.held && e.lease > l.now:
			l.t.Errorf("handed out %s while delivery %d is held until %v", names(tag), e.number, l.since(e.lease))
		case l.now < e.notUntil:
			l.t.Errorf("handed out %s at %v, before %v", names(tag), l.since(l.now), l.since(e.notUntil))
		}
		e.number, e.held, e.lease, e.notUntil = n, true, l.now+l.with.lease.Microseconds(), 0
	}
	tags := f.tags
	a.tags = tags
	a.again = func() {
		l.pass(time.Millisecond)
		l.at(l.since(l.now) + 2*time.Microsecond)
		var still []string
		for _, tag := range tags {
			id, n := splitTag(tag)
			if e := l.known[id]; !e.ended && e.number == n && e.held {
				still = append(still, tag)
			}
		}
		before := l.scores()
		f := l.fetchAgain(a.caller, want)
		l.died(f)
		for _, tag := range f.tags {
			if !slices.Contains(still, tag) {
				l.t.Errorf("a repeated fetch brings %s", names(tag))
			}
			id, _ := splitTag(tag)
			l.known[id].lease = l.now + l.with.lease.Microseconds()
		}
		for _, tag := range still { // an even end is that of a renewal
			if before[tag]%2 == 1 && !slices.Contains(f.tags, tag) {
				l.t.Errorf("a repeated fetch does not bring %s", names(tag))
			}
		}
	}
}

func (l *ledger) died(f fetched) {
	for _, d := range f.dead {
		if e := l.known[d.id]; e.ended || e.died != 0 || e.held && e.lease > l.now {
			l.t.Errorf("%s died of %q, but the ledger has %+v", names(d.id), d.fail, e)
		}
		l.dies(d.id)
	}
	if f.dropped != 0 {
		l.t.Errorf("dropped %d", f.dropped)
	}
	// What is gone from garbage was too old, or too much.
	if !slices.ContainsFunc(slices.Collect(maps.Values(l.known)), func(e *entry) bool { return e.died != 0 && !e.ended }) {
		return
	}
	s, trimmed := l.state(), 0
	for _, e := range l.known {
		if e.died == 0 || e.ended || s.Where(e.id) == "garbage" {
			continue
		}
		e.ended = true
		if l.now-e.died < l.with.garbageAge.Microseconds() {
			trimmed++
		}
	}
	if trimmed > f.trimmed {
		l.t.Errorf("%d are gone from garbage that were not old, %d were trimmed", trimmed, f.trimmed)
	}
}

func (l *ledger) dies(id string) {
	e := l.known[id]
	e.died, e.held = l.now, false
	if l.keyOf[e.key] == id {
		delete(l.keyOf, e.key)
	}
}

func (l *ledger) ends(id string) {
	l.dies(id)
	l.known[id].ended = true
}

// scores are the lease ends of what is held.
func (l *ledger) scores() map[string]int64 {
	held := map[string]int64{}
	for _, e := range l.state().Unack {
		held[e.Tag] = e.Score
	}
	return held
}

func (l *ledger) doSettle(a *actor, tags []string, kind func() outcomeKind) {
	if len(tags) == 0 {
		return
	}
	held := l.scores()
	var plain, rest []outcome
	for _, tag := range tags {
		id, _ := splitTag(tag)
		o := ends(kind(), names(tag), 0, 0, "", l.known[id].key)
		o.delay = time.Duration(l.rand.Int64N(5e6)) * time.Microsecond
		if o.kind == outcomeRetry && l.rand.IntN(2) == 0 || o.kind == outcomeGarbage {
			o.failures, o.text = l.known[id].failures+1, "no"
		} else {
			o.failures = l.known[id].failures
		}
		if o.plain() {
			plain = append(plain, o)
		} else {
			rest = append(rest, o)
		}
	}
	batch := append(plain, rest...)
	var want []int
	for i, o := range batch {
		if _, ok := held[o.d.tag]; !ok {
			want = append(want, i)
			continue
		}
		e := l.known[o.d.id]
		e.held, e.failures = false, o.failures
		switch o.kind {
		case outcomeAck:
			l.ends(e.id)
		case outcomeGarbage:
			l.dies(e.id)
		case outcomeRetry:
			e.notUntil = l.now + o.delay.Microseconds()
		}
	}
	l.equal("void", l.settle(a.caller, batch...), want)
	a.again = func() { l.equal("void, repeated", l.settleAgain(a.caller, batch...), want) }
}

func (l *ledger) doExtend(tags []string) {
	if len(tags) == 0 {
		return
	}
	held := l.scores()
	var ds []*delivery
	var want []int
	for _, tag := range tags {
		d := heldAs(tag)
		ds = append(ds, d)
		e := l.known[d.id]
		switch _, ok := held[tag]; {
		case ok:
			want = append(want, leaseRenewed)
			e.lease = l.now + l.with.lease.Microseconds() - 1
		case e.ended:
			want = append(want, leaseGone)
		default:
			want = append(want, leaseLost)
		}
	}
	l.equal("extend", l.extend(ds...), want)
}

func heldAs(tag string) *delivery { return held(names(tag)) }

func (l *ledger) doIntercept(a *actor) {
	var id, by, what string
	if l.rand.IntN(2) == 0 {
		by, what = "key", "k"+strconv.Itoa(l.rand.IntN(12))
		id = l.keyOf[what]
	} else {
		by = "id"
		id = idOf(strconv.Itoa(1 + l.rand.IntN(l.sent+1)))
		if l.rand.IntN(3) > 0 { // a late one, which is likely there
			id = idOf(strconv.Itoa(1 + l.sent - l.rand.IntN(min(l.sent+1, 20))))
		}
		what = id
	}
	where := l.state().Where(id)
	if where == "pending" && l.known[id].notUntil <= l.now {
		where = "ready"
	}
	state := l.intercept(a.caller, by, what)
	l.equal("intercepted "+names(what), state.String(), where)
	if e := l.known[id]; (e == nil || e.ended) != (state == StateGone) {
		l.t.Errorf("intercepted %s as %v, but the ledger has %+v", names(what), state, e)
	} else if state != StateGone {
		l.ends(id)
	}
	a.again = func() { l.equal("a repeated intercept", l.interceptAgain(a.caller, by, what), state) }
}

// doLate sends a call that is older than the caller's last, which must do nothing.
func (l *ledger) doLate(a *actor) {
	if a.n < 2 {
		return
	}
	ctx, before := context.Background(), l.contents()
	var err error
	switch l.rand.IntN(4) {
	case 0:
		_, err = l.store.send(ctx, older(a.caller), []*outgoing{msg("late", 0)}, 0, 0)
	case 1:
		_, err = l.store.fetch(ctx, older(a.caller), ask{want: 5}, &l.with)
	case 2:
		if tags := l.someTags(); len(tags) > 0 {
			_, err = l.store.settle(ctx, older(a.caller), []outcome{{d: heldAs(tags[0]), kind: outcomeRetry}}, 0)
			break
		}
		return
	default:
		_, err = l.store.intercept(ctx, older(a.caller), "id", idOf(strconv.Itoa(l.sent)))
	}
	l.tooLate(err)
	l.equal("contents after a late call", l.contents(), before)
}

func (l *ledger) state() *check.State {
	l.t.Helper()
	s, err := check.Read(context.Background(), l.cli, "dq", l.name)
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// audit holds the whole state against the invariants and the ledger.
func (l *ledger) audit() *check.State {
	l.t.Helper()
	s := l.read()
	places := map[string]string{}
	for name, entries := range map[string][]check.Entry{"pending": s.Pending, "ready": s.Ready, "unack": s.Unack, "retry": s.Retry, "garbage": s.Garbage} {
		for _, e := range entries {
			places[e.ID] = name
			if known := l.known[e.ID]; known == nil || known.ended {
				l.t.Errorf("%s is in %s, but the ledger has %+v", names(e.Tag), name, known)
			}
		}
	}
	l.live = len(places)
	for id, e := range l.known {
		at, there := places[id]
		switch {
		case e.ended:
		case !there:
			l.t.Errorf("%s is nowhere, but the ledger has %+v", names(id), e)
		case (at == "garbage") != (e.died != 0), (at == "pending") != (e.number == 0), at == "unack" && !e.held,
			e.held && e.lease > l.now && at != "unack":
			l.t.Errorf("%s is in %s, but the ledger has %+v", names(id), at, e)
		case e.key != "" && e.died == 0 && l.keyOf[e.key] != id:
			l.t.Errorf("the ledger lost key %s", e.key)
		}
	}
	return s
}
