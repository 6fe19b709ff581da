package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
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
	lease string             // under which it was handed out, is settled, or that is renewed
	kind  script.OutcomeKind // of didSettle and mayHaveSettled
	at    int64              // unix us: of the hand-out by the server's clock; else when the call began
	until int64              // unix us: lease end; of mayHaveHanded, didLose and wasVoid when the call ended
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
	didLose        what = "lease found over"
	wasParted      what = "left by its lease" // which goes on without it
	mayHaveParted  what = "perhaps left by its lease"
	wasThere       what = "found" // the message is somewhere
	wasGone        what = "found gone"
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

// rest stands behind the name of a lease that has left a message, which nobody renews.
const rest = "~"

// A life is where a message is.
type life struct {
	state string
	sent  bool
	n     int    // number of the current or next delivery
	lease string // of isHeld
	until int64  // unix us: isHeld is kept at least that long
	lost  string // the leases that were over while they held the message, each behind a blank
}

// wasLost says whether the message was lost with a lease, which is over since.
func (l life) wasLost(lease string) bool { return strings.Contains(l.lost+" ", " "+lease+" ") }

// next is every life that may follow from a deed; none: the deed cannot have been.
func (l life) next(d deed) []life {
	var lives []life
	may := func(ok bool, next life) {
		if ok {
			next.sent, next.lost = true, l.lost+next.lost
			lives = append(lives, next)
		}
	}
	ready := func(n int) life { return life{state: waits, n: n} }
	held := func(n int) life { return life{state: isHeld, n: n, lease: d.lease, until: d.until} }
	loses := func(next life) life { // the lease that the message was held under is over
		next.lost = " " + l.lease
		return next
	}
	ended := map[script.OutcomeKind]life{script.OutcomeAck: {state: isGone}, script.OutcomeRetry: ready(d.n + 1), script.OutcomeReady: ready(d.n + 1),
		script.OutcomeGarbage: {state: isDead},
		script.OutcomeDone:    {state: isDone}}[d.kind]
	holds := l.state == isHeld && l.n == d.n && l.lease == d.lease
	parted := l.state == isHeld && l.lease == d.lease+rest
	over := l.sent && !holds && (l.n > d.n || parted || l.state == isGone || l.state == isDead || l.state == isDone) // delivery n is, for its holder
	switch d.what {
	case didSend:
		may(!l.sent, ready(1))
	case mayHaveSent:
		may(!l.sent, ready(1))
		lives = append(lives, l)
	case didHandOut:
		may(l.state == waits && l.n == d.n, held(d.n))
		may(l.state == isHeld && l.n+1 == d.n && d.at >= l.until, loses(held(d.n)))
	case mayHaveHanded:
		if !l.sent {
			return []life{l}
		}
		next := held(l.n)
		next.until = 0 // it is not known when the call was carried out
		lives = append(lives, l)
		may(l.state == waits, next)
		next.n++
		may(l.state == isHeld && d.until >= l.until, loses(next))
		may(l.state == isHeld && d.until >= l.until && l.n >= 3, loses(life{state: isDead})) // poison, of which that reply told
	case didSettle:
		may(holds, ended)
	case mayHaveSettled:
		lives = append(lives, l)
		may(holds, ended)
	case wasVoid, didLose: // which may be of an earlier delivery, or the first sign of a loss
		if over {
			lives = append(lives, l)
		}
		may(holds && d.until >= l.until, loses(ready(d.n+1)))
	case didExtend: // a lease goes on while any other delivery of it is held
		next := l
		next.until = max(l.until, d.until)
		if over && !l.wasLost(d.lease) {
			lives = append(lives, l)
		} else if holds {
			lives = append(lives, next)
		}
	case wasParted, mayHaveParted:
		if !holds || d.what == mayHaveParted {
			lives = append(lives, l)
		}
		if holds {
			next := l
			next.lease += rest
			lives = append(lives, next)
		}
	case wasThere, wasGone:
		if l.sent && (l.state == isGone) == (d.what == wasGone) {
			lives = append(lives, l)
		}
	case didDie:
		may(l.state == isHeld && l.n == d.n && d.at >= l.until, loses(life{state: isDead}))
	case didIntercept:
		may((l.state == isGone) == (d.state == isGone) && (l.state == isDone) == (d.state == isDone),
			map[bool]life{true: {state: isDone}, false: {state: isGone}}[l.state == isDone])
	case wasSeen:
		may(l.state == d.state, life{state: l.state})
	}
	return lives
}

// lives is what the life of a message may be.
var lives = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{life{state: isGone}} },
	Step: func(state, input, _ any) (lives []any) {
		for _, l := range state.(life).next(input.(deed)) {
			lives = append(lives, l)
		}
		return lives
	},
}).ToModel()

