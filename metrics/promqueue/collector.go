// Package promqueue shows delay queues to Prometheus.
//
//	metrics := promqueue.NewCollector(promqueue.Config{})
//	metrics.Watch(delayqueue.NewMonitor("orders", redisClient))
//	metrics.Instrument(queue) // before queue.StartConsume
//	prometheus.MustRegister(metrics)
//
// README.md of the module says what each metric means and which alert uses it.
package promqueue

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/metrics/internal/observe"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/prometheus/client_golang/prometheus"
)

// Config has the settings of a Collector. The zero value is ready.
type Config struct {
	Timeout time.Duration // for reading the queues at a scrape; well below Prometheus's scrape_timeout. Default 3 s
	Logger  *slog.Logger  // has a line when a queue cannot be read, and when it can be read again. Default slog.Default
}

// A Collector is a prometheus.Collector for any number of queues. It is safe for concurrent use.
//
// Gauges are queue-wide: each scrape reads them from Redis, and those of an outbox from its database, with its totals.
// All other totals and the histograms are those of this process since its start: sum them over processes. Queues of one
// name but several prefixes take a Collector each, registered through prometheus.WrapRegistererWith.
type Collector struct {
	queues observe.Queues
	subs   observe.Subscriptions

	gauges          []*prometheus.Desc // of observe.Gauges
	dropped         *prometheus.Desc
	totals          map[delayqueue.EventCode]*prometheus.CounterVec
	instants        *prometheus.CounterVec
	lateness        *prometheus.HistogramVec
	handling        *prometheus.HistogramVec
	instantLateness *prometheus.HistogramVec
	kindHandled     *prometheus.CounterVec
	kindHandling    *prometheus.HistogramVec
}

// handlingBuckets are in seconds.
var handlingBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}

// NewCollector makes a Collector, which is still to be registered.
func NewCollector(cfg Config) *Collector {
	desc := func(name, help, label string) *prometheus.Desc {
		labels := []string{"queue"}
		if label != "" {
			labels = append(labels, label)
		}
		return prometheus.NewDesc("delayqueue_"+name, help, labels, nil)
	}
	total := func(name, help string, labels ...string) *prometheus.CounterVec {
		opts := prometheus.CounterOpts{Namespace: "delayqueue", Name: name, Help: help}
		return prometheus.NewCounterVec(opts, append([]string{"queue"}, labels...))
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		opts := prometheus.HistogramOpts{Namespace: "delayqueue", Name: name, Help: help, Buckets: buckets}
		return prometheus.NewHistogramVec(opts, append([]string{"queue"}, labels...))
	}
	c := &Collector{
		queues:   observe.Queues{Timeout: cfg.Timeout, Logger: cfg.Logger},
		dropped:  desc("events_dropped_total", observe.DroppedHelp, ""),
		totals:   map[delayqueue.EventCode]*prometheus.CounterVec{},
		instants: total("schedule_instants_total", observe.InstantsHelp, "outcome"),
		lateness: histogram("lateness_seconds", observe.LatenessHelp, observe.LatenessBuckets),
		handling: histogram("handling_seconds", "How long a handler ran, by its outcome: ack, nack, snooze or void.",
			handlingBuckets, "outcome"),
		instantLateness: histogram("schedule_lateness_seconds", observe.InstantLatenessHelp, observe.LatenessBuckets),
		kindHandled:     total("kind_handled_total", observe.KindHandledHelp, "kind", "outcome"),
		kindHandling:    histogram("kind_handling_seconds", observe.KindHandlingHelp, observe.KindBuckets, "kind"),
	}
	for _, g := range observe.Gauges {
		c.gauges = append(c.gauges, desc(g.Prometheus, g.Help, g.Label))
	}
	for code, counted := range observe.Totals {
		c.totals[code] = total("messages_"+counted.Name+"_total", counted.Help)
	}
	return c
}

// Watch has the state of these queues read at every scrape, with two calls of bounded work each. It panics
// if a queue of that name is watched already.
func (c *Collector) Watch(monitors ...*delayqueue.Monitor) { c.queues.Add(monitors...) }

// Unwatch ends Watch for the queue of this name, if it is watched. From then on its gauges are gone.
func (c *Collector) Unwatch(name string) { c.queues.Remove(name) }

// WatchSchedules has the schedules of a queue that is watched read at every scrape: how many are not sent, and why.
// Each scrape reads all schedules. The Scheduler need not run them.
func (c *Collector) WatchSchedules(s Scheduler) { c.queues.AddSchedules(s) }

