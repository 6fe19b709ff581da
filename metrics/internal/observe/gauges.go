package observe

import (
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A Gauge is one property of a queue, which is read from Redis, or of its outbox, which is read from a database.
type Gauge struct {
	Prometheus, OpenTelemetry string // names, without "delayqueue_" and "delayqueue."
	Unit                      string
	Label                     string // of its values: "state", "reason", or "" if a queue has one value
	Help                      string

	values func(*Reading) map[string]float64 // by label; the label of a single value is ""
}

// Values are those of one reading. A queue or outbox that could not be read has no value but that of "up".
func (g *Gauge) Values(r *Reading) map[string]float64 {
	name, ofOutbox := strings.CutPrefix(g.Prometheus, outboxPrefix)
	if ofOutbox != (r.Outbox != nil) || !r.Up && name != "up" {
		return nil
	}
	return g.values(r)
}

// Total says that it only grows, and so is a counter.
func (g *Gauge) Total() bool { return strings.HasSuffix(g.Prometheus, "_total") }

func single(value func(*Reading) float64) func(*Reading) map[string]float64 {
	return func(r *Reading) map[string]float64 { return map[string]float64{"": value(r)} }
}

// Gauges are those of both packages.
var Gauges = slices.Concat(queueGauges, outboxGauges)

var queueGauges = []Gauge{
	{"up", "up", "1", "", "Whether the queue could be read: 1, or 0 and none of its other gauges.",
		single(func(r *Reading) float64 { return number(r.Up) })},
	{"shards_missing", "shards.missing", "{shard}", "",
		"Shards of the queue that do not answer; its other gauges are of the others.",
		single(func(r *Reading) float64 { return float64(r.Missing) })},
	{"messages", "messages", "{message}", "state", "Messages in a state.", sizes},
	{"oldest_ready_age_seconds", "oldest_ready.age", "s", "",
		"How long the oldest ready message has been waiting; 0 if none is.",
		single(func(r *Reading) float64 { return r.Counts.Behind.Seconds() })},
	{"next_due_timestamp_seconds", "next_due.timestamp", "s", "",
		"When the next message is due that is not yet, in seconds since 1970; none if nothing is pending or waits for a " +
			"retry.", nextDue},
	{"oldest_waiting_timestamp_seconds", "oldest_waiting.timestamp", "s", "",
		"When the message was due that has waited longest for others of its lane, in seconds since 1970; " +
			"none if no message that is due waits for its lane.",
		oldestWaiting},
	{"paused", "paused", "1", "", "Whether the queue is paused: 1 or 0.",
		single(func(r *Reading) float64 { return number(r.Counts.Paused) })},
	{"limited", "limited", "1", "", "Whether what is ready waits for a limit of the queue and not for a consumer: 1 or 0.",
		single(func(r *Reading) float64 { return number(r.Counts.Limited) })},
	{"unaccounted_messages", "unaccounted.messages", "{message}", "",
		"Messages that have vanished without a word, by the books of the queue; less than 0: that have appeared.",
		single(func(r *Reading) float64 { return float64(r.Counts.Unaccounted) })},
	{"loss_messages", "loss.messages", "{message}", "",
		"Messages that were lost, at most, until somebody accepts that; 0: none.",
		single(func(r *Reading) float64 { return float64(r.Counts.LossMessages) })},
	{"deleted", "deleted", "1", "", "Whether somebody has deleted the queue: 1 until it is there again, else 0.",
		single(func(r *Reading) float64 { return number(r.Deleted) })},
	{"consumers", "consumers", "{consumer}", "", "Consumers that are alive.",
		single(func(r *Reading) float64 { return float64(len(r.Consumers)) })},
	{"workers", "workers", "{worker}", "", "Deliveries that the consumers can handle at a time.", single(workers)},
	{"longest_handling_seconds", "longest_handling.duration", "s", "",
		"How long the oldest running handler has been running; 0 if none is.", single(longestHandling)},
	{"schedules_stuck", "schedule.stuck", "{schedule}", "reason", "Schedules for which nothing is sent at their instants.",
		stuck},
	{"countdowns_stuck", "countdown.stuck", "{message}", "",
		"Messages that wait for the ack of a message that is dead (WithCountdown).",
		countdowns},
}

func sizes(r *Reading) map[string]float64 {
	return map[string]float64{
		delayqueue.StatePending.String(): float64(r.Counts.Pending),
		delayqueue.StateReady.String():   float64(r.Counts.Ready),
		delayqueue.StateUnack.String():   float64(r.Counts.Unack),
		delayqueue.StateRetry.String():   float64(r.Counts.Retry),
		delayqueue.StateGarbage.String(): float64(r.Counts.Garbage),
		delayqueue.StateDone.String():    float64(r.Counts.Done),
		delayqueue.StateWaiting.String(): float64(r.Counts.Waiting),
	}
}

func nextDue(r *Reading) map[string]float64 { return timestamp(r.Counts.NextDue) }

func oldestWaiting(r *Reading) map[string]float64 { return timestamp(r.Counts.LaneSince) }

// timestamp is an instant in seconds since 1970; no value if it is zero.
func timestamp(t time.Time) map[string]float64 {
	if t.IsZero() {
		return nil
	}
	return map[string]float64{"": float64(t.UnixMicro()) / 1e6}
}

func workers(r *Reading) (n float64) {
	for _, c := range r.Consumers {
		n += float64(c.Concurrency)
	}
	return n
}

func longestHandling(r *Reading) (seconds float64) {
	for _, c := range r.Consumers {
		for _, h := range c.Handling {
			seconds = max(seconds, h.For.Seconds())
		}
	}
	return seconds
}

func stuck(r *Reading) map[string]float64 {
	values := map[string]float64{}
	for reason, n := range r.Stuck {
		values[reason] = float64(n)
	}
	return values
}

func countdowns(r *Reading) map[string]float64 {
	if r.Countdowns < 0 {
		return nil
	}
	return map[string]float64{"": r.Countdowns}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
