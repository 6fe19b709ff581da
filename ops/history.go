package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A Tally is what was counted in an hour or a day.
type Tally struct {
	Start     time.Time // of the hour or day, in UTC
	Sent      int64     // messages that were accepted
	Delivered int64     // deliveries handed out
	Acked     int64     // deliveries that were acknowledged
	Failed    int64     // deliveries that failed
	Lost      int64     // deliveries whose lease ran out
	Garbage   int64     // messages that went to garbage

	// Superseded counts messages that ended because another send took their keys (Replace, Reschedule) while they were
	// handled. They count neither as acked nor as garbage, however the delivery ended.
	Superseded int64

	Started int64 // messages that were handed out for the first time
	// how long after they were due, in the mean, to a millisecond; of one fetch about 16 messages are looked at
	Lateness    time.Duration
	MaxLateness time.Duration // the longest of these times, to a millisecond
}

// A Span is the length of time that a Tally counts.
type Span int64

// The spans of History, in hours.
const (
	Hourly Span = 1
	Daily  Span = 24
)

// historyHours and historyDays are how long history goes back.
const (
	historyHours = 48
	historyDays  = 30
)

// History returns what was counted in each of the last n hours or days, the oldest first. The last one is the present
// one, which is not over. Hours go back 2 days, and days 30. They are those of UTC, by the server's clock. An event
// counts in the hour of the next look of a consumer. While there is one, that is a second later as a rule, and up to
// half a minute later if its process consumes more than three queues.
func (m *Queue) History(ctx context.Context, by Span, n int) ([]Tally, error) {
	if by != Hourly && by != Daily {
		return nil, m.failed(fmt.Errorf("%w: %d: use Hourly or Daily", delayqueue.ErrBadOption, by), "history")
	}
	got, err := m.store.History(ctx)
	if err != nil && partly(err) == "" {
		return nil, m.failed(err, "history")
	}
	spans, most := got.Hours, historyHours
	if by == Daily {
		spans, most = got.Days, historyDays
	}
	last := got.Now / time.Hour.Microseconds() / int64(by) // span that is not yet over
	out := make([]Tally, max(min(n, most), 0))
	some := false
	for i := range out {
		span := last - int64(len(out)-1-i)
		out[i] = Tally(spans[span])
		some = some || out[i] != (Tally{})
		out[i].Start = time.Unix(span*int64(by)*3600, 0).UTC()
	}
	if err == nil && !some {
		if err := m.there(ctx); err != nil {
			return nil, m.failed(err, "history")
		}
	}
	if err != nil {
		err = m.failed(err, "history")
	}
	return out, err
}
