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
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/metrics/internal/observe"
	"github.com/prometheus/client_golang/prometheus"
)

// Config is how a Collector works. The zero value is good.
type Config struct {
	Timeout time.Duration // of reading the queues at a scrape, so less than Prometheus's scrape_timeout. Default 3 s
	Logger  *slog.Logger  // is told when a queue cannot be read, and when it can be again. Default slog.Default
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("delayqueue_"+name, help, append([]string{"queue"}, labels...), nil)
}

// What is read at a scrape is the same in whichever process reads it.
var (
	up             = desc("up", "Whether the queue could be read: 1, or 0 and none of its other gauges.")
	messages       = desc("messages", "Messages in a state.", "state")
	oldestReadyAge = desc("oldest_ready_age_seconds", "How long the oldest ready message has been waiting; 0 if none is.")
	nextDue        = desc("next_due_timestamp_seconds",
		"When the next message is due that is not yet; none if nothing is pending or waits for a retry.")
	paused          = desc("paused", "Whether the queue is paused: 1 or 0.")
	limited         = desc("limited", "Whether what is ready waits for a limit of the queue and not for a consumer: 1 or 0.")
	consumers       = desc("consumers", "Consumers that are alive.")
	workers         = desc("workers", "Deliveries that the consumers can handle at a time.")
	longestHandling = desc("longest_handling_seconds", "How long the oldest running handler has been running; 0 if none is.")
	schedulesStuck  = desc("schedules_stuck", "Schedules for which nothing is sent at their instants.", "reason")
	eventsDropped   = desc("events_dropped_total",
		"Events of this process that were not counted because they came too fast; a total is too low by their messages.")
)

// A Collector is a prometheus.Collector for any number of queues. It is safe for concurrent use.
//
// What it reads from Redis at a scrape is queue-wide. Totals and histograms are those of this process since its
// start: sum them over processes. Queues of one name but several prefixes take a Collector each,
// registered through prometheus.WrapRegistererWith.
type Collector struct {
	queues   observe.Queues
	totals   map[delayqueue.EventCode]*prometheus.CounterVec
	lateness *prometheus.HistogramVec
	handling *prometheus.HistogramVec

	instants        *prometheus.CounterVec
	instantLateness *prometheus.HistogramVec

	mu   sync.Mutex
	subs map[string][]observe.Subscription
}

// latenessBuckets are in seconds: a queue that keeps up is late by milliseconds, one that was down by hours.
var latenessBuckets = []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600 * 6}

// handlingBuckets are in seconds.
var handlingBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}

// NewCollector makes a Collector, which is still to be registered.
func NewCollector(cfg Config) *Collector {
	total := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "delayqueue", Name: name, Help: help}, []string{"queue"})
	}
	return &Collector{
		queues: observe.Queues{Timeout: cfg.Timeout, Logger: cfg.Logger},
		subs:   map[string][]observe.Subscription{},
		totals: map[delayqueue.EventCode]*prometheus.CounterVec{
			delayqueue.NewMessageEvent: total("messages_sent_total", "Messages that this process sent."),
			delayqueue.DeliveredEvent:  total("messages_delivered_total", "Deliveries handed out to this process."),
			delayqueue.AckEvent:        total("messages_acked_total", "Messages that this process acknowledged."),
			delayqueue.NackEvent:       total("messages_failed_total", "Deliveries that failed in this process."),
			delayqueue.LostEvent:       total("messages_lost_total", "Deliveries of any consumer whose lease ran out, as this process found."),
			delayqueue.VanishedEvent: total("messages_vanished_total",
				"Messages that this process found gone from Redis though nobody took them out; 1 for a whole queue."),
			delayqueue.FinalFailedEvent: total("messages_dead_total", "Messages that this process gave up on: they went to garbage."),
			delayqueue.SupersededEvent: total("messages_superseded_total",
				"Messages that ended in this process because another send took their keys while they were handled."),
		},
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "delayqueue", Name: "lateness_seconds", Buckets: latenessBuckets,
			Help: "From the due instant of a message to the start of its handler, on its first delivery.",
		}, []string{"queue"}),
		handling: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "delayqueue", Name: "handling_seconds", Buckets: handlingBuckets,
			Help: "How long a handler ran, by its outcome: ack, nack, snooze or void.",
		}, []string{"queue", "outcome"}),
		instants: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "delayqueue", Name: "schedule_instants_total",
			Help: "Instants of schedules that this process settled, by outcome: sent, caught up, skipped or expired.",
		}, []string{"queue", "outcome"}),
		instantLateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "delayqueue", Name: "schedule_lateness_seconds", Buckets: latenessBuckets,
			Help: "From an instant of a schedule to when this process had its message stored; 0 if that was ahead of it.",
		}, []string{"queue"}),
	}
}

// Watch has the state of these queues read at every scrape, with two calls of bounded work each. It panics
// if a queue of that name is watched already.
func (c *Collector) Watch(monitors ...*delayqueue.Monitor) { c.queues.Add(monitors...) }

