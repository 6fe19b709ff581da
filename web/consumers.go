package web

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue/ops"
)

// A consumerRow is a consumer that is alive.
type consumerRow struct {
	ops.Consumer
	Work []work // the longest first
}

// A work is a message that a handler has.
type work struct {
	ID    string
	Since time.Time
}

// consumers are those that the last round has seen, the oldest first.
func (h *Handler) consumers(ctx context.Context, r *request) (any, error) {
	all, err := shared(ctx, h, "consumers\x00"+r.Queue, interval, r.Monitor().Consumers)
	if err != nil {
		return nil, err
	}
	rows := make([]consumerRow, 0, len(all))
	for _, c := range all {
		row := consumerRow{Consumer: c}
		for _, one := range c.Handling {
			row.Work = append(row.Work, work{one.ID, c.Seen.Add(-one.For)})
		}
		rows = append(rows, row)
	}
	return rows, nil
}
