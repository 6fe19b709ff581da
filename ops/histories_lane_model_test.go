package ops

import (
	"cmp"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
)

// What WithLane says of one lane, as a specification for TestLaneHistories: messages begin one after the other, in order.

// A laneDeed is an operation on one lane.
type laneDeed struct {
	what  what
	msgs  []laned  // of didSend, in the order of the batch; of didFail when it comes again; of didShift, didRequeue and didAgain as it is from then on
	ids   []string // of didHandOut in this order, of didEnd and the others the one message
	dead  []string // of didHandOut: what it found lost too often
	at    int64    // unix us by the server's clock: of didHandOut when
	none  bool     // of didHandOut: it found nothing that is due in any lane
	until int64    // of didShift: when the call ended
}

const (
	didEnd     what = "ended" // acked, in garbage, intercepted or canceled
	didRequeue what = "requeued"
	didAgain   what = "due again"     // it leaves its turn
	didShift   what = "rescheduled"   // it waited
	didFail    what = "to be retried" // or released: it keeps its turn
	wasEmpty   what = "found empty"
)

// lostFor is for how long a message waits at most after it was handed out, and lost, us.
const lostFor = 10_000_000

// A laned is a message of a lane that has not ended.
type laned struct {
	id         string
	width      int
	from, to   int64 // unix us: between these it is due
	batch, nth int   // of the send that made it due at an instant, and of the message in it; batch is 0 if no send did
	begun      bool  // it was handed out, and has its turn still
	loose      bool  // it was handed out, and may have its turn still, for it may have been made due later
}

// surelyBefore says that its turn comes before that of another one.
func (m *laned) surelyBefore(other *laned) bool {
	return m.to < other.from || m.from == other.from && m.batch == other.batch && m.batch > 0 && m.nth < other.nth
}

// maybeBefore says that its turn may come before that of another one.
func (m *laned) maybeBefore(other *laned) bool { return m.loose || !other.surelyBefore(m) }

// shift makes it due at another instant. A call did that until an instant.
func (m *laned) shift(due, until int64) {
	switch surely := due > until; {
	case surely && due > m.to || surely && !m.begun && !m.loose:
		m.from, m.to, m.begun, m.loose = due, due, false, false
	case m.begun && due <= m.from:
		return
	default: // it stays as it is, if it was due before
		m.from, m.to, m.loose = min(m.from, due), max(m.to, until), m.begun || m.loose
		m.begun = false
	}
	m.batch = 0
}

// A laneLife is what the specification knows of a lane: its messages, in the order of their ids.
type laneLife []laned

func (l laneLife) find(id string) (int, bool) {
	return slices.BinarySearchFunc(l, id, func(m laned, id string) int { return cmp.Compare(m.id, id) })
}

// without is the lane without a message, which must be there.
func (l laneLife) without(id string) (laneLife, bool) {
	i, found := l.find(id)
	if !found {
		return l, false
	}
	return slices.Delete(slices.Clone(l), i, i+1), true
}

// with is the lane with a message, which must not be there.
func (l laneLife) with(m laned) (laneLife, bool) {
	i, found := l.find(m.id)
	return slices.Insert(slices.Clone(l), i, m), !found
}

// changed is the lane with a change of a message, which must be there.
func (l laneLife) changed(id string, change func(m *laned) bool) (laneLife, bool) {
	i, found := l.find(id)
	if !found {
		return l, false
	}
	next := slices.Clone(l)
	return next, change(&next[i])
}

// fits says whether a message may begin beside those that have begun, and those whose turns come before.
func (l laneLife) fits(m *laned, before func(other, m *laned) bool) bool {
	n, most := 1, m.width
	for i := range l {
		if other := &l[i]; other.id != m.id && (other.begun || before(other, m)) {
			n, most = n+1, min(most, other.width)
		}
	}
	return n <= most
}

// handsOut is the lane after a fetch.
func (l laneLife) handsOut(d laneDeed) (laneLife, bool) {
	ok := true
	for _, id := range d.dead {
		if l, ok = l.without(id); !ok {
			return l, false
		}
	}
	for _, id := range d.ids {
		l, ok = l.changed(id, func(m *laned) bool {
			if !m.begun && !m.loose && (m.from > d.at || !l.fits(m, (*laned).surelyBefore)) {
				return false
			}
			m.begun, m.loose, m.to = true, false, d.at+lostFor
			return true
		})
		if !ok {
			return l, false
		}
	}
	for i := range l { // no message is left that could begin
		if m := &l[i]; d.none && !m.begun && m.to <= d.at && l.fits(m, (*laned).maybeBefore) {
			return l, false
		}
	}
	return l, true
}

