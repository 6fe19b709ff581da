package otelqueue

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/metrics/internal/scenario"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// newMetrics makes Metrics, and a function that collects them: their values by name and attributes, the
// count of a histogram.
func newMetrics(t *testing.T, cfg Config) (*Metrics, func() map[string]float64) {
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	cfg.MeterProvider = provider
	m, err := NewMetrics(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m, func() map[string]float64 {
		var got metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &got); err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, scope := range got.ScopeMetrics {
			for _, m := range scope.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					if !data.IsMonotonic {
						t.Errorf("%s is not monotonic", m.Name)
					}
					numbers(out, m.Name, data.DataPoints)
				case metricdata.Gauge[int64]:
					numbers(out, m.Name, data.DataPoints)
				case metricdata.Gauge[float64]:
					numbers(out, m.Name, data.DataPoints)
				case metricdata.Histogram[float64]:
					for _, p := range data.DataPoints {
						out[key(m.Name, p.Attributes)] = float64(p.Count)
					}
				default:
					t.Errorf("%s is a %T", m.Name, data)
				}
			}
		}
		return out
	}
}

func numbers[N int64 | float64](out map[string]float64, name string, points []metricdata.DataPoint[N]) {
	for _, p := range points {
		out[key(name, p.Attributes)] = float64(p.Value)
	}
}

// key leaves out messaging.system, which is always the same.
func key(name string, attrs attribute.Set) string {
	parts := []string{name}
	for _, kv := range attrs.ToSlice() { // in order
		if kv.Key == "messaging.system" && kv.Value.AsString() == "delayqueue" {
			continue
		}
		parts = append(parts, kv.Value.String())
	}
	return strings.Join(parts, " ")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	scenario.Servers(t, func(t *testing.T, cli redis.UniversalClient) {
		s := scenario.New(t, "orders", cli)
		m, read := newMetrics(t, Config{})
		m.Watch(s.Monitor.Monitor(), delayqueue.NewMonitor("idle", cli))
		m.Instrument(s.Queue)
		m.InstrumentPublisher(s.Publisher)
		scenario.Eventually(t, read, map[string]float64{
			"delayqueue.up orders": 1, "delayqueue.consumers orders": 0, "messaging.client.sent.messages orders send": 0,
			"delayqueue.lost.messages orders receive": 0,
			"delayqueue.messages ready idle":          0,
		})
		before := time.Now()
		s.Play(t)
		scenario.Eventually(t, read, map[string]float64{
			"delayqueue.messages pending orders": 1, "delayqueue.messages ready orders": 0,
			"delayqueue.messages unack orders": 1,
			"delayqueue.messages retry orders": 0, "delayqueue.messages garbage orders": 2, "delayqueue.messages done orders": 2,
			"delayqueue.messages waiting orders":         0,
			"messaging.client.sent.messages orders send": 7, "messaging.client.consumed.messages orders receive": 8,
			"delayqueue.acked.messages orders ack": 3, "delayqueue.failed.messages orders nack": 3,
			"delayqueue.lost.messages orders receive": 0,
			"delayqueue.dead.messages orders nack":    2, "delayqueue.dropped.events orders": 0,
			"messaging.process.duration ack orders process":                      3,
			"messaging.process.duration nack *errors.errorString orders process": 3,
			"messaging.process.duration snooze orders process":                   1, "delayqueue.lateness orders": 5,
			"delayqueue.kind.handled fail nack orders": 2, "delayqueue.kind.handled fail ack orders": 0,
			"delayqueue.kind.handled panic nack orders": 1, "delayqueue.kind.handled none ack orders": 2,
			"delayqueue.kind.handling snooze orders": 2,
			"delayqueue.up orders":                   1, "delayqueue.paused orders": 0, "delayqueue.limited orders": 0,
			"delayqueue.oldest_ready.age orders": 0,
			"delayqueue.consumers orders":        1, "delayqueue.workers orders": scenario.Workers,
		})
		s.Gauges(t, read, before, "delayqueue.next_due.timestamp", "delayqueue.longest_handling.duration")
		s.Hold(t, read, "delayqueue.oldest_ready.age orders", map[string]float64{
			"delayqueue.paused orders": 1, "delayqueue.paused idle": 0, "delayqueue.messages ready orders": 1,
			"delayqueue.acked.messages orders ack": 4,
		})
		s.Lane(t, read, "delayqueue.messages waiting orders", "delayqueue.oldest_waiting.timestamp orders")
	})
}

func TestRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m, read := newMetrics(t, Config{Timeout: 50 * time.Millisecond})
	m.Watch(delayqueue.NewMonitor("orders", server.Client(t)))
	scenario.Outage(t, server, read, "delayqueue.up orders", "delayqueue.messages pending orders")
	scenario.Eventually(t, read, map[string]float64{"delayqueue.up orders": 1, "delayqueue.messages pending orders": 0})
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	m, read := newMetrics(t, Config{})
	s := new(scenario.Scheduler)
	m.InstrumentSchedules(s)
	scenario.Eventually(t, read, map[string]float64{"delayqueue.schedule.instants sent orders": 0,
		"delayqueue.schedule.instants expired orders": 0})
	for _, outcome := range []string{"sent", "sent", "caught up", "skipped", "expired"} {
		s.Tell(outcome, time.Second)
	}
	scenario.Eventually(t, read, map[string]float64{
		"delayqueue.schedule.instants sent orders": 2, "delayqueue.schedule.instants caught up orders": 1,
		"delayqueue.schedule.instants skipped orders": 1,
		"delayqueue.schedule.instants expired orders": 1, "delayqueue.schedule.lateness orders": 3,
		"delayqueue.dropped.events orders": 3,
	})
}
