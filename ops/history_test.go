package ops

import (
	"context"
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

func monitorHistory(f *face.Fixture, m *Queue) {
	buriedIn(f, "a", "b")
	q := f.Queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		if msg.Failures == 0 {
			return queuetest.ErrBoom
		}
		return nil
	})
	q.StartConsume()
	f.Send(q, "c")
	queuetest.Eventually(f.T, "all is settled", func() bool { return len(f.Check().Messages) == 2 })
	want := Tally{Sent: 3, Delivered: 4, Acked: 1, Failed: 3, Garbage: 2, Started: 3}
	for _, by := range []Span{Hourly, Daily} {
		tallies, err := m.History(queuetest.CtxB, by, 2) // 2: the hour may have changed meanwhile
		f.Must(err)
		var sum Tally
		for _, t := range tallies {
			sum = Tally{Sent: sum.Sent + t.Sent, Delivered: sum.Delivered + t.Delivered, Acked: sum.Acked + t.Acked,
				Failed: sum.Failed + t.Failed, Lost: sum.Lost + t.Lost, Garbage: sum.Garbage + t.Garbage,
				Started: sum.Started + t.Started}
		}
		if last := tallies[1].Start; sum != want || len(tallies) != 2 ||
			last.Sub(tallies[0].Start) != time.Duration(by)*time.Hour ||
			time.Since(last) > time.Duration(by)*time.Hour {
			f.T.Errorf("by %d hours: %+v, want %+v", by, tallies, want)
		}
	}
	for by, want := range map[Span]int{Hourly: 48, Daily: 30} {
		if tallies, err := m.History(queuetest.CtxB, by, 10_000); err != nil || len(tallies) != want {
			f.T.Errorf("by %d hours: %d, %v; want %d", by, len(tallies), err, want)
		}
	}
	if _, err := m.History(queuetest.CtxB, 7, 1); !errors.Is(err, delayqueue.ErrBadOption) {
		f.T.Errorf("by 7 hours: %v", err)
	}
}

// dues are the numbers of a forecast: before, in each, after; pending and retry of each.
func dues(f *Forecast) (n []int64) {
	for _, d := range slices.Concat([]Due{f.Before}, f.Buckets, []Due{f.After}) {
		n = append(n, d.Pending, d.Retry)
	}
	return n
}

// TestForecast: what is asked for is checked.
func TestForecast(t *testing.T) {
	f, m := newQueue(t)
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
