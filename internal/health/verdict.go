package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A Level says how bad something is. Its number is its place on a board.
type Level int

const (
	Quiet Level = iota // nothing is there
	Fine
	Notice
	Warning
	Critical
)

func (l Level) String() string {
	return [...]string{"quiet", "fine", "notice", "warning", "critical"}[l]
}

// A Code names what a verdict says.
type Code string

const (
	Unreadable  Code = "unreadable"
	Missing     Code = "shards missing"
	Unaccounted Code = "unaccounted"
	Loss        Code = "loss"
	Paused      Code = "paused"
	NoConsumers Code = "no consumers"
	Throttled   Code = "throttled"
	Limited     Code = "limited"
	Lane        Code = "lane"
	Behind      Code = "behind"
	Failed      Code = "failing"
	Hung        Code = "handlers hang"
	NotSent     Code = "schedules not sent"
	Incomplete  Code = "countdowns stuck"
	Empty       Code = "empty"
	Busy        Code = "busy"
	Well        Code = "fine"
)

// A Verdict is what to think of a queue.
type Verdict struct {
	Level Level
	Code  Code
	Text  Text
}

// Limits say for how long something may stand still before that is a warning. Zero: the default.
type Limits struct {
	Handler time.Duration // a handler may run; default 10 min
	Lane    time.Duration // a message that is due may wait for another one of its lane that does not go on; default 5 min
}

// OrDefault has no zero, and nothing below.
func (l Limits) OrDefault() Limits {
	return Limits{cmp.Or(max(l.Handler, 0), 10*time.Minute), cmp.Or(max(l.Lane, 0), 5*time.Minute)}
}

const (
	dueSoon       = 5 * time.Minute // a queue without consumers is a warning if something is due by then
	lateAfter     = 5 * time.Second // how far behind a queue that keeps up may be
	veryLate      = time.Minute
	failingMuch   = 50 // %
	failingSome   = 10
	longThrottled = time.Hour // so long Throttle holds at most: it was said again and again
	longInLane    = time.Hour // however fast the lane goes
	failsAgain    = 2         // a message that has failed so often and waits for the next delivery holds its lane up
	reported      = 100       // how many messages a consumer says that it handles, at most
)

// Judge is the worst of Findings.
func (l *Look) Judge() Verdict { return l.Findings()[0] }

