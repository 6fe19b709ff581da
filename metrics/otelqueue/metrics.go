// Package otelqueue shows delay queues to OpenTelemetry: metrics, and traces that go from the sender of a
// message to its handler.
//
//	metrics, err := otelqueue.NewMetrics(otelqueue.Config{})
//	metrics.Watch(delayqueue.NewMonitor("orders", redisClient))
//	metrics.Instrument(queue) // before queue.StartConsume
//
//	tracing := otelqueue.NewTracing(otelqueue.Config{})
//	queue.WithMiddleware(tracing.Middleware("orders"))
//	queue.Send(ctx, "42", append(tracing.Inject(ctx), delayqueue.WithDelay(time.Minute))...)
//
// Names are those of the messaging semantic conventions, if these have one. README.md of the module says what each
// metric means.
package otelqueue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/metrics/internal/observe"
	"github.com/go-delayqueue/delayqueue/outbox"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"
)

const (
	scope  = "github.com/go-delayqueue/delayqueue/metrics/otelqueue"
	system = "delayqueue" // messaging.system
)

// Config has the settings of Metrics and Tracing. The zero value takes what package otel has when they are made.
type Config struct {
	MeterProvider  metric.MeterProvider          // default: otel.GetMeterProvider
	TracerProvider trace.TracerProvider          // default: otel.GetTracerProvider
	Propagator     propagation.TextMapPropagator // default: otel.GetTextMapPropagator

	Timeout time.Duration // for reading the queues at a collection. Default 3 s
	Logger  *slog.Logger  // has a line when a queue cannot be read, and when it can be read again. Default slog.Default
}

// Metrics reports any number of queues. It is safe for concurrent use.
//
// Gauges are read from Redis at a collection and are queue-wide. Those of an outbox are read from its database, with
// its totals. All other totals and the histograms are those of this process. Queues of one name but several prefixes
// take Metrics each, with a MeterProvider that tells them apart.
type Metrics struct {
	queues observe.Queues
	subs   observe.Subscriptions

	totals          map[delayqueue.EventCode]metric.Int64Counter
	instants        metric.Int64Counter
	lateness        metric.Float64Histogram
	process         messagingconv.ProcessDuration
	instantLateness metric.Float64Histogram
	kindHandled     metric.Int64Counter
	kindHandling    metric.Float64Histogram
	reading         metric.Registration
}

// processBuckets are those that the semantic conventions recommend for messaging.process.duration, and longer ones.
var processBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 1800}

