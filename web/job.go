package web

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

var (
	errNoJob   = &httpError{http.StatusNotFound, "There is no such job"}
	errRuns    = &httpError{http.StatusConflict, "This job runs: stop it first"}
	errEnded   = &httpError{http.StatusConflict, "This job has ended"}
	errNoAgain = &httpError{http.StatusConflict, "This job cannot be begun again: count what is left"}
)

// A jobView is a job, as its entry in the journal has it.
type jobView struct {
	*ops.JournalEntry
	Phase    string // in words
	Runs     bool   // and is heard of
	Stops    bool   // the request may stop it
	Rest     bool   // it may do the rest
	Destroys bool
	Trouble  string // why it failed
	Passed   []fact // why, how many
}

// Again says whether the page is to be asked for once more by who has no script.
func (v *jobView) Again() bool { return v.Runs }

// Most is what its progress is out of.
func (v *jobView) Most() int64 { return max(v.Bulk.Total, v.Bulk.Looked, 1) }

func (h *Handler) job(ctx context.Context, r *request) (any, error) {
	e, err := shared(ctx, h, r.jobKey(r.Arg("id")), time.Second, func(ctx context.Context) (*ops.JournalEntry, error) {
		return r.entry(ctx, r.Arg("id"))
	})
	if err != nil {
		return nil, err
	}
	v := &jobView{JournalEntry: e, Phase: r.lang.phase(e.Bulk), Trouble: serverAddress.ReplaceAllString(e.Bulk.Error, "…")}
	v.Runs = e.Bulk.Phase == ops.BulkRunning && !e.Bulk.Interrupted()
	v.Stops = v.Runs && !e.Bulk.StopAsked && r.mayStop(e) == nil
	if do, err := r.rest(e); err == nil {
		v.Rest, v.Destroys = true, do.Destroys
	}
	for _, why := range slices.Sorted(maps.Keys(e.Bulk.Passed)) {
		v.Passed = append(v.Passed, fact{r.lang.passed(why), r.lang.number(e.Bulk.Passed[why])})
	}
	return v, nil
}

// jobID bounds what anybody can write there.
func jobID(text string) string { return text[:min(len(text), 64)] }

// jobKey is that of the cache.
func (r *request) jobKey(id string) string { return "job\x00" + r.Queue + "\x00" + jobID(id) }

// entry is a job's.
func (r *request) entry(ctx context.Context, id string) (*ops.JournalEntry, error) {
	e, err := r.Monitor().JournalEntry(ctx, jobID(id))
	if errors.Is(err, delayqueue.ErrNotFound) || err == nil && e.Bulk == nil {
		err = errNoJob
	}
	if err != nil {
		return nil, err
	}
	if r.h.cfg.Payload != nil {
		e.Detail = payloadWanted.ReplaceAllString(e.Detail, "payload …")
	}
	return e, nil
}

// rest is what does the rest of a job that was cut off, if there is one and the request may do that.
func (r *request) rest(e *ops.JournalEntry) (*verb, error) {
	switch _, ok := e.Rest(); {
	case e.Bulk.Phase == ops.BulkRunning && !e.Bulk.Interrupted():
		return nil, errRuns
	case e.Bulk.Phase == ops.BulkFinished:
		return nil, errEnded
	case !ok:
		return nil, errNoAgain
	case r.h.cfg.Payload != nil && e.Bulk.Task.Filter.Contains != "": // it says what is in payloads that are hidden
		return nil, errHidden
	default:
		return r.taskVerb(e.Bulk.Task)
	}
}

// mayStop: who may do what a job does may stop it. Where the journal does not say to which states it does that, to any state will do.
func (r *request) mayStop(e *ops.JournalEntry) (err error) {
	if e.Bulk.Task != nil {
		_, err = r.taskVerb(e.Bulk.Task)
		return err
	}
	err = errWhat
	for _, v := range verbs {
		if !slices.Contains(v.Tasks, string(e.Act)) {
			continue
		}
		if r.Actor, err = r.may(v.Action, r.Queue); err == nil {
			break
		}
	}
	return err
}

// postJob stops a job, or begins it again.
func (h *Handler) postJob(ctx context.Context, r *request) (string, error) {
	id := r.PostForm.Get("id")
	e, err := r.entry(ctx, id)
	if err != nil {
		return "", err
	}
	switch r.PostForm.Get("do") {
	case "stop":
		err = r.stopJob(ctx, e)
	case "again":
		return r.jobAgain(e)
	default:
		err = errWhat
	}
	h.cache.drop(r.jobKey(id))
	return jobLink(r.Queue, id), err
}

func jobLink(queue, id string) string { return link("job", url.Values{"q": {queue}, "id": {id}}) }

func (r *request) stopJob(ctx context.Context, e *ops.JournalEntry) error {
	err := r.mayStop(e)
	if err == nil {
		err = r.steering().StopBulk(ctx, e.ID)
	}
	if errors.Is(err, delayqueue.ErrWrongState) {
		return errEnded
	}
	return err
}

// jobAgain begins the same call again, for what was there when the first one began.
func (r *request) jobAgain(e *ops.JournalEntry) (string, error) {
	v, err := r.rest(e)
	if err == nil {
		err = r.destroy(v)
	}
	if err != nil {
		return "", err
	}
	b, _ := e.Rest()
	return r.begin(v, b, func(ctx context.Context, m *ops.Queue, b ops.Bulk) (*ops.BulkResult, error) {
		if to := e.Bulk.Task.To; !to.IsZero() {
			return m.BulkReschedule(ctx, b, to)
		}
		return v.many(m, ctx, b, 0)
	})
}

// passed is why messages were passed over, in words.
func (l *language) passed(why ops.Reason) string {
	switch why {
	case ops.PassedMoved:
		return l.say("left before its turn came")
	case ops.PassedNew:
		return l.say("came in later")
	case ops.PassedKey:
		return l.say("another message has its key now")
	}
	return shown(strings.TrimSpace(string(why)))
}
