package delayqueue

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// A deed is one operation on a message.
type deed struct {
	what  what
	n     int         // number of the delivery
	kind  outcomeKind // of didSettle and mayHaveSettled
	at    int64       // unix us: of the hand-out by the server's clock; else when the call began
	until int64       // unix us: lease end; of didLose and wasVoid when the call ended
	state State       // of didIntercept and wasSeen
}

type what string

const (
	didSend        what = "sent"
	mayHaveSent    what = "perhaps sent" // it follows an ack that was perhaps not carried out
	didHandOut     what = "handed out"
	mayHaveHanded  what = "perhaps handed out" // by a fetch whose reply was lost
	didSettle      what = "settled"
	mayHaveSettled what = "perhaps settled"
	wasVoid        what = "settled in vain"
	didExtend      what = "lease renewed"
	didLose        what = "lease found lost" // the message lives on elsewhere
	wasGone        what = "lease found gone" // the message is nowhere
	didDie         what = "poison"
	didIntercept   what = "intercepted"
	wasSeen        what = "in the end" // where the message is after the run
)

// A life is where a message is.
type life struct {
	state State // StateGone, StateUnack, StateGarbage, StateDone, or StateReady for wherever it waits
	sent  bool
	n     int   // number of the current or next delivery
	until int64 // unix us: StateUnack is kept at least that long
}

// next is every life that may follow from a deed; none: the deed cannot have been.
func (l life) next(d deed) []life {
	var lives []life
	may := func(ok bool, next life) {
		if ok {
			next.sent = true
			lives = append(lives, next)
		}
	}
	waits := func(n int) life { return life{state: StateReady, n: n} }
	ended := map[outcomeKind]life{outcomeAck: {}, outcomeRetry: waits(d.n + 1), outcomeReady: waits(d.n + 1),
		outcomeGarbage: {state: StateGarbage},
		outcomeDone:    {state: StateDone}}[d.kind]
	holds := l.state == StateUnack && l.n == d.n
	over := l.sent && !holds && (l.n > d.n || l.state == StateGone || l.state == StateGarbage || l.state == StateDone) // delivery n is
	switch d.what {
	case didSend:
		may(!l.sent, waits(1))
	case mayHaveSent:
		may(!l.sent, waits(1))
		lives = append(lives, l)
	case didHandOut:
		may(l.state == StateReady && l.n == d.n, life{state: StateUnack, n: d.n, until: d.until})
		may(l.state == StateUnack && l.n+1 == d.n && d.at >= l.until, life{state: StateUnack, n: d.n, until: d.until}) // after a loss
	case mayHaveHanded:
		may(true, l)
		may(l.state == StateReady, life{state: StateUnack, n: l.n})
		may(l.state == StateUnack && d.until >= l.until, life{state: StateUnack, n: l.n + 1})
		may(l.state == StateUnack && d.until >= l.until && l.n >= 3, life{state: StateGarbage}) // poison, of which that reply told
		if !l.sent {
			return []life{l}
		}
	case didSettle:
		may(holds, ended)
	case mayHaveSettled:
		may(true, l)
		may(holds, ended)
	case wasVoid, didLose, wasGone:
		may(over && (d.what == wasVoid || (l.state == StateGone) == (d.what == wasGone)), l)
		may(holds && d.until >= l.until && d.what != wasGone, waits(d.n+1)) // a loss that nobody else has seen yet
	case didExtend:
		may(holds, life{state: StateUnack, n: l.n, until: max(l.until, d.until)})
	case didDie:
		may(l.state == StateUnack && l.n == d.n && d.at >= l.until, life{state: StateGarbage})
	case didIntercept:
		may((l.state == StateGone) == (d.state == StateGone) && (l.state == StateDone) == (d.state == StateDone),
			map[bool]life{true: l}[l.state == StateDone])
	case wasSeen:
		may(l.state == d.state, l)
	}
	return lives
}

// judge wants what was done to each message to be a possible life of one, and everything to have been done to some.
func (h *history) judge(f *fixture, sent []string, lease time.Duration) {
	f.t.Helper()
	end := h.end()
	followers := h.followers()
	sent = append(sent, followers...)
	h.tell(sent, lease.Microseconds(), end)
	s := f.check()
	for _, id := range sent {
		h.add(id, end+1, end+1, deed{what: wasSeen, state: State(slices.Index(stateNames[:], s.Where(id)))})
	}
	model := (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{life{}} },
		Step: func(state, input, _ any) (lives []any) {
			for _, l := range state.(life).next(input.(deed)) {
				lives = append(lives, l)
			}
			return lives
		},
	}).ToModel()
	count := map[what]int{}
	for id, ops := range h.deeds {
		for _, op := range ops {
			count[op.Input.(deed).what]++
		}
		if !porcupine.CheckOperations(model, ops) {
			slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
			f.t.Errorf("message %s cannot have lived like this:", id)
			for _, op := range ops {
				f.t.Logf("%d to %d: %+v", op.Call-h.began.UnixMicro(), op.Return-h.began.UnixMicro(), op.Input)
			}
		}
	}
	f.t.Log(count, len(followers), "followers")
	m := NewMonitor(f.name, f.cli)
	for _, e := range s.Done {
		if msg := f.status(m, e.ID); msg.Result != strconv.Itoa(msg.Delivery-1) {
			f.t.Errorf("message %s has the result of delivery %s, and delivery %d was acked", e.ID, msg.Result, msg.Delivery-1)
		}
	}
	if len(s.Done) == 0 {
		f.t.Error("no message was kept")
	}
	for _, what := range []what{didSend, didHandOut, mayHaveHanded, didSettle, wasVoid, didExtend, didIntercept, wasSeen} {
		if count[what] == 0 {
			f.t.Errorf("no message was %s", what)
		}
	}
}
