package web

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A level says how bad something is. Its number is its place on the board, and its name a class of the stylesheet.
type level int

const (
	quiet level = iota // nothing is there
	fine
	notice
	warning
	critical
)

func (l level) String() string {
	return [...]string{"quiet", "fine", "notice", "warning", "critical"}[l]
}

// A verdict is what to think of a queue, in words.
type verdict struct {
	Level level
	Text  string
}

const (
	lateAfter   = 5 * time.Second // how far behind a queue that keeps up may be
	veryLate    = time.Minute
	failingMuch = 50 // %
	failingSome = 10
)

// verdict judges a queue.
func (l *language) verdict(q *look) verdict {
	n := q.Counts
	busy, workers := q.workers()
	switch {
	case q.Err != nil:
		return verdict{critical, l.say("cannot be read: %s", l.trouble(q.Err))}
	case n.Paused:
		return verdict{warning, l.pause(n)}
	case workers == 0 && n.Ready+n.Unack > 0:
		return verdict{critical, l.say("no consumers, %s behind", l.duration(n.Behind))}
	case workers == 0 && n.Pending+n.Retry > 0:
		return verdict{warning, l.say("no consumers")}
	case n.Limited:
		return verdict{notice, l.say("waits for its limit since %s", clock(n.LimitedSince))}
	case n.Behind > lateAfter:
		return l.late(q)
	case q.failing() >= failingMuch:
		return verdict{critical, l.say("%s of deliveries fail", l.percent(q.failing()))}
	case q.failing() >= failingSome:
		return verdict{warning, l.say("%s of deliveries fail", l.percent(q.failing()))}
	case workers == 0:
		return verdict{quiet, l.say("empty, no consumers")}
	case busy == workers && n.Ready > 0:
		return verdict{notice, l.say("all workers are busy")}
	}
	return verdict{fine, l.say("fine")}
}

// pause says until when and why.
func (l *language) pause(n delayqueue.Counts) string {
	text := l.say("paused")
	if !n.PausedUntil.IsZero() {
		text = l.say("paused until %s", clock(n.PausedUntil))
	}
	switch {
	case n.PauseReason != "":
		return l.say("%s: %s", text, shown(n.PauseReason))
	case n.PausedBy != "":
		return l.say("%s, by %s", text, shown(n.PausedBy))
	}
	return text
}

// late is of a queue that is behind.
func (l *language) late(q *look) verdict {
	bad := warning
	if q.Counts.Behind > veryLate {
		bad = critical
	}
	behind := l.duration(q.Counts.Behind)
	in, out := q.rates()
	switch {
	case !in.Known:
		return verdict{bad, l.say("%s behind", behind)}
	case out.PerSecond <= in.PerSecond:
		return verdict{critical, l.say("%s behind, and it grows", behind)}
	}
	drains := time.Duration(min(float64(q.Counts.Ready)/(out.PerSecond-in.PerSecond), 1e7) * float64(time.Second))
	return verdict{bad, l.say("%s behind, drains in %s", behind, l.duration(drains))}
}

// clock is an instant in the middle of words, where the script does not make it the reader's own.
func clock(t time.Time) string {
	if t = t.UTC(); time.Until(t).Abs() > 12*time.Hour {
		return t.Format("2006-01-02 15:04 UTC")
	}
	return t.Format("15:04 UTC")
}

// worstFirst sorts what the board shows.
func worstFirst(rows []row) {
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.Verdict.Level, a.Verdict.Level), cmp.Compare(a.Name, b.Name))
	})
}

// gone says that a queue is not there, which is no trouble.
func gone(q *look) bool { return errors.Is(q.Err, delayqueue.ErrNoQueue) }
