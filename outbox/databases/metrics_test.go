package databases

import (
	"database/sql"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/metrics/otelqueue"
	"github.com/go-delayqueue/delayqueue/metrics/promqueue"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// A reader returns the values that metrics have of an outbox, by name and queue, both in the words of Prometheus.
type reader func() map[string]float64

// readers watch boxes through both packages, and log to one place.
func readers(t *testing.T, log *slog.Logger, boxes ...*outbox.Box) map[string]reader {
	t.Helper()
	collector := promqueue.NewCollector(promqueue.Config{Logger: log})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	manual := metric.NewManualReader()
	metrics, err := otelqueue.NewMetrics(otelqueue.Config{Logger: log,
		MeterProvider: metric.NewMeterProvider(metric.WithReader(manual))})
	queuetest.Must(t, err)
	for _, b := range boxes {
		collector.WatchOutbox(b)
		metrics.WatchOutbox(b)
	}
	t.Cleanup(func() {
		collector.Close()
		queuetest.Must(t, metrics.Close())
	})
	return map[string]reader{
		"Prometheus":    func() map[string]float64 { return gather(t, registry) },
		"OpenTelemetry": func() map[string]float64 { return collect(t, manual) },
	}
}

func gather(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	queuetest.Must(t, err)
	out := map[string]float64{}
	for _, family := range families {
		name, found := strings.CutPrefix(family.GetName(), "delayqueue_outbox_")
		if !found {
			continue
		}
		for _, m := range family.GetMetric() {
			key := name
			for _, label := range m.GetLabel() {
				key += " " + label.GetValue()
			}
			out[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// prometheusNames are names in Prometheus, by those in OpenTelemetry.
var prometheusNames = map[string]string{
	"up": "up", "rows": "rows", "oldest_waiting.age": "oldest_waiting_age_seconds", "relayed": "relayed",
	"sent.messages": "sent_total", "healed.messages": "healed_total", "refused.messages": "refused_total",
}

func collect(t *testing.T, manual metric.Reader) map[string]float64 {
	t.Helper()
	var got metricdata.ResourceMetrics
	queuetest.Must(t, manual.Collect(t.Context(), &got))
	out := map[string]float64{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			name := prometheusNames[strings.TrimPrefix(m.Name, "delayqueue.outbox.")]
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				points(out, name, data.DataPoints)
			case metricdata.Gauge[int64]:
				points(out, name, data.DataPoints)
			case metricdata.Gauge[float64]:
				points(out, name, data.DataPoints)
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return out
}

func points[N int64 | float64](out map[string]float64, name string, all []metricdata.DataPoint[N]) {
	for _, p := range all {
		queue, _ := p.Attributes.Value("messaging.destination.name")
		key := name + " " + queue.AsString()
		if state, ok := p.Attributes.Value("delayqueue.state"); ok {
			key += " " + state.AsString()
		}
		out[key] = float64(p.Value)
	}
}

// TestMetrics: the numbers of an outbox are there in a process that does not relay, and while Redis is away.
func TestMetrics(t *testing.T) {
	each(t, func(w *world) {
		away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		w.Cleanup(func() { queuetest.Must(w.T, away.Close()) })
		watched, other := w.Name, w.Name+"-other"
		reads := readers(w.T, w.Logger(), w.box(delayqueue.NewPublisher(w.Name, away)))
		for name, read := range reads {
			want := map[string]float64{"up " + watched: 1, "rows " + watched + " waiting": 0, "rows " + watched + " dead": 0,
				"oldest_waiting_age_seconds " + watched: 0, "relayed " + watched: 0,
				"sent_total " + watched: 0, "healed_total " + watched: 0, "refused_total " + watched: 0}
			if got := read(); !maps.Equal(got, want) {
				w.Errorf("%s: %v, want %v", name, got, want)
			}
		}
		b := w.box()
		strange, err := outbox.New(w.db, w.dialect, delayqueue.NewPublisher(other, w.Cli))
		queuetest.Must(w.T, err)
		w.commit(func(tx *sql.Tx) {
			w.send(b, tx, "first", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour))
			w.send(b, tx, "refused", delayqueue.WithKey("k"))
			w.send(b, tx, "dead")
			queuetest.Must(w.T, strange.Send(w.Context(), tx, other, "x"))
		})
		w.exec("UPDATE {}outbox SET options = ? WHERE payload = ?", []byte("{"), []byte("dead"))
		w.run(b)
		w.relayed(b)
		for name, read := range reads {
			want := map[string]float64{"up " + watched: 1, "rows " + watched + " waiting": 0, "rows " + watched + " dead": 1,
				"oldest_waiting_age_seconds " + watched: 0, "relayed " + watched: 1,
				"sent_total " + watched: 1, "healed_total " + watched: 0, "refused_total " + watched: 1,
				"up " + other: 1, "rows " + other + " waiting": 1, "rows " + other + " dead": 0, "relayed " + other: 0,
				"sent_total " + other: 0, "healed_total " + other: 0, "refused_total " + other: 0}
			got := read()
			age := "oldest_waiting_age_seconds " + other
			if got[age] <= 0 {
				w.Errorf("%s: the oldest row waits for %v s", name, got[age])
			}
			if delete(got, age); !maps.Equal(got, want) {
				w.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	})
}

// TestMetricsOfTwoBoxes: boxes with one pair of tables see each other's queues, and each queue is shown once.
func TestMetricsOfTwoBoxes(t *testing.T) {
	w := newWorld(t, sqlite, sqlite.dsn(t), queuetest.SharedBase(t))
	b := w.box()
	w.sends(b, "a", "b")
	second := w.box(delayqueue.NewPublisher("second", w.Cli))
	w.commit(func(tx *sql.Tx) { queuetest.Must(t, second.Send(t.Context(), tx, "second", "c")) })
	for name, read := range readers(t, w.Logger(), second, b) {
		got := read()
		if got["rows "+w.Name+" waiting"] != 2 || got["rows second waiting"] != 1 || len(got) != 2*8 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestMetricsWithoutDatabase: a database that is away is said to be away, with a line in the log, and then to be back.
func TestMetricsWithoutDatabase(t *testing.T) {
	t.Parallel()
	server, err := postgres.start()
	queuetest.Must(t, err)
	t.Cleanup(func() { queuetest.Must(t, server.Close()) })
	w := newWorld(t, postgres, server.DSN, queuetest.SharedBase(t))
	b := w.box()
	w.sends(b, "a")
	lines := 0
	for name, read := range readers(t, w.Logger(), b) {
		up := 1.0
		reaches := func(want float64) {
			t.Helper()
			queuetest.Eventually(t, name+" has up", func() bool {
				got := read()
				if got["up "+w.Name] != up { // a reading of a busy machine may be an outage, too
					up = got["up "+w.Name]
					lines++
				}
				if n := len(got); n != map[float64]int{0: 1, 1: 8}[up] {
					t.Errorf("%s: %v", name, got)
				}
				return up == want
			})
		}
		reaches(1)
		queuetest.Must(t, server.Stop())
		reaches(0)
		queuetest.Must(t, server.Start())
		reaches(1)
	}
	if n := w.Log.Count("metrics: the outbox can"); n != lines || n < 4 {
		t.Errorf("%d lines in the log for %d beginnings and ends of outages:\n%s", n, lines, w.Log)
	}
}
