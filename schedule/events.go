package schedule

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/conc"
)

// An EventCode says what became of an instant.
type EventCode int

// What can become of an instant. The numbers never change.
const (
	SentEvent     EventCode = iota + 1 // its message was stored
	CaughtUpEvent                      // it had been missed, and its message was stored now
	SkippedEvent                       // it has no message, because the last message of the entry lives (Skip)
	ExpiredEvent                       // it has no message, because its TTL was over
)

var eventNames = [...]string{"", "sent", "caught up", "skipped", "expired"}

// String names the event for a log, as in "caught up".
func (c EventCode) String() string {
	if c < 1 || int(c) >= len(eventNames) {
		return fmt.Sprintf("EventCode(%d)", int(c))
	}
	return eventNames[c]
}

// An Event says what became of an instant of an entry.
type Event struct {
	Code     EventCode     // what
	Time     time.Time     // by the clock of this process
	Entry    string        // its name
	Instant  time.Time     // in the zone of the entry
	ID       string        // the message's; "" if there is none
	Lateness time.Duration // how long after the instant it happened, by the server's clock; 0: ahead of it
}

// An EventListener is called for one event after the other.
type EventListener = func(Event)

// A Subscription is what a listener hears by. It is safe for concurrent use.
type Subscription struct {
	waiting chan Event
	dropped atomic.Int64
	quit    chan struct{}
	ended   func()
	panics  conc.MinuteCount // of serve
}

// Dropped is how many events the listener was too slow for.
func (s *Subscription) Dropped() int64 { return s.dropped.Load() }

// Stop ends it. A call of the listener that has begun goes on; no other follows.
func (s *Subscription) Stop() { s.ended() }

// eventRoom is how many events may wait for a listener.
const eventRoom = 1024

// ListenEvent calls a listener, in a goroutine of its own, for what this Scheduler's Run does with instants. Only the
// replica that stored a message, or passed over an instant, tells of it. If that replica dies, or the reply is lost,
// there is no event. Instants that CatchUp leaves out have no event, nor have instants of a pause, nor RunNow. While
// the listener is too slow, events are dropped and counted (Subscription.Dropped). A panic in the listener is logged.
// ListenEvent panics if the listener is nil.
func (s *Scheduler) ListenEvent(listener EventListener) *Subscription {
	if listener == nil {
		panic(fmt.Sprintf("schedule: queue %q: ListenEvent: the listener is nil", s.Name()))
	}
	sub := &Subscription{waiting: make(chan Event, eventRoom), quit: make(chan struct{})}
	sub.ended = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.subs = slices.DeleteFunc(s.subs, func(other *Subscription) bool { return other == sub })
		close(sub.quit)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs = append(s.subs, sub)
	go s.serve(sub, listener)
	return sub
}

// ListenOutcome is ListenEvent without types of this package, for those that do not import it, such as promqueue and
// otelqueue: outcome is the text of the event's code.
func (s *Scheduler) ListenOutcome(listener func(outcome string, lateness time.Duration)) interface {
	Stop()
	Dropped() int64
} {
	return s.ListenEvent(func(e Event) { listener(e.Code.String(), e.Lateness) })
}

// serve calls the listener until Stop, whatever that does.
func (s *Scheduler) serve(sub *Subscription, listener EventListener) {
	done := false
	defer func() {
		if p := recover(); p != nil {
			if n := sub.panics.Add(1, time.Now()); n > 0 {
				s.log.Error("schedule: event listener panicked", slog.Int("times", n), slog.Any("panic", p),
					slog.String("stack", string(debug.Stack())))
			}
		}
		if !done { // it panicked or ended this goroutine
			go s.serve(sub, listener)
		}
	}()
	for {
		select {
		case <-sub.quit:
			done = true
			return
		case e := <-sub.waiting:
			select {
			case <-sub.quit:
			default:
				listener(e)
			}
		}
	}
}

// tell tells the listeners what became of the next instant of an entry. It never waits.
func (s *Scheduler) tell(code EventCode, e *entry, id string, us int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.subs) == 0 {
		return
	}
	late := time.Duration(max(us-e.next*1_000_000, 0)) * time.Microsecond
	event := Event{Code: code, Time: time.Now(), Entry: e.name, Instant: time.Unix(e.next, 0).In(e.zone), ID: id,
		Lateness: late}
	for _, sub := range s.subs {
		select {
		case sub.waiting <- event:
		default:
			sub.dropped.Add(1)
		}
	}
}

// tellSent tells that the message of the next instant of an entry was stored. now is when it was sent, in unix seconds.
func (s *Scheduler) tellSent(e *entry, info *delayqueue.MessageInfo, now int64) {
	code := SentEvent
	if e.next < now-lateSeconds {
		code = CaughtUpEvent
	}
	s.tell(code, e, info.ID, info.Due.UnixMicro()) // what is past is due when it is stored
}
