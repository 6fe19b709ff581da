package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
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
	p.Rate, _ = strconv.Atoi(r.Arg("rate"))
	if p.Result, err = r.count(ctx, p); err != nil {
		return nil, err
	}
	return p, r.setShown(ctx, p)
}

// rest shows how far one is that was begun. It does nothing.
func (r *request) rest(token string) (any, error) {
	task, err := r.Monitor().BulkTask(token)
	if err != nil {
		return nil, &httpError{http.StatusBadRequest, "That plan cannot be read: count again"}
	}
	if task.DryRun || task.Planned {
		return nil, errWhat
	}
	v, err := r.taskVerb(task)
	return &planning{verb: v, Rest: token, Task: task}, err
}

// count begins a dry run, or goes on with the query's.
func (r *request) count(ctx context.Context, p *planning) (*delayqueue.BulkResult, error) {
	m := r.Monitor()
	end := time.Now().Add(budgetSpend)
	enough := func(*delayqueue.BulkResult) bool { return time.Now().Before(end) }
	if next := r.Arg("next"); next != "" {
		task, err := m.BulkTask(next)
		if err != nil {
			return nil, err
		}
		if !task.DryRun { // a GET changes nothing
			return nil, errWhat
		}
		return m.BulkContinue(ctx, next, enough)
	}
	return p.many(ctx, m, delayqueue.Bulk{
		States: []delayqueue.State{p.State}, Filter: p.Filter, DryRun: true, Rate: max(p.Rate, 0), Progress: enough,
	}, p.By)
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

// taskVerb is what a plan, or the rest of a job, does; the request must be allowed to.
func (r *request) taskVerb(task *delayqueue.BulkTask) (*verb, error) {
	v := verbNamed(taskVerbs[task.Action])
	if v == nil {
		return nil, errWhat // it was begun with other means
	}
	for _, state := range task.States {
		if v.Destroys && state == delayqueue.StateUnack {
			v = verbNamed("cancel")
		}
	}
	var err error
	r.Actor, err = r.may(v.Action, r.Queue)
	return v, err
}

// postPlan begins a job.
func (h *Handler) postPlan(ctx context.Context, r *request) (string, error) {
	token := r.PostForm.Get("plan")
	task, err := r.Monitor().BulkTask(token)
	if err != nil {
		return "", &httpError{http.StatusBadRequest, "That plan cannot be read: count again"}
	}
	if task.DryRun || len(task.States) == 0 {
		return "", errWhat
	}
	v, err := r.taskVerb(task)
	if err == nil && task.Planned {
		err = r.destroy(v)
	}
	if err != nil {
		return "", err
	}
	m := r.steering()
	end := time.Now().Add(stepSpend)
	enough := func(*delayqueue.BulkResult) bool { return time.Now().Before(end) }
	var result *delayqueue.BulkResult
	if task.Planned {
		result, err = m.BulkCommit(ctx, token, enough)
	} else {
		result, err = m.BulkContinue(ctx, token, enough)
	}
	switch {
	case result != nil && result.Next != "" && (err == nil || result.Done > 0):
		return link("plan", url.Values{"q": {r.Queue}, "rest": {result.Next}}), nil
	case err != nil:
		return "", err
	}
	said := r.lang.say(v.Did, r.lang.number(result.Done))
	return link("messages", url.Values{"q": {r.Queue}, "state": {task.States[0].String()}, "done": {said}}), nil
}
