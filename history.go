package delayqueue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
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

	// Superseded: messages that ended because, while they were handled, another send took their keys (Replace, Reschedule).
	// They count neither as acked nor as garbage, whatever became of the delivery.
	Superseded int64

	Started     int64         // messages that were handed out for the first time
	Lateness    time.Duration // how long after they were due, in the mean, to a millisecond; of many at a time 16 are looked at
	MaxLateness time.Duration // the longest of these times, to a millisecond
}

// tallyOf reads the numbers of an hour or a day; what is not that counts as nothing.
func tallyOf(text string) Tally {
	var n [10]int64
	fields := strings.Fields(text)
	if len(fields) != len(n) {
		return Tally{}
	}
	for i, field := range fields {
		var err error
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return Tally{}
		}
	}
	t := Tally{Sent: n[0], Delivered: n[1], Acked: n[2], Failed: n[3], Lost: n[4], Garbage: n[5], Superseded: n[6], Started: n[7]}
	if t.Started > 0 {
		t.Lateness = time.Duration(min(float64(n[8])/float64(t.Started)*float64(time.Millisecond), float64(maxDelay)))
	}
	t.MaxLateness = min(time.Duration(n[9]), maxDelay/time.Millisecond) * time.Millisecond
	return t
}

// A Span is the length of time that a Tally counts.
type Span int64

// What History can count by, in hours.
const (
	Hourly Span = 1
	Daily  Span = 24
)

// historyHours and historyDays are how long history goes back.
const (
	historyHours = 48
	historyDays  = 30
)

// History returns what was counted in each of the last n hours or days, the oldest first; the last
// one is the present one, not yet over. Hours go back 2 days, days 30; they are those of UTC and of the server's
// clock. A call counts for the hour in which a consumer looks in after it, which is a second later at most while
// there is one.
func (m *Monitor) History(ctx context.Context, by Span, n int) ([]Tally, error) {
	if by != Hourly && by != Daily {
		return nil, m.failed(fmt.Errorf("%w: %d: use Hourly or Daily", ErrBadOption, by), "history")
	}
	got, err := read(ctx, m.store.history)
	if err != nil {
		return nil, m.failed(err, "history")
	}
	spans, most := got.hours, historyHours
	if by == Daily {
		spans, most = got.days, historyDays
	}
	last := got.now / time.Hour.Microseconds() / int64(by) // span that is not yet over
	out := make([]Tally, max(min(n, most), 0))
	some := false
	for i := range out {
		span := last - int64(len(out)-1-i)
		out[i] = spans[span]
		some = some || out[i] != (Tally{})
		out[i].Start = time.Unix(span*int64(by)*3600, 0).UTC()
	}
	if !some {
		if err := m.there(ctx); err != nil {
			return nil, m.failed(err, "history")
		}
	}
	return out, nil
}
