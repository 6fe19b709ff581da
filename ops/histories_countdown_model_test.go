package ops

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// What WithCountdown and docs/PROTOCOL.md say of a countdown, as a specification for TestHistories.

// A countDeed is an operation on a countdown: didSend, didHandOut, wasThere (somebody looked), didSettle or mayHaveSettled.
type countDeed struct {
	what  what
	n     int         // of didSend how many acks it waits for, of didHandOut and wasThere how many are missing
	first bool        // of didHandOut: it is the first delivery
	at    int64       // unix us by the server's clock: of didSend the due instant, of didHandOut when
	steps []countStep // of a call of settle, in their order
}

const (
	allCounted  = "handed out when no ack was missing"
	someMissing = "handed out at its instant"
	cameAgain   = "handed out again"
)

// kind is which sort of deed it is.
func (d *countDeed) kind() string {
	switch {
	case d.what != didHandOut:
		return string(d.what)
	case !d.first:
		return cameAgain
	case d.n == 0:
		return allCounted
	}
	return someMissing
}

// A countStep is what an outcome means to a countdown; the zero value: an ack counts.
type countStep struct {
	n    int  // the message is replaced, and waits for so many acks
	ends bool // the message has ended, and nothing counts for it any more
}

// A countdown is what the specification knows of one.
type countdown struct {
	n, counted int
	due        int64 // unix us
	over       bool
}

func (l countdown) missing() int { return max(l.n-l.counted, 0) }

func (l countdown) after(s countStep) countdown {
	switch {
	case l.over:
	case s.ends:
		l.over = true
	case s.n > 0:
		l.n = s.n
	case l.missing() > 0: // an ack for which nobody waits does not count
		l.counted++
	}
	return l
}

// next is every countdown that may follow from a deed; none: the deed cannot have been.
func (l countdown) next(d countDeed) []countdown {
	switch d.what {
	case didSend:
		return []countdown{{n: d.n, due: d.at}}
	case didSettle, mayHaveSettled: // which outcomes of the latter are void is not known
		all := []countdown{l}
		for _, s := range d.steps {
			var after []countdown
			for _, one := range all {
				if after = append(after, one.after(s)); d.what == mayHaveSettled {
					after = append(after, one)
				}
			}
			slices.SortFunc(after, func(a, b countdown) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			all = slices.Compact(after)
		}
		return all
	}
	if d.n != l.missing() || d.first && d.n > 0 && d.at < l.due {
		return nil
	}
	return []countdown{l}
}

// countdowns is what a countdown may be.
var countdowns = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{countdown{over: true}} },
	Step: func(state, input, _ any) (all []any) {
		for _, l := range state.(countdown).next(input.(countDeed)) {
			all = append(all, l)
		}
		return all
	},
}).ToModel()

// TestCountdownsJudge: countdowns that can be, and countdowns that cannot.
func TestCountdownsJudge(t *testing.T) {
	t.Parallel()
	counts := func(n int) countDeed { return countDeed{what: didSettle, steps: make([]countStep, n)} }
	perhaps := func(n int) countDeed { return countDeed{what: mayHaveSettled, steps: make([]countStep, n)} }
	closed := func(n int) countDeed { return countDeed{what: didSettle, steps: []countStep{{n: n}}} }
	out := func(missing int, at int64) countDeed {
		return countDeed{what: didHandOut, n: missing, first: true, at: at}
	}
	again := func(missing int) countDeed { return countDeed{what: didHandOut, n: missing} }
	found := func(missing int) countDeed { return countDeed{what: wasThere, n: missing} }
	ended := countDeed{what: didSettle, steps: []countStep{{ends: true}}}
	for name, c := range map[string]struct {
		deeds []countDeed // after it was sent, with a countdown of 3, and due at 100
		can   bool
	}{
		"with the last ack":               {[]countDeed{counts(2), found(1), counts(1), out(0, 5), ended}, true},
		"an ack too early":                {[]countDeed{counts(2), out(0, 5)}, false},
		"with some missing":               {[]countDeed{counts(2), out(1, 99)}, false},
		"at its instant":                  {[]countDeed{counts(2), out(1, 100), counts(1), again(0)}, true},
		"at its instant, and one too few": {[]countDeed{counts(2), out(0, 100)}, false},
		"an ack counts twice":             {[]countDeed{counts(1), found(1)}, false},
		"an ack counts not":               {[]countDeed{counts(1), found(3)}, false},
		"more acks than it waits for":     {[]countDeed{counts(5), found(0), closed(5), found(2)}, true},
		"perhaps an ack, and it counts":   {[]countDeed{perhaps(2), found(2), found(2)}, true},
		"perhaps an ack, and it does not": {[]countDeed{perhaps(2), found(3), counts(1), found(2)}, true},
		"perhaps, and then not":           {[]countDeed{perhaps(1), found(2), found(3)}, false},
		"more than there may be":          {[]countDeed{perhaps(1), counts(1), found(0)}, false},
		"after its end":                   {[]countDeed{counts(1), ended, counts(1), found(2)}, true},
		"counted after its end":           {[]countDeed{counts(1), ended, counts(1), found(1)}, false},
		"closed":                          {[]countDeed{counts(2), closed(2), out(0, 5)}, true},
		"closed, and one is missing":      {[]countDeed{counts(1), closed(2), out(1, 5)}, false},
		"closed, and counted anew":        {[]countDeed{counts(1), closed(2), found(2)}, false},
		"one call closes and counts":      {[]countDeed{counts(1), {what: didSettle, steps: []countStep{{n: 2}, {}}}, out(0, 5)}, true},
	} {
		ops := []porcupine.Operation{{Input: countDeed{what: didSend, n: 3, at: 100}, Call: 0, Return: 1}}
		for i, d := range c.deeds {
			ops = append(ops, porcupine.Operation{Input: d, Call: int64(2*i + 2), Return: int64(2*i + 3)})
		}
		if got := porcupine.CheckOperations(countdowns, ops); got != c.can {
			t.Errorf("%s: %v, want %v", name, got, c.can)
		}
	}
}
