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
// Where the messaging semantic conventions have a name for something, it has that name. README.md
// of the module says what each metric means.
package otelqueue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/metrics/internal/observe"
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

// Config is how Metrics and Tracing work. The zero value takes what package otel has at that moment.
type Config struct {
	MeterProvider  metric.MeterProvider          // default: otel.GetMeterProvider
	TracerProvider trace.TracerProvider          // default: otel.GetTracerProvider
	Propagator     propagation.TextMapPropagator // default: otel.GetTextMapPropagator

	Timeout time.Duration // of reading the queues at a collection. Default 3 s
	Logger  *slog.Logger  // is told when a queue cannot be read, and when it can be again. Default slog.Default
}

// Metrics reports any number of queues. It is safe for concurrent use.
//
// Gauges are read from Redis at a collection and are queue-wide. Totals and histograms are those of this
// process. Queues of one name but several prefixes take Metrics each, with a MeterProvider that tells them apart.
type Metrics struct {
	queues   observe.Queues
	gauges   gauges
	totals   map[delayqueue.EventCode]total
	lateness metric.Float64Histogram
	process  messagingconv.ProcessDuration
	reading  metric.Registration

	instants        metric.Int64Counter
	instantLateness metric.Float64Histogram

	mu   sync.Mutex
	subs map[string][]observe.Subscription
}

// A total is a counter of messages and the operation that it counts.
type total struct {
	metric.Int64Counter
	operation string
}

type gauges struct {
	up, messages, paused, limited, consumers, workers, stuck metric.Int64ObservableGauge
	oldestReady, nextDue, longestHandling                    metric.Float64ObservableGauge
	dropped                                                  metric.Int64ObservableCounter
}

// processBuckets are those that the semantic conventions recommend for messaging.process.duration, and longer ones.
var processBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 1800}

var latenessBuckets = []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600 * 6}

// NewMetrics makes its instruments and reads at every collection what is watched, until Close.
func NewMetrics(cfg Config) (*Metrics, error) {
	provider := cfg.MeterProvider
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	meter := provider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	m := &Metrics{
		queues: observe.Queues{Timeout: cfg.Timeout, Logger: cfg.Logger},
		totals: map[delayqueue.EventCode]total{},
		subs:   map[string][]observe.Subscription{},
	}
	var errs []error
	sent, err := messagingconv.NewClientSentMessages(meter)
	errs = append(errs, err)
	m.totals[delayqueue.NewMessageEvent] = total{sent.Inst(), "send"}
	delivered, err := messagingconv.NewClientConsumedMessages(meter)
	errs = append(errs, err)
	m.totals[delayqueue.DeliveredEvent] = total{delivered.Inst(), "receive"}
	for code, counted := range map[delayqueue.EventCode]struct{ name, operation, description string }{
		delayqueue.AckEvent:  {"acked", "ack", "Messages that this process acknowledged."},
		delayqueue.NackEvent: {"failed", "nack", "Deliveries that failed in this process."},
		delayqueue.LostEvent: {"lost", "receive", "Deliveries of any consumer whose lease ran out, as this process found."},
		delayqueue.VanishedEvent: {"vanished", "receive",
			"Messages that this process found gone from Redis though nobody took them out; 1 for a whole queue."},
		delayqueue.FinalFailedEvent: {"dead", "nack", "Messages that this process gave up on: they went to garbage."},
		delayqueue.SupersededEvent: {"superseded", "ack",
			"Messages that ended in this process because another send took their keys while they were handled."},
	} {
		counter, err := meter.Int64Counter("delayqueue."+counted.name+".messages", metric.WithUnit("{message}"),
			metric.WithDescription(counted.description))
		errs = append(errs, err)
		m.totals[code] = total{counter, counted.operation}
	}
	m.process, err = messagingconv.NewProcessDuration(meter, metric.WithExplicitBucketBoundaries(processBuckets...))
	errs = append(errs, err)
	m.lateness, err = meter.Float64Histogram("delayqueue.lateness", metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(latenessBuckets...),
		metric.WithDescription("From the due instant of a message to the start of its handler, on its first delivery."))
	errs = append(errs, err)
	m.instants, err = meter.Int64Counter("delayqueue.schedule.instants", metric.WithUnit("{instant}"),
		metric.WithDescription("Instants of schedules that this process settled, by outcome: sent, caught up, skipped or expired."))
	errs = append(errs, err)
	m.instantLateness, err = meter.Float64Histogram("delayqueue.schedule.lateness", metric.WithUnit("s"),
		metric.WithExplicitBucketBoundaries(latenessBuckets...),
		metric.WithDescription("From an instant of a schedule to when this process had its message stored; 0 if that was ahead of it."))
	errs = append(errs, err, m.observe(meter))
	return m, errors.Join(errs...)
}

