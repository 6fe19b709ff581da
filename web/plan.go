package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/shift"
	"github.com/go-delayqueue/delayqueue/ops"
)

// What is done to all messages that match: first they are counted, in steps of a second that change nothing. The
// address of the next step has all that is known. Then a job does it to messages that were there at the count, and to
// no more than were counted.

// rates are those that a job can have, messages a second; 0: as fast as its steps go.
var rates = []int{0, 10, 100, 1000}

var (
	errUncounted = &httpError{http.StatusBadRequest, "That cannot be read: count again"}
	errBegun     = &httpError{http.StatusConflict, "This was begun before, and would be done twice: the journal shows it"}
	errHidden    = &httpError{http.StatusForbidden, "Payloads cannot be searched here: the service hides them"}
)

// A planning is what is to be done, and what has been counted.
type planning struct {
	*verb
	*selection
	Chosen []fact // the selection in words
	Rates  []int
	Result *ops.BulkResult // nil: not begun
	Shown  []sampleRow
	By     time.Duration
	Rate   int
	Lift   bool   // deadlines
	CutOff int64  // messages that the same call had shifted when it was cut off; they would be shifted again
	Fields []fact // of the form that counts on, which the script sends, or of the form that begins the job
}

// plan counts for a second, once it is known by how much messages are to be postponed.
func (h *Handler) plan(ctx context.Context, r *request) (any, error) {
	p, err := r.planned()
	if err != nil || p.NeedsDelay && r.Arg("by") == "" {
		return p, err
	}
	if err := p.setHow(r); err != nil {
		return nil, err
	}
	if p.Result, err = r.count(ctx, p); err != nil {
		return nil, err
	}
	if p.Changes() {
		p.Chosen = append(p.Chosen, r.lang.howOf(p)...)
	}
	if p.NeedsDelay && p.Result.Next == "" {
		b := p.bulk()
		e, err := shift.CutOff(ctx, r.Monitor(), &b, p.By)
		if err != nil {
			return nil, err
		}
		if e != nil {
			p.CutOff = e.Messages
		}
	}
	return p, r.setShown(ctx, p)
}

// planned reads what is to be done to which messages, and finds out whether the request may.
func (r *request) planned() (*planning, error) {
	s, err := r.selection()
	if err != nil {
		return nil, err
	}
	p := &planning{verb: verbNamed(r.Arg("do")), selection: s, Rates: rates}
	if p.verb == nil || p.Turn || s.Text != "" ||
		s.Everywhere() && !s.Narrow() || !s.Everywhere() && !slices.Contains(p.States, s.State) {
		return nil, errWhat
	}
	p.Chosen = r.lang.selected(p)
	r.Actor, err = r.may(p.Action, r.Queue)
	return p, err
}

// setHow reads by how much and how fast.
func (p *planning) setHow(r *request) (err error) {
	if p.NeedsDelay {
		p.By, err = delayNamed(r.Arg("by"))
	}
	rate, _ := strconv.Atoi(r.Arg("rate"))
	if p.Rate = max(rate, 0); !slices.Contains(p.Rates, p.Rate) {
		p.Rates = append(slices.Clone(p.Rates), p.Rate)
	}
	p.Lift = p.Anew && r.Arg("anew") != ""
	return err
}

// bulk is what the library is told.
func (p *planning) bulk() ops.Bulk {
	in := []delayqueue.State{p.State}
	if p.Everywhere() {
		in = p.States
	}
	return ops.Bulk{States: in, Filter: p.Filter, Rate: p.Rate, Anew: p.Lift}
}

// howOf says in words how what was chosen will be done.
func (l *language) howOf(p *planning) (all []fact) {
	if p.NeedsDelay {
		all = append(all, fact{l.say("By how much"), l.say("%s, from the instant at which each is due", l.duration(p.By))})
	}
	if p.Lift {
		all = append(all, fact{l.say("Deadlines"), l.say("are lifted")})
	}
	return all
}

// Lifted is the address of the same plan with deadlines lifted; "" if that takes in no more messages.
func (r *request) Lifted(p *planning) string {
	if !p.Anew || p.Lift || p.Result.Passed[ops.PassedExpired] == 0 {
		return ""
	}
	return p.Link("plan", "do", p.Name, "by", r.Arg("by"), "rate", r.Arg("rate"), "anew", 1)
}

// InStates is how many were counted in each state.
func (r *request) InStates(p *planning) (all []fact) {
	for _, state := range states {
		if n := p.Result.ByState[state]; n > 0 {
			all = append(all, fact{r.lang.state(state), r.lang.number(n)})
		}
	}
	return all
}

// Doing is what the button of a plan says that it does.
func (r *request) Doing(p *planning) string {
	if p.NeedsDelay {
		return r.lang.say("Postpone by %s", r.lang.duration(p.By))
	}
	return r.lang.say(p.Title)
}

