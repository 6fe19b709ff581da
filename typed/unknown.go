package typed

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// ErrUnknownKind: no handler here knows the kind of this message.
var ErrUnknownKind = errors.New("no handler knows this kind of message")

const (
	unknownFor = time.Hour       // until a message whose kind nobody knows is garbage
	comeBack   = 5 * time.Second // after which it comes back, at least; twice as much at most
	leastTries = 60              // hand-outs before it is given up on

	forgetAfter = 24 // times unknownFor: a kind that was not met for so long is met anew
	maxMeetings = 1000
	longestName = 100
)

// meetings are the kinds that have no handler, and when they were met: names come from Redis, so there is a bound.
type meetings map[string]meeting

type meeting struct{ first, last time.Time }

// meet notes that a kind was met, and says since when it is. Kinds for which there is no room are one, as are long
// names that begin alike. A name is copied, for it keeps in memory what one fetch brought.
func (all meetings) meet(kind string, now time.Time, forget time.Duration) (since time.Time, anew bool) {
	kind = strings.Clone(kind[:min(len(kind), longestName)])
	if _, ok := all[kind]; !ok && len(all) >= maxMeetings {
		maps.DeleteFunc(all, func(_ string, m meeting) bool { return now.Sub(m.last) > forget })
		if len(all) >= maxMeetings {
			kind = ""
		}
	}
	m := all[kind]
	if anew = m.first.IsZero() || now.Sub(m.last) > forget; anew {
		m.first = now
	}
	m.last = now
	all[kind] = m
	return m.first, anew
}

// unknown says what becomes of a message whose kind has no handler. Three things together say that nobody knows it,
// for each by itself has another reason, too: it was due long ago (it waited for consumers, or for a long retry), its
// kind was met long ago (it was sent just now), it was handed out often (its own handler asked for it again and
// again).
func (m *Mux) unknown(kind string, msg *delayqueue.Message, now time.Time) error {
	hour := cmp.Or(m.hour, unknownFor)
	m.mu.Lock()
	if m.met == nil {
		m.met = make(meetings)
	}
	since, anew := m.met.meet(kind, now, forgetAfter*hour)
	log := m.log
	m.mu.Unlock()
	if anew {
		report(log, kind, msg)
	}
	err := fmt.Errorf("typed: kind %.100q: %w", kind, ErrUnknownKind)
	if kind == "" {
		err = fmt.Errorf("typed: the message has no kind: %w", ErrUnknownKind)
	}
	if now.Sub(since) >= hour && now.Sub(msg.Due) >= hour && msg.Delivery >= leastTries {
		return hopeless(fmt.Errorf("%w for %v", err, hour))
	}
	away := cmp.Or(m.away, comeBack)
	return fmt.Errorf("%w: %w", err, delayqueue.Snooze(away+rand.N(away)))
}

// report tells the log of a kind, whatever that does: no retry is used for it.
func report(log *slog.Logger, kind string, msg *delayqueue.Message) {
	defer func() { _ = recover() }()
	if log == nil {
		log = slog.Default()
	}
	log.Warn("typed: no handler knows this kind of message: it comes back every few seconds, and is garbage after an hour",
		slog.String("kind", fmt.Sprintf("%.100s", kind)), slog.Group("message", slog.String("id", msg.ID)))
}
