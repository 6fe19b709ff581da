package otelqueue

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/metrics/internal/scenario"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func TestMain(m *testing.M) { scenario.Main(m) }

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
					for _, p := range data.DataPoints {
						out[key(m.Name, p.Attributes)] = float64(p.Value)
					}
				case metricdata.Gauge[int64]:
					for _, p := range data.DataPoints {
						out[key(m.Name, p.Attributes)] = float64(p.Value)
					}
				case metricdata.Gauge[float64]:
					for _, p := range data.DataPoints {
						out[key(m.Name, p.Attributes)] = p.Value
					}
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
		m.Watch(s.Monitor, delayqueue.NewMonitor("idle", cli))
		m.Instrument(s.Queue)
		m.InstrumentPublisher(s.Publisher)
		scenario.Eventually(t, read, map[string]float64{
			"delayqueue.up orders": 1, "delayqueue.consumers orders": 0, "messaging.client.sent.messages orders send": 0,
			"delayqueue.lost.messages orders receive": 0,
			"delayqueue.messages ready idle":          0,
		})
		before := time.Now()
		s.Play(t)
		got := scenario.Eventually(t, read, map[string]float64{
			"delayqueue.messages pending orders": 1, "delayqueue.messages ready orders": 0, "delayqueue.messages unack orders": 1,
			"delayqueue.messages retry orders": 0, "delayqueue.messages garbage orders": 2, "delayqueue.messages done orders": 2,
			"messaging.client.sent.messages orders send": 7, "messaging.client.consumed.messages orders receive": 8,
			"delayqueue.acked.messages orders ack": 3, "delayqueue.failed.messages orders nack": 3, "delayqueue.lost.messages orders receive": 0,
			"delayqueue.dead.messages orders nack": 2, "delayqueue.dropped.events orders": 0,
			"messaging.process.duration ack orders process": 3, "messaging.process.duration nack *errors.errorString orders process": 3,
			"messaging.process.duration snooze orders process": 1, "delayqueue.lateness orders": 5,
			"delayqueue.up orders": 1, "delayqueue.paused orders": 0, "delayqueue.limited orders": 0, "delayqueue.oldest_ready.age orders": 0,
		})
		if in := time.UnixMicro(int64(got["delayqueue.next_due.timestamp orders"] * 1e6)).Sub(before); in < time.Hour ||
			in > time.Hour+scenario.Patience {
			t.Errorf("the next is due in %v", in)
		}
		if _, ok := got["delayqueue.next_due.timestamp idle"]; ok {
			t.Error("a queue without messages has a next due instant")
		}
		scenario.Eventually(t, func() map[string]float64 {
			got := read()
			got["handler runs"] = min(got["delayqueue.longest_handling.duration orders"], 1)
			return got
		}, map[string]float64{"delayqueue.consumers orders": 1, "delayqueue.workers orders": scenario.Workers, "handler runs": 1})

		if err := s.Monitor.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Release()
		if err := s.Publisher.SendDelayMsg("ok", 0); err != nil {
			t.Fatal(err)
		}
		got = scenario.Eventually(t, read, map[string]float64{
			"delayqueue.paused orders": 1, "delayqueue.paused idle": 0, "delayqueue.messages ready orders": 1,
			"delayqueue.acked.messages orders ack": 4,
		})
		if age := got["delayqueue.oldest_ready.age orders"]; age <= 0 || age > scenario.Patience.Seconds() {
			t.Errorf("the oldest ready message waits for %v s", age)
		}
	})
}

func TestRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m, read := newMetrics(t, Config{Timeout: 50 * time.Millisecond})
	m.Watch(delayqueue.NewMonitor("orders", server.Client(t)))
	scenario.Eventually(t, read, map[string]float64{"delayqueue.up orders": 1})
	server.Pause()
	t.Cleanup(server.Resume)
	fastest := scenario.Patience // one of some, so that a busy machine is no slow collection
	for range 4 {
		start := time.Now()
		got := read()
		fastest = min(fastest, time.Since(start))
		if _, ok := got["delayqueue.messages pending orders"]; ok || got["delayqueue.up orders"] != 0 {
			t.Errorf("no answer, but %v", got)
		}
	}
	if fastest > 2*time.Second { // a client alone would wait for its read timeout, 3 s, thrice
		t.Errorf("a collection took %v", fastest)
	}
	server.Resume()
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
		"delayqueue.schedule.instants expired orders": 1, "delayqueue.schedule.lateness orders": 3, "delayqueue.dropped.events orders": 3,
	})
}
