package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// This file changes entries. A change makes the record another generation, which leaves it open: nothing is sent for
// it until it is complete, and any replica can complete it, at any point and several at once, for what each step
// finds does not depend on who takes it:
//
//  1. fence: the sequence passes the generation before, so nothing is stored for that any more. Where it was stays in
//     the number: that of the generation between the two, which is nobody's, and the last instant that was sent.
//  2. decide: what was sent ahead is put off for long, the last instant first, up to one that is not there any more:
//     that was handed out, and those before it stay. What was put off is not handed out, whoever looks.
//  3. sweep: what was put off is deleted.

// errSame: there is nothing to change.
var errSame = errors.New("the same")

// errNoMoreGenerations: the sequence of an entry, or its record, is at the last generation, which no change has made.
var errNoMoreGenerations = errors.New("the sequence is at a number that is not of this entry")

// change makes the record of an entry what with makes of it at now, unix s. to is a copy of old, or empty if there is
// none. If with sets to.Anew, it begins anew at to.Since.
func (s *Scheduler) change(ctx context.Context, name string, with func(old, to *record, now int64) error) error {
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
		if err := with(old, to, now.us/1_000_000); errors.Is(err, errSame) {
			return nil
		} else if err != nil {
			return err
		}
		if !to.Anew {
			to.At, to.By, to.Why = now.us/1_000_000, s.by, s.why
		}
		if err := s.renew(ctx, name, old, to, now.us); err != nil {
			return err
		}
		done, err := s.table.change(ctx, name, text, to.text(), now.us+(slackSeconds-10)*1_000_000, to.Anew)
		if err != nil {
			return err
		}
		if done {
			err := s.complete(ctx, name, to.text(), to, now)
			if err == nil {
				err = s.awaitAll(ctx, name, to.Gen)
			}
			select {
			case s.hurry <- struct{}{}:
			default:
			}
			if !to.Anew {
				s.changed(ctx, name, old, to)
			}
			return err
		}
	}
}

// await waits for who completes a change, or does it if that takes too long.
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

// awaitAll waits until a change is complete: another replica may have been faster with a part of it.
func (s *Scheduler) awaitAll(ctx context.Context, name string, gen int64) error {
	for {
		text, err := s.table.read(ctx, name)
		if err != nil {
			return err
		}
		r, err := readRecord(text)
		if err != nil || r.Gen != gen || r.Open == 0 {
			return nil
		}
		now, err := s.table.look(ctx, false)
		if err != nil {
			return err
		}
		if err := s.await(ctx, name, text, r, now); err != nil {
			return err
		}
	}
}

const (
	// slackSeconds is how long a change may take until it is stored. Until then replicas go on sending ahead.
	slackSeconds = 60

	// openFor is how long a change is left to who made it.
	openFor = 2 * time.Second

	// putOffFor is how long a message is put off that is to be deleted. Whoever does that does it in a moment, or
	// another replica does, seconds later. If one that was put off is to stay after all, since whoever did that had
	// slept over the change, it comes late.
	putOffFor = time.Hour
)

// deserted says whether whoever made a change seems not to complete it. A change from the future is of before the
// server's clock was stepped back; one that is a little after a reading was made since.
func (r *record) deserted(now *reading) bool {
	age := now.us - r.Open
	return r.Open != 0 && max(age, -age) > openFor.Microseconds()
}

// renew makes to the next generation of an entry, which begins now, and notes what may have been sent ahead for the
// last one.
func (s *Scheduler) renew(ctx context.Context, name string, old, to *record, us int64) error {
	n, err := s.monitor.Sequence(ctx, sequenceOf(name))
	if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
		return err
	}
	gen, sent := split(max(n, 0)) // a name that was removed goes on where it was
	if old == nil || gen != old.Gen {
		sent = 0
	}
	if old != nil {
		gen = max(gen, old.Gen)
		to.Old = old.Gen
	}
	if gen+2 > maxGen {
		return fmt.Errorf("%w: %q is at %d: ops.Queue.DropSequence", errNoMoreGenerations, sequenceOf(name), n)
	}
	now := min(us/1_000_000, maxInstant)
	to.Gen, to.Open, to.Void, to.Decided = gen+2, us, nil, false
	if to.Anew {
		to.Void = old.settledLast(name, now, sent)
		to.Void = slices.DeleteFunc(to.Void, func(instant int64) bool { return instant == to.freed })
		return nil
	}
	to.Ran = slices.DeleteFunc(slices.Clone(to.Ran), func(instant int64) bool {
		return instant <= now || old == nil || old.times != to.times
	})
	to.Since = now
	if old == nil || old.Paused {
		if old != nil && old.unreadable == nil {
			if timing, err := old.timing(name); err == nil {
				to.Passed = old.passed(timing, now)
			}
		}
		return nil
	}
	if old.sameTimes(to) { // what was not sent is for the new generation, which makes up for it
		to.Since = min(now, old.Since)
		if old.CatchUp == NoCatchUp { // but not for what the one before has passed over
			to.Since = min(now, max(old.Since, now-lateSeconds))
		}
	}
	timing, err := old.timing(name)
	if err != nil {
		return nil
	}
	// Of an entry that skips nothing is sent ahead, but what is due until the change is stored is sent all the same.
	to.Void = between(timing, now, now+aheadSeconds+slackSeconds)
	if from := sent - 2*aheadSeconds; from > now+aheadSeconds { // the server's clock was stepped back since
		to.Void = append(to.Void, between(timing, max(from, now+aheadSeconds+slackSeconds), sent)...)
	}
	return nil
}

