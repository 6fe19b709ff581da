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
)

// What is done to single messages: a page that asks, which is a GET and changes nothing, and the form that it holds.

func (h *Handler) actionRoutes() []route {
	return []route{
		{name: "act", title: "Are you sure?", queue: true, file: "act", load: h.askAct, act: Look, post: h.postAct}, // post asks for more
		{name: "pause", title: "Pause", queue: true, file: "pause", load: h.askPause, act: Pause, post: h.postPause},
	}
}

// A verb is something that can be done to messages.
type verb struct {
	Name       string // in forms
	Title      string // a key of the catalogue
	Did        string // that it was done, with how often
	Action     Action
	Tasks      []string           // what a delayqueue.BulkTask and an Act call it
	States     []delayqueue.State // of what it can be done to
	Destroys   bool               // who does it has to type the queue's name
	NeedsDelay bool               // it needs to know how much later

	one  func(ctx context.Context, m *delayqueue.Monitor, id string, by time.Duration) error
	many func(ctx context.Context, m *delayqueue.Monitor, b delayqueue.Bulk, by time.Duration) (*delayqueue.BulkResult, error)
}

var verbs = []verb{
	{
		Name: "run", Title: "Run now", Did: "%s made due now", Action: RunNow, Tasks: []string{"run now"},
		States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateRetry},
		one: func(ctx context.Context, m *delayqueue.Monitor, id string, _ time.Duration) error {
			return m.RunNow(ctx, id)
		},
		many: func(ctx context.Context, m *delayqueue.Monitor, b delayqueue.Bulk, _ time.Duration) (*delayqueue.BulkResult, error) {
			return m.BulkRunNow(ctx, b)
		},
	}, {
		Name: "postpone", Title: "Postpone", Did: "%s postponed", Action: Reschedule, NeedsDelay: true,
		Tasks:  []string{"reschedule by", "reschedule"},
		States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry},
		one: func(ctx context.Context, m *delayqueue.Monitor, id string, by time.Duration) error {
			return m.RescheduleBy(ctx, id, by)
		},
		many: func(ctx context.Context, m *delayqueue.Monitor, b delayqueue.Bulk, by time.Duration) (*delayqueue.BulkResult, error) {
			return m.BulkRescheduleBy(ctx, b, by)
		},
	}, {
		Name: "requeue", Title: "Requeue", Did: "%s brought back", Action: Requeue, Tasks: []string{"requeue"},
		States: []delayqueue.State{delayqueue.StateGarbage},
		one: func(ctx context.Context, m *delayqueue.Monitor, id string, _ time.Duration) error {
			return m.Requeue(ctx, id)
		},
		many: func(ctx context.Context, m *delayqueue.Monitor, b delayqueue.Bulk, _ time.Duration) (*delayqueue.BulkResult, error) {
			return m.BulkRequeue(ctx, b)
		},
	}, {
		Name: "cancel", Title: "Cancel", Did: "%s cancelled", Action: Cancel, Destroys: true, Tasks: []string{"delete"},
		States: []delayqueue.State{delayqueue.StateUnack},
		one:    cancelOne,
		many: func(ctx context.Context, m *delayqueue.Monitor, b delayqueue.Bulk, _ time.Duration) (*delayqueue.BulkResult, error) {
			return m.BulkDelete(ctx, b)
		},
	}, {
		Name: "delete", Title: "Delete", Did: "%s deleted", Action: Delete, Destroys: true, Tasks: []string{"delete"},
		States: []delayqueue.State{
			delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry, delayqueue.StateGarbage, delayqueue.StateDone,
		},
		one: func(ctx context.Context, m *delayqueue.Monitor, id string, _ time.Duration) error {
			return m.Delete(ctx, id)
		},
		many: func(ctx context.Context, m *delayqueue.Monitor, b delayqueue.Bulk, _ time.Duration) (*delayqueue.BulkResult, error) {
			return m.BulkDelete(ctx, b)
		},
	},
}

