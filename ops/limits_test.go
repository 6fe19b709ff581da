package ops

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestLimitsDiffer: the least that any consumer asks for holds, and the log names both; what a Monitor sets goes before it.
func TestLimitsDiffer(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	f.Queue(func(string) bool { return true }).WithQueueConcurrency(2).StartConsume()
	queuetest.Eventually(t, "it has asked", func() bool { return f.Check().Fields["limits"] != "" })
	f.Queue(func(string) bool { return true }).WithQueueConcurrency(3).StartConsume()
	const warning = "consumers of this queue ask for other limits"
	queuetest.Eventually(t, "a warning", func() bool { return f.Log.Count(warning, `this="3 at a time"`, `all="2 at a time"`) == 1 })
	if before, err := m.SetLimits(queuetest.CtxB, Limits{Concurrency: 7}); err != nil || before != (Limits{}) {
		t.Errorf("%v, %v", before, err)
	}
	queuetest.Eventually(t, "both know", func() bool { return f.Log.Count("limits of this queue are set", `all="7 at a time"`) == 2 })
	if before, err := m.SetLimits(queuetest.CtxB, Limits{}); err != nil || before != (Limits{Concurrency: 7}) {
		t.Errorf("%v, %v", before, err)
	}
	queuetest.Eventually(t, "it holds no more", func() bool {
		return f.Log.Count("are those that this consumer asks for", `this="2 at a time"`) == 1 && f.Log.Count(warning) == 2
	})
}

// TestBadLimits: each says in a sentence what is wrong.
func TestBadLimits(t *testing.T) {
	t.Parallel()
	const maxRate, maxPer = 1_000_000, 365 * 24 * time.Hour // a second, and of a rate
	f := face.New(t)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	panics := func(with string, do func()) {
		t.Helper()
		if text := queuetest.PanicText(do); !strings.Contains(text, with) {
			t.Errorf("%q, want %q", text, with)
		}
	}
	const rate, concurrency = "at least 1 and at most a million a second", "at least 1 at a time"
	for _, l := range []Limits{{0, time.Second, 1, 0}, {-1, time.Second, 1, 0}, {1, 0, 1, 0}, {1, -1, 1, 0},
		{1, 100, 1, 0}, {1, time.Second, 0, 0},
		{1, time.Second, -1, 0}, {1, time.Second, maxRate + 1, 0}, {2, time.Microsecond, 1, 0},
		{maxRate + 1, time.Second, 1, 0}, {1, maxPer + 1, 1, 0}} {
		panics(rate, func() { q.WithRateLimit(l.Rate, l.Per, l.Burst) })
		if _, err := m.SetLimits(queuetest.CtxB, l); !errors.Is(err, delayqueue.ErrBadOption) || !strings.Contains(fmt.Sprint(err), rate) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	panics("did you mean 10*time.Second?", func() { q.WithRateLimit(1, 10, 1) })
	for _, n := range []int{0, -1, 1 << 31} {
		panics(concurrency, func() { q.WithQueueConcurrency(n) })
		if _, err := m.SetLimits(queuetest.CtxB, Limits{Concurrency: n}); n != 0 &&
			(!errors.Is(err, delayqueue.ErrBadOption) || !strings.Contains(fmt.Sprint(err), concurrency)) {
			t.Errorf("%d: %v", n, err)
		}
	}
	q.WithRateLimit(maxRate, time.Second, maxRate).WithRateLimit(1, time.Millisecond, 1).WithQueueConcurrency(1)
}
