package ops

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A deed is one operation on a message.
type deed struct {
	what  what
	n     int                // number of the delivery
	kind  script.OutcomeKind // of didSettle and mayHaveSettled
	at    int64              // unix us: of the hand-out by the server's clock; else when the call began
	until int64              // unix us: lease end; of didLose and wasVoid when the call ended
	state string             // of didIntercept and wasSeen
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

// Where a message is.
const (
	isGone = "gone"
	waits  = "ready" // wherever it waits
	isHeld = "unack"
	isDead = "garbage"
	isDone = "done"
)

// A life is where a message is.
type life struct {
	state string
	sent  bool
	n     int   // number of the current or next delivery
	until int64 // unix us: isHeld is kept at least that long
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
	ready := func(n int) life { return life{state: waits, n: n} }
	ended := map[script.OutcomeKind]life{script.OutcomeAck: {state: isGone}, script.OutcomeRetry: ready(d.n + 1), script.OutcomeReady: ready(d.n + 1),
		script.OutcomeGarbage: {state: isDead},
		script.OutcomeDone:    {state: isDone}}[d.kind]
	holds := l.state == isHeld && l.n == d.n
	over := l.sent && !holds && (l.n > d.n || l.state == isGone || l.state == isDead || l.state == isDone) // delivery n is
	switch d.what {
	case didSend:
		may(!l.sent, ready(1))
	case mayHaveSent:
		may(!l.sent, ready(1))
		lives = append(lives, l)
	case didHandOut:
		may(l.state == waits && l.n == d.n, life{state: isHeld, n: d.n, until: d.until})
		may(l.state == isHeld && l.n+1 == d.n && d.at >= l.until, life{state: isHeld, n: d.n, until: d.until}) // after a loss
	case mayHaveHanded:
		may(true, l)
		may(l.state == waits, life{state: isHeld, n: l.n})
		may(l.state == isHeld && d.until >= l.until, life{state: isHeld, n: l.n + 1})
		may(l.state == isHeld && d.until >= l.until && l.n >= 3, life{state: isDead}) // poison, of which that reply told
		if !l.sent {
			return []life{l}
		}
	case didSettle:
		may(holds, ended)
	case mayHaveSettled:
		may(true, l)
		may(holds, ended)
	case wasVoid, didLose, wasGone:
		may(over && (d.what == wasVoid || (l.state == isGone) == (d.what == wasGone)), l)
		may(holds && d.until >= l.until && d.what != wasGone, ready(d.n+1)) // a loss that nobody else has seen yet
	case didExtend:
		may(holds, life{state: isHeld, n: l.n, until: max(l.until, d.until)})
	case didDie:
		may(l.state == isHeld && l.n == d.n && d.at >= l.until, life{state: isDead})
	case didIntercept:
		may((l.state == isGone) == (d.state == isGone) && (l.state == isDone) == (d.state == isDone),
			map[bool]life{true: l, false: {state: isGone}}[l.state == isDone])
	case wasSeen:
		may(l.state == d.state, l)
	}
	return lives
}

// judge wants what was done to each message to be a possible life of one, and everything to have been done to some.
func (h *history) judge(f *face.Fixture, sent []string, lease time.Duration) {
	f.T.Helper()
	end := h.end()
	followers := h.followers()
	sent = append(sent, followers...)
	h.tell(f.T, sent, lease.Microseconds(), end)
	s := f.Check()
	for _, id := range sent {
		h.add(id, end+1, end+1, deed{what: wasSeen, state: s.Where(id)})
	}
	model := (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{life{state: isGone}} },
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
			f.T.Errorf("message %s cannot have lived like this:", id)
			for _, op := range ops {
				f.T.Logf("%d to %d: %+v", op.Call-h.began.UnixMicro(), op.Return-h.began.UnixMicro(), op.Input)
			}
		}
	}
	f.T.Log(count, len(followers), "followers")
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	for _, e := range s.Done {
		if msg := statusInQueue(f, m, e.ID); msg.Result != strconv.Itoa(msg.Delivery-1) {
			f.T.Errorf("message %s has the result of delivery %s, and delivery %d was acked", e.ID, msg.Result, msg.Delivery-1)
		}
	}
	if len(s.Done) == 0 {
		f.T.Error("no message was kept")
	}
	for _, what := range []what{didSend, didHandOut, mayHaveHanded, didSettle, wasVoid, didExtend, didIntercept, wasSeen} {
		if count[what] == 0 {
			f.T.Errorf("no message was %s", what)
		}
	}
}