// observe makes what is read at a collection.
func (m *Metrics) observe(meter metric.Meter) error {
	var errs []error
	var all []metric.Observable
	whole := func(name, unit, description string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		all = append(all, g)
		return g
	}
	seconds := func(name, description string) metric.Float64ObservableGauge {
		g, err := meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
		errs = append(errs, err)
		all = append(all, g)
		return g
	}
	dropped, err := meter.Int64ObservableCounter("delayqueue.dropped.events", metric.WithUnit("{event}"),
		metric.WithDescription("Events of this process that were not counted because they came too fast; a total is too low by their messages."))
	errs = append(errs, err)
	all = append(all, dropped)
	m.gauges = gauges{
		up:          whole("delayqueue.up", "1", "Whether the queue could be read: 1, or 0 and none of its other gauges."),
		messages:    whole("delayqueue.messages", "{message}", "Messages in a state."),
		paused:      whole("delayqueue.paused", "1", "Whether the queue is paused: 1 or 0."),
		limited:     whole("delayqueue.limited", "1", "Whether what is ready waits for a limit of the queue and not for a consumer: 1 or 0."),
		consumers:   whole("delayqueue.consumers", "{consumer}", "Consumers that are alive."),
		stuck:       whole("delayqueue.schedule.stuck", "{schedule}", "Schedules for which nothing is sent at their instants."),
		workers:     whole("delayqueue.workers", "{worker}", "Deliveries that the consumers can handle at a time."),
		oldestReady: seconds("delayqueue.oldest_ready.age", "How long the oldest ready message has been waiting; 0 if none is."),
		nextDue: seconds("delayqueue.next_due.timestamp",
			"When the next message is due that is not yet, in seconds since 1970; none if nothing is pending or waits for a retry."),
		longestHandling: seconds("delayqueue.longest_handling.duration", "How long the oldest running handler has been running; 0 if none is."),
		dropped:         dropped,
	}
	m.reading, err = meter.RegisterCallback(m.read, all...)
	return errors.Join(append(errs, err)...)
}

