package delayqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/produce"
	"github.com/go-delayqueue/delayqueue/internal/userlog"
)

// An EventCode says what happened to messages.
type EventCode int

// What can happen to a message. The numbers never change.
const (
	NewMessageEvent  EventCode = EventCode(event.CodeNew)         // it was accepted
	ReadyEvent       EventCode = EventCode(event.CodeReady)       // it became due, which shows when it is handed out
	DeliveredEvent   EventCode = EventCode(event.CodeDelivered)   // it was handed out to a consumer
	AckEvent         EventCode = EventCode(event.CodeAck)         // it was acknowledged
	NackEvent        EventCode = EventCode(event.CodeNack)        // its delivery failed
	RetryEvent       EventCode = EventCode(event.CodeRetry)       // it failed, and will be delivered again
	FinalFailedEvent EventCode = EventCode(event.CodeFinalFailed) // it went to garbage
	LostEvent        EventCode = EventCode(event.CodeLost)        // its lease ran out: its consumer died or was cut off
	InterceptedEvent EventCode = EventCode(event.CodeIntercepted) // it was taken out: Intercept, Cancel
	VanishedEvent    EventCode = EventCode(
		event.CodeVanished) // Redis no longer has it, although nobody took it out; Count is 1 if a whole queue has gone

	// What people do, by an ops.Queue or a Monitor; Event.By names the person if that is known.

	RescheduledEvent  EventCode = EventCode(event.CodeRescheduled)  // it was made due at another time
	RequeuedEvent     EventCode = EventCode(event.CodeRequeued)     // it was brought back from garbage
	DeletedEvent      EventCode = EventCode(event.CodeDeleted)      // it was deleted
	PausedEvent       EventCode = EventCode(event.CodePaused)       // the queue was paused
	ResumedEvent      EventCode = EventCode(event.CodeResumed)      // it goes on
	QueueDeletedEvent EventCode = EventCode(event.CodeQueueDeleted) // the queue was deleted

	// GapEvent: this listener was cut off from Redis until now, and may have missed any number of events.
	GapEvent EventCode = EventCode(event.CodeGap)

	RefusedEvent EventCode = EventCode(
		event.CodeRefused) // it was to follow another message (Then) and was not stored, because its key is taken

	SupersededEvent EventCode = EventCode(
		// it has ended, as by an ack, because another send took its key while it was handled (Replace, Reschedule)
		event.CodeSuperseded)

	// RolledBackEvent: the server has gone back to an earlier state of the queue, as in a failover or a restart that
	// lost the last writes, or the queue was deleted or evicted. What happened since Event.Since is forgotten: a message
	// that was sent since then is lost, unless it was handled. A message that was sent before, and acked since, comes
	// again. Count is how many sends and acks that can be at most: all that this consumer has seen since it started.
	// Each consumer that has seen more than the server now has says so once.
	RolledBackEvent EventCode = EventCode(event.CodeRolledBack)
)

var eventNames = [...]string{"", "new", "ready", "delivered", "ack", "nack", "retry", "final failure", "lost",
	"intercepted", "vanished",
	"rescheduled", "requeued", "deleted", "paused", "resumed", "queue deleted", "gap", "refused", "superseded",
	"rolled back"}

// String names the event for a log, as in "ack" or "final failure".
func (c EventCode) String() string { return nameOf("EventCode", int(c), eventNames[:]) }

// An Event says that the same thing happened to some messages at once.
type Event struct {
	Code    EventCode `json:"code"`
	Time    time.Time `json:"time"`              // by the clock of the process that it happened in
	Count   int       `json:"count"`             // messages; 0: it is about the queue
	IDs     []string  `json:"ids,omitempty"`     // theirs; none if only their number is known
	Dropped int64     `json:"dropped,omitempty"` // events before this one that came too fast for the listener
	By      string    `json:"by,omitempty"`      // who did it (ops.Queue.WithOperator); "" if that is not known
	Since   time.Time `json:"since,omitzero"`    // of a RolledBackEvent, by the server's clock; zero: not known
}

