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

// TestSchedulesAreCounted: metrics/ does not know schedule/, and counts what that tells, by the same words.
func TestSchedulesAreCounted(t *testing.T) {
	t.Parallel()
	s := schedule.New(delayqueue.NewPublisher("reports", redistest.Start(t).Client(t)))
	collector := promqueue.NewCollector(promqueue.Config{})
	defer collector.Close()
	collector.InstrumentSchedules(s)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	instants := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if family.GetName() == "delayqueue_schedule_instants_total" {
					n[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		return n
	}
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