func (m *Metrics) read(ctx context.Context, o metric.Observer) error {
	g := m.gauges
	for _, r := range m.queues.Read(ctx) {
		queue := metric.WithAttributeSet(attribute.NewSet(attributes(r.Queue)...))
		o.ObserveInt64(g.up, number(r.Up), queue)
		if !r.Up {
			continue
		}
		for state, n := range r.Sizes() {
			o.ObserveInt64(g.messages, n, metric.WithAttributes(append(attributes(r.Queue),
				attribute.String("delayqueue.state", state.String()))...))
		}
		o.ObserveFloat64(g.oldestReady, r.Counts.Behind.Seconds(), queue)
		if due := r.Counts.NextDue; !due.IsZero() {
			o.ObserveFloat64(g.nextDue, float64(due.UnixMicro())/1e6, queue)
		}
		o.ObserveInt64(g.paused, number(r.Counts.Paused), queue)
		o.ObserveInt64(g.limited, number(r.Counts.Limited), queue)
		o.ObserveInt64(g.consumers, int64(len(r.Consumers)), queue)
		o.ObserveInt64(g.workers, int64(r.Workers()), queue)
		o.ObserveFloat64(g.longestHandling, r.LongestHandling().Seconds(), queue)
		for reason, n := range r.Stuck {
			o.ObserveInt64(g.stuck, int64(n), metric.WithAttributes(append(attributes(r.Queue), attribute.String("delayqueue.reason", reason))...))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, subs := range m.subs {
		var n int64
		for _, sub := range subs {
			n += sub.Dropped()
		}
		o.ObserveInt64(g.dropped, n, metric.WithAttributes(attributes(name)...))
	}
	return nil
}

// attributes name a queue as the semantic conventions do.
func attributes(queue string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.MessagingSystemKey.String(system), semconv.MessagingDestinationName(queue)}
}

// Watch has the state of these queues read at every collection, with two calls of bounded work each. It
// panics if a queue of that name is watched already.
func (m *Metrics) Watch(monitors ...*delayqueue.Monitor) { m.queues.Add(monitors...) }

// Unwatch ends that for the queue of this name, if it is watched: its gauges are gone from then on.
func (m *Metrics) Unwatch(name string) { m.queues.Remove(name) }

// Schedules are those of a queue that is watched: a *schedule.Scheduler, whose module this one does not need. It need not run them.
type Schedules = observe.Schedules

// WatchSchedules has the schedules of a queue that is watched looked at, at every collection: how many are not sent, and why. That reads all
// of them.
func (m *Metrics) WatchSchedules(s Schedules) { m.queues.AddSchedules(s) }

// Instrument counts what this process does with a queue, and times its handlers; middleware that is
// added after this counts as handling. Call it once for a DelayQueue, before StartConsume: it panics while
// the queue consumes.
func (m *Metrics) Instrument(q *delayqueue.DelayQueue) {
	name := observe.Label(q.Name())
	queue := metric.WithAttributeSet(attribute.NewSet(attributes(name)...))
	q.WithMiddleware(observe.Handlers(func(ctx context.Context, h observe.Handled) {
		if h.First {
			m.lateness.Record(ctx, h.Lateness.Seconds(), queue)
		}
		outcome := observe.OutcomeOf(ctx, h.Err)
		attrs := []attribute.KeyValue{m.process.AttrDestinationName(name), attribute.String("delayqueue.outcome", string(outcome))}
		if outcome == observe.Nack {
			attrs = append(attrs, semconv.ErrorType(h.Err))
		}
		m.process.Record(ctx, h.Took.Seconds(), "process", system, attrs...)
	}))
	m.count(name, q.ListenEvent)
}

// InstrumentPublisher counts what this process sends. Call it once for a Publisher.
func (m *Metrics) InstrumentPublisher(p *delayqueue.Publisher) {
	m.count(observe.Label(p.Name()), p.ListenEvent)
}

// A Scheduler is a *schedule.Scheduler, whose module this one does not need.
type Scheduler interface {
	Name() string // of its queue
	ListenOutcome(listener func(outcome string, lateness time.Duration)) interface {
		Stop()
		Dropped() int64
	}
}

// InstrumentSchedules counts the instants that this process sends for, or passes over. Call it once for a Scheduler.
func (m *Metrics) InstrumentSchedules(s Scheduler) {
	name := observe.Label(s.Name())
	queue := metric.WithAttributeSet(attribute.NewSet(attributes(name)...))
	count := func(outcome string, n int64) {
		m.instants.Add(context.Background(), n, queue, metric.WithAttributes(attribute.String("delayqueue.outcome", outcome)))
	}
	for outcome := range observe.InstantOutcomes { // so that they are there before anything happens
		count(outcome, 0)
	}
	m.listens(name, s.ListenOutcome(func(outcome string, late time.Duration) {
		count(outcome, 1)
		if observe.InstantOutcomes[outcome] {
			m.instantLateness.Record(context.Background(), late.Seconds(), queue)
		}
	}))
}

func (m *Metrics) count(name string, listen func(delayqueue.EventListener) *delayqueue.Subscription) {
	add := map[delayqueue.EventCode]func(int){}
	for code, total := range m.totals {
		attrs := metric.WithAttributeSet(attribute.NewSet(append(attributes(name), semconv.MessagingOperationName(total.operation))...))
		add[code] = func(n int) { total.Add(context.Background(), int64(n), attrs) }
		add[code](0) // so that it is there before anything happens
	}
	m.listens(name, listen(func(e delayqueue.Event) {
		if add := add[e.Code]; add != nil {
			add(e.Count)
		}
	}))
}

// listens notes by what something is counted.
func (m *Metrics) listens(name string, sub observe.Subscription) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subs[name] = append(m.subs[name], sub)
}

// Close stops counting and reading.
func (m *Metrics) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, subs := range m.subs {
		for _, sub := range subs {
			sub.Stop()
		}
	}
	return m.reading.Unregister()
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
