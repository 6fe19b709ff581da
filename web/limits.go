package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

// The page of a queue's limits. Who may look sees them; its forms are for who may set them.

// pers are the times for which a rate can be set.
var pers = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// A limitsView is what the page shows.
type limitsView struct {
	ops.QueueLimits
	Counts ops.Counts
	Only   string          // how many shards have what was set; "": all
	Pers   []time.Duration // that of the rate that is set is among them
}

func (h *Handler) limits(ctx context.Context, r *request) (any, error) {
	counts, err := r.counts(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := h.soon(ctx)
	defer cancel()
	limits, err := r.Monitor().Limits(ctx)
	err = r.part(err)
	v := &limitsView{limits, counts, "", slices.Clone(pers)}
	if n, of := journal.InShards(limits.SetIn); of != "" {
		v.Only = r.lang.say("What was set by hand is so only in %s of %s shards. Set it, or take it back, once more", n, of)
	}
	if per := limits.Set.Per; per != 0 && !slices.Contains(pers, per) {
		v.Pers = append(v.Pers, per)
	}
	return v, err
}

// rateLimit and placesLimit write one of both, "" for none.
func (l *language) rateLimit(of ops.Limits) string {
	if of.Rate == 0 {
		return ""
	}
	return l.say("%s in %s, at most %s at once", l.number(of.Rate), l.exact(of.Per), l.number(of.Burst))
}

func (l *language) placesLimit(of ops.Limits) string {
	if of.Concurrency == 0 {
		return ""
	}
	return l.say("%s at a time", l.number(of.Concurrency))
}

// exact writes a time of which nothing is left out.
func (l *language) exact(d time.Duration) string {
	if d < time.Second && d%time.Millisecond != 0 || d >= time.Second && d%time.Second != 0 || d > time.Hour &&
		d%time.Minute != 0 ||
		d > 24*time.Hour && d%time.Hour != 0 {
		return d.String()
	}
	return l.duration(d)
}

// errLimits: a form asks for limits that cannot be.
var errLimits = &httpError{http.StatusBadRequest,
	"Nothing was set: a rate is at least 1 and at most a million a second, a burst 1 to a million, a concurrency at " +
		"least 1"}

// limitsOf reads a form. What is empty is left to consumers; a rate without a burst has one of 1.
func limitsOf(form url.Values) (l ops.Limits, err error) {
	number := func(name string) int {
		text := strings.TrimSpace(form.Get(name))
		if text == "" {
			return 0
		}
		n, bad := strconv.Atoi(text)
		if bad != nil || n < 1 {
			err = errLimits
		}
		return n
	}
	l = ops.Limits{Rate: number("rate"), Burst: number("burst"), Concurrency: number("concurrency")}
	if l.Rate != 0 {
		l.Burst = cmp.Or(l.Burst, 1)
		per, bad := time.ParseDuration(form.Get("per"))
		if l.Per = per; bad != nil {
			err = errLimits
		}
	}
	return l, err
}

// postLimits sets limits, takes back what was set, or lifts a throttle.
func (h *Handler) postLimits(ctx context.Context, r *request) (string, error) {
	var l ops.Limits
	did, err := r.PostForm.Get("do"), error(nil)
	m := r.steering()
	switch did {
	case "set", "clear":
		if did == "set" {
			l, err = limitsOf(r.PostForm)
		}
		if err == nil {
			_, err = m.SetLimits(ctx, l)
		}
	case "lift":
		var lifted bool
		if lifted, err = m.Unthrottle(ctx); !lifted {
			did = "lifted"
		}
	default:
		return "", errWhat
	}
	if errors.Is(err, delayqueue.ErrBadOption) {
		err = errLimits
	}
	return link("limits", url.Values{"q": {r.Queue}, "done": {did}}), err
}
