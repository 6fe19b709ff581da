package web

import (
	"context"
	"errors"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

const (
	laneRows  = 50
	laneLook  = 5000 // lanes that are looked at
	keepLanes = 10 * time.Second
)

// A lanesView is the lanes of a queue in which most messages wait, or one lane.
type lanesView struct {
	Name   string // of the one; "": a list
	Lanes  []laneRow
	Why    []cause // of the one: what the next of it waits for; none if that cannot be read now
	Looked int64   // at these lanes only; 0: at all
}

// A laneRow is a lane, and who has its turns.
type laneRow struct {
	ops.Lane
	Late    bool // a message that is due waits
	Holders []holder
}

// A holder is a message that has a turn.
type holder struct {
	ops.Holder
	Where string // its state in words
	PID   int    // of the process that handles it; 0: not known
	Host  string
	Verbs []verb // what may be done to it
}

func (h *Handler) lanes(ctx context.Context, r *request) (any, error) {
	v := &lanesView{Name: r.Arg("lane")}
	consumers, err := h.alive(ctx, r)
	if err != nil {
		return nil, err
	}
	if v.Name != "" {
		one, err := r.Monitor().Lane(ctx, v.Name)
		switch err = r.part(err); {
		case errors.Is(err, delayqueue.ErrNotFound) && !errors.Is(err, delayqueue.ErrNoQueue),
			errors.Is(err, delayqueue.ErrBadOption):
			return v, nil
		case err != nil:
			return nil, err
		}
		soon, cancel := h.soon(ctx)
		defer cancel()
		now := time.Now()
		if w, err := r.Monitor().WhyLane(soon, v.Name); r.part(err) == nil && w != nil && one.Waiting > 0 {
			now, v.Why = w.Now, r.causes(soon, w, false)
		}
		v.Lanes = []laneRow{r.laneRow(one, now, consumers)}
		return v, nil
	}
	page, err := shared(ctx, h, "lanes\x00"+r.Queue, keepLanes, func(ctx context.Context) (*ops.LanePage, error) {
		page, err := r.Monitor().Lanes(ctx, laneLook, "")
		page.Lanes = page.Lanes[:min(len(page.Lanes), laneRows)]
		return page, err
	})
	if err = r.part(err); err != nil {
		return nil, err
	}
	for i := range page.Lanes {
		v.Lanes = append(v.Lanes, r.laneRow(&page.Lanes[i], page.Now, consumers))
	}
	if page.Next != "" {
		v.Looked = laneLook
	}
	return v, nil
}

func (r *request) laneRow(l *ops.Lane, now time.Time, consumers []ops.Consumer) laneRow {
	row := laneRow{Lane: *l, Late: l.Blocked(now)}
	for _, one := range l.Holders {
		h := holder{Holder: one, Where: r.lang.state(one.State), Verbs: r.turnVerbs(one.State, row.Late)}
		for _, c := range consumers {
			if c.ID == one.Consumer {
				h.PID, h.Host = c.PID, c.Host
			}
		}
		row.Holders = append(row.Holders, h)
	}
	return row
}
