package consume

import (
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A remembrance is what this consumer remembers of the totals of the queue. A failover or a restart may put the server back to an earlier
// state: its totals are smaller then, or it does not know the last fetch of this consumer. What was counted since this consumer started is
// forgotten then, at most. Of what came after the last fetch the consumer knows nothing.
type remembrance struct {
	first, last seenTotals         // of the first fetch, or the first one after the server had gone back; of the last one
	changed     message.ServerTime // the first fetch with the totals of the last one
	caller      string             // of the last fetch
	call        int64              // its number
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
	first, last, t, now := r.first, r.last, got.Totals, seenTotals{got.Now, got.Totals.Stored, got.Totals.Acked}
	same := r.caller == c.ID // else the consumer has taken another name
	forgotten := same && t.Call < r.call && (t.Call != 0 || got.Now.Sub(last.at).Abs() < callerKept)
	gone = last.at != 0 && (forgotten || t.Stored < last.stored || t.Acked < last.acked)
	if gone {
		back = rollback{until: last.at, sent: last.stored - min(first.stored, now.stored), acked: last.acked - min(first.acked, now.acked)}
		if forgotten && t.Call != 0 {
			back.since = t.Heard
		}
	}
	told := gone && back.sent+back.acked > 0 && (back.since == 0 || back.since < r.changed)
	if r.last, r.caller, r.call = now, c.ID, c.N; gone || first.at == 0 {
		r.first = now
	}
	if gone || t.Stored != last.stored || t.Acked != last.acked {
		r.changed = now.at
	}
	return back, told
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