// Findings are all that is known to be wrong, the worst first; or else one verdict that says that nothing is.
func (l *Look) Findings() []Verdict {
	if l.Err != nil {
		return []Verdict{{Critical, Unreadable, say("cannot be read: %s", l.Err)}}
	}
	var all []Verdict
	for _, find := range []func() (Verdict, bool){l.shardsMissing, l.doesNotFlow, l.failing, l.unsent, l.hung,
		l.inLanes, l.stuck, l.unaccounted, l.loss} {
		if v, found := find(); found {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return []Verdict{l.well()}
	}
	slices.SortStableFunc(all, func(a, b Verdict) int { return cmp.Compare(b.Level, a.Level) })
	return all
}

// well is of a queue with which nothing is wrong.
func (l *Look) well() Verdict {
	switch busy, workers := l.Workers(); {
	case workers == 0:
		return Verdict{Quiet, Empty, say("empty, no consumers")}
	case busy == workers && l.Counts.Ready > 0:
		return Verdict{Notice, Busy, say("all workers are busy")}
	}
	return Verdict{Fine, Well, say("fine")}
}

func (l *Look) shardsMissing() (Verdict, bool) {
	missing, all, why := Away(l.Missing)
	text := say("only %s of %s shards answer: %s", int64(all-len(missing)), int64(all), why)
	if l.Counts.Paused { // which somebody wanted, and must know when the shards are back
		text = say("%s; %s", text, PauseOf(l.Counts))
	}
	return Verdict{Critical, Missing, text}, l.Missing != nil
}

// unaccounted: that the books do not balance stays until somebody accepts that.
func (l *Look) unaccounted() (Verdict, bool) {
	missing := l.Counts.Unaccounted
	if missing < 0 {
		return Verdict{Critical, Unaccounted, say("messages have appeared without a word: %s", -missing)}, true
	}
	return Verdict{Critical, Unaccounted, say("messages have vanished without a word: %s", missing)}, missing > 0
}

// loss stays until somebody accepts it.
func (l *Look) loss() (Verdict, bool) {
	since, n := l.Counts.LossSince, l.Counts.LossMessages
	return Verdict{Critical, Loss, say("messages were lost: at most %s, since %s; to accept that: doctor --repair", n,
		since)}, !since.IsZero()
}

// doesNotFlow says the first reason for which messages do not get through.
func (l *Look) doesNotFlow() (Verdict, bool) {
	n := l.Counts
	_, workers := l.Workers()
	switch {
	case n.Paused && n.Ready == 0 && !l.laneDue():
		return Verdict{Notice, Paused, PauseOf(n)}, true
	case n.Paused:
		return Verdict{Warning, Paused, PauseOf(n)}, true
	case workers == 0 && n.Ready > 0:
		return Verdict{Critical, NoConsumers, say("no consumers, %s behind", n.Behind)}, true
	case workers == 0 && (n.Unack > 0 || l.laneDue()):
		return Verdict{Critical, NoConsumers, say("no consumers")}, true
	case workers == 0 && n.NextDue.Sub(l.At) > dueSoon:
		return Verdict{Notice, NoConsumers, say("no consumers; the first message is due at %s", n.NextDue)}, true
	case workers == 0 && n.Pending+n.Retry+n.Waiting > 0:
		return Verdict{Warning, NoConsumers, say("no consumers")}, true
	case !n.ThrottledUntil.IsZero() && n.Behind > longThrottled:
		return Verdict{Warning, Throttled, say("throttled until %s, and %s behind", n.ThrottledUntil, n.Behind)}, true
	case !n.ThrottledUntil.IsZero():
		return Verdict{Notice, Throttled, say("throttled until %s", n.ThrottledUntil)}, true
	case n.Behind > lateAfter && !n.Limited:
		return l.late(), true
	case n.Limited:
		return Verdict{Notice, Limited, say("waits for its limit since %s, the oldest message for %s",
			n.LimitedSince, n.Behind)}, true
	}
	return Verdict{}, false
}

// failing is of deliveries of this hour and the one before.
func (l *Look) failing() (Verdict, bool) {
	n := l.Recent()
	part := Failing(n)
	level := Warning
	if part >= failingMuch {
		level = Critical
	}
	return Verdict{level, Failed, say("%s of deliveries failed since %s", part, n.Start)}, part >= failingSome
}

// hung is of handlers that run for longer than they may. It is critical if no other can run, because all workers have
// such a handler, or as many as the queue may run at a time.
func (l *Look) hung() (Verdict, bool) {
	limit, n := l.Limits.OrDefault().Handler, 0
	for _, c := range l.Consumers {
		late := 0
		for _, h := range c.Handling {
			if h.For > limit {
				late++
			}
		}
		if late == reported { // it says no more
			late = max(late, c.Concurrency)
		}
		n += late
	}
	_, workers := l.Workers()
	level := Warning
	if n >= workers || l.Counts.Limited && int64(n) >= l.Counts.Unack {
		level = Critical
	}
	return Verdict{level, Hung, say("handlers that run for more than %s: %s, of %s workers", limit, int64(n),
		int64(workers))}, n > 0
}

// longest is for how long a handler has run that may not, at most.
func (l *Look) longest() (d time.Duration) {
	for _, c := range l.Consumers {
		for _, h := range c.Handling {
			if h.For > l.Limits.OrDefault().Handler {
				d = max(d, h.For)
			}
		}
	}
	return d
}

// unsent is of schedules for which nothing is sent.
func (l *Look) unsent() (Verdict, bool) {
	if len(l.Unsent) == 0 {
		return Verdict{}, false
	}
	first := l.Unsent[0]
	return Verdict{Critical, NotSent, say("schedules that are not sent: %s (%s: %s)", int64(len(l.Unsent)), first.Name,
		first.reason())}, true
}

// stuck is of countdowns that cannot complete.
func (l *Look) stuck() (Verdict, bool) {
	if len(l.Stuck) == 0 {
		return Verdict{}, false
	}
	first := l.Stuck[0]
	text := say("countdowns that cannot complete: %s (%s: acks missing %s, message %s is dead)", int64(len(l.Stuck)),
		first.Key, int64(first.Left), first.Dead)
	if first.Others > 0 {
		text = say("countdowns that cannot complete: %s (%s: acks missing %s, dead are %s and %s more)", int64(len(l.Stuck)),
			first.Key, int64(first.Left), first.Dead, int64(first.Others))
	}
	return Verdict{Warning, Incomplete, text}, true
}

// inLane is how long a message that is due has waited for others of its lane.
func (l *Look) inLane() time.Duration {
	if !l.laneDue() {
		return 0
	}
	return l.At.Sub(l.Counts.LaneSince)
}

// laneDue says whether a message that is due waits for others of its lane.
func (l *Look) laneDue() bool { return !l.Counts.LaneSince.IsZero() }

// inLanes is of messages that wait behind others of their lanes. It is worse if those do not go on.
func (l *Look) inLanes() (Verdict, bool) {
	late, since := l.inLane(), l.Counts.LaneSince
	if late <= l.laneLate() || l.Counts.Paused {
		return Verdict{}, false
	}
	level := Notice
	if late > longInLane {
		level = Warning
	}
	if l.Lane == nil {
		return Verdict{level, Lane, say("messages wait for others of their lanes since %s", since)}, true
	}
	if first := l.standsStill(); first != nil && late > l.Limits.OrDefault().Lane {
		front := say("is retried at %s", first.At)
		switch {
		case fails(*first): // it stays so while it runs again
			front = say("fails, now at delivery %s", int64(first.Delivery))
		case first.State == delayqueue.StateUnack:
			front = say("is handled since %s", first.At)
		}
		text := say("lane %s stands still, messages wait since %s: the one in front %s (behind it: %s)", l.Lane.Name, since,
			front, l.Lane.Waiting)
		return Verdict{Warning, Lane, text}, true
	}
	return Verdict{level, Lane, say("messages of lane %s wait for others of it since %s", l.Lane.Name, since)}, true
}

// laneLate is from when on a message that waits for others of its lane is worth a word.
func (l *Look) laneLate() time.Duration { return min(veryLate, l.Limits.OrDefault().Lane) }

// standsStill is the first message that has a turn in the lane, if each of them fails again and again, waits long for
// its retry, or has been handled for long.
func (l *Look) standsStill() *ops.Holder {
	limit := l.Limits.OrDefault().Lane
	goesOn := func(h ops.Holder) bool {
		switch {
		case fails(h):
			return false
		case h.State == delayqueue.StateRetry:
			return h.Delivery <= failsAgain && h.At.Sub(l.At) <= limit
		case h.State == delayqueue.StateUnack:
			return h.At.IsZero() || l.At.Sub(h.At) <= limit
		}
		return true
	}
	if len(l.Lane.Holders) == 0 || slices.ContainsFunc(l.Lane.Holders, goesOn) {
		return nil
	}
	return &l.Lane.Holders[0]
}

// fails says whether a message has failed again and again.
func fails(h ops.Holder) bool { return h.Delivery > failsAgain && h.LastError != "" }

// NoLoss says what is known of queues none of which is known to have lost a message. at writes an instant.
func NoLoss(all []*Look, at func(time.Time) string) Text {
	unread, since := 0, time.Time{}
	for _, l := range all {
		if l.Err != nil || l.Missing != nil {
			unread++
		} else if l.Counts.BooksSince.After(since) {
			since = l.Counts.BooksSince
		}
	}
	switch {
	case unread > 0 && unread == len(all):
		return say("Whether messages were lost is not known, because no queue can be read whole")
	case since.IsZero():
		return Text{}
	case unread > 0:
		return say("No loss is known. Queues that cannot be read, or not whole: %s. The books of each other queue go back "+
			"to %s at least. Losses that somebody accepted are in the journals", int64(unread), at(since))
	}
	return say("No loss is known. The books of each queue go back to %s at least. Losses that somebody accepted are in "+
		"the journals", at(since))
}

// PauseOf says until when, by whom and why.
func PauseOf(n ops.Counts) Text {
	text := say("paused")
	if !n.PausedUntil.IsZero() {
		text = say("paused until %s", n.PausedUntil)
	}
	if n.PausedBy != "" {
		text = say("%s, by %s", text, n.PausedBy)
	}
	if n.PauseReason != "" {
		text = say("%s: %s", text, n.PauseReason)
	}
	return text
}

// late is of a queue that is behind.
func (l *Look) late() Verdict {
	bad := Warning
	if l.Counts.Behind > veryLate {
		bad = Critical
	}
	in, out := l.Rates()
	switch {
	case !in.Known || l.Counts.Waiting > 0: // what waits for its lane comes after what is ready
		return Verdict{bad, Behind, say("%s behind", l.Counts.Behind)}
	case out.PerSecond < in.PerSecond:
		return Verdict{Critical, Behind, say("%s behind, and it grows", l.Counts.Behind)}
	case out.PerSecond == in.PerSecond:
		return Verdict{bad, Behind, say("%s behind", l.Counts.Behind)}
	}
	drains := time.Duration(min(float64(l.Counts.Ready)/(out.PerSecond-in.PerSecond), 1e7) * float64(time.Second))
	return Verdict{bad, Behind, say("%s behind, drains in %s", l.Counts.Behind, drains)}
}
