package consume

import (
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A remembrance is what this consumer remembers of the totals of the queue, of the first fetch in each of the last 60 seconds and
// minutes, and of the last fetch. A failover or a restart may put the server back to an earlier state: its totals are smaller then, or it does
// not know the last fetch of this consumer. What was remembered of that time says how much of what this consumer saw the server has forgotten, at
// most. Of what came after the last fetch the consumer knows nothing.
type remembrance struct {
	first, last      seenTotals
	caller           string // of the last fetch
	call             int64  // its number
	seconds, minutes [60]seenTotals
}

type seenTotals struct {
	at            message.ServerTime // 0: nothing was seen
	stored, acked int64
}

// A rollback says what the server may have forgotten.
type rollback struct {
	since, until message.ServerTime // since 0: it is not known
	sent, acked  int64              // that this consumer had seen, at most
}

// callerKept is how long the server remembers a caller.
const callerKept = time.Hour

// see takes what a fetch said, and reports whether the server has gone back since the fetch before.
func (r *remembrance) see(c *script.Caller, got *script.FetchReply) (back rollback, gone bool) {
	last, t, now := r.last, got.Totals, seenTotals{got.Now, got.Totals.Stored, got.Totals.Acked}
	same := r.caller == c.ID // else the consumer has taken another name
	forgotten := same && t.Call < r.call && (t.Call != 0 || got.Now.Sub(last.at).Abs() < callerKept)
	var from seenTotals
	switch {
	case last.at == 0:
	case forgotten && t.Call != 0:
		gone, from, back.since = true, r.before(t.Heard), t.Heard
	case forgotten: // it is older than this consumer, or gone
		gone, from = true, r.first
	case t.Stored < last.stored || t.Acked < last.acked:
		gone, from = true, seenTotals{stored: min(now.stored, r.first.stored), acked: min(now.acked, r.first.acked)}
	}
	if gone {
		back.until = last.at
		back.sent, back.acked = max(last.stored-from.stored, 0), max(last.acked-from.acked, 0)
		r.forget(back.since)
	}
	r.last, r.caller, r.call = now, c.ID, c.N
	if r.first.at == 0 {
		r.first = now
	}
	r.keep(&r.seconds, time.Second)
	r.keep(&r.minutes, time.Minute)
	return back, gone && back.sent+back.acked > 0
}

// forget forgets what was seen after an instant.
func (r *remembrance) forget(since message.ServerTime) {
	for _, ring := range []*[60]seenTotals{&r.seconds, &r.minutes} {
		for i := range ring {
			if ring[i].at > since {
				ring[i] = seenTotals{}
			}
		}
	}
	if r.first.at > since {
		r.first = seenTotals{}
	}
}

// keep keeps the last totals, if they are the first of this second or minute.
func (r *remembrance) keep(ring *[60]seenTotals, span time.Duration) {
	nth := int64(r.last.at) / span.Microseconds()
	if slot := &ring[nth%60]; int64(slot.at)/span.Microseconds() != nth {
		*slot = r.last
	}
}

// before is the newest that is remembered of an instant or of before.
func (r *remembrance) before(at message.ServerTime) seenTotals {
	newest := r.first
	for _, ring := range []*[60]seenTotals{&r.seconds, &r.minutes} {
		for _, seen := range ring {
			if seen.at <= at && seen.at > newest.at {
				newest = seen
			}
		}
	}
	return newest
}

// remember logs it, and tells event listeners, if the server has gone back to an earlier state of the queue.
func (p *poller) remember(got *script.FetchReply) {
	back, gone := p.past.see(p.caller, got)
	if !gone {
		return
	}
	attrs := []any{slog.Time("until", message.InstantTime(int64(back.until)).UTC()), slog.Int64("sent", back.sent), slog.Int64("acked", back.acked)}
	if back.since != 0 {
		attrs = append(attrs, slog.Time("since", message.InstantTime(int64(back.since)).UTC()))
	}
	p.settings.Log.Error("delayqueue: the server has gone back to an earlier state of this queue, or it was deleted: at most so many of the sends "+
		"and acks that this consumer had seen are forgotten", attrs...)
	p.events.RolledBack(int(back.sent+back.acked), message.InstantTime(int64(back.since)))
}
