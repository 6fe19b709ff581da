package web

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// What is done to all messages that match: first they are counted, in steps of a second that change nothing and whose whole state is in
// the address; then what was counted, and no more, is done in steps of some seconds, each of them a form: what is left is in the form too, so
// any process can go on, and who goes on with nothing has stopped it.

func (h *Handler) planRoutes() []route {
	return []route{{name: "plan", title: "All that match", queue: true, file: "plan", load: h.plan, act: Look, post: h.postPlan}} // post asks for more
}

// stepSpend is how long one form works.
const stepSpend = 5 * time.Second

// rates are those that a job can have, messages a second; 0: as fast as its steps go.
var rates = []int{0, 10, 100, 1000}

var (
	errUnread = &httpError{http.StatusBadRequest, "That plan cannot be read: count again"}
	errHidden = &httpError{http.StatusForbidden, "Payloads cannot be searched here: the service hides them"}
)

// A planning is what has been counted.
type planning struct {
	*verb
	*selection
	Rates   []int
	Begun   bool
	Result  *delayqueue.BulkResult // nil: not begun
	Shown   []*delayqueue.MessageStatus
	By      time.Duration
	Rate    int
	onwards string
	Rest    string // what is left of one that was begun, a Next
	Task    *delayqueue.BulkTask
	Seal    string // of Rest, if the queue's name was typed for it
}

// Refresh is where the page goes by itself, for the next second of counting; "" if it stays.
func (p *planning) Refresh() string {
	if p.onwards == "" {
		return ""
	}
	return "0;url=" + p.onwards
}

// Onwards is that address, for who has such things turned off.
func (p *planning) Onwards() string { return p.onwards }

// plan counts for a second.
func (h *Handler) plan(ctx context.Context, r *request) (any, error) {
	if rest := r.Arg("rest"); rest != "" {
		return r.rest(rest)
	}
	s, err := r.selection()
	if err != nil {
		return nil, err
	}
	p := &planning{verb: verbNamed(r.Arg("do")), selection: s, Rates: rates}
	if p.verb == nil || s.State == delayqueue.StateGone || s.Text != "" {
		return nil, errWhat
	}
	if _, err := r.may(p.Action, r.Queue); err != nil {
		return nil, err
	}
	if r.Arg("count") == "" {
		return p, nil
	}
	if p.NeedsDelay {
		if p.By, err = delayNamed(r.Arg("by")); err != nil {
			return nil, err
		}
	}
	rate, _ := strconv.Atoi(r.Arg("rate"))
	p.Rate = max(rate, 0)
	if p.Result, err = r.count(ctx, p); err != nil {
		return nil, err
	}
	return p, r.setShown(ctx, p)
}

// rest shows how far one is that was begun. It does nothing.
func (r *request) rest(token string) (any, error) {
	task, err := r.Monitor().BulkTask(token)
	if err != nil {
		return nil, errUnread
	}
	if task.DryRun || task.Planned {
		return nil, errWhat
	}
	v, err := r.taskVerb(task)
	p := &planning{verb: v, Rest: token, Task: task}
	if r.sealed(task, r.query) {
		p.Seal = r.seal(task)
	}
	return p, err
}

// Chosen is what a task that was begun is about.
func (p *planning) Chosen() []fact { return chosen(p.Task) }

// chosen says which messages a task is about, and how it goes about it.
func chosen(t *delayqueue.BulkTask) (all []fact) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, fact{name, value})
		}
	}
	for _, s := range t.States {
		add("state", s.String())
	}
	add("key", t.Filter.Key)
	add("contains", t.Filter.Contains)
	add("error", t.Filter.Error)
	add("like", t.Filter.ErrorLike)
	for _, name := range slices.Sorted(maps.Keys(t.Filter.Headers)) {
		add("header", name+"="+t.Filter.Headers[name])
	}
	if !t.Filter.From.IsZero() {
		add("from", t.Filter.From.UTC().Format(time.RFC3339Nano))
	}
	if !t.Filter.To.IsZero() {
		add("to", t.Filter.To.UTC().Format(time.RFC3339Nano))
	}
	for name, d := range map[string]time.Duration{"by": t.By, "spread": t.Spread} { // no task has both
		if d != 0 {
			add(name, d.String())
		}
	}
	if t.Rate > 0 {
		add("rate", strconv.Itoa(t.Rate))
	}
	return all
}

// seal is what the forms of a job carry once the queue's name was typed for it, so that it is typed once: who makes up a job for
// somebody else to go on with has none. Another process asks for the name again.
func (r *request) seal(task *delayqueue.BulkTask) string {
	mac := hmac.New(sha256.New, r.h.secret)
	fmt.Fprintf(mac, "%q %q %q %d %d", r.Queue, task.Action, chosen(task), task.At.UnixMicro(), task.Counted)
	return hex.EncodeToString(mac.Sum(nil))
}

