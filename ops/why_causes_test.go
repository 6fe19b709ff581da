package ops

import (
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestCauses: what is known decides which causes there are, and in which order they must end.
func TestCauses(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(1_800_000_000_000_000).UTC()
	soon, hour := now.Add(time.Minute), now.Add(time.Hour)
	idle, busy := Consumer{ID: "idle", Concurrency: 2}, Consumer{ID: "busy", Concurrency: 1,
		Handling: []Handling{{ID: "long", For: time.Hour, Since: now.Add(-time.Hour)}}}
	one := []Consumer{busy}
	lane := func(holders ...Holder) *Lane { return &Lane{Name: "l", Width: 2, Holders: holders} }
	type counts = script.QueueCounts
	type limits = script.RateLimits
	ready, handled := func(n int64) script.Counts { return script.Counts{Ready: n} }, script.Counts{Unack: 1}
	rate := limits{Rate: 1, Per: time.Hour, Burst: 1}
	pending := func(at time.Time) MessageStatus { return MessageStatus{State: delayqueue.StatePending, At: at} }
	limited := func(n counts) counts { n.Limited, n.LimitedSince = true, now; return n }
	due, later := MessageStatus{State: delayqueue.StateWaiting, At: now}, MessageStatus{State: delayqueue.StateWaiting,
		At: soon}
	for name, c := range map[string]struct {
		msg       MessageStatus // in no state: ready
		consumers []Consumer
		lane      *Lane
		counts    counts
		limits    limits
		want      string
		message   string // of the last cause
	}{
		"pending": {want: "instant", msg: pending(soon), consumers: one},
		"a pause that ends": {want: "instant", msg: pending(hour), consumers: one,
			counts: counts{Paused: true, PausedUntil: soon, ThrottledUntil: soon}},
		"a pause that lasts": {want: "instant resume throttle", msg: pending(soon), consumers: one,
			counts: counts{Paused: true, PausedUntil: hour, ThrottledUntil: hour}},
		"alone": {want: "nothing", consumers: []Consumer{idle}, counts: counts{Counts: ready(1)}},
		"behind others": {want: "others", consumers: []Consumer{idle, busy},
			counts: counts{Counts: ready(9)}},
		"all workers busy": {want: "worker", consumers: one, counts: counts{Counts: ready(9)},
			message: "long"},
		"more busy than are reported": {want: "worker", counts: counts{Counts: ready(9)}, message: "long",
			consumers: []Consumer{{Concurrency: 120, Handling: slices.Repeat(busy.Handling, maxHandling)}}},
		"a rate": {want: "rate", consumers: one, counts: limited(counts{LimitedUntil: soon}),
			limits: rate},
		"places": {want: "concurrency", consumers: one, counts: limited(counts{Counts: handled}),
			limits: limits{Concurrency: 1}, message: "long"},
		"places and a rate": {want: "concurrency rate", consumers: one,
			counts: limited(counts{Counts: handled, LimitedUntil: soon}),
			limits: limits{Rate: 1, Per: time.Hour, Burst: 1, Concurrency: 1}},
		"paused and limited": {want: "resume consumer", counts: limited(counts{Paused: true}),
			limits: limits{Concurrency: 1}},
		"lease ended": {want: "lease consumer", msg: MessageStatus{State: delayqueue.StateUnack, At: now}},
		"lane, ready": {want: "lane", msg: due, consumers: []Consumer{idle},
			lane:   lane(Holder{ID: "a", State: delayqueue.StateReady}),
			counts: counts{Counts: ready(1)}, message: "a"},
		"lane, paused": {want: "resume lane", msg: due, consumers: one,
			lane: lane(Holder{ID: "a", State: delayqueue.StateReady}), counts: counts{Paused: true},
			message: "a"},
		"lane, handled": {want: "lane resume", msg: due, consumers: one,
			lane: lane(Holder{ID: "a", State: delayqueue.StateRetry, At: soon},
				Holder{ID: "b", State: delayqueue.StateUnack, At: now}),
			counts: counts{Paused: true}},
		"lane, two retries": {want: "lane", msg: due, consumers: one,
			lane: lane(Holder{ID: "a", State: delayqueue.StateRetry, At: hour},
				Holder{ID: "b", State: delayqueue.StateRetry, At: soon}),
			message: "b"},
		"lane, gone": {want: "lane", msg: due, consumers: one,
			lane: lane(Holder{ID: "a", State: delayqueue.StateGone}), message: "a"},
		"lane, not due": {want: "instant lane", msg: later, consumers: one,
			lane:    lane(Holder{ID: "a", State: delayqueue.StatePending, At: now.Add(time.Second)}),
			message: "a"},
		"lane, nothing known": {want: "lane consumer", msg: due},
	} {
		if c.msg.State == delayqueue.StateGone {
			c.msg.State = delayqueue.StateReady
		}
		f := &whyFacts{counts: script.CountsReply{QueueCounts: c.counts, Now: now.UnixMicro(), Asked: c.limits},
			limits: Limits(c.limits), consumers: c.consumers, lane: c.lane}
		w := &Why{Message: &c.msg, Now: now, Causes: f.causes(&c.msg)}
		if last := w.Causes[len(w.Causes)-1]; w.codes() != c.want || last.Message != c.message {
			t.Errorf("%s: %s (%q), want %s (%q): %s", name, w.codes(), last.Message, c.want, c.message, w)
		}
	}
}