// WatchOutbox has the tables of an outbox read at every scrape, by Box.Stats: for the queues of the Box, and for all
// others that have rows there. The Box need not run, and Redis may be away. It panics if another Box with one of the
// queues is watched already.
func (c *Collector) WatchOutbox(box *outbox.Box) { c.queues.AddOutbox(box) }

// Instrument counts what this process does with a queue, and times its handlers. Middleware that is added later
// counts as handling. Call Instrument once for a DelayQueue, before StartConsume: it panics while the queue consumes.
func (c *Collector) Instrument(q *delayqueue.DelayQueue) {
	label := q.Name()
	lateness := c.lateness.WithLabelValues(label)
	handling := map[observe.Outcome]prometheus.Observer{}
	for _, o := range observe.Outcomes {
		handling[o] = c.handling.WithLabelValues(label, string(o))
	}
	q.WithMiddleware(observe.Handlers(q.KindHeader, func(ctx context.Context, h observe.Handled) {
		if h.First {
			lateness.Observe(h.Lateness.Seconds())
		}
		outcome := observe.OutcomeOf(ctx, h.Err)
		handling[outcome].Observe(h.Took.Seconds())
		if h.Kind != "" {
			c.ofKind(label, h, outcome)
		}
	}))
	c.count(label, q.ListenEvent)
}

func (c *Collector) ofKind(label string, h observe.Handled, outcome observe.Outcome) {
	for _, o := range observe.Outcomes { // a rate needs the series of an outcome before its first message
		counter := c.kindHandled.WithLabelValues(label, h.Kind, string(o))
		if o == outcome {
			counter.Inc()
		}
	}
	c.kindHandling.WithLabelValues(label, h.Kind).Observe(h.Took.Seconds())
}

// InstrumentPublisher counts what this process sends. Call it once for a Publisher.
func (c *Collector) InstrumentPublisher(p *delayqueue.Publisher) {
	c.count(p.Name(), p.ListenEvent)
}

// A Scheduler is a *schedule.Scheduler. This module does not need that module.
type Scheduler = observe.Scheduler

// InstrumentSchedules counts the instants that this process sends, or passes over. Call it once for a Scheduler.
func (c *Collector) InstrumentSchedules(s Scheduler) {
	label := s.Name()
	lateness := c.instantLateness.WithLabelValues(label)
	for outcome := range observe.InstantOutcomes { // so that they are there before anything happens
		c.instants.WithLabelValues(label, outcome)
	}
	c.subs.Add(label, s.ListenOutcome(func(outcome string, late time.Duration) {
		c.instants.WithLabelValues(label, outcome).Inc()
		if observe.InstantOutcomes[outcome] {
			lateness.Observe(late.Seconds())
		}
	}))
}

func (c *Collector) count(label string, listen func(func(delayqueue.Event)) *delayqueue.Subscription) {
	counters := map[delayqueue.EventCode]prometheus.Counter{}
	for code, total := range c.totals {
		counters[code] = total.WithLabelValues(label)
	}
	c.subs.Add(label, listen(func(e delayqueue.Event) {
		if counter := counters[e.Code]; counter != nil {
			counter.Add(float64(e.Count))
		}
	}))
}

// Close stops counting. The totals stay as they are.
func (c *Collector) Close() { c.subs.Stop() }

// Describe is called by a prometheus.Registerer.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append(c.gauges[:len(c.gauges):len(c.gauges)], c.dropped) {
		ch <- d
	}
	for _, v := range c.vectors() {
		v.Describe(ch)
	}
}

// Collect is called at a scrape. A queue that cannot be read within the timeout has delayqueue_up 0, and an outbox
// delayqueue_outbox_up 0 for each queue of its Box.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range c.queues.Read(context.Background()) {
		for i, g := range observe.Gauges {
			kind := prometheus.GaugeValue
			if g.Total() {
				kind = prometheus.CounterValue
			}
			for label, v := range g.Values(&r) {
				labels := []string{r.Queue}
				if g.Label != "" {
					labels = append(labels, label)
				}
				ch <- prometheus.MustNewConstMetric(c.gauges[i], kind, v, labels...)
			}
		}
	}
	for label, n := range c.subs.Dropped() {
		ch <- prometheus.MustNewConstMetric(c.dropped, prometheus.CounterValue, float64(n), label)
	}
	for _, v := range c.vectors() {
		v.Collect(ch)
	}
}

// vectors are what this process counts and measures.
func (c *Collector) vectors() []prometheus.Collector {
	all := []prometheus.Collector{c.lateness, c.handling, c.instants, c.instantLateness, c.kindHandled,
		c.kindHandling}
	for _, total := range c.totals {
		all = append(all, total)
	}
	return all
}
