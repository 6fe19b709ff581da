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
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/userlog"
	"github.com/go-delayqueue/delayqueue/ops"
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

	by, why string     // see WithOperator
	journal *ops.Queue // in that name; the other one passes sequences for nobody

	mu    sync.Mutex
	subs  []*Subscription
	lists map[string][]Entry // that SetAll was given, by program
	skips []skip             // that the next look is to tell Redis
}

// New makes the Scheduler of a queue, a *delayqueue.DelayQueue or a *delayqueue.Publisher.
func New(queue Queue) *Scheduler {
	cli, prefix := queue.Redis()
	monitor := func() *ops.Queue {
		return ops.Of(delayqueue.NewMonitor(queue.Name(), cli, delayqueue.UseCustomPrefix(prefix)))
	}
	return &Scheduler{
		looker: newLooker(monitor()), journal: monitor(),
		queue: queue, log: userlog.Contain(slog.Default()), hurry: make(chan struct{}, 1),
	}
}

// Name is the name of the queue.
func (s *Scheduler) Name() string { return s.queue.Name() }

// WithLogger sets the log. It has one line for each outage and each broken entry. Default: slog.Default. Call it
// before Run and ListenEvent.
func (s *Scheduler) WithLogger(log *slog.Logger) *Scheduler {
	if log == nil {
		panic("schedule: WithLogger: the logger must not be nil; for silence use slog.DiscardHandler")
	}
	s.log = userlog.Contain(log)
	return s
}

// WithOperator says in whose name this Scheduler sets, pauses, resumes, removes and runs entries. The name stands in
// the journal of the queue and in Status. At most 200 bytes are kept, of one line. Call it before the first change.
// Default: none.
func (s *Scheduler) WithOperator(name string) *Scheduler {
	s.by = script.OneLine(name, script.MaxBy)
	s.journal.WithOperator(name)
	return s
}

// WithReason says why entries are changed, beside WithOperator. At most 1,000 bytes are kept, of one line. Call it
// before the first change.
func (s *Scheduler) WithReason(text string) *Scheduler {
	s.why = script.OneLine(text, script.MaxWhy)
	s.journal.WithReason(text)
	return s
}

// Set adds an entry, or changes the entry of this name. A second Set of the same entry changes nothing, so every
// replica may set it at its start. If replicas differ, the last one wins. A change takes effect at once: messages
// that were sent ahead for the old entry are taken back before Set returns. A paused entry stays paused. The first
// instant of a new entry, and of an entry that gets other times, comes after now. An entry that keeps its times goes
// on where it was, and makes up for instants that nobody could send (CatchUp). Fields that e leaves empty get their
// defaults, not their old values: see Change.
//
// It returns ErrBadEntry for an entry that cannot be, and ErrNewer if the stored entry has fields that this version
// does not know. It tries each call of Redis until ctx's deadline. If ctx has none, a call that reads is given up on
// after two seconds, and one that changes something goes on until Redis carries it out. After any other error call it
// again: the entry may have been stored, and messages that were sent ahead may stay until some replica's Run takes
// them back.
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

// sameOr is errSame if to is as old was, and old is good. One that was set by a clock that was ahead is not: it would
// not begin.
func sameOr(old, to *record, now int64) error {
	if old != nil && !old.Removed && old.samePlan(to) && old.Program == to.Program && old.Since <= now+farSeconds {
		return errSame
	}
	return nil
}

// Change changes the entry of this name: with gets the entry as it is, and fields that with leaves alone stay. If
// others change the entry meanwhile, with is called again. If with returns an error, nothing is changed, and Change
// returns that error. The entry stays on its program's list (SetAll), if it is on one. Change returns ErrNoEntry if
// there is no such entry, and otherwise the errors of Set.
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

// SetAll says that these are all entries of a program. It sets each of them, and then removes the entries of the
// queue that stand on the program's list and are not given any more. Entries of other programs stay, and so do
// entries that Set has set: an entry is on the list of the program that set it last. Call it at the start of each
// replica, before Run.
//
// A Scheduler keeps the list. If all entries are gone, because Redis has lost its data or somebody deleted the queue,
// or if a failover has forgotten changes, Run sets the list again. So stop a program before you delete its queue for
// good. In a rolling upgrade the replica that sets its list last wins, as with Set. SetAll goes on after an error,
// and returns the first.
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

// Remove deletes an entry, and takes back the messages that were sent ahead for it. Messages that are due stay. It
// returns ErrNoEntry if there is no such entry. It also deletes an entry that List calls broken, whatever its name,
// and then takes back nothing.
func (s *Scheduler) Remove(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return s.failed(name, "remove", s.forget(ctx, name, err))
	}
	err := s.change(ctx, name, func(old, to *record, _ int64) error {
		to.Removed = true
		if old != nil && old.unreadable != nil {
			return nil
		}
		return there(old)
	})
	if errors.Is(err, errNoMoreGenerations) {
		err = s.forget(ctx, name, ErrNoEntry)
	}
	return s.failed(name, "remove", err)
}

// Pause stops an entry until Resume: its instants pass unnoticed. Messages that were sent ahead are taken back, and
// messages that are due stay. It returns ErrNoEntry if there is no such entry. To pause a paused entry is no error.
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

// Resume ends a pause: the next instant is the first after now. To resume an entry that is not paused is no error.
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

// RunNow sends the message of an entry now, paused or not, beside its instants. If the entry skips and its last
// message lives, RunNow returns ErrDuplicateKey.
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
		s.journal.Note(ctx, journal.RunSchedule, name, "message "+info.ID)
	}
	return info, s.failed(name, "run now", err)
}

// The headers of a message that an entry sent.
const (
	nameHeader    = "schedule"
	instantHeader = "schedule-instant" // RFC 3339, in the entry's zone
)

// Of says which entry sent a message, and for which instant. The instant is msg.Due, unless the message was sent
// after the instant, as in catching up: then msg.Due is when the message was sent. The instant is zero if somebody
// ran the entry by hand. The name is "" if no entry sent the message.
func Of(msg *delayqueue.Message) (name string, instant time.Time) {
	instant, _ = time.Parse(time.RFC3339, msg.Headers[instantHeader])
	return msg.Headers[nameHeader], instant
}
