package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/userlog"
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

	by, why string              // see WithOperator
	journal *delayqueue.Monitor // in that name; the other one passes sequences for nobody

	mu    sync.Mutex
	subs  []*Subscription
	lists map[string][]Entry // that SetAll was given, by program
}

// New makes the Scheduler of a queue, a *delayqueue.DelayQueue or a *delayqueue.Publisher.
func New(queue Queue) *Scheduler {
	cli, prefix := queue.Redis()
	monitor := func() *delayqueue.Monitor {
		return delayqueue.NewMonitor(queue.Name(), cli, delayqueue.UseCustomPrefix(prefix))
	}
	return &Scheduler{
		looker: newLooker(monitor()), journal: monitor(),
		queue: queue, log: userlog.Contain(slog.Default()), hurry: make(chan struct{}, 1),
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
	s.log = userlog.Contain(log)
	return s
}

// WithOperator says in whose name entries are set, paused, resumed, removed and run by this Scheduler: it stands in the journal of the queue
// and in Status. At most 200 bytes are kept, of one line. Before the first call. Default: none.
func (s *Scheduler) WithOperator(name string) *Scheduler {
	s.by = oneLine(name, maxBy)
	s.journal.WithOperator(name)
	return s
}

// WithReason says why, beside WithOperator. At most 1,000 bytes are kept, of one line. Before the first call.
func (s *Scheduler) WithReason(text string) *Scheduler {
	s.why = oneLine(text, maxWhy)
	s.journal.WithReason(text)
	return s
}

// Set adds an entry, or changes the one of this name. The same again changes nothing, so every replica may do it at its
// start; of replicas that differ the last one wins. A change takes effect at once: what was sent ahead for the entry as
// it was is taken back before Set returns. A paused entry stays so. The instants of a new entry, and of one that gets other times, come
// after now. One that keeps its times goes on where it was, and makes up for what nobody could send (CatchUp). What e does not say is as
// by default, not as it was: see Change.
//
// It returns ErrBadEntry for what cannot be, ErrNewer if the entry says what this version does not know, and tries each command of Redis as
// the queue's client does. After another error it is to be called again: the entry may have been stored, and what was sent ahead may still
// be there until some replica's Run takes it back.
func (s *Scheduler) Set(ctx context.Context, e Entry) error { return s.set(ctx, "", e) }

// set is Set, for an entry on the list of a program.
func (s *Scheduler) set(ctx context.Context, program string, e Entry) error {
	p, err := e.plan()
	if err != nil {
		return err
	}
	return s.failed(e.Name, "set", s.change(ctx, e.Name, func(old, to *record, now int64) error {
		if old != nil && errors.Is(old.unreadable, ErrNewer) {
			return old.unreadable
		}
		to.plan, to.Removed, to.Program = p, false, program
		return sameOr(old, to, now)
	}))
}

// sameOr is errSame if to is as old was, and old is good. One that was set by a clock that was ahead is not: it would not begin.
func sameOr(old, to *record, now int64) error {
	if old != nil && !old.Removed && old.samePlan(to) && old.Program == to.Program && old.Since <= now+farSeconds {
		return errSame
	}
	return nil
}

// Change changes the entry of this name: with gets it as it is, and what it leaves alone stays. It may be called more than once, if others
// change the entry meanwhile; if it returns an error, nothing is changed, and Change returns that. The entry stays on its program's list
// (SetAll), if it is on one. It returns ErrNoEntry if there is none, and otherwise what Set returns.
func (s *Scheduler) Change(ctx context.Context, name string, with func(e *Entry) error) error {
	return s.failed(name, "change", s.change(ctx, name, func(old, to *record, now int64) error {
		if err := there(old); err != nil {
			return err
		}
		e := old.entry(name)
		if err := with(&e); err != nil {
			return err
		}
		if e.Name != name {
			return badEntry(name, "a change cannot make its name %q", e.Name)
		}
		p, err := e.plan()
		if err != nil {
			return err
		}
		to.plan = p
		return sameOr(old, to, now)
	}))
}

// SetAll says that these are all entries of a program, which it names: it does Set for each of them, and then Remove for those of the queue
// that stand on the list of the program's name and are not among them any more. What others set stays, and so does what Set has set: an
// entry is on the list of the program that set it last. Call it at the start of each replica, before Run.
//
// A Scheduler keeps the list: if all entries are gone, since Redis has lost its data or somebody deleted the queue, Run sets them again. So
// whoever deletes the queue of a program for good stops the program first. In a rolling upgrade the replica that starts last wins, as with
// Set. It goes on after an error, and returns the first.
func (s *Scheduler) SetAll(ctx context.Context, program string, entries ...Entry) error {
	if err := checkName(program); err != nil {
		return fmt.Errorf("schedule: program %q: %w: a name has 1 to %d bytes of text", program, ErrBadEntry, maxName)
	}
	names := map[string]bool{}
	for _, e := range entries {
		if _, err := e.plan(); err != nil {
			return err
		}
		if names[e.Name] {
			return badEntry(e.Name, "it stands twice on the list")
		}
		names[e.Name] = true
	}
	s.mu.Lock()
	if s.lists == nil {
		s.lists = map[string][]Entry{}
	}
	s.lists[program] = slices.Clone(entries)
	s.mu.Unlock()
	first := s.setList(ctx, program, entries)
	fields, err := s.table.all(ctx, 0)
	for name, text := range fields {
		if r, bad := readRecord(text); beside(name) || names[name] || bad != nil || r.Program != program || r.Removed {
			continue
		}
		if gone := s.removeFrom(ctx, program, name); err == nil {
			err = gone
		}
	}
	return cmp.Or(first, err)
}

func (s *Scheduler) setList(ctx context.Context, program string, entries []Entry) error {
	return side(entries, func(e Entry) error { return s.set(ctx, program, e) })
}

// removeFrom removes an entry if it is still on the list of a program.
func (s *Scheduler) removeFrom(ctx context.Context, program, name string) error {
	return s.failed(name, "remove", s.change(ctx, name, func(old, to *record, _ int64) error {
		if old == nil || old.unreadable != nil || old.Removed || old.Program != program {
			return errSame
		}
		to.Removed = true
		return nil
	}))
}

// Remove deletes an entry, and takes back what was sent ahead for it. What is due stays. It returns ErrNoEntry if there is none.
// It also deletes what List calls broken, whatever its name; of that nothing is taken back.
func (s *Scheduler) Remove(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return s.failed(name, "remove", s.table.forget(ctx, name, err))
	}
	err := s.change(ctx, name, func(old, to *record, _ int64) error {
		to.Removed = true
		if old != nil && old.unreadable != nil {
			return nil
		}
		return there(old)
	})
	if errors.Is(err, errNoMoreGenerations) {
		err = s.table.forget(ctx, name, ErrNoEntry)
	}
	return s.failed(name, "remove", err)
}

// Pause stops an entry until Resume: its instants pass unnoticed. What was sent ahead is taken back, what is due stays.
// It returns ErrNoEntry if there is none. That it is paused already is no error.
func (s *Scheduler) Pause(ctx context.Context, name string) error {
	return s.failed(name, "pause", s.change(ctx, name, func(old, to *record, _ int64) error {
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
	return s.failed(name, "resume", s.change(ctx, name, func(old, to *record, _ int64) error {
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
	if err == nil {
		s.journal.Note(ctx, delayqueue.ActRunSchedule, name, "message "+info.ID)
	}
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
