package web

import (
	"context"
	"errors"
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
		return r.lang.say("Its sequence has gone on without it. The schedule begins anew within seconds")
	case errors.Is(err, schedule.ErrRefused):
		return r.lang.say("Its message was refused: %s", shown(err.Error()))
	}
	return r.lang.say("It cannot be read: %s", shown(err.Error()))
}

func (h *Handler) schedules(ctx context.Context, r *request) (any, error) {
	return shared(ctx, h, "schedules\x00"+r.Queue, 5*time.Second, func(ctx context.Context) (*schedulesView, error) {
		m := r.Monitor()
		all, err := schedule.List(ctx, m.Monitor())
		if err != nil {
			return nil, err
		}
		v, end := &schedulesView{Others: max(len(all)-rowsSchedules, 0)}, time.Now().Add(budgetSpend)
		for i, s := range all[:len(all)-v.Others] {
			row := scheduleRow{Status: s}
			if s.Broken == nil && !s.Paused && i < mostSchedules && len(s.Cron) <= longestCron && time.Now().Before(end) {
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
