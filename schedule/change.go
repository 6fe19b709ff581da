package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// This file changes entries. A change has three steps, and any replica can take the last two, since the record is open
// until they are done: the record gets another generation; the sequence passes that, so nothing is stored for the
// generation before any more; and what was sent ahead for that is taken back. Before they are done nothing is sent for the new one.

// errSame: there is nothing to change.
var errSame = errors.New("the same")

// change makes the record of an entry what with makes of it. to is a copy of old, or empty if there is none.
func (s *Scheduler) change(ctx context.Context, name string, with func(old, to *record) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	for {
		text, err := s.table.read(ctx, name)
		if err != nil {
			return err
		}
		now, err := s.table.look(ctx, false)
		if err != nil {
			return err
		}
		var old *record
		if text != "" {
			if old, err = readRecord(text); err != nil { // what somebody else broke can be replaced, and removed
				old = &record{Paused: true, unreadable: err}
			}
		}
		if old != nil && old.Open != 0 {
			if err := s.await(ctx, name, text, old, now); err != nil {
				return err
			}
			continue
		}
		to := new(record)
		if old != nil && old.unreadable == nil {
			*to = *old
		}
		if err := with(old, to); errors.Is(err, errSame) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.renew(ctx, name, old, to, now.us); err != nil {
			return err
		}
		if now.now()-now.us > (slackSeconds-10)*1_000_000 {
			continue
		}
		done, err := s.table.change(ctx, name, text, to.text())
		if err != nil {
			return err
		}
		if done {
			err := s.complete(ctx, name, to.text(), to, now)
			select {
			case s.hurry <- struct{}{}:
			default:
			}
			return err
		}
	}
}

// await waits for who has changed an entry to complete that, or does it if that takes too long.
func (s *Scheduler) await(ctx context.Context, name, text string, r *record, now *reading) error {
	if r.deserted(now) {
		return s.complete(ctx, name, text, r, now)
	}
	select {
	case <-time.After(openFor / 100):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// slackSeconds is how long a change may take until it is stored. Until then replicas go on sending ahead.
const slackSeconds = 60

// openFor is how long a change is left to who made it. If two complete one at once, and it is just due, one may take an instant
// for run that the other has taken back.
const openFor = 2 * time.Second

// deserted says whether whoever made a change seems not to complete it. A change from the future is of before the server's clock was
// stepped back; one that is a little after a reading was made since.
func (r *record) deserted(now *reading) bool {
	age := now.us - r.Open
	return r.Open != 0 && max(age, -age) > openFor.Microseconds()
}

// renew makes to the next generation of an entry, which begins now, and notes what may have been sent ahead for the last one.
func (s *Scheduler) renew(ctx context.Context, name string, old, to *record, us int64) error {
	n, err := s.monitor.Sequence(ctx, sequenceOf(name))
	if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
		return err
	}
	before, _ := split(max(n, 0)) // a name that was removed goes on where it was
	if old != nil {
		before = max(before, old.Gen)
	}
	if before >= maxGen {
		return fmt.Errorf("the sequence %q is at %d, which is not of this entry: Monitor.DropSequence", sequenceOf(name), n)
	}
	now := us / 1_000_000
	to.Gen, to.Since, to.Open, to.Void = before+1, now, us, nil
	if old == nil || old.Paused {
		return nil
	}
	if old.sameTimes(to) { // what was not sent is for the new generation, which makes up for it
		to.Since = min(now, old.Since)
		if old.CatchUp == NoCatchUp { // but not for what the one before has passed over
			to.Since = min(now, max(old.Since, now-lateSeconds))
		}
	}
	timing, err := old.timing()
	if err != nil {
		return nil
	}
	// Of an entry that skips nothing is sent ahead, but what is due until the change is stored is sent all the same.
	for at, found := timing.next(now); found && at <= now+aheadSeconds+slackSeconds; at, found = timing.next(at) {
		to.Void = append(to.Void, at)
	}
	return nil
}

// complete takes the steps that are left of a change.
func (s *Scheduler) complete(ctx context.Context, name, text string, r *record, now *reading) error {
	begun := r.Open / 1_000_000
	before, err := s.monitor.PassSequence(ctx, sequenceOf(name), number(r.Gen, 0))
	if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
		return err
	}
	gen, sent := split(max(before, 0))
	due := now.now()/1_000_000 + 2 // at most, for what now says may be a little before
	switch {
	case gen >= r.Gen: // somebody else has passed it, and did not complete it: what is due is taken for sent
		sent, due = maxInstant, due-2
	case gen < r.Gen-1:
		sent = 0
	}
	done := *r
	done.Open, done.Void = 0, nil
	done.Since = max(done.Since, min(sent, begun))
	for _, instant := range slices.Backward(r.Void) {
		if instant > sent {
			continue
		}
		got, err := s.queue.InterceptKey(ctx, keyOf(name, r.Gen-1, instant))
		if err != nil {
			return err
		}
		if !got.Intercepted && instant <= due {
			// It was handed out before it could be taken back, so the new generation does not run it again, and those before it
			// are due, and stay. Those after it were taken back: that is why the last one is the first.
			done.Since = max(done.Since, instant)
			break
		}
	}
	to := done.text()
	if r.Removed {
		to = ""
	}
	_, err = s.table.change(ctx, name, text, to) // if another replica was faster, it has done all this
	return err
}