// NewMetrics makes its instruments and reads at every collection what is watched, until Close.
func NewMetrics(cfg Config) (*Metrics, error) {
	provider := cfg.MeterProvider
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	meter := provider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	m := &Metrics{
		queues: observe.Queues{Timeout: cfg.Timeout, Logger: cfg.Logger},
		totals: map[delayqueue.EventCode]metric.Int64Counter{},
	}
	var errs []error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := meter.Int64Counter("delayqueue."+name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	histogram := func(name, description string, buckets []float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram("delayqueue."+name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	for code, total := range observe.Totals {
		switch code { // two have names in the conventions
		case delayqueue.NewMessageEvent:
			sent, err := messagingconv.NewClientSentMessages(meter)
			m.totals[code], errs = sent.Inst(), append(errs, err)
		case delayqueue.DeliveredEvent:
			delivered, err := messagingconv.NewClientConsumedMessages(meter)
			m.totals[code], errs = delivered.Inst(), append(errs, err)
		default:
			m.totals[code] = counter(total.Name+".messages", "{message}", total.Help)
		}
	}
	m.instants = counter("schedule.instants", "{instant}", observe.InstantsHelp)
	m.lateness = histogram("lateness", observe.LatenessHelp, observe.LatenessBuckets)
	m.instantLateness = histogram("schedule.lateness", observe.InstantLatenessHelp, observe.LatenessBuckets)
	m.kindHandled = counter("kind.handled", "{message}", observe.KindHandledHelp)
	m.kindHandling = histogram("kind.handling", observe.KindHandlingHelp, observe.KindBuckets)
	var err error
	m.process, err = messagingconv.NewProcessDuration(meter, metric.WithExplicitBucketBoundaries(processBuckets...))
	errs = append(errs, err, m.observe(meter))
	return m, errors.Join(errs...)
}

// observe makes the instruments that are read at a collection.
func (m *Metrics) observe(meter metric.Meter) error {
	dropped, err := meter.Int64ObservableCounter("delayqueue.dropped.events", metric.WithUnit("{event}"),
		metric.WithDescription(observe.DroppedHelp))
	errs, all := []error{err}, []metric.Observable{dropped}
	var says []func(o metric.Observer, v float64, attrs metric.ObserveOption) // of observe.Gauges
	for _, g := range observe.Gauges {
		unit, description := metric.WithUnit(g.Unit), metric.WithDescription(g.Help)
		var whole metric.Int64Observable
		switch {
		case g.Total():
			whole, err = meter.Int64ObservableCounter("delayqueue."+g.OpenTelemetry, unit, description)
		case g.Unit != "s":
			whole, err = meter.Int64ObservableGauge("delayqueue."+g.OpenTelemetry, unit, description)
		default:
			gauge, err := meter.Float64ObservableGauge("delayqueue."+g.OpenTelemetry, unit, description)
			errs, all = append(errs, err), append(all, gauge)
			says = append(says, func(o metric.Observer, v float64, attrs metric.ObserveOption) {
				o.ObserveFloat64(gauge, v, attrs)
			})
			continue
		}
		errs, all = append(errs, err), append(all, whole)
		says = append(says, func(o metric.Observer, v float64, attrs metric.ObserveOption) {
			o.ObserveInt64(whole, int64(v), attrs)
		})
	}
	read := func(ctx context.Context, o metric.Observer) error {
		for _, r := range m.queues.Read(ctx) {
			for i, g := range observe.Gauges {
				for label, v := range g.Values(&r) {
					attrs := attributes(r.Queue)
					if g.Label != "" {
						attrs = append(attrs, attribute.String("delayqueue."+g.Label, label))
					}
					says[i](o, v, metric.WithAttributes(attrs...))
				}
			}
		}
		for name, n := range m.subs.Dropped() {
			o.ObserveInt64(dropped, n, metric.WithAttributes(attributes(name)...))
		}
		return nil
	}
	m.reading, err = meter.RegisterCallback(read, all...)
	return errors.Join(append(errs, err)...)
}

// attributes name a queue as the semantic conventions do.
func attributes(queue string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.MessagingSystemKey.String(system), semconv.MessagingDestinationName(queue)}
}

// Watch has the state of these queues read at every collection, with two calls of bounded work each. It
// panics if a queue of that name is watched already.
func (m *Metrics) Watch(monitors ...*delayqueue.Monitor) { m.queues.Add(monitors...) }

// Unwatch ends Watch for the queue of this name, if it is watched. From then on its gauges are gone.
func (m *Metrics) Unwatch(name string) { m.queues.Remove(name) }

// WatchSchedules has the schedules of a queue that is watched read at every collection: how many are not sent, and
// why. Each collection reads all schedules. The Scheduler need not run them.
func (m *Metrics) WatchSchedules(s Scheduler) { m.queues.AddSchedules(s) }

// WatchOutbox has the tables of an outbox read at every collection, by Box.Stats: for the queues of the Box, and for
// all others that have rows there. The Box need not run, and Redis may be away. It panics if another Box with one of
// the queues is watched already.
func (m *Metrics) WatchOutbox(box *outbox.Box) { m.queues.AddOutbox(box) }

// Instrument counts what this process does with a queue, and times its handlers. Middleware that is added later
// counts as handling. Call Instrument once for a DelayQueue, before StartConsume: it panics while the queue consumes.
func (m *Metrics) Instrument(q *delayqueue.DelayQueue) {
	name := q.Name()
	queue := metric.WithAttributeSet(attribute.NewSet(attributes(name)...))
	q.WithMiddleware(observe.Handlers(q.KindHeader, func(ctx context.Context, h observe.Handled) {
		if h.First {
			m.lateness.Record(ctx, h.Lateness.Seconds(), queue)
		}
		outcome := observe.OutcomeOf(ctx, h.Err)
		attrs := []attribute.KeyValue{m.process.AttrDestinationName(name),
			attribute.String("delayqueue.outcome", string(outcome))}
		if outcome == observe.Nack {
			attrs = append(attrs, semconv.ErrorType(h.Err))
		}
		m.process.Record(ctx, h.Took.Seconds(), "process", system, attrs...)
		if h.Kind != "" {
			m.ofKind(ctx, name, h, outcome)
		}
	}))
	m.count(name, q.ListenEvent)
}

func (m *Metrics) ofKind(ctx context.Context, name string, h observe.Handled, outcome observe.Outcome) {
	attrs := append(attributes(name), attribute.String("delayqueue.kind", h.Kind))
	m.kindHandling.Record(ctx, h.Took.Seconds(), metric.WithAttributes(attrs...))
	for _, o := range observe.Outcomes { // a rate needs the series of an outcome before its first message
		n := int64(0)
		if o == outcome {
			n = 1
		}
		m.kindHandled.Add(ctx, n, metric.WithAttributes(attrs...),
			metric.WithAttributes(attribute.String("delayqueue.outcome", string(o))))
	}
}

// InstrumentPublisher counts what this process sends. Call it once for a Publisher.
func (m *Metrics) InstrumentPublisher(p *delayqueue.Publisher) {
	m.count(p.Name(), p.ListenEvent)
}

// A Scheduler is a *schedule.Scheduler. This module does not need that module.
type Scheduler = observe.Scheduler

// InstrumentSchedules counts the instants that this process sends, or passes over. Call it once for a Scheduler.
func (m *Metrics) InstrumentSchedules(s Scheduler) {
	name := s.Name()
	queue := metric.WithAttributeSet(attribute.NewSet(attributes(name)...))
	count := func(outcome string, n int64) {
		m.instants.Add(context.Background(), n, queue, metric.WithAttributes(attribute.String("delayqueue.outcome", outcome)))
	}
	for outcome := range observe.InstantOutcomes { // so that they are there before anything happens
		count(outcome, 0)
	}
	m.subs.Add(name, s.ListenOutcome(func(outcome string, late time.Duration) {
		count(outcome, 1)
		if observe.InstantOutcomes[outcome] {
			m.instantLateness.Record(context.Background(), late.Seconds(), queue)
		}
	}))
}

func (m *Metrics) count(name string, listen func(func(delayqueue.Event)) *delayqueue.Subscription) {
	add := map[delayqueue.EventCode]func(int){}
	for code, total := range m.totals {
		attrs := metric.WithAttributeSet(attribute.NewSet(append(attributes(name),
			semconv.MessagingOperationName(observe.Totals[code].Operation))...))
		add[code] = func(n int) { total.Add(context.Background(), int64(n), attrs) }
		add[code](0) // so that it is there before anything happens
	}
	m.subs.Add(name, listen(func(e delayqueue.Event) {
		if add := add[e.Code]; add != nil {
			add(e.Count)
		}
	}))
}

// Close stops counting and reading.
func (m *Metrics) Close() error {
	m.subs.Stop()
	return m.reading.Unregister()
}
