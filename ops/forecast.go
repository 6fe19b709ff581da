package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Due is how many messages come due in a span of time.
type Due struct {
	Start   time.Time // of the span, which lasts Forecast.Step
	Pending int64     // messages that come due for the first time, or wait for others of their lanes (WithLane)
	Retry   int64     // messages that come due again
}

// A Forecast says how many messages come due in each span, as the queue is now. Messages that are sent, moved, handed
// out or fail later change it.
type Forecast struct {
	At      time.Time     // when it was counted, by the server's clock
	Step    time.Duration // of a bucket
	Before  Due           // due before the first bucket; without a Start
	Buckets []Due         // from Start on, Start + Step not included
	After   Due           // due from the end of the last bucket on, which is its Start
}

// maxBuckets is how many spans Forecast counts at most. They make about a thousand commands in one call.
const maxBuckets = 500

// Forecast counts the messages that come due in n spans of time (1 to 500) of the length step (1 ms or more). The
// first span begins at from; zero: now, by the server's clock. Messages that were released are due, and do not count.
// Forecast is one script call. Each span costs it O(log m) of m messages.
func (m *Queue) Forecast(ctx context.Context, from time.Time, step time.Duration, n int) (*Forecast, error) {
	var first message.When
	err := message.Unitless("step", step)
	switch {
	case err != nil:
	case step < message.MinDuration || step > message.MaxDelay || n < 1 || n > maxBuckets:
		err = fmt.Errorf("%w: %d spans of %v: 1 to %d, of %v or more", delayqueue.ErrBadOption, n, step, maxBuckets,
			message.MinDuration)
	case !from.IsZero():
		first, err = message.Scheduled(from)
		first.Us = max(first.Us, 1) // 0: now
	}
	if err != nil {
		return nil, m.failed(err, "forecast")
	}
	counted, err := m.store.Forecast(ctx, first.Us, step, n)
	var all int64
	for _, due := range counted.Due {
		all += due.Pending + due.Retry
	}
	if err == nil && all == 0 {
		err = m.there(ctx)
	}
	switch {
	case partly(err) != "":
		return forecastOf(&counted, step), m.failed(err, "forecast")
	case err != nil:
		return nil, m.failed(err, "forecast")
	}
	return forecastOf(&counted, step), nil
}

// forecastOf makes a Forecast of a reply.
func forecastOf(r *script.ForecastReply, step time.Duration) *Forecast {
	f := &Forecast{Step: step, At: message.InstantTime(r.Now)}
	for i, n := range r.Due {
		due := Due{Pending: n.Pending, Retry: n.Retry}
		if i > 0 {
			due.Start = message.InstantTime(r.From + int64(i-1)*step.Microseconds())
		}
		switch i {
		case 0:
			f.Before = due
		case len(r.Due) - 1:
			f.After = due
		default:
			f.Buckets = append(f.Buckets, due)
		}
	}
	return f
}
