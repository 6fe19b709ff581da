package web

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

var (
	errNoJob = &httpError{http.StatusNotFound, "There is no such job"}
	errEnded = &httpError{http.StatusConflict, "This job has ended"}
)

// A jobView is a job, as its entry in the journal has it.
type jobView struct {
	*ops.JournalEntry
	Phase   string // in words
	Runs    bool   // and is heard of
	Stops   bool   // the request may stop it
	Trouble string // why it failed
	Passed  []fact // why, how many
}

// Whole says whether it has come to its end.
func (v *jobView) Whole() bool { return v.Bulk.Phase == journal.Finished }

// Fewer says whether it has come to its end with fewer messages than it was to change at most.
func (v *jobView) Fewer() bool {
	return v.Whole() && v.Bulk.Error == "" && v.Bulk.Task != nil && v.Messages < v.Bulk.Task.Most
}

// Most is what its progress is out of.
func (v *jobView) Most() int64 { return max(v.Bulk.Total, v.Bulk.Looked, 1) }

func (h *Handler) job(ctx context.Context, r *request) (any, error) {
	id := r.Arg("id")
	// It is not kept, so that who stops a job sees that at once. Feeds that ask together get the same.
	e, err := shared(ctx, h, "job\x00"+r.Queue+"\x00"+id, 0, func(ctx context.Context) (*ops.JournalEntry, error) {
		return r.entry(ctx, id)
	})
	if err != nil {
		return nil, err
	}
	v := &jobView{JournalEntry: e, Phase: r.lang.phase(e.Bulk), Trouble: serverAddress.ReplaceAllString(e.Bulk.Error, "…")}
	v.Runs = e.Bulk.Phase == journal.Running && !e.Bulk.Interrupted()
	v.Stops = v.Runs && !e.Bulk.StopAsked && r.mayStop(e) == nil
	v.Passed = r.lang.passedOver(e.Bulk.Passed)
	return v, nil
}

// entry is a job's.
func (r *request) entry(ctx context.Context, id string) (*ops.JournalEntry, error) {
	e, err := r.Monitor().JournalEntry(ctx, id)
	if errors.Is(err, delayqueue.ErrNotFound) || err == nil && e.Bulk == nil {
		err = errNoJob
	}
	if err != nil {
		return nil, err
	}
	r.h.hide(e)
	return e, nil
}

// mayStop: who may do all that a job does may stop it.
func (r *request) mayStop(e *ops.JournalEntry) error {
	err, act := error(errWhat), e.Act
	if act == journal.Cancel { // one call does both
		act = journal.Delete
	}
	for _, v := range verbs {
		task := e.Bulk.Task // nil if that is not known: then one right is enough
		if v.Act != act || task != nil && !slices.ContainsFunc(v.States, func(s delayqueue.State) bool {
			return slices.Contains(task.States, s)
		}) {
			continue
		}
		if r.Actor, err = r.may(v.Action, r.Queue); (err == nil) == (task == nil) {
			break
		}
	}
	return err
}

// postJob stops a job.
func (h *Handler) postJob(ctx context.Context, r *request) (string, error) {
	id := r.PostForm.Get("id")
	e, err := r.entry(ctx, id)
	if err == nil && r.PostForm.Get("do") != "stop" {
		err = errWhat
	}
	if err == nil {
		err = r.mayStop(e)
	}
	if err == nil {
		err = r.steering().StopBulk(ctx, e.ID)
	}
	if errors.Is(err, delayqueue.ErrWrongState) {
		err = errEnded
	}
	return jobLink(r.Queue, id), err
}

func jobLink(queue, id string) string { return link("job", url.Values{"q": {queue}, "id": {id}}) }

// PassedOver says what a plan leaves out.
func (r *request) PassedOver(p *planning) []fact { return r.lang.passedOver(p.Result.Passed) }

func (l *language) passedOver(passed map[ops.Reason]int64) (all []fact) {
	for _, why := range slices.Sorted(maps.Keys(passed)) {
		all = append(all, fact{l.passed(why), l.number(passed[why])})
	}
	return all
}

// passed is why messages were passed over, in words.
func (l *language) passed(why ops.Reason) string {
	switch why {
	case ops.PassedMoved:
		return l.say("left before its turn came")
	case ops.PassedNew:
		return l.say("came in later, or was handled meanwhile and came back")
	case ops.PassedKey:
		return l.say("another message has its key now")
	case ops.PassedExpired:
		return l.say("it is past its deadline by then")
	}
	return shown(strings.TrimSpace(string(why)))
}
