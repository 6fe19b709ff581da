package main

import (
	"context"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/metrics/promqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/prometheus/client_golang/prometheus"
)

// gathered are the numbers of a metric, counters or gauges, by one of its labels.
func gathered(t *testing.T, registry *prometheus.Registry, name string, label int) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				n[m.GetLabel()[label].GetValue()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return n
}

// TestSchedulesAreCounted: metrics/ does not know schedule/, and counts what that tells, by the same words.
func TestSchedulesAreCounted(t *testing.T) {
	t.Parallel()
	s := schedule.New(delayqueue.NewPublisher("reports", redistest.Start(t).Client(t)))
	collector := promqueue.NewCollector(promqueue.Config{})
	defer collector.Close()
	collector.InstrumentSchedules(s)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	instants := func() map[string]float64 { return gathered(t, registry, "delayqueue_schedule_instants_total", 0) }
	last := schedule.SentEvent
	for ; last.String()[0] != 'E'; last++ { // EventCode(5)
		if n, there := instants()[last.String()]; !there || n != 0 {
			t.Errorf("the outcome %q is not counted", last)
		}
	}
	if n := len(instants()); n != int(last)-1 {
		t.Errorf("%d outcomes are counted, and there are %d", n, int(last)-1)
	}
	if err := s.Set(t.Context(), schedule.Entry{Name: "e", Every: time.Second}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for end := time.Now().Add(deadline); instants()["sent"] < 3; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("counted are %v", instants())
			break
		}
	}
	stop()
	<-ended
}

// TestStuckSchedulesAreCounted: a collector says which schedules are not sent, by reason, whoever runs them.
func TestStuckSchedulesAreCounted(t *testing.T) {
	t.Parallel()
	cli := redistest.Start(t).Client(t)
	s := schedule.New(delayqueue.NewPublisher("reports", cli))
	collector := promqueue.NewCollector(promqueue.Config{})
	defer collector.Close()
	collector.Watch(delayqueue.NewMonitor("reports", cli))
	collector.WatchSchedules(s)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	stuck := func(want map[string]float64) bool {
		n := gathered(t, registry, "delayqueue_schedules_stuck", 1)
		for _, why := range []string{"not run", "wrong clock", "sequence moved", "refused", "unreadable", "overdue"} {
			if have, there := n[why]; !there || have != want[why] {
				return false
			}
		}
		return true
	}
	until := func(want map[string]float64) {
		t.Helper()
		for end := time.Now().Add(deadline); !stuck(want); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not %v", want)
			}
		}
	}
	until(nil)
	for _, name := range []string{"a", "b"} {
		if err := s.Set(t.Context(), schedule.Entry{Name: name, Every: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cli.HSet(t.Context(), "{dq:reports}:schedules", "rubbish", "x").Err(); err != nil {
		t.Fatal(err)
	}
	until(map[string]float64{"not run": 2, "unreadable": 1})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	until(map[string]float64{"unreadable": 1})
	stop()
	<-ended
}