// describe has a line for each operation.
func (h *history) describe(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var lines strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&lines, "\n%d to %d: %+v", op.Call-h.began.UnixMicro(), op.Return-h.began.UnixMicro(), op.Input)
	}
	return lines.String()
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
	count := map[what]int{}
	for id, ops := range h.deeds {
		for _, op := range ops {
			count[op.Input.(deed).what]++
		}
		if !porcupine.CheckOperations(lives, ops) {
			f.T.Errorf("message %s cannot have lived like this:%s", id, h.describe(ops))
		}
	}
	f.T.Log(count, len(followers), "followers")
	h.judgeCounts(f, s, end)
	h.judgeResults(f, s)
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

// TestHistoriesJudge: lives that can be, and lives that cannot.
func TestHistoriesJudge(t *testing.T) {
	t.Parallel()
	out := func(lease string, n int, at, until int64) deed {
		return deed{what: didHandOut, lease: lease, n: n, at: at, until: until}
	}
	of := func(what what, lease string, n int, until int64) deed {
		return deed{what: what, lease: lease, n: n, until: until}
	}
	first := out("a", 1, 1, 100)
	lost, canceled := out("b", 2, 100, 200), deed{what: didIntercept, state: waits}
	for name, c := range map[string]struct {
		deeds []deed // after it was sent
		can   bool
	}{
		"acked":                            {[]deed{first, of(didSettle, "a", 1, 0), {what: wasSeen, state: isGone}}, true},
		"acked under another lease":        {[]deed{first, of(didSettle, "b", 1, 0)}, false},
		"acked after a loss":               {[]deed{first, lost, of(didSettle, "a", 1, 0)}, false},
		"by who has it since":              {[]deed{first, lost, of(didSettle, "b", 2, 0)}, true},
		"in vain after a loss":             {[]deed{first, lost, of(wasVoid, "a", 1, 150), of(didSettle, "b", 2, 0)}, true},
		"in vain while it was held":        {[]deed{first, of(wasVoid, "a", 1, 99)}, false},
		"in vain when it was canceled":     {[]deed{first, canceled, of(wasVoid, "a", 1, 50)}, true},
		"handed out twice":                 {[]deed{first, out("b", 1, 100, 200)}, false},
		"lost too soon":                    {[]deed{first, out("b", 2, 99, 200)}, false},
		"lost too soon after a renewal":    {[]deed{first, of(didExtend, "a", 1, 150), out("b", 2, 149, 200)}, false},
		"lost after a renewal":             {[]deed{first, of(didExtend, "a", 1, 150), out("b", 2, 150, 200)}, true},
		"renewed for others":               {[]deed{first, of(didSettle, "a", 1, 0), of(didExtend, "a", 1, 150)}, true},
		"renewed after a loss":             {[]deed{first, lost, of(didExtend, "a", 1, 250)}, false},
		"renewed after it was over":        {[]deed{first, of(didLose, "a", 1, 120), of(didExtend, "a", 1, 250)}, false},
		"renewed before it was handed out": {[]deed{of(didExtend, "a", 1, 150), first}, false},
		"found over":                       {[]deed{first, of(didLose, "a", 1, 120), out("b", 2, 110, 200)}, true},
		"found over after its ack":         {[]deed{first, of(didSettle, "a", 1, 0), of(didLose, "a", 1, 50)}, true},
		"found over while it was held":     {[]deed{first, of(didLose, "a", 1, 99)}, false},
		"acked after it was found over":    {[]deed{first, of(didLose, "a", 1, 120), of(didSettle, "a", 1, 0)}, false},
		"lost after it was left":           {[]deed{first, of(wasParted, "a", 1, 0), of(didExtend, "a", 1, 150), out("b", 2, 120, 200)}, true},
		"lost too soon after it was left":  {[]deed{first, of(wasParted, "a", 1, 0), out("b", 2, 99, 200)}, false},
		"acked after it was left":          {[]deed{first, of(wasParted, "a", 1, 0), of(didSettle, "a", 1, 0)}, false},
		"in vain after it was left":        {[]deed{first, of(wasParted, "a", 1, 0), of(wasVoid, "a", 1, 50)}, true},
		"canceled, and found gone":         {[]deed{first, canceled, {what: wasGone}}, true},
		"canceled, and found":              {[]deed{first, canceled, {what: wasThere}}, false},
		"held, and found gone":             {[]deed{first, {what: wasGone}}, false},
	} {
		var ops []porcupine.Operation
		for i, d := range append([]deed{{what: didSend}}, c.deeds...) {
			ops = append(ops, porcupine.Operation{Input: d, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		if got := porcupine.CheckOperations(lives, ops); got != c.can {
			t.Errorf("%s: %v, want %v", name, got, c.can)
		}
	}
}
