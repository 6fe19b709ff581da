package web

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

const (
	handledRead  = 30       // messages of a page, those that are handled longest, of which more than the id is shown
	handledBytes = 64 << 10 // that are read of one
)

// A consumerRow is a consumer, and what it handles, the longest first.
type consumerRow struct {
	ops.Consumer
	Handles []handlerRow
}

// A handlerRow is a handler that runs, and its message as far as that was read.
type handlerRow struct {
	ops.Handling
	handledMessage
	Hangs bool
}

// A handledMessage is what says whose message it is. The payload is that of Config.Payload.
type handledMessage struct {
	Key     string
	Headers []headerLink
	Begins  string
}

func (h *Handler) consumers(ctx context.Context, r *request) (any, error) {
	alive, err := h.alive(ctx, r)
	if err != nil {
		return nil, err
	}
	read, err := h.handled(ctx, r, alive)
	if err != nil {
		return nil, err
	}
	limit := h.reader().Limits.OrDefault().Handler
	rows := make([]consumerRow, len(alive))
	for i, c := range alive {
		rows[i].Consumer = c
		for _, one := range c.Handling {
			rows[i].Handles = append(rows[i].Handles, handlerRow{one, read[one.ID], one.For > limit})
		}
	}
	return rows, nil
}

// handled reads the messages that are handled longest, by id. What cannot be read is left out, because the ids are
// known without it.
func (h *Handler) handled(ctx context.Context, r *request, alive []ops.Consumer) (map[string]handledMessage, error) {
	var longest []ops.Handling
	for _, c := range alive {
		longest = append(longest, c.Handling...)
	}
	slices.SortStableFunc(longest, func(a, b ops.Handling) int { return cmp.Compare(b.For, a.For) })
	longest = longest[:min(len(longest), handledRead)]
	return shared(ctx, h, "handled\x00"+r.lang.Tag+r.Queue, h.bounds.interval,
		func(ctx context.Context) (map[string]handledMessage, error) {
			ctx, cancel := h.soon(ctx)
			defer cancel()
			m, read := r.Monitor().WithReadLimit(handledBytes), map[string]handledMessage{}
			for _, one := range longest {
				msg, err := m.Get(ctx, one.ID)
				if errors.Is(err, delayqueue.ErrNotFound) { // its handler has returned
					continue
				}
				if err != nil {
					break
				}
				read[one.ID] = handledMessage{strings.Clone(msg.Key), r.headersOf(msg, headersMost),
					strings.Clone(r.payloadBegins(msg))}
			}
			return read, nil
		})
}

// HungAfter is from when on a handler counts as one that hangs.
func (r *request) HungAfter() string {
	return r.lang.duration(r.h.reader().Limits.OrDefault().Handler)
}