// between are the instants after one, up to another.
func between(when timing, after, to int64) (all []int64) {
	for at, found := when.next(after); found && at <= to; at, found = when.next(at) {
		all = append(all, at)
	}
	return all
}

// complete takes the steps that are left of a change. Those that another replica has taken first are left to that one.
func (s *Scheduler) complete(ctx context.Context, name, text string, r *record, now *reading) error {
	if !r.Decided {
		sent, err := s.fence(ctx, name, r)
		if err != nil {
			return err
		}
		if r, err = s.decide(ctx, name, text, r, sent, now); r == nil || err != nil {
			return err
		}
		text = r.text()
	}
	return s.sweep(ctx, name, text, r)
}

// fence makes all that is still sent for the generation before come too late. sent is the last instant that was.
func (s *Scheduler) fence(ctx context.Context, name string, r *record) (sent int64, err error) {
	n, err := s.monitor.Sequence(ctx, sequenceOf(name))
	for {
		if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
			return 0, err
		}
		gen, instant := split(max(n, 0))
		switch {
		case gen == r.Gen-1: // it is done
			return max(sent, instant), nil
		case gen > r.Old: // somebody moved it by hand
			return maxInstant, nil
		case gen == r.Old:
			sent = max(sent, instant)
		}
		var before int64
		if before, err = s.monitor.PassSequence(ctx, sequenceOf(name), number(r.Gen-1, sent)); before == n {
			n = number(r.Gen-1, sent)
		} else {
			n = before // which was stored in between
		}
	}
}

// decide finds out which instants have run, and puts off all others. It returns nil if another replica was faster.
func (s *Scheduler) decide(ctx context.Context, name, text string, r *record, sent int64,
	now *reading) (*record, error) {
	to := *r
	to.Void, to.Decided = nil, true
	if !r.Anew {
		to.Since = max(r.Since, min(sent, r.Open/1_000_000))
	}
	due := min(sent, now.now()/1_000_000+slackSeconds) // what ran by a server whose clock was ahead was handed out, too
	if sent == maxInstant {
		due = now.now()/1_000_000 + 2 // at most, for what now says may be a little before
	}
	handedOut := false
	for _, instant := range slices.Backward(r.Void) {
		if instant > sent+aheadSeconds {
			continue
		}
		to.Void = append(to.Void, instant)
		if handedOut {
			continue
		}
		if is, err := s.table.read(ctx, name); err != nil || is != text {
			return nil, err // what is there is no more for us to put off
		}
		there, err := s.move(ctx, keyOf(name, r.Old, instant), time.UnixMicro(now.now()).Add(putOffFor))
		if err != nil {
			return nil, err
		}
		switch {
		case there:
		case r.Anew:
			to.Ran = append(to.Ran, instant)
		case instant <= due:
			handedOut, to.Since = true, max(to.Since, instant)
		}
	}
	if done, err := s.table.change(ctx, name, text, to.text(), noLimit, false); err != nil || !done {
		return nil, err
	}
	return &to, nil
}

// move makes the message with a key due at an instant, and says whether there is one that waits.
func (s *Scheduler) move(ctx context.Context, key string, at time.Time) (there bool, err error) {
	err = s.queue.RescheduleKey(ctx, key, at)
	if errors.Is(err, delayqueue.ErrWrongState) || errors.Is(err, delayqueue.ErrNoQueue) { // nothing was ever sent
		return false, nil
	}
	return err == nil, err
}

// sweep deletes what was put off, and closes the record. Of what stays, something may have been put off by another
// replica.
func (s *Scheduler) sweep(ctx context.Context, name, text string, r *record) error {
	for _, instant := range r.Void {
		key, err := keyOf(name, r.Old, instant), error(nil)
		if instant > r.Since {
			_, err = s.queue.InterceptKey(ctx, key)
		} else {
			_, err = s.move(ctx, key, time.Unix(instant, 0))
		}
		if err != nil && !errors.Is(err, delayqueue.ErrNoQueue) {
			return err
		}
	}
	to := ""
	if !r.Removed {
		done := *r
		done.Open, done.Old, done.Void, done.Decided, done.Anew = 0, 0, nil, false, false
		to = done.text()
	}
	_, err := s.table.change(ctx, name, text, to, noLimit, false)
	return err
}

// forget deletes the record of a name that no change can be made of; why is returned if there is none.
func (s *Scheduler) forget(ctx context.Context, name string, why error) error {
	if name == "" { // the field of the version
		return why
	}
	text, err := s.table.read(ctx, name)
	if err != nil {
		return err
	}
	if text == "" {
		return why
	}
	done, err := s.table.change(ctx, name, text, "", noLimit, false)
	if done {
		s.changed(ctx, name, nil, &record{Removed: true})
	}
	return err
}