// next is the lane after a deed; false: the deed cannot have been.
func (l laneLife) next(d laneDeed) (laneLife, bool) {
	ok := true
	switch d.what {
	case didSend, didRequeue:
		for _, m := range d.msgs {
			if l, ok = l.with(m); !ok {
				return l, false
			}
		}
		return l, true
	case didHandOut:
		return l.handsOut(d)
	case didEnd:
		return l.without(d.ids[0])
	case didFail:
		return l.changed(d.ids[0], func(m *laned) bool {
			m.from, m.to = d.msgs[0].from, d.msgs[0].to
			return m.begun
		})
	case didAgain:
		return l.changed(d.ids[0], func(m *laned) bool {
			was := m.begun
			*m = d.msgs[0]
			return was
		})
	case didShift:
		return l.changed(d.ids[0], func(m *laned) bool {
			m.shift(d.msgs[0].from, d.until)
			return true
		})
	case wasGone:
		_, found := l.find(d.ids[0])
		return l, !found
	case wasEmpty:
		return l, len(l) == 0
	}
	return l, false
}

// laneLives is what a lane may be. steps counts what is done to find out, of which there is a bound.
func laneLives(steps *int) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return laneLife(nil) },
		Equal: func(a, b any) bool { return slices.Equal(a.(laneLife), b.(laneLife)) },
		Step: func(state, input, _ any) (bool, any) {
			if *steps++; *steps > mostSteps {
				return false, state
			}
			next, ok := state.(laneLife).next(input.(laneDeed))
			return ok, next
		},
	}
}

