package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

// Actions on single messages: a page that asks, which is a GET and changes nothing, and the form on that page.

// A verb is something that can be done to messages.
type verb struct {
	Name       string // in forms
	Title      string // a key of the catalogue
	Did        string // what was done, with a count
	Action     Action
	Act        string             // what the journal calls it
	States     []delayqueue.State // of what it can be done to
	Destroys   bool               // the queue's name must be typed
	NeedsDelay bool               // the form asks by how much
	Anew       bool               // the form asks whether deadlines are lifted
	Turn       bool               // only to a message that has a turn in its lane

	one  func(m *ops.Queue, ctx context.Context, id string, by time.Duration) error
	many func(m *ops.Queue, ctx context.Context, b ops.Bulk, by time.Duration) (*ops.BulkResult, error)
}

// one and many are for methods that need no delay.
func one(do func(*ops.Queue, context.Context, string) error) func(*ops.Queue, context.Context, string,
	time.Duration) error {
	return func(m *ops.Queue, ctx context.Context, id string, _ time.Duration) error { return do(m, ctx, id) }
}

func many(do func(*ops.Queue, context.Context, ops.Bulk) (*ops.BulkResult, error),
) func(*ops.Queue, context.Context, ops.Bulk, time.Duration) (*ops.BulkResult, error) {
	return func(m *ops.Queue, ctx context.Context, b ops.Bulk, _ time.Duration) (*ops.BulkResult, error) {
		return do(m, ctx, b)
	}
}

var verbs = []verb{
	{
		Name: "count", Title: "Count by state", Action: Look, States: states, many: many(countAll), // changes nothing
	}, {
		Name: "run", Title: "Run now", Did: "%s made due now", Action: RunNow, Act: journal.RunNow, Anew: true,
		States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateRetry, delayqueue.StateWaiting},
		one:    one((*ops.Queue).RunNow),
		many:   many((*ops.Queue).BulkRunNow),
	}, {
		Name: "postpone", Title: "Postpone", Did: "%s postponed", Action: Reschedule, Act: journal.Reschedule,
		NeedsDelay: true,
		Anew:       true,
		States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateWaiting,
			delayqueue.StateRetry},
		one: (*ops.Queue).RescheduleBy, many: (*ops.Queue).BulkRescheduleBy,
	}, {
		Name: "requeue", Title: "Requeue", Did: "%s requeued", Action: Requeue, Act: journal.Requeue, Anew: true,
		States: []delayqueue.State{delayqueue.StateGarbage},
		one:    one((*ops.Queue).Requeue),
		many:   many((*ops.Queue).BulkRequeue),
	}, {
		Name: "cancel", Title: "Cancel", Did: "%s canceled", Action: Cancel, Destroys: true, Act: journal.Delete,
		States: []delayqueue.State{
			delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateWaiting, delayqueue.StateRetry,
			delayqueue.StateUnack,
		},
		one:  one(cancelOne),
		many: many((*ops.Queue).BulkDelete),
	}, {
		Name: "delete", Title: "Delete", Did: "%s deleted", Action: Delete, Destroys: true, Act: journal.Delete,
		States: []delayqueue.State{delayqueue.StateGarbage, delayqueue.StateDone},
		one:    one((*ops.Queue).Delete),
		many:   many((*ops.Queue).BulkDelete),
	}, {
		Name: "skip", Title: "Put at the end of its lane", Did: "%s put behind its lane", Action: Skip, Act: journal.Skip,
		Turn:   true,
		States: turnStates, one: one((*ops.Queue).SkipToEnd),
	}, {
		Name: "giveup", Title: "Give up, and let its lane go on", Did: "%s given up", Action: Skip, Act: journal.Skip,
		Turn:   true,
		States: turnStates, one: one((*ops.Queue).SkipToGarbage),
	},
}

// turnStates are those in which a message has a turn and no handler.
var turnStates = []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry}

func countAll(m *ops.Queue, ctx context.Context, b ops.Bulk) (*ops.BulkResult, error) {
	b.DryRun = true
	return m.BulkDelete(ctx, b)
}

// Changes says whether messages are changed, and not only counted.
func (v *verb) Changes() bool { return v.one != nil }

