package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/ops"
)

// pauses are how long a queue can be paused for; 0: until somebody resumes it.
var pauses = []time.Duration{15 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour, 24 * time.Hour, 0}

// A pausing is a pause and the choices for one.
type pausing struct {
	ops.Counts
	Lengths []time.Duration
}

func (h *Handler) askPause(ctx context.Context, r *request) (any, error) {
	if _, err := r.may(Pause, r.Queue); err != nil {
		return nil, err
	}
	counts, err := r.counts(ctx)
	return &pausing{counts, pauses}, err
}

// postPause pauses or resumes.
func (h *Handler) postPause(ctx context.Context, r *request) (string, error) {
	m, did, err := r.steering(), r.PostForm.Get("do"), error(nil)
	switch did {
	case "resume":
		err = m.Resume(ctx)
	case "pause":
		err = r.pause(ctx, m, r.PostForm.Get("for"))
	default:
		return "", errWhat
	}
	return link("queue", url.Values{"q": {r.Queue}, "done": {did}}), err
}

// pause pauses for so long, or, for "keep", until the end of the pause that is. A pause of some shards becomes one of
// all.
func (r *request) pause(ctx context.Context, m *ops.Queue, length string) error {
	if length == "keep" {
		switch now, err := r.counts(ctx); {
		case err != nil:
			return err
		case !now.PausedUntil.IsZero():
			return m.PauseUntil(ctx, now.PausedUntil)
		case now.Paused:
			return m.Pause(ctx)
		}
	}
	d, bad := time.ParseDuration(length)
	switch {
	case bad != nil || !slices.Contains(pauses, d):
		return &httpError{http.StatusBadRequest, "Say for how long"}
	case d == 0:
		return m.Pause(ctx)
	}
	return m.PauseFor(ctx, d)
}