// TestLanesJudge: lanes that can be, and lanes that cannot.
func TestLanesJudge(t *testing.T) {
	t.Parallel()
	sends := func(width, batch int, at ...int64) (d laneDeed) {
		d.what = didSend
		for i, due := range at {
			d.msgs = append(d.msgs, laned{id: string(rune('a' + batch*10 + i)), width: width, from: due, to: due, batch: 1 + batch, nth: i})
		}
		return d
	}
	out := func(at int64, ids ...string) laneDeed { return laneDeed{what: didHandOut, at: at, ids: ids} }
	none := func(at int64) laneDeed { return laneDeed{what: didHandOut, at: at, none: true} }
	of := func(what what, id string) laneDeed { return laneDeed{what: what, ids: []string{id}} }
	again := func(id string, due int64) laneDeed {
		return laneDeed{what: didAgain, ids: []string{id}, msgs: []laned{{id: id, width: 1, from: due, to: due}}}
	}
	shift := func(id string, due, until int64) laneDeed {
		return laneDeed{what: didShift, ids: []string{id}, msgs: []laned{{from: due}}, until: until}
	}
	fails := func(id string, due int64) laneDeed {
		return laneDeed{what: didFail, ids: []string{id}, msgs: []laned{{from: due, to: due}}}
	}
	dead := laneDeed{what: didHandOut, at: 9, dead: []string{"a"}, ids: []string{"b"}}
	two, three, wide := sends(1, 0, 1, 2), sends(1, 0, 1, 1, 1), sends(2, 0, 1, 2, 3)
	for name, c := range map[string]struct {
		deeds []laneDeed
		can   bool
	}{
		"in order":                      {[]laneDeed{two, out(5, "a"), of(didEnd, "a"), out(6, "b"), of(didEnd, "b"), {what: wasEmpty}}, true},
		"out of order":                  {[]laneDeed{two, out(5, "b")}, false},
		"not in the order of the batch": {[]laneDeed{three, out(5, "b")}, false},
		"two at a time":                 {[]laneDeed{two, out(5, "a"), out(6, "b")}, false},
		"two of one fetch":              {[]laneDeed{two, out(5, "a", "b")}, false},
		"too early":                     {[]laneDeed{two, out(5, "a"), of(didEnd, "a"), out(1, "b")}, false},
		"none, though one is due":       {[]laneDeed{two, none(5)}, false},
		"none, for none is due":         {[]laneDeed{two, none(0)}, true},
		"the turn is not given on":      {[]laneDeed{two, out(5, "a"), of(didEnd, "a"), none(6)}, false},
		"after a retry":                 {[]laneDeed{two, out(5, "a"), fails("a", 7), none(6), out(7, "a"), of(didEnd, "a"), out(8, "b")}, true},
		"before a retry":                {[]laneDeed{two, out(5, "a"), fails("a", 7), out(6, "b")}, false},
		"after a loss":                  {[]laneDeed{two, out(5, "a"), out(6, "a"), of(didEnd, "a"), out(8, "b")}, true},
		"after a poison":                {[]laneDeed{two, out(5, "a"), dead}, true},
		"after Again":                   {[]laneDeed{two, out(5, "a"), again("a", 9), out(6, "b"), of(didEnd, "b"), out(9, "a")}, true},
		"Again keeps no turn":           {[]laneDeed{two, out(5, "a"), again("a", 9), out(9, "a")}, false},
		"later, so another one first":   {[]laneDeed{two, shift("a", 4, 3), out(3, "b")}, true},
		"later, and first nonetheless":  {[]laneDeed{two, shift("a", 4, 3), out(5, "a")}, false},
		"perhaps later":                 {[]laneDeed{two, shift("a", 4, 5), out(5, "a")}, true},
		"sooner, with its turn":         {[]laneDeed{two, out(5, "a"), fails("a", 9), shift("a", 8, 7), none(7), out(8, "a")}, true},
		"sooner, and another one first": {[]laneDeed{two, out(5, "a"), fails("a", 9), shift("a", 8, 7), out(7, "b")}, false},
		"later, without its turn":       {[]laneDeed{two, out(5, "a"), fails("a", 7), shift("a", 9, 8), out(9, "b")}, true},
		"later, and keeps its turn":     {[]laneDeed{two, out(5, "a"), fails("a", 7), shift("a", 9, 8), out(9, "a")}, false},
		"perhaps with its turn":         {[]laneDeed{two, out(5, "a"), fails("a", 7), shift("a", 9, 10), out(10, "a")}, true},
		"perhaps without its turn":      {[]laneDeed{two, out(5, "a"), fails("a", 7), shift("a", 9, 10), out(10, "b")}, true},
		"a loss, and later":             {[]laneDeed{two, out(5, "a"), shift("a", 9, 8), out(9, "a")}, true},
		"requeued":                      {[]laneDeed{two, out(5, "a"), of(didEnd, "a"), {what: didRequeue, msgs: two.msgs[:1]}, out(6, "a")}, true},
		"gone":                          {[]laneDeed{two, of(didEnd, "a"), of(wasGone, "a"), out(6, "b")}, true},
		"gone, and never ended":         {[]laneDeed{two, of(wasGone, "a")}, false},
		"ended twice":                   {[]laneDeed{two, of(didEnd, "a"), of(didEnd, "a")}, false},
		"two of width 2":                {[]laneDeed{wide, out(5, "a", "b"), of(didEnd, "b"), out(6, "c")}, true},
		"three of width 2":              {[]laneDeed{wide, out(5, "a", "b"), out(6, "c")}, false},
		"the second first":              {[]laneDeed{wide, out(5, "b"), out(5, "a")}, true},
		"the third first":               {[]laneDeed{wide, out(5, "c")}, false},
		"the smaller width holds":       {[]laneDeed{sends(2, 0, 1), sends(1, 1, 2), out(5, "a"), of(didEnd, "a"), out(5, "k")}, true},
		"the larger width holds":        {[]laneDeed{sends(2, 0, 1), sends(1, 1, 2), out(5, "a", "k")}, false},
		"left":                          {[]laneDeed{two, out(5, "a"), of(didEnd, "a"), {what: wasEmpty}}, false},
	} {
		var ops []porcupine.Operation
		for i, d := range c.deeds {
			ops = append(ops, porcupine.Operation{Input: d, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		if got := porcupine.CheckOperations(laneLives(new(int)), ops); got != c.can {
			t.Errorf("%s: %v, want %v", name, got, c.can)
		}
	}
}
