package schedule

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
)

// A Queue is what entries send to: a *delayqueue.DelayQueue or a *delayqueue.Publisher.
type Queue interface {
	Name() string
	Redis() (cli redis.UniversalClient, prefix string)
	Send(ctx context.Context, payload string, opts ...delayqueue.MsgOption) (*delayqueue.MessageInfo, error)
	SendBatch(ctx context.Context, batch []delayqueue.Outgoing) ([]delayqueue.SendResult, error)
	InterceptKey(ctx context.Context, key string) (*delayqueue.InterceptResult, error)
	RescheduleKey(ctx context.Context, key string, t time.Time) error
}

// ErrNoEntry: there is no entry of this name.
var ErrNoEntry = errors.New("no such entry")

// A Scheduler has the entries of one queue. It is safe for concurrent use.
type Scheduler struct {
	looker
	queue Queue
	log   *slog.Logger
	hurry chan struct{} // an entry was changed here: look now

	mu   sync.Mutex
	subs []*Subscription
}

// New makes the Scheduler of a queue, a *delayqueue.DelayQueue or a *delayqueue.Publisher.
func New(queue Queue) *Scheduler {
	cli, prefix := queue.Redis()
	return &Scheduler{
		looker: newLooker(delayqueue.NewMonitor(queue.Name(), cli, delayqueue.UseCustomPrefix(prefix))),
		queue:  queue, log: slog.Default(), hurry: make(chan struct{}, 1),
	}
}

// Name is the name of the queue.
func (s *Scheduler) Name() string { return s.queue.Name() }

// WithLogger sets the log, which hears of outages and of broken entries, of each once. Default: slog.Default. Call it before
// Run and ListenEvent.
func (s *Scheduler) WithLogger(log *slog.Logger) *Scheduler {
	if log == nil {
		panic("schedule: WithLogger: the logger must not be nil; for silence use slog.DiscardHandler")
	}
	s.log = log
	return s
}

// Set adds an entry, or changes the one of this name. The same again changes nothing, so every replica may do it at its
// start; of replicas that differ the last one wins. A change takes effect at once: what was sent ahead for the entry as
// it was is taken back before Set returns. A paused entry stays so. The instants of a new entry, and of one that gets other times, come
// after now. One that keeps its times goes on where it was, and makes up for what nobody could send (CatchUp).
//
// It returns ErrBadEntry for what cannot be, and tries each command of Redis as the queue's client does. After another error it is to be
// called again: the entry may have been stored, and what was sent ahead may still be there until some replica's Run takes it back.
func (s *Scheduler) Set(ctx context.Context, e Entry) error {
	p, err := e.plan()
	if err != nil {
		return err
	}
	return s.failed(e.Name, "set", s.change(ctx, e.Name, func(old, to *record) error {
		if old != nil && !old.Removed && (&record{plan: old.plan}).text() == (&record{plan: p}).text() {
			return errSame
		}
		to.plan, to.Removed = p, false
		return nil
	}))
}

// Remove deletes an entry, and takes back what was sent ahead for it. What is due stays. It returns ErrNoEntry if there is none.
// It also deletes what List calls broken, whatever its name; of that nothing is taken back.
func (s *Scheduler) Remove(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return s.failed(name, "remove", s.table.forget(ctx, name, err))
	}
	return s.failed(name, "remove", s.change(ctx, name, func(old, to *record) error {
		to.Removed = true
		if old != nil && old.unreadable != nil {
			return nil
		}
		return there(old)
	}))
}

// Pause stops an entry until Resume: its instants pass unnoticed. What was sent ahead is taken back, what is due stays.
// It returns ErrNoEntry if there is none. That it is paused already is no error.
func (s *Scheduler) Pause(ctx context.Context, name string) error {
	return s.failed(name, "pause", s.change(ctx, name, func(old, to *record) error {
		if err := there(old); err != nil {
			return err
		}
		if old.Paused {
			return errSame
		}
		to.Paused = true
		return nil
	}))
}

// Resume ends a pause: the next instant is the first after now. That it is not paused is no error.
func (s *Scheduler) Resume(ctx context.Context, name string) error {
	return s.failed(name, "resume", s.change(ctx, name, func(old, to *record) error {
		if old != nil && !old.Paused && !old.Removed {
			return errSame
		}
		to.Paused = false
		return there(old)
	}))
}

func there(old *record) error {
	if old == nil || old.Removed {
		return ErrNoEntry
	}
	return old.unreadable
}

// RunNow sends the message of an entry now, paused or not, beside its instants. Of an entry that skips, ErrDuplicateKey
// says that its last message lives.
func (s *Scheduler) RunNow(ctx context.Context, name string) (*delayqueue.MessageInfo, error) {
	r, err := s.find(ctx, name)
	if err != nil {
		return nil, s.failed(name, "run now", err)
	}
	opts := append(r.Options.Options(), delayqueue.WithHeader(nameHeader, name))
	if r.Overlap == Skip {
		opts = append(opts, delayqueue.WithKey(sequenceOf(name)))
	}
	info, err := s.queue.Send(ctx, string(r.Payload), opts...)
	return info, s.failed(name, "run now", err)
}

// The headers of a message that an entry sent.
const (
	nameHeader    = "schedule"
	instantHeader = "schedule-instant" // RFC 3339, in the entry's zone
)

// Of says which entry sent a message, and for which instant: that is msg.Due, unless the message was sent later than that, as one that
// is caught up; then msg.Due is when it was sent. The instant is zero if somebody ran the entry by hand, and name "" if no
// entry sent the message.
func Of(msg *delayqueue.Message) (name string, instant time.Time) {
	instant, _ = time.Parse(time.RFC3339, msg.Headers[instantHeader])
	return msg.Headers[nameHeader], instant
}