func cancelOne(ctx context.Context, m *delayqueue.Monitor, id string, _ time.Duration) error {
	got, err := m.Cancel(ctx, id)
	if err == nil && !got.Intercepted {
		err = &delayqueue.StateError{Queue: m.Name(), ID: id, State: got.State}
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

// verbsFor are those that the request may use, in that state.
func (r *request) verbsFor(s delayqueue.State) (all []verb) {
	for _, v := range verbs {
		if slices.Contains(v.States, s) && r.May(v.Action) {
			all = append(all, v)
		}
	}
	return all
}

// delays are those by which something can be postponed.
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
	errWhat     = &httpError{http.StatusBadRequest, "That is nothing that can be done"}
	errNobody   = &httpError{http.StatusBadRequest, "No message was chosen: go back and tick some"}
	errUntyped  = &httpError{http.StatusUnprocessableEntity, "Nothing was done: type the queue's name, as it is, to destroy something"}
	errTooLarge = &httpError{http.StatusBadRequest, "That is too much at once"}
)

// An asking is what the page asks that stands before an action.
type asking struct {
	*verb
	IDs   []string
	Shown []*delayqueue.MessageStatus // the first of them
	Gone  int                         // of these
}

func (h *Handler) askAct(ctx context.Context, r *request) (any, error) {
	v, ids, err := r.asked(r.query)
	if err != nil {
		return nil, err
	}
	a := &asking{verb: v, IDs: ids}
	m := r.Monitor()
	for _, id := range ids[:min(len(ids), sampled)] {
		msg, err := m.Get(ctx, id)
		switch {
		case err == nil:
			a.Shown = append(a.Shown, msg)
		case errors.Is(err, delayqueue.ErrNotFound) && !errors.Is(err, delayqueue.ErrNoQueue):
			a.Gone++
		default:
			return nil, err
		}
	}
	return a, nil
}

// asked reads what is to be done to which messages, and finds out whether the request may.
func (r *request) asked(form url.Values) (v *verb, ids []string, err error) {
	ids = slices.Compact(slices.Sorted(slices.Values(form["id"])))
	switch v = verbNamed(form.Get("do")); {
	case v == nil:
		return nil, nil, errWhat
	case len(ids) == 0:
		return nil, nil, errNobody
	case len(ids) > mostTicked:
		return nil, nil, errTooLarge
	}
	r.Actor, err = r.may(v.Action, r.Queue)
	return v, ids, err
}

// steering is a Monitor in the name of the actor, with the reason of the form.
func (r *request) steering() *delayqueue.Monitor {
	m := r.Monitor()
	if reason := strings.TrimSpace(r.PostForm.Get("reason")); reason != "" {
		m.WithReason(reason)
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

// lacks returns an error if that would take out a message that is not being handled, which is Delete, and the request may not.
func (r *request) lacks(ctx context.Context, m *delayqueue.Monitor, v *verb, id string) error {
	if v.Action != Cancel || r.May(Delete) {
		return nil
	}
	msg, err := m.Get(ctx, id)
	if err == nil && !slices.Contains(v.States, msg.State) {
		err = &delayqueue.StateError{Queue: m.Name(), ID: id, State: msg.State}
	}
	return err
}

// whyCode is for notice; what the page has no words for is logged.
func (h *Handler) whyCode(err error, queue string) string {
	switch {
	case errors.Is(err, delayqueue.ErrNotFound):
		return "gone"
	case errors.Is(err, delayqueue.ErrWrongState):
		return "state"
	case errors.Is(err, delayqueue.ErrDuplicateKey):
		return "key"
	}
	h.log.Warn("delayqueue: something was not done to all messages that were ticked", "queue", queue, "error", err)
	return "other"
}

// postAct does it to each message that was ticked. One to which it cannot be done ends nothing.
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
		err := r.lacks(ctx, m, v, id)
		if err == nil {
			err = v.one(ctx, m, id, by)
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
	if done == 0 && first != nil && (len(ids) == 1 || unreachable(first)) {
		return "", &httpError{http.StatusConflict, r.lang.trouble(first)}
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
