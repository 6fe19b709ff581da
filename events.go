package delayqueue

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/userlog"
)

// An EventCode says what happened to messages.
type EventCode int

// What can happen to a message. The numbers never change.
const (
	NewMessageEvent  EventCode = iota + 1 // it was accepted
	ReadyEvent                            // it became due, which shows when it is handed out
	DeliveredEvent                        // it was handed out to a consumer
	AckEvent                              // it was acknowledged
	NackEvent                             // its delivery failed
	RetryEvent                            // it failed, and will be delivered again
	FinalFailedEvent                      // it went to garbage
	LostEvent                             // its lease ran out: its consumer died or was cut off
	InterceptedEvent                      // it was taken out: Intercept, Cancel
	VanishedEvent                         // Redis no longer has it, though nobody took it out; Count is 1 where a whole queue has gone

	// What people do, by a Monitor or by hand; Event.By says who, if they said.

	RescheduledEvent  // it was made due at another time
	RequeuedEvent     // it was brought back from garbage
	DeletedEvent      // it was deleted
	PausedEvent       // the queue was paused
	ResumedEvent      // it goes on
	QueueDeletedEvent // the queue was deleted

	// GapEvent: this listener was cut off from Redis until now; it may have missed any number of events.
	GapEvent

	RefusedEvent // it was to follow another one (Then) and was not stored: its key is held

	SupersededEvent // it has ended, as by an ack, because another send took its key while it was handled (Replace, Reschedule)
)

var eventNames = [...]string{"", "new", "ready", "delivered", "ack", "nack", "retry", "final failure", "lost", "intercepted", "vanished",
	"rescheduled", "requeued", "deleted", "paused", "resumed", "queue deleted", "gap", "refused", "superseded"}

// String names the event for a log, as in "ack" or "final failure".
func (c EventCode) String() string { return nameOf("EventCode", int(c), eventNames[:]) }

// An Event says that the same thing happened to some messages at once.
type Event struct {
	Code    EventCode `json:"code"`
	Time    time.Time `json:"time"`              // by the clock of the process that it happened in
	Count   int       `json:"count"`             // messages; 0: it is about the queue
	IDs     []string  `json:"ids,omitempty"`     // theirs; none if only their number is known
	Dropped int64     `json:"dropped,omitempty"` // events before this one that came too fast for the listener
	By      string    `json:"by,omitempty"`      // who did it (Monitor.WithOperator); "" if that is not known
}

// An EventListener is called for one event after the other.
type EventListener = func(Event)

// A Subscription is what a listener hears by. It is safe for concurrent use.
type Subscription struct {
	owner   *events
	mu      sync.Mutex
	waiting []Event
	more    signal       // something waits
	missed  atomic.Int64 // dropped and not said yet
	dropped atomic.Int64
	quit    chan struct{}
	once    sync.Once
	ended   func()
}

// Dropped is how many events the listener was too slow for.
func (s *Subscription) Dropped() int64 { return s.dropped.Load() }

// Stop ends it. A call of the listener that has begun goes on; no other follows.
func (s *Subscription) Stop() {
	s.once.Do(func() {
		s.owner.subs.remove(s)
		close(s.quit)
		if s.ended != nil {
			s.ended()
		}
	})
}

// eventRoom is how many events may wait for a listener.
const eventRoom = 1024

// put never waits. If there is no room, the last of those that wait is dropped: the newest event is always heard,
// and says how many are missing before it, even if nothing happens after it.
func (s *Subscription) put(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Dropped += s.missed.Swap(0)
	if n := len(s.waiting); n >= eventRoom {
		e.Dropped += s.waiting[n-1].Dropped + 1
		s.dropped.Add(1)
		s.waiting[n-1] = e
		return
	}
	s.waiting = append(s.waiting, e)
	s.more.send()
}

// take takes up to n of those that wait, none if nothing does.
func (s *Subscription) take(n int) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.waiting))
	head := s.waiting[:n:n]
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	return head
}

// serve calls the listener until Stop, whatever that does.
func (s *Subscription) serve(listener EventListener) {
	done := false
	defer func() {
		if p := recover(); p != nil {
			s.owner.logger().Error("delayqueue: event listener panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
		if !done { // it panicked or ended this goroutine
			go s.serve(listener)
		}
	}()
	for !closed(s.quit) {
		if one := s.take(1); len(one) > 0 {
			listener(one[0])
			continue
		}
		select {
		case <-s.quit:
		case <-s.more:
		}
	}
	done = true
}

// events tells the listeners of one process.
type events struct {
	log  atomic.Pointer[slog.Logger] // contained; nil: slog.Default, as it is when it is needed first
	subs set[*Subscription]
}

func (e *events) logger() *slog.Logger {
	if e.log.Load() == nil {
		e.log.CompareAndSwap(nil, userlog.Contain(slog.Default()))
	}
	return e.log.Load()
}

// on reports whether anybody listens. If nobody does, that is all an event costs.
func (e *events) on() bool { return e.subs.size() > 0 }

// tell says that this happened to n messages, whose ids may be known.
func (e *events) tell(code EventCode, n int, ids ...string) {
	if n == 0 || !e.on() {
		return
	}
	event := Event{Code: code, Time: time.Now(), Count: n, IDs: ids}
	for _, s := range e.subs.all() {
		s.put(event)
	}
}

// tell tells the listeners of this process and, if this is a Monitor's, those everywhere.
func (s *steerer) tell(code EventCode, n int, ids ...string) {
	s.events.tell(code, n, ids...)
	if s.report != nil {
		s.report(Event{Code: code, Time: time.Now(), Count: n, IDs: ids})
	}
}

func (e *events) subscription() *Subscription {
	return &Subscription{owner: e, more: newSignal(), quit: make(chan struct{})}
}

// ListenEvent calls a listener, in a goroutine of its own, for what happens to messages in this
// process: what it sends, handles and takes back, after Redis has confirmed it. It slows no
// worker: while the listener is too slow, events are dropped and counted (Event.Dropped,
// Subscription.Dropped). A panic in it is logged. The listener must not change an event's IDs. It panics if the
// listener is nil.
func (s *producer) ListenEvent(listener EventListener) *Subscription {
	s.made()
	if listener == nil {
		panic(fmt.Sprintf("delayqueue: queue %q: ListenEvent: the listener is nil", s.store.queue))
	}
	sub := s.events.subscription()
	s.events.subs.add(sub)
	go sub.serve(listener)
	return sub
}

// reportMost is how many events are published at once.
const reportMost = 100

// EnableReport tells the events of this process to every Monitor that listens, on any machine, over
// Redis's pub/sub, until Stop of what it returns. Call it once: two of them tell each event twice. What Redis does not take within 10 s is dropped and counted.
func (s *producer) EnableReport() *Subscription {
	s.made()
	sub := s.events.subscription()
	s.events.subs.add(sub)
	go sub.serve(func(first Event) {
		batch := append([]Event{first}, sub.take(reportMost-1)...)
		if err := s.store.publish(noContextTimeout, batch); err != nil {
			for _, e := range batch {
				sub.missed.Add(e.Dropped + 1)
			}
			sub.dropped.Add(int64(len(batch)))
		}
	})
	return sub
}
