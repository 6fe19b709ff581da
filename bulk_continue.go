package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// This file continues calls for many. Of several who continue one from the same state of its entry in the journal, the first to
// write there goes on; without the journal, of a call whose steps must not be done twice, the first whose claim Redis remembers.

// BulkContinue goes on with a call for many that was cut off; next is the Next of its result, which holds all else
// that it was told. Of several results any Next will do, also one that was continued before; but of
// BulkRescheduleBy and BulkCommit, whose steps must not be done twice, such a one is refused with ErrBadCursor. See Bulk for progress.
//
// Its entry in the journal stays that of who began it, if it is there and is of this call; that somebody continues it is an entry
// of its own. Else this Monitor's operator has begun it, as far as the journal knows.
func (m *Monitor) BulkContinue(ctx context.Context, next string, progress func(*BulkResult) bool) (*BulkResult, error) {
	o, err := m.readOperation(next)
	if err == nil && (o.Planned || o.Place >= len(o.places())) {
		err = fmt.Errorf("%w %q", ErrBadCursor, next)
	}
	if err != nil {
		return &BulkResult{}, m.failed(err, "continue")
	}
	o.again = true
	ctx, cancel := o.untilDone(ctx)
	defer cancel()
	if err := m.findEntry(ctx, o, len(next) <= maxEntryNext); err != nil {
		return o.cutOff(o.places(), err), m.failed(err, "%s", verbs[o.What])
	}
	return m.operate(ctx, o, progress)
}

// once says whether no step may be done twice, nor by two.
func (o *operation) once() bool { return !o.Dry && (o.What == steerBy || o.Frozen) }

// task is what it was told, without how far it has come: the same text for the same call.
func (o *operation) task() string {
	p := *o
	p.position, p.InPlace, p.Result, p.Caller, p.N, p.Doubt, p.Entry, p.Claim = position{}, 0, BulkResult{}, "", 0, nil, entryName{}, ""
	text, _ := cursorOf(&p) // there is nothing in it that cannot be written
	return text
}

// findEntry reads the entry of the call that is continued, which its Next names. One that is not there, or of another call,
// is not its entry: the call gets a new one. It returns errContinued if the entry knows that the Next was used before, or was not
// the last; kept: the entry would hold one as long as this.
func (m *Monitor) findEntry(ctx context.Context, o *operation, kept bool) error {
	name := o.Entry
	o.Entry = entryName{}
	if o.Dry || name.Made == "" {
		return nil
	}
	if _, err := parseEntryName(name.String()); err != nil {
		return nil
	}
	got, err := m.readJournal(ctx, journalRequest{limit: 1, after: name, alone: true})
	if ctx.Err() != nil || transient(err) {
		return err
	}
	for _, line := range got.entries { // none: nobody knows
		e, ok := line.entry(got.now)
		if !ok || e.Bulk == nil {
			continue
		}
		over := e.Bulk.Next == "" && (e.Bulk.Phase == BulkFinished || e.Bulk.Phase == BulkFailed && kept)
		there, err := m.readOperation(e.Bulk.Next)
		switch {
		case over && o.once() && e.Act == actOf(o.What, o.Us):
			return errContinued
		case err != nil || there.task() != o.task():
			continue
		case o.once() && (there.Caller != o.Caller || there.N > o.N):
			return errContinued
		}
		if there.Caller == o.Caller && there.N == o.N {
			o.Claim = there.Claim
		}
		o.Entry, o.wrote, o.who = name, fmt.Sprint(e.Bulk.Updated.UnixMicro()), onBehalf{e.By, e.Reason}
	}
	return nil
}

// settleDoubt finds out whether the call of a continued operation that was cut off was carried out; if not, it never will be. What
// follows has calls of its own.
func (m *Monitor) settleDoubt(ctx context.Context, o *operation, places []place) error {
	if !o.again {
		return nil
	}
	if o.Doubt != nil {
		done, err := m.steerAs(ctx, o, steerRequest{what: o.What})
		if err != nil {
			return err
		}
		forgotten, err := m.stepForgotten(ctx, o, places[o.Place])
		if err != nil {
			return err
		}
		if len(done) == 0 && forgotten {
			o.pass(PassedUnknown, o.Doubt.Wanted)
		}
		if len(done) == 0 && !forgotten { // they are looked at once more
			o.pass(PassedNew, -o.Doubt.New)
		} else {
			o.position, o.InPlace, o.Result.Looked = o.Doubt.At, o.Doubt.InPlace, o.Doubt.Looked
			for _, d := range done {
				o.count(d)
			}
		}
		o.Doubt = nil
		// Once what is left is claimed, nobody can ask about that call any more.
		if err := m.ahead(ctx, o); err != nil || ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
	}
	if o.once() {
		if err := m.claimRest(ctx, o); err != nil {
			return err
		}
	}
	o.Claim = ""
	o.Caller, o.N = newCaller().id, 0
	return nil
}

// claimRest makes the call that would be the next one of the process that was cut off, so that none of its steps follows, and
// nobody else continues from here. The claim stands in the entry before it is made: who goes on from there makes the same one.
func (m *Monitor) claimRest(ctx context.Context, o *operation) error {
	word, whose := o.Claim, ""
	err := repeat(ctx, math.MaxInt, func() (err error) {
		_, whose, err = m.store.claim(ctx, &caller{id: o.Caller, n: o.N + 1}, 0, word)
		return err
	})
	if stale(err) || err == nil && whose != word {
		return errContinued
	}
	return err
}

// stepForgotten says whether it is not known any more if the step in p was done that was cut off, and it must not be done
// twice. What has left ready is not met there again.
func (m *Monitor) stepForgotten(ctx context.Context, o *operation, p place) (bool, error) {
	if o.What != steerBy || p.in == StateReady {
		return false, nil
	}
	got, err := m.list(ctx, p, 0, spot{})
	return got.now-o.Doubt.When >= time.Hour.Microseconds(), err
}

// steerAs makes the operation's present call, again and again until Redis answers or ctx ends. It is no other call's
// caller, so that who continues the operation can tell whether it was carried out.
func (m *Monitor) steerAs(ctx context.Context, o *operation, do steerRequest) (done []steered, err error) {
	c := &caller{id: o.Caller, n: o.N}
	err = repeat(ctx, math.MaxInt, func() error {
		done, err = m.store.steer(ctx, c, do)
		return err
	})
	if stale(err) || errors.Is(err, errTakenOver) {
		err = errContinued
	}
	return done, err
}
