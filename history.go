package delayqueue

import (
	"context"
	"fmt"
	"time"
)

// A Tally is what was counted in an hour or a day.
type Tally struct {
	Start     time.Time // in UTC
	Sent      int64
	Delivered int64 // deliveries handed out
	Acked     int64
	Failed    int64 // deliveries that failed
	Lost      int64 // deliveries whose lease ran out
	Garbage   int64 // messages that went to garbage
}

func (t *Tally) count(what string, n int64) {
	switch what {
	case "sent":
		t.Sent += n
	case "delivered":
		t.Delivered += n
	case "acked":
		t.Acked += n
	case "failed":
		t.Failed += n
	case "lost":
		t.Lost += n
	case "dead":
		t.Garbage += n
	}
}

func (t *Tally) add(o *Tally) {
	t.Sent += o.Sent
	t.Delivered += o.Delivered
	t.Acked += o.Acked
	t.Failed += o.Failed
	t.Lost += o.Lost
	t.Garbage += o.Garbage
}

// A Span is the length of time that a Tally counts.
type Span int64

// What History can count by, in hours.
const (
	Hourly Span = 1
	Daily  Span = 24
)

// historyDays is how long history goes back.
const historyDays = 30

// History returns what was counted in each of the last n hours or days, the oldest first; the last
// one is the present one, not yet over. It goes back 30 days; hours and days are those of UTC and of the
// server's clock.
func (m *Monitor) History(ctx context.Context, by Span, n int) ([]Tally, error) {
	if by != Hourly && by != Daily {
		return nil, m.failed(fmt.Errorf("%w: %d: use Hourly or Daily", ErrBadOption, by), "history")
	}
	var now int64
	var hours map[int64]*Tally
	err := repeat(ctx, readAttempts, func() (err error) {
		now, hours, err = m.store.history(ctx)
		return err
	})
	if err != nil {
		return nil, m.failed(err, "history")
	}
	last := now / time.Hour.Microseconds() / int64(by) // span that is not yet over
	n = max(min(n, historyDays*24/int(by)), 0)
	out := make([]Tally, n)
	for i := range out {
		out[i].Start = time.Unix((last-int64(n-1-i))*int64(by)*3600, 0).UTC()
	}
	for hour, t := range hours {
		if i := n - 1 - int(last-hour/int64(by)); i >= 0 && i < n {
			out[i].add(t)
		}
	}
	return out, nil
}
