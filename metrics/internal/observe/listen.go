package observe

import (
	"context"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A Total is a counter of messages that grows with the events of one code.
type Total struct {
	Name      string // as in delayqueue_messages_<name>_total and delayqueue.<name>.messages
	Operation string // by the semantic conventions
	Help      string
}

// Totals are what a process counts by its events.
var Totals = map[delayqueue.EventCode]Total{
	delayqueue.NewMessageEvent: {"sent", "send", "Messages that this process sent."},
	delayqueue.DeliveredEvent:  {"delivered", "receive", "Deliveries handed out to this process."},
	delayqueue.AckEvent:        {"acked", "ack", "Messages that this process acknowledged."},
	delayqueue.NackEvent:       {"failed", "nack", "Deliveries that failed in this process."},
	delayqueue.LostEvent: {"lost", "receive",
		"Deliveries of any consumer whose lease ran out, as this process found."},
	delayqueue.VanishedEvent: {"vanished", "receive",
		"Messages that this process found gone from Redis though nobody took them out; 1 for a whole queue."},
	delayqueue.RolledBackEvent: {"rolled_back", "receive",
		"Sends and acks, of those that this process had seen, that the server has forgotten, at most."},
	delayqueue.FinalFailedEvent: {"dead", "nack", "Messages that this process gave up on: they went to garbage."},
	delayqueue.SupersededEvent: {"superseded", "ack",
		"Messages that ended in this process because another send took their keys while they were handled."},
}

// What the other metrics of a process are.
const (
	DroppedHelp = "Events of this process that were not counted because they came too fast; a total is too low " +
		"by their messages."
	LatenessHelp    = "From the due instant of a message to the start of its handler, on its first delivery."
	KindHandledHelp = "Calls of handlers by the kind of the message (WithKindHeader) and the outcome: ack, nack, snooze " +
		"or void."
	KindHandlingHelp = "How long a handler ran, by the kind of the message (WithKindHeader)."
	InstantsHelp     = "Instants of schedules that this process settled, by outcome: sent, caught up, skipped or " +
		"expired."
	InstantLatenessHelp = "From an instant of a schedule to when this process had its message stored; 0 if that was " +
		"ahead of it."
)

// LatenessBuckets are in seconds: a queue that keeps up is late by milliseconds, a queue that was down by hours.
var LatenessBuckets = []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
	3600 * 6}

// KindBuckets are in seconds. They are few, because each kind has all of them.
var KindBuckets = []float64{.01, .05, .25, 1, 5, 30, 300}

// A Scheduler is a *schedule.Scheduler, which has these methods. The modules of metrics do not need its module.
type Scheduler interface {
	Name() string // of its queue
	// Stuck counts the schedules that are not sent at their instants, by reason. Every reason has a count.
	Stuck(ctx context.Context) (map[string]int, error)
	ListenOutcome(listener func(outcome string, lateness time.Duration)) interface {
		Stop()
		Dropped() int64
	}
}

// A Subscription is a *delayqueue.Subscription or a *schedule.Subscription.
type Subscription = interface {
	Stop()
	Dropped() int64
}

// InstantOutcomes are what can become of an instant of a schedule, and whether the instant has a message then.
var InstantOutcomes = map[string]bool{"sent": true, "caught up": true, "skipped": false, "expired": false}

// Subscriptions count what happens in this process. The zero value is ready, and safe for concurrent use.
type Subscriptions struct {
	mu   sync.Mutex
	subs map[string][]Subscription // by the label of the queue
}

// Add adds a subscription of the queue with this label.
func (s *Subscriptions) Add(label string, sub Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs == nil {
		s.subs = map[string][]Subscription{}
	}
	s.subs[label] = append(s.subs[label], sub)
}

// Dropped says how many events came too fast to be counted, by the label of the queue.
func (s *Subscriptions) Dropped() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := map[string]int64{}
	for label, subs := range s.subs {
		for _, sub := range subs {
			dropped[label] += sub.Dropped()
		}
	}
	return dropped
}

// Stop ends all subscriptions.
func (s *Subscriptions) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subs := range s.subs {
		for _, sub := range subs {
			sub.Stop()
		}
	}
}
