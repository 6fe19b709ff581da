package web

import (
	"cmp"
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
	Moved bool        // its sequence has gone on without it
	Anew  string      // commands after which it goes on; "": it needs none
}

// anew are the commands after which an entry goes on whose sequence was passed to its end.
func (h *Handler) anew(queue, entry string) string {
	word := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	queue, entry, prefix := word(queue), word(entry), ""
	if h.cfg.Prefix != "dq" {
		prefix = " --prefix " + word(h.cfg.Prefix)
	}
	return "delayqueue schedule show " + queue + " " + entry + prefix +
		"\ndelayqueue schedule rm " + queue + " " + entry + prefix +
		"\ndelayqueue sequences " + queue + " 'schedule/" + entry[1:] + " --drop" + prefix +
		"\ndelayqueue schedule set " + queue + " " + entry + prefix + " …"
}

// troubled is 0 for an entry for which nothing is sent.
func troubled(s schedule.Status) int {
	if s.Trouble != nil || !s.Overdue.IsZero() {
		return 0
	}
	return 1
}

// WhyNotSent says what keeps an entry from being sent.
func (r *request) WhyNotSent(err error) string {
	switch {
	case errors.Is(err, schedule.ErrNotRun):
		return r.lang.say("No replica runs the entries of this queue")
	case errors.Is(err, schedule.ErrFar):
		return r.lang.say(
			"The clock of the server was wrong. The schedule begins anew within a minute after the clock is right")
	case errors.Is(err, schedule.ErrMovedToEnd):
		return r.lang.say("Its sequence was passed to its last number by hand. " +
			"The schedule does not begin anew by itself")
	case errors.Is(err, schedule.ErrMoved):
		return r.lang.say("Its sequence has gone on without it, by a failover or by hand. " +
			"The schedule begins anew within seconds")
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
		slices.SortStableFunc(all, func(a, b schedule.Status) int { return cmp.Compare(troubled(a), troubled(b)) })
		v, end := &schedulesView{Others: max(len(all)-rowsSchedules, 0)}, time.Now().Add(budgetSpend)
		for i, s := range all[:len(all)-v.Others] {
			row := scheduleRow{Status: s, Moved: errors.Is(s.Trouble, schedule.ErrMoved)}
			if errors.Is(s.Trouble, schedule.ErrMovedToEnd) {
				row.Anew = h.anew(r.Queue, s.Name)
			}
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