func (r *request) sealed(task *delayqueue.BulkTask, form url.Values) bool {
	return !task.Planned && hmac.Equal([]byte(form.Get("seal")), []byte(r.seal(task)))
}

// count begins a dry run, or goes on with the query's.
func (r *request) count(ctx context.Context, p *planning) (*delayqueue.BulkResult, error) {
	m := r.Monitor()
	end := time.Now().Add(budgetSpend)
	enough := func(*delayqueue.BulkResult) bool { return time.Now().Before(end) }
	asked := &delayqueue.BulkTask{States: []delayqueue.State{p.State}, Filter: p.Filter, By: p.By, Rate: p.Rate}
	if next := r.Arg("next"); next != "" {
		task, err := m.BulkTask(next)
		if err != nil {
			return nil, errUnread
		}
		// A GET changes nothing, and what is counted is what the page says.
		if !task.DryRun || task.Planned || verbOf(task.Action, p.State) != p.verb || !slices.Equal(chosen(task), chosen(asked)) {
			return nil, errWhat
		}
		return m.BulkContinue(ctx, next, enough)
	}
	return p.many(ctx, m, delayqueue.Bulk{States: asked.States, Filter: p.Filter, DryRun: true, Rate: p.Rate, Progress: enough}, p.By)
}

// setShown finds the first ten, whose ids the address carries while the counting goes on.
func (r *request) setShown(ctx context.Context, p *planning) error {
	ids := r.query["s"]
	for _, msg := range p.Result.Sample {
		if len(ids) < sampled {
			ids = append(ids, msg.ID)
		}
	}
	ids = ids[:min(len(ids), sampled)]
	if p.Result.Next != "" {
		query := url.Values{}
		for name, values := range r.query {
			query[name] = values
		}
		query.Set("next", p.Result.Next)
		query["s"] = ids
		p.onwards = link("plan", query)
		return nil
	}
	m := r.Monitor()
	for _, id := range ids {
		msg, err := m.Get(ctx, id)
		if errors.Is(err, delayqueue.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		p.Shown = append(p.Shown, msg)
	}
	return nil
}

// taskVerbs are the names of what a BulkTask does.
var taskVerbs = map[string]string{"run now": "run", "reschedule by": "postpone", "requeue": "requeue", "delete": "delete"}

// verbOf is what a task of that action does to messages in a state; nil if that was begun with other means.
func verbOf(action string, in delayqueue.State) *verb {
	name := taskVerbs[action]
	if name == "delete" && in == delayqueue.StateUnack {
		name = "cancel"
	}
	if v := verbNamed(name); v != nil && slices.Contains(v.States, in) {
		return v
	}
	return nil
}

// taskVerb is what a plan, or the rest of a job, does; the request must be allowed to do that to each state that it is about. Who
// sends it may have made it up.
func (r *request) taskVerb(task *delayqueue.BulkTask) (v *verb, err error) {
	if r.h.cfg.Payload != nil && task.Filter.Contains != "" {
		return nil, errHidden
	}
	for _, state := range task.States {
		if v = verbOf(task.Action, state); v == nil || task.By < 0 {
			return nil, errWhat
		}
		if r.Actor, err = r.may(v.Action, r.Queue); err != nil {
			return nil, err
		}
	}
	if v == nil {
		return nil, errWhat
	}
	return v, nil
}

// postPlan begins a job.
func (h *Handler) postPlan(ctx context.Context, r *request) (string, error) {
	token := r.PostForm.Get("plan")
	task, err := r.Monitor().BulkTask(token)
	if err != nil {
		return "", errUnread
	}
	if task.DryRun {
		return "", errWhat
	}
	v, err := r.taskVerb(task)
	if err == nil && !r.sealed(task, r.PostForm) {
		err = r.destroy(v)
	}
	if err != nil {
		return "", err
	}
	m := r.steering()
	end := time.Now().Add(stepSpend)
	enough := func(*delayqueue.BulkResult) bool { return time.Now().Before(end) && h.done.Err() == nil }
	var result *delayqueue.BulkResult
	if task.Planned {
		result, err = m.BulkCommit(ctx, token, enough)
	} else {
		result, err = m.BulkContinue(ctx, token, enough)
	}
	switch {
	case result != nil && result.Next != "" && (err == nil || result.Done > 0):
		to := url.Values{"q": {r.Queue}, "rest": {result.Next}}
		if rest, err := m.BulkTask(result.Next); err == nil && v.Destroys {
			to.Set("seal", r.seal(rest))
		}
		return link("plan", to), nil
	case err != nil:
		return "", err
	}
	said := r.lang.say(v.Did, r.lang.number(result.Done))
	return link("messages", url.Values{"q": {r.Queue}, "state": {task.States[0].String()}, "done": {said}}), nil
}
