package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
)

// What comes due, and what has happened, between two instants that the reader chose.

var (
	errNoTime = &httpError{http.StatusBadRequest, "That is no time: write it as 2006-01-02T15:04"}
	errNoSpan = &httpError{http.StatusBadRequest, "Say from when until when, in this order"}
)

// fromTo are the from and to of the query. An instant without a zone is in that of the query, or else of the reader.
// Zero: it is not given.
func (r *request) fromTo() (from, to time.Time, err error) {
	zone := cmp.Or(zoneNamed(r.Arg("zone")), r.lang.zone)
	for name, at := range map[string]*time.Time{"from": &from, "to": &to} {
		if text := r.Arg(name); text != "" {
			if *at, err = instantOf(text, zone); err != nil {
				return from, to, errNoTime
			}
		}
	}
	return from, to, nil
}

// instantText is an instant in an address, which means the same in every zone.
func instantText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// listLink is the address of the messages of a state whose time is from then on and before to.
func listLink(queue string, s delayqueue.State, from, to time.Time) string {
	return linkOf("messages", nil, "q", queue, "state", s, "from", instantText(from), "to",
		instantText(to.Add(-time.Microsecond)))
}

// A between is the answer.
type between struct {
	Due     string // how many come due, in words; "" if the span is over
	Lists   []tab  // of them, and of the garbage
	Past    *ops.Tally
	Journal string // its address
}

// between counts what comes due in the span by one call of Redis, and what has happened by whole hours.
func (p *queuePage) between(ctx context.Context, r *request, from, to time.Time) error {
	b, now := &between{}, time.Now()
	list := func(name string, s delayqueue.State, n int64) {
		if n > 0 {
			b.Lists = append(b.Lists, tab{Name: name, Link: listLink(r.Queue, s, from, to), Count: n})
		}
	}
	if to.After(now) {
		got, err := r.Monitor().Forecast(ctx, from, to.Sub(from), 1)
		if errors.Is(err, delayqueue.ErrBadOption) {
			return errNoTime
		}
		if err = p.without(r, err); err != nil {
			return err
		}
		due := got.Buckets[0]
		b.Due = r.lang.say("%s come due between %s and %s", r.lang.number(due.Pending+due.Retry),
			r.lang.clockOf(from, "2006-01-02 15:04"), r.lang.clockOf(to, "2006-01-02 15:04"))
		list(r.lang.say("for the first time"), delayqueue.StatePending, due.Pending)
		list(r.lang.say("again, after a failure"), delayqueue.StateRetry, due.Retry)
		if p.Counts.Waiting > 0 { // the forecast counts them with those that come due for the first time
			link := listLink(r.Queue, delayqueue.StateWaiting, from, to)
			b.Lists = append(b.Lists, tab{Name: r.lang.say("of them, those that wait for others of their lanes"), Link: link})
		}
	}
	if from.Before(now) {
		var hours []ops.Tally
		for _, t := range p.Hours {
			if t.Start.Before(to) && t.Start.Add(time.Hour).After(from) {
				hours = append(hours, t)
			}
		}
		past := health.Sum(hours)
		b.Past, b.Journal = &past, linkOf("journal", nil, "q", r.Queue, "from", instantText(from), "to", instantText(to))
		list(r.lang.say("what was given up on then"), delayqueue.StateGarbage, past.Garbage)
		if past.Garbage > 0 {
			b.Lists = append(b.Lists, tab{Name: r.lang.say("its errors"), Link: linkOf("errors", nil, "q", r.Queue,
				"from", instantText(from), "to", instantText(to.Add(-time.Microsecond)))})
		}
	}
	p.Between, p.From, p.To = b, from, to
	return nil
}