// A Subscription is one listener's part in the events. It is safe for concurrent use.
type Subscription struct {
	owner   *events
	mu      sync.Mutex
	waiting []Event
	more    conc.Signal  // something waits
	missed  atomic.Int64 // dropped and not said yet
	dropped atomic.Int64
	on      context.Context // until Stop
	stop    context.CancelFunc
	panics  conc.MinuteCount // of serve
}

// Dropped is how many events the listener was too slow for.
func (s *Subscription) Dropped() int64 { return s.dropped.Load() }

// Stop ends the subscription. A call of the listener that has begun goes on, and no other follows.
func (s *Subscription) Stop() {
	if _, listens := s.owner.subs.LoadAndDelete(s); listens {
		s.owner.listeners.Add(-1)
	}
	s.stop()
}

// eventRoom is how many events may wait for a listener.
const eventRoom = 1024

// put never waits. If there is no room, the event that was put last is dropped. So the newest event is always heard,
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
	s.more.Send()
}

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

// serve calls the listener until Stop, also if the listener panics or ends its goroutine.
func (s *Subscription) serve(listener func(Event)) {
	done := false
	defer func() {
		if p := recover(); p != nil {
			if n := s.panics.Add(1, time.Now()); n > 0 {
				s.owner.Logger().Error("delayqueue: event listener panicked", slog.Int("times", n), slog.Any("panic", p),
					slog.String("stack", string(debug.Stack())))
			}
		}
		if !done { // it panicked or ended this goroutine
			go s.serve(listener)
		}
	}()
	for s.on.Err() == nil {
		if one := s.take(1); len(one) > 0 {
			listener(one[0])
			continue
		}
		select {
		case <-s.on.Done():
		case <-s.more:
		}
	}
	done = true
}

// events tells the listeners of one process what happens to the messages of a queue. It is an event.Listeners.
type events struct {
	log       atomic.Pointer[slog.Logger] // contained; nil: slog.Default, as it is when it is needed first
	subs      sync.Map                    // of each *Subscription
	listeners atomic.Int32                // how many these are
}

func (e *events) Logger() *slog.Logger {
	if e.log.Load() == nil {
		e.log.CompareAndSwap(nil, userlog.Contain(slog.Default()))
	}
	return e.log.Load()
}

// On reports whether anybody listens. If nobody does, an event costs this call alone.
func (e *events) On() bool { return e.listeners.Load() > 0 }

// Tell tells the listeners that this happened to n messages, whose ids may be known.
func (e *events) Tell(what event.Code, n int, ids ...string) {
	if n == 0 || !e.On() {
		return
	}
	e.put(Event{Code: EventCode(what), Time: time.Now(), Count: n, IDs: ids})
}

// RolledBack tells the listeners that the server has forgotten n sends and acks at most.
func (e *events) RolledBack(n int, since time.Time) {
	e.put(Event{Code: RolledBackEvent, Time: time.Now(), Count: n, Since: since})
}

func (e *events) put(told Event) {
	for s := range e.subs.Range {
		s.(*Subscription).put(told)
	}
}

// tell tells the listeners of this process and, if this is a Monitor's, those everywhere.
func (s *steerer) tell(what EventCode, n int, ids ...string) {
	s.events.Tell(event.Code(what), n, ids...)
	if s.report != nil {
		s.report(Event{Code: what, Time: time.Now(), Count: n, IDs: ids})
	}
}

func (e *events) subscription() *Subscription {
	on, stop := context.WithCancel(context.Background())
	return &Subscription{owner: e, more: conc.NewSignal(), on: on, stop: stop}
}

// subscribe makes a subscription to what happens in this process.
func (e *events) subscribe() *Subscription {
	sub := e.subscription()
	e.subs.Store(sub, nil)
	e.listeners.Add(1)
	return sub
}