func cancelOne(m *ops.Queue, ctx context.Context, id string) error {
	got, err := m.Cancel(ctx, id)
	if err == nil && !got.Intercepted {
		err = &delayqueue.StateError{ID: id, State: got.State}
	}
	return err
}

// verbNamed returns nil for none.
func verbNamed(name string) *verb {
	i := slices.IndexFunc(verbs, func(v verb) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &verbs[i]
}

// verbsFor are those that the request may use, in that state or, with StateGone, in any.
func (r *request) verbsFor(s delayqueue.State) (all []verb) {
	for _, v := range verbs {
		if v.Changes() && !v.Turn && (s == delayqueue.StateGone || slices.Contains(v.States, s)) && r.May(v.Action) {
			all = append(all, v)
		}
	}
	return all
}

// turnVerbs are those for a message of a lane in that state. late says whether a message that is due waits behind.
func (r *request) turnVerbs(s delayqueue.State, late bool) (all []verb) {
	for _, v := range verbs {
		if v.Turn && slices.Contains(v.States, s) && (late || v.Name != "skip") && r.May(v.Action) {
			all = append(all, v)
		}
	}
	return all
}

// delays are the choices for Postpone.
var delays = []time.Duration{5 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

// Delays is for templates.
func (r *request) Delays() []time.Duration { return delays }

func delayNamed(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || !slices.Contains(delays, d) {
		return 0, &httpError{http.StatusBadRequest, "Say by how much"}
	}
	return d, nil
}

const (
	mostTicked = 500 // messages in one form
	sampled    = 10  // messages that are shown before something is done to all
)

var (
	errWhat    = &httpError{http.StatusBadRequest, "There is no such action"}
	errNobody  = &httpError{http.StatusBadRequest, "No message was chosen: go back and tick some"}
	errUntyped = &httpError{http.StatusUnprocessableEntity,
		"Nothing was done: type the queue's name, as it is, to destroy something"}
	errTooLarge = &httpError{http.StatusBadRequest, "These are too many messages at once"}
)

// An asking is the page before an action.
type asking struct {
	*verb
	IDs   []string
	Shown []sampleRow // the first of them
	Gone  int         // of these
}

// A sampleRow is a message that something is to be done to, with what says whose it is.
type sampleRow struct {
	*ops.MessageStatus
	Headers []headerLink
	Begins  string // of its payload
}

const headersMost = 600 // bytes of the headers of a message in a sample

func (h *Handler) askAct(ctx context.Context, r *request) (any, error) {
	v, ids, err := r.asked(r.query)
	if err != nil {
		return nil, err
	}
	a := &asking{verb: v, IDs: ids}
	a.Shown, a.Gone, err = r.sample(ctx, ids)
	return a, err
}

// sample reads the first of these messages that are there, and counts those of them that are gone.
func (r *request) sample(ctx context.Context, ids []string) (shown []sampleRow, gone int, err error) {
	m := r.Monitor()
	for _, id := range ids[:min(len(ids), sampled)] {
		msg, err := m.Get(ctx, id)
		switch {
		case err == nil:
			shown = append(shown, sampleRow{msg, r.headersOf(msg, headersMost), r.payloadBegins(msg)})
		case errors.Is(err, delayqueue.ErrNotFound) && !errors.Is(err, delayqueue.ErrNoQueue):
			gone++
		default:
			return nil, 0, err
		}
	}
	return shown, gone, nil
}

// asked reads the verb and the messages, and asks Authorize.
func (r *request) asked(form url.Values) (v *verb, ids []string, err error) {
	ids = slices.Compact(slices.Sorted(slices.Values(form["id"])))
	switch v = verbNamed(form.Get("do")); {
	case v == nil || !v.Changes():
		return nil, nil, errWhat
	case len(ids) == 0:
		return nil, nil, errNobody
	case len(ids) > mostTicked:
		return nil, nil, errTooLarge
	}
	r.Actor, err = r.may(v.Action, r.Queue)
	return v, ids, err
}

// steering is the queue in the name of the actor, with the reason of the form.
func (r *request) steering() *ops.Queue {
	m := r.Monitor()
	if reason := strings.TrimSpace(r.PostForm.Get("reason")); reason != "" {
		m.WithReason(reason)
	}
	if r.PostForm.Get("anew") != "" {
		m.Anew()
	}
	return m
}

// destroy returns an error unless the queue's name was typed.
func (r *request) destroy(v *verb) error {
	if v.Destroys && r.PostForm.Get("confirm") != r.Queue {
		return errUntyped
	}
	return nil
}

// fits returns an error if a message is in no state of what destroys it: who may cancel may not delete. A message that
// changes its state between this and the act is destroyed all the same.
func fits(ctx context.Context, m *ops.Queue, v *verb, id string) error {
	if !v.Destroys {
		return nil
	}
	msg, err := m.Get(ctx, id)
	if err == nil && !slices.Contains(v.States, msg.State) {
		err = &delayqueue.StateError{ID: id, State: msg.State}
	}
	return err
}

// whyCode is the word for notice. Other errors are logged.
func (h *Handler) whyCode(err error, queue string) string {
	switch {
	case errors.Is(err, delayqueue.ErrNotFound):
		return "gone"
	case errors.Is(err, delayqueue.ErrWrongState):
		return "state"
	case errors.Is(err, delayqueue.ErrDuplicateKey):
		return "key"
	case errors.Is(err, delayqueue.ErrExpired):
		return "expired"
	}
	h.log.Warn("delayqueue: something was not done to all messages that were ticked", "queue", queue, "error", err)
	return "other"
}

// whyNot is why something was not done to a message.
func (l *language) whyNot(v *verb, err error) string {
	var in *delayqueue.StateError
	switch wrong := errors.Is(err, delayqueue.ErrWrongState); {
	case errors.As(err, &in) && !slices.Contains(v.States, in.State) && in.State != delayqueue.StateGone:
		return l.say("The message is in the state %s now, in which this cannot be done", l.state(in.State))
	case wrong && in == nil && v.Turn:
		return l.say("No message of its lane that is due waits behind it")
	case errors.Is(err, delayqueue.ErrDuplicateKey):
		return l.whyPassed("key")
	case errors.Is(err, delayqueue.ErrExpired):
		return l.whyPassed("expired")
	}
	return l.trouble(err)
}

// formOf is the page with the form for a message, "" if the message is gone.
func (r *request) formOf(ctx context.Context, v *verb, id string) string {
	switch msg, err := r.Monitor().Get(ctx, id); {
	case err != nil:
		return ""
	case v.Turn && msg.Lane != "":
		return linkOf("lanes", nil, "q", r.Queue, "lane", msg.Lane)
	}
	return linkOf("message", nil, "q", r.Queue, "id", id)
}

// postAct acts on each ticked message. It goes on after an error, unless Redis cannot be reached.
func (h *Handler) postAct(ctx context.Context, r *request) (string, error) {
	v, ids, err := r.asked(r.PostForm)
	if err == nil {
		err = r.destroy(v)
	}
	var by time.Duration
	if err == nil && v.NeedsDelay {
		by, err = delayNamed(r.PostForm.Get("by"))
	}
	if err != nil {
		return "", err
	}
	m, done, first := r.steering(), 0, error(nil)
	for _, id := range ids {
		err := fits(ctx, m, v, id)
		if err == nil {
			err = v.one(m, ctx, id, by)
		}
		if err == nil {
			done++
			continue
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil || unreachable(err) {
			break
		}
	}
	switch {
	case done == 0 && unreachable(first):
		return "", first
	case done == 0 && first != nil && len(ids) == 1:
		if _, err := r.may(Look, r.Queue); err == nil {
			r.Back = r.formOf(ctx, v, ids[0])
		}
		return "", &httpError{http.StatusConflict, r.lang.whyNot(v, first)}
	}
	to := notice(url.Values{"q": {r.Queue}}, v.Name, int64(done))
	if passed := len(ids) - done; passed > 0 {
		to.Set("passed", strconv.Itoa(passed))
		to.Set("why", h.whyCode(first, r.Queue))
	}
	if len(ids) == 1 && !v.Destroys {
		to.Set("id", ids[0])
		return link("message", to), nil
	}
	to.Set("state", v.States[0].String())
	return link("messages", to), nil
}
