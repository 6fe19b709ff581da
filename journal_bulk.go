package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// This file writes calls for many into the journal, where others see how they go on, continue and stop them.

// ErrBulkStopped: somebody asked a call for many to stop (StopBulk), which it has: the Next of its result continues it.
var ErrBulkStopped = errors.New("the call was asked to stop")

// actOf is what steer does.
func actOf(what string, us int64) Act {
	switch {
	case what == steerAt && us == 0:
		return ActRunNow
	case what == steerRequeue:
		return ActRequeue
	case what == steerDelete:
		return ActDelete
	case what == steerRelease:
		return ActReleaseKey
	default:
		return ActReschedule
	}
}

// steerDetail is until when or by how much, in words.
func steerDetail(what string, us int64) string {
	switch {
	case what == steerBy:
		return fmt.Sprintf("by %v", microseconds(us))
	case what == steerAt && us != 0:
		return "due " + instantText(instantTime(us))
	default:
		return ""
	}
}

func instantText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// detail says which messages, and how.
func (o *operation) detail() string {
	var words []string
	add := func(text string) {
		if text != "" {
			words = append(words, text)
		}
	}
	var states []string
	for _, s := range o.States {
		states = append(states, s.String())
	}
	add("what is " + strings.Join(states, ", "))
	add(o.Filter.hot().words())
	add(steerDetail(o.What, o.Us))
	if o.Spread > 0 {
		add(fmt.Sprintf("spread over %v", microseconds(o.Spread)))
	}
	if o.Rate > 0 {
		add(fmt.Sprintf("%d a second", o.Rate))
	}
	if o.Frozen {
		add(fmt.Sprintf("%d that were counted", o.Counted))
	}
	return strings.Join(words, "; ")
}

// words are what a filter wants; "" of all.
func (f *Filter) words() string {
	var words []string
	text := func(what, wanted string) {
		if wanted != "" {
			words = append(words, fmt.Sprintf("%s %q", what, wanted[:min(len(wanted), 200)]))
		}
	}
	if !f.From.IsZero() {
		words = append(words, "from "+instantText(f.From))
	}
	if !f.To.IsZero() {
		words = append(words, "to "+instantText(f.To))
	}
	text("key", f.Key)
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		text("header "+name, f.Headers[name])
	}
	text("payload", f.Contains)
	text("error", f.Error)
	text("errors like", f.ErrorLike)
	return strings.Join(words, ", ")
}

// enter makes sure that the call has its entry, which says that it runs. It returns errContinued to all but the first of
// those who continue it from the same state of its entry.
func (m *Monitor) enter(ctx context.Context, o *operation) error {
	if o.Dry {
		return nil
	}
	o.found = o.Entry.Made != ""
	if !o.found {
		o.who, o.Entry.Token = m.who, newToken()
	}
	if o.again && o.once() && o.Claim == "" {
		o.Claim = claimed + newToken()
	}
	if m.noteBulk(ctx, o, journalBegins, BulkRunning, nil) == journalTaken {
		return errContinued
	}
	if o.mute && o.Claim != "" { // the entry's belongs to whom may write there
		o.Claim = claimed + newToken()
	}
	return nil
}

// goesOn writes down that somebody continues the call of a found entry, once that is certain: of two who have claimed what is left with
// the same word, the first to write into the entry does.
func (m *Monitor) goesOn(ctx context.Context, o *operation) error {
	if !o.again || !o.found {
		return nil
	}
	if err := m.ahead(ctx, o); err != nil || ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	m.done(ctx, journalRecord{Act: ActContinueBulk, Target: o.Entry.String(), Detail: string(actOf(o.What, o.Us))})
	return nil
}

// leave writes down how the call has ended here. Of one that another process goes on with that is not for us to say, if its entry knows.
func (m *Monitor) leave(ctx context.Context, o *operation, r *BulkResult, err error) (*BulkResult, error) {
	said := journalDone
	switch {
	case err == nil && r.Next == "":
		said = m.noteBulk(ctx, o, journalDone, BulkFinished, nil)
	case err == nil, errors.Is(err, ErrBulkStopped), ctx.Err() != nil:
		said = m.noteBulk(ctx, o, journalDone, BulkStopped, nil)
	default:
		said = m.noteBulk(ctx, o, journalDone, BulkFailed, err)
	}
	if said == journalTaken {
		err = m.failed(errContinued, "%s", verbs[o.What])
		r = o.cutOff(o.places(), err)
	}
	return r, err
}

// errContinued: it is another process's now.
var errContinued = fmt.Errorf("%w: it was continued from here already, or still goes on elsewhere: use the Next of the last result",
	ErrBadCursor)

// ahead writes down the step that comes next, whose call is in doubt until it is answered: who continues the call if this
// process dies finds out whether it was carried out. It returns ErrBulkStopped if that is asked for, and ErrBadCursor if another
// process goes on with it.
func (m *Monitor) ahead(ctx context.Context, o *operation) error {
	switch m.noteBulk(ctx, o, journalRuns, BulkRunning, nil) {
	case journalStop:
		return ErrBulkStopped
	case journalTaken:
		return errContinued
	default:
		return nil
	}
}

// heard is ahead for a call that finds nothing to do for a while.
func (m *Monitor) heard(ctx context.Context, o *operation) error {
	if time.Since(o.noted) < time.Second {
		return nil
	}
	return m.ahead(ctx, o)
}

// noteBulk writes down how the call stands, and returns what its entry says. While Redis cannot be reached, a call that goes on
// waits for it, as it would with its next step: else nobody saw how it goes on, nor could stop it. Its end is written down briefly.
func (m *Monitor) noteBulk(ctx context.Context, o *operation, word journalWord, phase BulkPhase, failure error) (said journalWord) {
	if o.Dry || o.mute {
		return word
	}
	r := o.result(o.places())
	b := &bulkRecord{Phase: phase, Total: r.Total, Looked: r.Looked, Passed: r.Passed, Next: r.Next}
	if len(b.Next) > maxEntryNext || errors.Is(failure, ErrBadCursor) {
		b.Next = ""
	}
	if failure != nil {
		b.Error = errorText(failure)
	}
	record := &journalRecord{By: o.who.by, Why: o.who.why, Act: actOf(o.What, o.Us), Detail: o.detail(), N: r.Done, Bulk: b}
	if word == journalDone {
		brief, cancel := briefly(ctx)
		defer cancel()
		ctx = brief
	}
	got, err := m.writeDown(ctx, record, journalNote{word: word, token: o.Entry.Token, made: o.Entry.Made, wrote: o.wrote})
	o.noted = time.Now()
	if err != nil && ctx.Err() != nil && word == journalRuns {
		o.wrote = "" // perhaps it was written all the same; the call ends here, and leave says so
		return word
	}
	if err != nil {
		m.missing(record, err)
		o.mute = true // and it goes on all the same
		return word
	}
	if got.said != journalTaken { // else what it wrote last stays so, and it writes there no more
		o.Entry.Made, o.wrote = got.made, got.wrote
	}
	return got.said
}
