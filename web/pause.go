package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// pauses are how long a queue can be paused for; 0: until somebody resumes it.
var pauses = []time.Duration{15 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour, 24 * time.Hour, 0}

// A pausing is what is known of a pause.
type pausing struct {
	delayqueue.Counts
	Lengths []time.Duration
}

func (h *Handler) askPause(ctx context.Context, r *request) (any, error) {
	if _, err := r.may(Pause, r.Queue); err != nil {
		return nil, err
	}
	counts, err := r.Monitor().Counts(ctx)
	return &pausing{counts, pauses}, err
}

// postPause pauses or resumes.
func (h *Handler) postPause(ctx context.Context, r *request) (string, error) {
	m, did, err := r.steering(), r.PostForm.Get("do"), error(nil)
	switch did {
	case "resume":
		err = m.Resume(ctx)
	case "pause":
		d, bad := time.ParseDuration(r.PostForm.Get("for"))
		if bad != nil || !slices.Contains(pauses, d) {
			return "", &httpError{http.StatusBadRequest, "Say for how long"}
		}
		if d == 0 {
			err = m.Pause(ctx)
		} else {
			err = m.PauseFor(ctx, d)
		}
	default:
		return "", errWhat
	}
	return link("queue", url.Values{"q": {r.Queue}, "done": {did}}), err
}
