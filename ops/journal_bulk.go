package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// This file writes calls for many into the journal, where other processes see how they go on, and stop them.

// ErrBulkStopped: the call for many has stopped, because StopBulk was called.
var ErrBulkStopped = errors.New("the call was asked to stop")

// actOf is the Act of a change.
func actOf(what string, us int64) string {
	switch {
	case what == script.SteerAt && us == 0:
		return journal.RunNow
	case what == script.SteerRequeue:
		return journal.Requeue
	case what == script.SteerDelete:
		return journal.Delete
	case what == script.SteerRelease:
		return journal.ReleaseKey
	case what == script.SteerLast || what == script.SteerGarbage:
		return journal.Skip
	default:
		return journal.Reschedule
	}
}

// act is the Act of the call. What deletes live messages cancels them.
func (o *operation) act() string {
	if o.What == script.SteerDelete && slices.ContainsFunc(o.States, func(s delayqueue.State) bool {
		return s != delayqueue.StateGarbage && s != delayqueue.StateDone
	}) {
		return journal.Cancel
	}
	return actOf(o.What, o.Us)
}

// steerDetail says in words until when or by how much.
func steerDetail(what string, us int64) string {
	switch {
	case what == script.SteerBy:
		return fmt.Sprintf("by %v", message.Microseconds(us))
	case what == script.SteerAt && us != 0:
		return "due " + instantText(message.InstantTime(us))
	case what == script.SteerLast:
		return "to the end of its lane"
	case what == script.SteerGarbage:
		return "to garbage"
	default:
		return ""
	}
}

func instantText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// detail says in words which messages are changed, and how.
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
	if o.Anew {
		add("deadlines are lifted")
	}
	if o.Spread > 0 {
		add(fmt.Sprintf("spread over %v", message.Microseconds(o.Spread)))
	}
	if o.Rate > 0 {
		add(fmt.Sprintf("%d a second", o.Rate))
	}
	if o.Most > 0 {
		add(fmt.Sprintf("at most %d", o.Most))
	}
	return strings.Join(words, "; ")
}

// words says which messages the filter selects; "" if it selects all.
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
	text("lane", f.Lane)
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		text("header "+name, f.Headers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f.HeadersContain)) {
		text("a part of header "+name, f.HeadersContain[name])
	}
	text("payload", f.Contains)
	text("error", f.Error)
	text("a part of the error", f.ErrorContains)
	text("errors like", f.ErrorLike)
	return strings.Join(words, ", ")
}

// leave writes how the call has ended.
func (m *Queue) leave(ctx context.Context, o *operation, finished bool, err error) {
	switch {
	case err == nil && finished:
		_ = m.noteBulk(ctx, o, journal.Finished, o.Err(len(o.of.All), o.did())) // the others may have had Most
	case err == nil, errors.Is(err, ErrBulkStopped), ctx.Err() != nil:
		_ = m.noteBulk(ctx, o, journal.Stopped, nil)
	default:
		_ = m.noteBulk(ctx, o, journal.Failed, err)
	}
}

// noteBulk writes how far the call has come, and returns ErrBulkStopped if StopBulk was called. While Redis cannot be
// reached, a call that goes on waits here, as it would in its next step; otherwise nobody could see or stop it later.
// If the journal's shard is away, and there are others, the call goes on, and tries again at its next step; without an
// entry if there is none yet.
// For the end of a call there are only the attempts of journalTime.
func (m *Queue) noteBulk(ctx context.Context, o *operation, phase string, failure error) error {
	if o.dry || o.mute {
		return nil
	}
	b := &bulkRecord{Phase: phase, Total: o.Result.Total, Looked: o.Result.Looked, Passed: o.Result.Passed, Task: &o.task,
		Begun: o.Begun}
	if text, _ := cursorOf(b.Task); len(text) > maxEntryTask {
		b.Task = nil
	}
	if failure != nil {
		b.Error = message.ErrorText(failure)
	}
	record := &journalRecord{By: o.who.by, Why: o.who.why, Act: o.act(), Detail: o.detail(),
		N: o.Result.Done - o.earlier, Bulk: b}
	word, ends := script.JournalRuns, phase != journal.Running
	if ends {
		word = script.JournalDone
		brief, cancel := briefly(ctx)
		defer cancel()
		ctx = brief
	}
	note := func(ctx context.Context, _ *script.Store) (script.JournalAnswer, error) {
		return m.writeDown(ctx, record, script.JournalNote{Word: word, Token: o.entry.Token, Made: o.entry.Made})
	}
	got, err := shard.One(ctx, o.of.All[0], note)
	o.noted = time.Now()
	switch {
	case err == nil:
		if o.entry.Made = got.Made; !ends && got.Said == script.JournalStop {
			return ErrBulkStopped
		}
	case !ends && ctx.Err() == nil && o.entry.Made != "" && (link.Transient(err) || link.TimedOut(err)):
		// a blip: a later note says how far the call has come by then
	case ends, ctx.Err() == nil,
		o.entry.Made == "": // else the entry was perhaps written; the call ends here, and leave writes its end
		m.missing(record, err)
		o.mute = true // the call goes on without an entry
	}
	return nil
}
