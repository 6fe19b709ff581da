package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
)

const (
	nextInstants  = 5
	mostSchedules = 50   // whose instants are worked out
	longestCron   = 1000 // bytes of one; reading a longer one costs more than a look at it is worth
	rowsSchedules = 300  // that are shown
)

// A schedulesView is what the page shows.
type schedulesView struct {
	Rows   []scheduleRow
	Others int
}

// A scheduleRow is what is sent again and again.
type scheduleRow struct {
	schedule.Status
	Times []time.Time // the next ones
}

// WhyNotSent says what keeps an entry from being sent.
func (r *request) WhyNotSent(err error) string {
	switch {
	case errors.Is(err, schedule.ErrNotRun):
		return r.lang.say("No replica runs the entries of this queue")
	case errors.Is(err, schedule.ErrFar):
		return r.lang.say(
			"The clock of the server was wrong. The schedule begins anew within a minute after the clock is right")
	case errors.Is(err, schedule.ErrMoved):
		return r.lang.say(
			"Its sequence has gone on without it, by a failover or by hand: then the journal says by whom and why. " +
				"The schedule begins anew within seconds, but not if its sequence was passed to the end")
	case errors.Is(err, schedule.ErrRefused):
		return r.lang.say("Its message was refused: %s", shown(err.Error()))
	}
	return r.lang.say("It cannot be read: %s", shown(err.Error()))
}

// A scheduleVerb is something that can be done to a schedule.
type scheduleVerb struct {
	Name   string // in forms
	Title  string // a key of the catalogue, as the next two
	Means  string
	Did    string
	Action Action
	do     func(s *schedule.Scheduler, ctx context.Context, name string) error
}

var scheduleVerbs = []scheduleVerb{
	{
		Name: "pause", Title: "Pause", Did: "The schedule is paused", Action: Pause, do: (*schedule.Scheduler).Pause,
		Means: "Until somebody resumes the schedule, its instants pass without messages.",
	}, {
		Name: "resume", Title: "Resume", Did: "The schedule goes on", Action: Pause, do: (*schedule.Scheduler).Resume,
		Means: "The next message is that of the first instant from now on.",
	}, {
		Name: "run", Title: "Run now", Did: "A message of the schedule was sent", Action: RunNow,
		Means: "One message is sent now, beside those of the instants.",
		do: func(s *schedule.Scheduler, ctx context.Context, name string) error {
			_, err := s.RunNow(ctx, name)
			return err
		},
	},
}

// ScheduleVerbs are those that the request may use.
func (r *request) ScheduleVerbs(paused bool) (all []scheduleVerb) {
	for _, v := range scheduleVerbs {
		if (v.Action != Pause || (v.Name == "resume") == paused) && r.May(v.Action) {
			all = append(all, v)
		}
	}
	return all
}

// A schedulePlan is what is to be done to which schedule.
type schedulePlan struct {
	*scheduleVerb
	Entry string
}

// planSchedule reads a form, and finds out whether the request may.
func (r *request) planSchedule(form url.Values) (p schedulePlan, err error) {
	i := slices.IndexFunc(scheduleVerbs, func(v scheduleVerb) bool { return v.Name == form.Get("do") })
	if i < 0 {
		return p, errWhat
	}
	p = schedulePlan{&scheduleVerbs[i], form.Get("name")}
	r.Actor, err = r.may(p.Action, r.Queue)
	return p, err
}

func (h *Handler) askSchedule(_ context.Context, r *request) (any, error) {
	return r.planSchedule(r.query)
}

var (
	errNoSchedule = &httpError{http.StatusNotFound, "There is no such schedule"}
	errStillLives = &httpError{http.StatusConflict,
		"Nothing was sent, because the last message of the schedule still lives"}
)

// postSchedule pauses, resumes or runs a schedule.
func (h *Handler) postSchedule(ctx context.Context, r *request) (string, error) {
	p, err := r.planSchedule(r.PostForm)
	if err != nil {
		return "", err
	}
	s := schedule.New(delayqueue.NewPublisher(r.Queue, h.cli, delayqueue.UseCustomPrefix(h.cfg.Prefix))).
		WithLogger(h.log).WithOperator(r.Actor).WithReason(strings.TrimSpace(r.PostForm.Get("reason")))
	err = p.do(s, ctx, p.Entry)
	switch {
	case errors.Is(err, schedule.ErrNoEntry):
		err = errNoSchedule
	case errors.Is(err, delayqueue.ErrDuplicateKey):
		err = errStillLives
	case errors.Is(err, schedule.ErrBadEntry):
		err = &httpError{http.StatusConflict, r.lang.trouble(err)}
	}
	h.cache.forget(schedulesKey(r.Queue))
	return link("schedules", url.Values{"q": {r.Queue}, "done": {"schedule " + p.Name}}), err
}

func schedulesKey(queue string) string { return "schedules\x00" + queue }

func (h *Handler) schedules(ctx context.Context, r *request) (any, error) {
	return shared(ctx, h, schedulesKey(r.Queue), 5*time.Second, func(ctx context.Context) (*schedulesView, error) {
		m := r.Monitor()
		all, err := schedule.List(ctx, m.Monitor())
		if err != nil {
			return nil, err
		}
		v, end := &schedulesView{Others: max(len(all)-rowsSchedules, 0)}, time.Now().Add(budgetSpend)
		for i, s := range all[:len(all)-v.Others] {
			row := scheduleRow{Status: s}
			if s.Reason() == "" && !s.Paused && i < mostSchedules && len(s.Cron) <= longestCron && time.Now().Before(end) {
				row.Times, err = schedule.Next(ctx, m.Monitor(), s.Name, nextInstants)
			}
			if err != nil && !errors.Is(err, schedule.ErrNoEntry) && !errors.Is(err, delayqueue.ErrNotFound) {
				return nil, err
			}
			v.Rows = append(v.Rows, row)
		}
		return v, nil
	})
}
