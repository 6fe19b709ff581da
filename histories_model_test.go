package delayqueue

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
	ended := map[outcomeKind]life{outcomeAck: {}, outcomeRetry: waits(d.n + 1), outcomeReady: waits(d.n + 1), outcomeGarbage: {state: StateGarbage},
		outcomeDone: {state: StateDone}}[d.kind]
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
		may((l.state == StateGone) == (d.state == StateGone) && (l.state == StateDone) == (d.state == StateDone), map[bool]life{true: l}[l.state == StateDone])
	case wasSeen:
		may(l.state == d.state, l)
	}
	return lives
}
