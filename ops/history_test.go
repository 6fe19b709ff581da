package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

func TestHistory(t *testing.T) { onSharedServer(t, monitorHistory) }

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
				Failed: sum.Failed + t.Failed, Lost: sum.Lost + t.Lost, Garbage: sum.Garbage + t.Garbage, Started: sum.Started + t.Started}
		}
		if last := tallies[1].Start; sum != want || len(tallies) != 2 || last.Sub(tallies[0].Start) != time.Duration(by)*time.Hour ||
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
