package ops

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// dues are the numbers of a forecast: before, in each, after; pending and retry of each.
func dues(f *Forecast) (n []int64) {
	for _, d := range slices.Concat([]Due{f.Before}, f.Buckets, []Due{f.After}) {
		n = append(n, d.Pending, d.Retry)
	}
	return n
}

// TestForecast: what is asked for is checked, and a queue without a key is none.
func TestForecast(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	if _, err := m.Forecast(queuetest.CtxB, time.Time{}, time.Minute, 1); !errors.Is(err, delayqueue.ErrNoQueue) {
		t.Errorf("of nothing: %v", err)
	}
	q := f.Queue(nil)
	f.Send(q, "due")
	f.Send(q, "later", delayqueue.WithDelay(90*time.Minute))
	got, err := m.Forecast(queuetest.CtxB, time.Time{}, time.Hour, 3)
	f.Must(err)
	if want := []int64{1, 0, 0, 0, 1, 0, 0, 0, 0, 0}; !slices.Equal(dues(got), want) ||
		got.Buckets[0].Start != got.At || got.Step != time.Hour {
		t.Errorf("%+v, want %v", got, want)
	}
	early, err := m.Forecast(queuetest.CtxB, time.Unix(-1, 0), time.Hour, 1)
	f.Must(err)
	if want := []int64{0, 0, 0, 0, 2, 0}; !slices.Equal(dues(early), want) {
		t.Errorf("from before 1970: %+v, want %v", early, want)
	}
	for _, bad := range []struct {
		from time.Time
		step time.Duration
		n    int
	}{{step: 30, n: 1}, {step: -time.Hour, n: 1}, {n: 1}, {step: math.MaxInt64, n: 1}, {step: time.Hour},
		{step: time.Hour, n: maxBuckets + 1}, {message.MaxDue, time.Hour, 1}} {
		if _, err := m.Forecast(queuetest.CtxB, bad.from, bad.step, bad.n); !errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
