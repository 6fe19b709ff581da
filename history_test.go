package delayqueue

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestHistory(t *testing.T) { onSharedServer(t, monitorHistory) }

func monitorHistory(f *fixture, m *Monitor) {
	f.buried("a", "b")
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Failures == 0 {
			return errBoom
		}
		return nil
	})
	q.StartConsume()
	f.send(q, "c")
	eventually(f.t, "all is settled", func() bool { return len(f.check().Messages) == 2 })
	want := Tally{Sent: 3, Delivered: 4, Acked: 1, Failed: 3, Garbage: 2, Started: 3}
	for _, by := range []Span{Hourly, Daily} {
		tallies, err := m.History(ctxB, by, 2) // 2: the hour may have changed meanwhile
		f.must(err)
		var sum Tally
		for _, t := range tallies {
			sum = Tally{Sent: sum.Sent + t.Sent, Delivered: sum.Delivered + t.Delivered, Acked: sum.Acked + t.Acked,
				Failed: sum.Failed + t.Failed, Lost: sum.Lost + t.Lost, Garbage: sum.Garbage + t.Garbage, Started: sum.Started + t.Started}
		}
		if last := tallies[1].Start; sum != want || len(tallies) != 2 || last.Sub(tallies[0].Start) != time.Duration(by)*time.Hour ||
			time.Since(last) > time.Duration(by)*time.Hour {
			f.t.Errorf("by %d hours: %+v, want %+v", by, tallies, want)
		}
	}
	for by, want := range map[Span]int{Hourly: 48, Daily: 30} {
		if tallies, err := m.History(ctxB, by, 10_000); err != nil || len(tallies) != want {
			f.t.Errorf("by %d hours: %d, %v; want %d", by, len(tallies), err, want)
		}
	}
	if _, err := m.History(ctxB, 7, 1); !errors.Is(err, ErrBadOption) {
		f.t.Errorf("by 7 hours: %v", err)
	}
}
