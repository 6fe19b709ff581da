package health

import (
	"time"

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
	Paused      Code = "paused"
	NoConsumers Code = "no consumers"
	Throttled   Code = "throttled"
	Limited     Code = "limited"
	Lane        Code = "lane"
	Behind      Code = "behind"
	Failed      Code = "failing"
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

const (
	lateAfter     = 5 * time.Second // how far behind a queue that keeps up may be
	veryLate      = time.Minute
	failingMuch   = 50 // %
	failingSome   = 10
	longThrottled = time.Hour // so long Throttle holds at most: it was said again and again
	longInLane    = time.Hour
)

// Judge says the worst that is known of a queue. That its books do not balance stays until somebody accepts that, so
// it hides nothing that is as bad.
func (l *Look) Judge() Verdict {
	v, missing := l.judge(), l.Counts.Unaccounted
	if v.Level == Critical || missing == 0 {
		return v
	}
	if missing < 0 {
		return Verdict{Critical, Unaccounted, say("messages have appeared without a word: %s", -missing)}
	}
	return Verdict{Critical, Unaccounted, say("messages have vanished without a word: %s", missing)}
}

func (l *Look) judge() Verdict {
	n := l.Counts
	busy, workers := l.Workers()
	failing := Failing(l.LastHour())
	switch {
	case l.Err != nil:
		return Verdict{Critical, Unreadable, say("cannot be read: %s", l.Err)}
	case l.Missing != nil:
		answered, all, why := l.Shards()
		return Verdict{Critical, Missing, say("only %s of %s shards answer: %s", int64(answered), int64(all), why)}
	case n.Paused:
		return Verdict{Warning, Paused, PauseOf(n)}
	case workers == 0 && n.Ready > 0:
		return Verdict{Critical, NoConsumers, say("no consumers, %s behind", n.Behind)}
	case workers == 0 && n.Unack > 0:
		return Verdict{Critical, NoConsumers, say("no consumers")}
	case workers == 0 && n.Pending+n.Retry+n.Waiting > 0:
		return Verdict{Warning, NoConsumers, say("no consumers")}
	case !n.ThrottledUntil.IsZero() && n.Behind > longThrottled:
		return Verdict{Warning, Throttled, say("throttled until %s, and %s behind", n.ThrottledUntil, n.Behind)}
	case !n.ThrottledUntil.IsZero():
		return Verdict{Notice, Throttled, say("throttled until %s", n.ThrottledUntil)}
	case n.Behind > lateAfter && !n.Limited:
		return l.late()
	case failing >= failingMuch:
		return Verdict{Critical, Failed, say("%s of deliveries fail", failing)}
	case failing >= failingSome:
		return Verdict{Warning, Failed, say("%s of deliveries fail", failing)}
	case n.Limited:
		return Verdict{Notice, Limited, say("waits for its limit since %s", n.LimitedSince)}
	case l.inLane() > veryLate:
		return l.waitsForLane()
	case workers == 0:
		return Verdict{Quiet, Empty, say("empty, no consumers")}
	case busy == workers && n.Ready > 0:
		return Verdict{Notice, Busy, say("all workers are busy")}
	}
	return Verdict{Fine, Well, say("fine")}
}

// inLane is how long a message that is due has waited for others of its lane.
func (l *Look) inLane() time.Duration {
	if l.Counts.LaneSince.IsZero() {
		return 0
	}
	return l.At.Sub(l.Counts.LaneSince)
}

// waitsForLane is of a queue that keeps up, but for messages behind others of their lanes.
func (l *Look) waitsForLane() Verdict {
	level, since := Notice, l.Counts.LaneSince
	if l.inLane() > longInLane {
		level = Warning
	}
	if l.Lane == "" {
		return Verdict{level, Lane, say("messages wait for others of their lanes since %s", since)}
	}
	return Verdict{level, Lane, say("messages of lane %s wait for others of it since %s", l.Lane, since)}
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
	case out.PerSecond <= in.PerSecond:
		return Verdict{Critical, Behind, say("%s behind, and it grows", l.Counts.Behind)}
	}
	drains := time.Duration(min(float64(l.Counts.Ready)/(out.PerSecond-in.PerSecond), 1e7) * float64(time.Second))
	return Verdict{bad, Behind, say("%s behind, drains in %s", l.Counts.Behind, drains)}
}