// selected says in words which messages are meant.
func (l *language) selected(p *planning) (all []fact) {
	s := p.selection
	if s.Everywhere() {
		var in []string
		for _, state := range p.States {
			in = append(in, l.state(state))
		}
		all = append(all, fact{l.say("State"), strings.Join(in, ", ")})
	}
	for _, one := range s.Pairs() {
		switch one.Name {
		case "state":
			one = fact{l.say("State"), l.state(s.State)}
		case "key":
			one.Name = l.say("Key")
		case "lane":
			one.Name = l.say("Lane")
		case "contains":
			one.Name = l.say("Payload contains")
		case "error":
			if one.Name = l.say("Error"); s.Part("error") {
				one.Name = l.say("Error contains")
			}
		case "like":
			one.Name = l.say("With errors like")
		case "header":
			if one.Name = l.say("Header (name=text)"); s.Part("header") {
				one.Name = l.say("Header contains (name=text)")
			}
		case "errorhow", "headerhow":
			continue
		case "from":
			one = fact{l.say("From"), l.clockOf(s.Filter.From, "2006-01-02 15:04:05")}
		case "to":
			one = fact{l.say("Until"), l.clockOf(s.Filter.To, "2006-01-02 15:04:05")}
		}
		all = append(all, one)
	}
	return all
}

// count begins a dry run, or goes on with the query's.
func (r *request) count(ctx context.Context, p *planning) (*ops.BulkResult, error) {
	m := r.Monitor()
	end := time.Now().Add(r.h.spend)
	enough := func(*ops.BulkResult) bool { return time.Now().Before(end) }
	b := p.bulk()
	b.DryRun, b.Cursor, b.Progress = true, r.Arg("next"), enough
	got, err := p.many(m, ctx, b, p.By)
	if errors.Is(err, ops.ErrBadCursor) {
		err = errUncounted
	}
	return got, r.part(err)
}

// setShown makes the fields of the next form, and finds the first ten messages, whose ids it carries while the
// counting goes on.
func (r *request) setShown(ctx context.Context, p *planning) (err error) {
	ids := r.query["s"]
	for _, msg := range p.Result.Sample {
		if len(ids) < sampled {
			ids = append(ids, msg.ID)
		}
	}
	ids = ids[:min(len(ids), sampled)]
	p.Fields = append(p.Pairs(), fact{"do", p.Name}, fact{"by", r.Arg("by")}, fact{"anew", r.Arg("anew")})
	if p.Result.Next != "" {
		p.Fields = append(p.Fields, fact{"rate", r.Arg("rate")}, fact{"next", p.Result.Next})
		for _, id := range ids {
			p.Fields = append(p.Fields, fact{"s", id})
		}
		return nil
	}
	p.Fields = append(p.Fields, fact{"before", strconv.FormatInt(p.Result.At.UnixMicro(), 10)},
		fact{"most", strconv.FormatInt(p.Result.Done, 10)})
	p.Shown, _, err = r.sample(ctx, ids)
	return err
}

// postPlan begins a job.
func (h *Handler) postPlan(ctx context.Context, r *request) (string, error) {
	r.query = r.PostForm
	p, err := r.planned()
	if err == nil && !p.Changes() {
		err = errWhat
	}
	if err == nil {
		err = p.setHow(r)
	}
	if err == nil {
		err = r.destroy(p.verb)
	}
	before, most := numberOf(r.Arg("before")), numberOf(r.Arg("most"))
	if err == nil && (before <= 0 || most <= 0) {
		err = errUncounted
	}
	if err == nil && p.NeedsDelay {
		form := fmt.Sprint(r.Queue, " ", p.By, " ", before)
		if _, beside := h.shifts.LoadOrStore(form, nil); beside { // it is not yet in the journal
			return "", errBegun
		}
		defer h.shifts.Delete(form)
		err = r.once(ctx, p.By, time.UnixMicro(before))
	}
	if err != nil {
		return "", err
	}
	m, b := r.steering(), p.bulk()
	b.Before, b.Most = time.UnixMicro(before), most
	begun, err := h.startJob(r.Queue,
		func(ctx context.Context, progress func(*ops.BulkResult) bool) (*ops.BulkResult, error) {
			b.Progress = progress
			return p.many(m, ctx, b, p.By)
		})
	if err != nil {
		return "", err
	}
	if begun.Entry == "" { // it is over, and in no journal
		return link("messages", notice(maps.Clone(p.query), p.Name, begun.Done)), nil
	}
	return jobLink(r.Queue, begun.Entry), nil
}

// once returns an error if a job has shifted messages so far that were counted at that instant: the same form, sent
// twice, would shift them twice.
func (r *request) once(ctx context.Context, by time.Duration, counted time.Time) error {
	page, err := r.Monitor().Journal(ctx, 200, "")
	if err == nil && slices.ContainsFunc(page.Entries, func(e ops.JournalEntry) bool {
		return e.Bulk != nil && e.Bulk.Task != nil && e.Bulk.Task.By == by && e.Bulk.Task.At.Equal(counted)
	}) {
		err = errBegun
	}
	return err
}
