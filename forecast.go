package delayqueue

import (
	"context"
	"fmt"
	"time"
)

// A Due is how many messages come due in a span of time.
type Due struct {
	Start   time.Time // of the span, which lasts Forecast.Step
	Pending int64     // for the first time
	Retry   int64     // again
}

// A Forecast says how much comes due when, by what is in the queue now: what is handed out, sent, moved or fails meanwhile
// changes it.
type Forecast struct {
	At      time.Time     // when it was counted, by the server's clock
	Step    time.Duration // of a bucket
	Before  Due           // due before the first bucket; without a Start
	Buckets []Due         // from Start on, Start + Step not included
	After   Due           // due from the end of the last bucket on, which is its Start
}

// maxBuckets is how many spans Forecast counts at most: about a thousand commands in one call.
const maxBuckets = 500

// Forecast counts what comes due in n spans of time (1 to 500) of the length step (1 ms or more), the first of which
// begins at from; zero: now, by the server's clock. What was released (it is due) does not count. It is one script call, of O(log n)
// for each span.
func (m *Monitor) Forecast(ctx context.Context, from time.Time, step time.Duration, n int) (*Forecast, error) {
	var first when
	err := unitless("step", step)
	switch {
	case err != nil:
	case step < minDuration || step > maxDelay || n < 1 || n > maxBuckets:
		err = fmt.Errorf("%w: %d spans of %v: 1 to %d, of %v or more", ErrBadOption, n, step, maxBuckets, minDuration)
	case !from.IsZero():
		first, err = scheduled(from)
		first.us = max(first.us, 1) // 0: now
	}
	if err != nil {
		return nil, m.failed(err, "forecast")
	}
	got, err := read(ctx, func(ctx context.Context) (*Forecast, error) { return m.store.forecast(ctx, first.us, step, n) })
	if err == nil && got.empty() {
		err = m.there(ctx)
	}
	if err != nil {
		return nil, m.failed(err, "forecast")
	}
	return got, nil
}

// empty says whether nothing is counted at all.
func (f *Forecast) empty() bool {
	all := f.Before.Pending + f.Before.Retry + f.After.Pending + f.After.Retry
	for _, b := range f.Buckets {
		all += b.Pending + b.Retry
	}
	return all == 0
}

func (s *store) forecast(ctx context.Context, from int64, step time.Duration, n int) (*Forecast, error) {
	r := s.run(ctx, forecastScript, []any{from, step.Microseconds(), n})
	f := &Forecast{Step: step, At: instantTime(r.int64())}
	from = r.int64()
	due := func() Due { return Due{Pending: r.int64(), Retry: r.int64()} }
	f.Before = due()
	for i := range n {
		b := due()
		b.Start = instantTime(from + int64(i)*step.Microseconds())
		f.Buckets = append(f.Buckets, b)
	}
	f.After = due()
	f.After.Start = instantTime(from + int64(n)*step.Microseconds())
	return f, r.err("forecast")
}
