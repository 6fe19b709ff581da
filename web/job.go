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
)

func (h *Handler) jobRoutes() []route {
	// post asks for more
	return []route{{name: "job", title: "Job", queue: true, file: "job", load: h.job, live: []string{"state"}, act: Look, post: h.postJob}}
}

var (
	errNoJob   = &httpError{http.StatusNotFound, "There is no such job"}
	errRuns    = &httpError{http.StatusConflict, "This job runs: stop it first"}
	errEnded   = &httpError{http.StatusConflict, "This job has ended"}
	errNoToken = &httpError{http.StatusConflict, "What is left of this job is not known: count again"}
)

// A jobView is a job, as its entry in the journal has it.
type jobView struct {
	*delayqueue.JournalEntry
	Phase    string // in words
	Runs     bool   // and is heard of
	Stops    bool   // the request may stop it
	GoesOn   bool   // it may go on with it
	Destroys bool
	Trouble  string // why it failed
	Passed   []fact // why, how many
}

// Again says whether the page is to be asked for once more by who has no script.
func (v *jobView) Again() bool { return v.Runs }

// Most is what its progress is out of.
func (v *jobView) Most() int64 { return max(v.Bulk.Total, v.Bulk.Looked, 1) }

func (h *Handler) job(ctx context.Context, r *request) (any, error) {
	e, err := shared(ctx, h, r.jobKey(r.Arg("id")), time.Second, func(ctx context.Context) (*delayqueue.JournalEntry, error) {
		return r.entry(ctx, r.Arg("id"))
	})
	if err != nil {
		return nil, err
	}
	v := &jobView{JournalEntry: e, Phase: r.lang.phase(e.Bulk), Trouble: serverAddress.ReplaceAllString(e.Bulk.Error, "…")}
	v.Runs = e.Bulk.Phase == delayqueue.BulkRunning && !e.Bulk.Interrupted()
	v.Stops = v.Runs && !e.Bulk.StopAsked && r.mayStop(e) == nil
	if !v.Runs && e.Bulk.Next != "" {
		do, err := r.goingOn(e)
		if v.GoesOn = err == nil; v.GoesOn {
			v.Destroys = do.Destroys
		}
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
func (r *request) entry(ctx context.Context, id string) (*delayqueue.JournalEntry, error) {
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

// goingOn is what is left of a job, if the request may go on with it.
func (r *request) goingOn(e *delayqueue.JournalEntry) (*verb, error) {
	task, err := r.Monitor().BulkTask(e.Bulk.Next)
	if err != nil {
		return nil, errNoToken
	}
	if err := r.guesses(task); err != nil {
		return nil, err
	}
	return r.taskVerb(task)
}

// mayStop: who may do what a job does may stop it. Where the journal does not say to which states it does that, to any state will do.
func (r *request) mayStop(e *delayqueue.JournalEntry) (err error) {
	if task, err := r.Monitor().BulkTask(e.Bulk.Next); err == nil {
		_, err = r.taskVerb(task)
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

// postJob stops a job, or goes on with it.
func (h *Handler) postJob(ctx context.Context, r *request) (string, error) {
	id := r.PostForm.Get("id")
	e, err := r.entry(ctx, id)
	if err != nil {
		return "", err
	}
	switch r.PostForm.Get("do") {
	case "stop":
		err = r.stopJob(ctx, e)
	case "continue":
		err = r.continueJob(e)
	default:
		err = errWhat
	}
	h.cache.drop(r.jobKey(id))
	return jobLink(r.Queue, id), err
}

func jobLink(queue, id string) string { return link("job", url.Values{"q": {queue}, "id": {id}}) }

func (r *request) stopJob(ctx context.Context, e *delayqueue.JournalEntry) error {
	err := r.mayStop(e)
	if err == nil {
		err = r.steering().StopBulk(ctx, e.ID)
	}
	if errors.Is(err, delayqueue.ErrWrongState) {
		return errEnded
	}
	return err
}

func (r *request) continueJob(e *delayqueue.JournalEntry) error {
	if e.Bulk.Phase == delayqueue.BulkRunning && !e.Bulk.Interrupted() {
		return errRuns
	}
	if e.Bulk.Phase == delayqueue.BulkFinished {
		return errEnded
	}
	v, err := r.goingOn(e)
	if err == nil {
		err = r.destroy(v)
	}
	if err != nil {
		return err
	}
	m := r.steering()
	_, err = r.h.startJob(r.Queue, func(ctx context.Context, progress func(*delayqueue.BulkResult) bool) (*delayqueue.BulkResult, error) {
		return m.BulkContinue(ctx, e.Bulk.Next, progress)
	})
	return err
}

// passed is why messages were passed over, in words.
func (l *language) passed(why delayqueue.Reason) string {
	switch why {
	case delayqueue.PassedMoved:
		return l.say("left before its turn came")
	case delayqueue.PassedNew:
		return l.say("came in after this had begun, or was not counted")
	case delayqueue.PassedKey:
		return l.say("another message has its key now")
	case delayqueue.PassedUnknown:
		return l.say("was in the step that was cut off, which is forgotten after an hour")
	}
	return shown(strings.TrimSpace(string(why)))
}
