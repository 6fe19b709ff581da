package web

import (
	"context"
	"errors"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
)

func (h *Handler) scheduleRoutes() []route {
	return []route{{name: "schedules", title: "Schedules", queue: true, file: "schedules", load: h.schedules}}
}

const (
	nextInstants  = 5
	mostSchedules = 50 // whose instants are worked out
)

// A scheduleRow is what is sent again and again.
type scheduleRow struct {
	schedule.Status
	Times   []time.Time // the next ones
	Trouble string
}

func (h *Handler) schedules(ctx context.Context, r *request) (any, error) {
	return shared(ctx, h, "schedules\x00"+r.Queue, 5*time.Second, func(ctx context.Context) ([]scheduleRow, error) {
		m := r.Monitor()
		all, err := schedule.List(ctx, m)
		if err != nil {
			return nil, err
		}
		rows := make([]scheduleRow, 0, len(all))
		for i, s := range all {
			row := scheduleRow{Status: s}
			if s.Broken != nil {
				row.Trouble = s.Broken.Error()
			} else if !s.Paused && i < mostSchedules {
				row.Times, err = schedule.Next(ctx, m, s.Name, nextInstants)
			}
			if err != nil && !errors.Is(err, schedule.ErrNoEntry) && !errors.Is(err, delayqueue.ErrNotFound) {
				return nil, err
			}
			rows = append(rows, row)
		}
		return rows, nil
	})
}
