package web

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// What is done to all messages that match: first they are counted, in steps of a second that change nothing and whose whole state is in
// the form that asks for the next one, since an address has no room for it; then what was counted, and no more, is done by a job.

func (h *Handler) planRoutes() []route {
	// post asks for more
	return []route{{name: "plan", title: "All that match", queue: true, file: "plan", load: h.plan, act: Look, post: h.postPlan}}
}

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
	Chosen  []fact // the selection in words
	Rates   []int
	Result  *delayqueue.BulkResult // nil: not begun
	Shown   []*delayqueue.MessageStatus
	By      time.Duration
	Rate    int
	Onwards []fact // fields of the form that asks for the next second of counting; the script sends it
}

// plan counts for a second.
func (h *Handler) plan(ctx context.Context, r *request) (any, error) {
	s, err := r.selection()
	if err != nil {
		return nil, err
	}
	p := &planning{verb: verbNamed(r.Arg("do")), selection: s, Chosen: r.lang.selected(s), Rates: rates}
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
	p.Chosen = append(p.Chosen, r.lang.howOf(p)...)
	return p, r.setShown(ctx, p)
}

// howOf says in words how what was chosen will be done.
func (l *language) howOf(p *planning) (all []fact) {
	if p.NeedsDelay {
		all = append(all, fact{l.say("By how much"), l.duration(p.By)})
	}
	how := l.say("as fast as it goes")
	if p.Rate > 0 {
		how = l.say("%s a second", l.number(p.Rate))
		if d := time.Duration(p.Result.Done) * time.Second / time.Duration(p.Rate); p.Result.Next == "" && d >= time.Second {
			how = l.say("%s a second, which takes %s", l.number(p.Rate), l.duration(d))
		}
	}
	return append(all, fact{l.say("How fast"), how})
}

// Doing is what the button of a plan says that it does.
func (r *request) Doing(p *planning) string {
	if p.NeedsDelay {
		return r.lang.say("Postpone by %s", r.lang.duration(p.By))
	}
	return r.lang.say(p.Title)
}

// selected says in words which messages are meant.
func (l *language) selected(s *selection) (all []fact) {
	for _, one := range s.Pairs() {
		switch one.Name {
		case "state":
			one = fact{l.say("State"), l.state(s.State)}
		case "key":
			one.Name = l.say("Key")
		case "contains":
			one.Name = l.say("Payload contains")
		case "error":
			one.Name = l.say("Error contains")
		case "like":
			one.Name = l.say("With errors like")
		case "header":
			one.Name = l.say("Header (name=text)")
		case "from":
			one = fact{l.say("From"), l.clockOf(s.Filter.From, "2006-01-02 15:04:05")}
		case "to":
			one = fact{l.say("Until"), l.clockOf(s.Filter.To, "2006-01-02 15:04:05")}
		}
		all = append(all, one)
	}
	return all
}

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

// count begins a dry run, or goes on with the query's.
func (r *request) count(ctx context.Context, p *planning) (*delayqueue.BulkResult, error) {
	m := r.Monitor()
	end := time.Now().Add(r.h.spend)
	enough := func(*delayqueue.BulkResult) bool { return time.Now().Before(end) }
	asked := &delayqueue.BulkTask{States: []delayqueue.State{p.State}, Filter: p.Filter, By: p.By, Rate: p.Rate}
	if next := r.Arg("next"); next != "" {
		task, err := m.BulkTask(next)
		if err != nil {
			return nil, errUnread
		}
		// Counting changes nothing, and what is counted is what the page says.
		if !task.DryRun || task.Planned || verbOf(task.Action, p.State) != p.verb || !slices.Equal(chosen(task), chosen(asked)) {
			return nil, errWhat
		}
		return m.BulkContinue(ctx, next, enough)
	}
	return p.many(ctx, m, delayqueue.Bulk{States: asked.States, Filter: p.Filter, DryRun: true, Rate: p.Rate, Progress: enough}, p.By)
}

// setShown finds the first ten, whose ids the form carries while the counting goes on.
func (r *request) setShown(ctx context.Context, p *planning) error {
	ids := r.query["s"]
	for _, msg := range p.Result.Sample {
		if len(ids) < sampled {
			ids = append(ids, msg.ID)
		}
	}
	ids = ids[:min(len(ids), sampled)]
	if p.Result.Next != "" {
		p.Onwards = append(p.Pairs(), fact{"do", p.Name}, fact{"by", r.Arg("by")}, fact{"rate", r.Arg("rate")}, fact{"count", "1"})
		p.Onwards = append(p.Onwards, fact{"next", p.Result.Next})
		for _, id := range ids {
			p.Onwards = append(p.Onwards, fact{"s", id})
		}
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

// verbOf is what a task of that action does to messages in a state; nil if that is nothing that can be done here.
func verbOf(action string, in delayqueue.State) *verb {
	i := slices.IndexFunc(verbs, func(v verb) bool { return slices.Contains(v.Tasks, action) && slices.Contains(v.States, in) })
	if i < 0 {
		return nil
	}
	return &verbs[i]
}

// taskVerb is what a task does, of a plan or of a job; the request must be allowed to do that to each state that it is about. Who
// sends it may have made it up. What may make messages due earlier is to run them, too.
func (r *request) taskVerb(task *delayqueue.BulkTask) (v *verb, err error) {
	for _, state := range task.States {
		if v = verbOf(task.Action, state); v == nil {
			return nil, errWhat
		}
		if r.Actor, err = r.may(v.Action, r.Queue); err == nil && v.Action == Reschedule && task.By <= 0 {
			r.Actor, err = r.may(RunNow, r.Queue)
		}
		if err != nil {
			return nil, err
		}
	}
	if v == nil {
		return nil, errWhat
	}
	return v, nil
}

// guesses returns an error if a task says by what it touches what is in payloads that are hidden.
func (r *request) guesses(task *delayqueue.BulkTask) error {
	if r.h.cfg.Payload != nil && task.Filter.Contains != "" {
		return errHidden
	}
	return nil
}

// postPlan begins a job, or goes on with counting, which is no more than a look.
func (h *Handler) postPlan(_ context.Context, r *request) (string, error) {
	if r.PostForm.Has("count") {
		r.query = r.PostForm
		return "", nil
	}
	token := r.PostForm.Get("plan")
	task, err := r.Monitor().BulkTask(token)
	if err != nil {
		return "", errUnread
	}
	if !task.Planned {
		return "", errWhat
	}
	if err := r.guesses(task); err != nil {
		return "", err
	}
	v, err := r.taskVerb(task)
	if err == nil {
		err = r.destroy(v)
	}
	if err != nil {
		return "", err
	}
	m := r.steering()
	begun, err := h.startJob(r.Queue, func(ctx context.Context, progress func(*delayqueue.BulkResult) bool) (*delayqueue.BulkResult, error) {
		return m.BulkCommit(ctx, token, progress)
	})
	if err != nil {
		return "", err
	}
	if begun.Entry == "" { // it is over, and in no journal
		return link("messages", notice(url.Values{"q": {r.Queue}, "state": {task.States[0].String()}}, v.Name, begun.Done)), nil
	}
	return jobLink(r.Queue, begun.Entry), nil
}