// ListenEvent calls a listener for each event of this DelayQueue or Publisher: messages that it sends, handles and
// takes back, after Redis has confirmed that. The listener has a goroutine of its own, and slows no worker. If it is
// too slow, events are dropped and counted (Event.Dropped, Subscription.Dropped). A panic in it is logged. The
// listener must not change an event's IDs. ListenEvent panics if the listener is nil.
func (s *producer) ListenEvent(listener func(Event)) *Subscription {
	s.made()
	if listener == nil {
		panic(fmt.Sprintf("delayqueue: queue %q: ListenEvent: the listener is nil", s.store.Queue))
	}
	sub := s.events.subscribe()
	go sub.serve(listener)
	return sub
}

// reportMost is how many events are published at once.
const reportMost = 100

// EnableReport publishes the events of this DelayQueue or Publisher, over Redis's pub/sub, to every Monitor that
// listens, on any machine. Stop of the Subscription ends that. Call it once: two reports tell each event twice.
// Events that Redis does not take within 10 s are dropped and counted (Subscription.Dropped), and the log says so
// once a minute.
func (s *producer) EnableReport() *Subscription {
	s.made()
	sub := s.events.subscribe()
	var failed conc.MinuteCount
	go sub.serve(func(first Event) {
		batch := append([]Event{first}, sub.take(reportMost-1)...)
		err := publish(s.store, produce.NoContextTimeout, batch)
		if err == nil {
			return
		}
		for _, e := range batch {
			sub.missed.Add(e.Dropped + 1)
		}
		sub.dropped.Add(int64(len(batch)))
		if n := failed.Add(len(batch), time.Now()); n > 0 {
			s.events.Logger().Warn("delayqueue: events are not published, so no Monitor hears them",
				slog.String("queue", s.store.Queue),
				slog.Int("events", n), slog.Any("error", err))
		}
	})
	return sub
}

// reportTime bounds how long a Monitor tries to publish what it did. A failure is not reported, because perhaps
// nobody listens.
const reportTime = time.Second

// ListenEvent calls a listener, until Stop, for the events of all processes that report them (EnableReport), and for
// what Monitors and ops.Queues do to the queue in this database of the server. A client that selects a database by
// itself (OnConnect), or that is no *redis.Client, counts as one of database 0. The listener hears events from the
// return of ListenEvent on; ctx bounds this call alone. If ctx has no deadline, a connection is tried for 2 s.
//
// Redis keeps no event for a listener that is not connected. If the connection broke, or was silent for about three
// seconds, a GapEvent follows when there is a new connection. A listener that is too slow loses events as in
// DelayQueue.ListenEvent.
func (m *Monitor) ListenEvent(ctx context.Context, listener func(Event)) (*Subscription, error) {
	if listener == nil {
		return nil, m.failed(fmt.Errorf("%w: the listener is nil", ErrBadOption), "listen to events")
	}
	if err := link.Ended(ctx); err != nil {
		return nil, m.failed(err, "listen to events")
	}
	published, err := m.store.Subscribe(ctx, m.store.Keys.Events)
	if err != nil {
		return nil, m.failed(err, "listen to events")
	}
	sub := m.events.subscription()
	go sub.serve(listener)
	go m.forward(published, sub)
	return sub, nil
}

// forward gives the subscription what is published, until Stop.
func (m *Monitor) forward(published *link.Subscriber, sub *Subscription) {
	var junk conc.MinuteCount
	published.Forward(sub.on, func(payload string) {
		var batch []Event
		if err := json.Unmarshal([]byte(payload), &batch); err != nil {
			if n := junk.Add(1, time.Now()); n > 0 {
				m.events.Logger().Warn(
					"delayqueue: events that cannot be read: another program or version publishes on this queue's channel",
					slog.String("queue", m.store.Queue), slog.Int("events", n), slog.Any("error", err))
			}
			return
		}
		for _, e := range batch {
			sub.put(e)
		}
	}, func() {
		sub.put(Event{Code: GapEvent, Time: time.Now()})
	}, func(attempts int, err error) {
		m.events.Logger().Warn("delayqueue: no events of other processes are heard, will go on trying",
			slog.String("queue", m.store.Queue), slog.Int("attempts", attempts), slog.Any("error", err))
	})
}