// Unwatch ends that for the queue of this name, if it is watched: its gauges are gone from then on.
func (c *Collector) Unwatch(name string) { c.queues.Remove(name) }

// Schedules are those of a queue that is watched: a *schedule.Scheduler, whose module this one does not need. It need not run them.
type Schedules = observe.Schedules

// WatchSchedules has the schedules of a queue that is watched looked at, at every scrape: how many are not sent, and why. That reads all of
// them.
func (c *Collector) WatchSchedules(s Schedules) { c.queues.AddSchedules(s) }

// Instrument counts what this process does with a queue, and times its handlers; middleware that is
// added after this counts as handling. Call it once for a DelayQueue, before StartConsume: it panics while
// the queue consumes.
func (c *Collector) Instrument(q *delayqueue.DelayQueue) {
	label := observe.Label(q.Name())
	lateness := c.lateness.WithLabelValues(label)
	handling := map[observe.Outcome]prometheus.Observer{}
	for _, o := range observe.Outcomes {
		handling[o] = c.handling.WithLabelValues(label, string(o))
	}
	q.WithMiddleware(observe.Handlers(func(ctx context.Context, h observe.Handled) {
		if h.First {
			lateness.Observe(h.Lateness.Seconds())
		}
		handling[observe.OutcomeOf(ctx, h.Err)].Observe(h.Took.Seconds())
	}))
	c.count(label, q.ListenEvent)
}

// InstrumentPublisher counts what this process sends. Call it once for a Publisher.
func (c *Collector) InstrumentPublisher(p *delayqueue.Publisher) {
	c.count(observe.Label(p.Name()), p.ListenEvent)
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
func (c *Collector) InstrumentSchedules(s Scheduler) {
	label := observe.Label(s.Name())
	lateness := c.instantLateness.WithLabelValues(label)
	for outcome := range observe.InstantOutcomes { // so that they are there before anything happens
		c.instants.WithLabelValues(label, outcome)
	}
	c.listens(label, s.ListenOutcome(func(outcome string, late time.Duration) {
		c.instants.WithLabelValues(label, outcome).Inc()
		if observe.InstantOutcomes[outcome] {
			lateness.Observe(late.Seconds())
		}
	}))
}

func (c *Collector) count(label string, listen func(delayqueue.EventListener) *delayqueue.Subscription) {
	counters := map[delayqueue.EventCode]prometheus.Counter{}
	for code, total := range c.totals {
		counters[code] = total.WithLabelValues(label)
	}
	c.listens(label, listen(func(e delayqueue.Event) {
		if counter := counters[e.Code]; counter != nil {
			counter.Add(float64(e.Count))
		}
	}))
}

// listens notes by what something is counted.
func (c *Collector) listens(label string, sub observe.Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[label] = append(c.subs[label], sub)
}

// Close stops counting. The totals stay as they are.
func (c *Collector) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, subs := range c.subs {
		for _, sub := range subs {
			sub.Stop()
		}
	}
}

// Describe is called by a prometheus.Registerer.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{up, messages, oldestReadyAge, nextDue, paused, limited, consumers, workers,
		longestHandling, schedulesStuck, eventsDropped} {
		ch <- d
	}
	for _, total := range c.totals {
		total.Describe(ch)
	}
	for _, v := range c.vectors() {
		v.Describe(ch)
	}
}

// Collect is called at a scrape. A queue that cannot be read within the timeout has delayqueue_up 0.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range c.queues.Read(context.Background()) {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{r.Queue}, labels...)...)
		}
		gauge(up, number(r.Up))
		if !r.Up {
			continue
		}
		for state, n := range r.Sizes() {
			gauge(messages, float64(n), state.String())
		}
		gauge(oldestReadyAge, r.Counts.Behind.Seconds())
		if due := r.Counts.NextDue; !due.IsZero() {
			gauge(nextDue, float64(due.UnixMicro())/1e6)
		}
		gauge(paused, number(r.Counts.Paused))
		gauge(limited, number(r.Counts.Limited))
		gauge(consumers, float64(len(r.Consumers)))
		gauge(workers, float64(r.Workers()))
		gauge(longestHandling, r.LongestHandling().Seconds())
		for reason, n := range r.Stuck {
			gauge(schedulesStuck, float64(n), reason)
		}
	}
	c.mu.Lock()
	for label, subs := range c.subs {
		var n int64
		for _, sub := range subs {
			n += sub.Dropped()
		}
		ch <- prometheus.MustNewConstMetric(eventsDropped, prometheus.CounterValue, float64(n), label)
	}
	c.mu.Unlock()
	for _, total := range c.totals {
		total.Collect(ch)
	}
	for _, v := range c.vectors() {
		v.Collect(ch)
	}
}

// vectors are those of this process that are no totals of messages.
func (c *Collector) vectors() [4]prometheus.Collector {
	return [...]prometheus.Collector{c.lateness, c.handling, c.instants, c.instantLateness}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
