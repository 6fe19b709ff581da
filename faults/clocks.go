package main

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/redis/go-redis/v9"
)

// Faults of clocks. A redis-server has the machine's, so these run on the embedded server, whose
// clock can be set. Programs keep the machine's.
var clocks = []scenario{
	{
		name:  "clients' clocks an hour behind the server's",
		holds: "delays and leases are exact all the same",
		setUp: func(t *trial) { t.strike(strike{}, func() { embedded(t).Store(int64(time.Hour)) }) },
		check: wantExact,
	},
	{
		name:  "server's clock stepped by an hour, both ways",
		holds: "messages are delayed or hurried; none is lost, none handled twice",
		setUp: func(t *trial) { t.offset = embedded(t) },
		hit: func(t *trial) {
			for _, offset := range []time.Duration{time.Hour, 0, time.Hour} { // the last lets all become due
				t.step(offset)
				t.wait(3 * time.Second)
			}
		},
		times: 1,
	},
	{
		name: "server's clock ahead by a century for 3 s",
		holds: "with results and a schedule: what is kept stays; what was due too late then is brought back by " +
			"`reschedule --all`; none is lost, none handled twice; the schedule goes on within a minute",
		setUp: func(t *trial) { t.offset = embedded(t) },
		load: func(l *load) {
			keeping(l)
			l.Messages = 4000
		},
		hit: func(t *trial) {
			t.beat()
			t.await("the schedule goes", settleLimit, func() bool { return len(t.pulsesNow()) > 2 })
			t.step(century)
			t.wait(3 * time.Second)
			t.step(0)
			t.wait(2 * time.Second) // what fails now is due by the right clock
			t.back = century
			far := ops.Bulk{Filter: ops.Filter{From: time.Now().Add(century / 2)}}
			if got, err := ops.Of(delayqueue.NewMonitor(queue, t.admin)).BulkRescheduleBy(t.ctx, far, -century); err != nil ||
				got.Done == 0 {
				t.Errorf("%d messages were brought back: %v", got.Done, err)
			}
			before := len(t.pulsesNow())
			t.await("the schedule goes on", time.Minute, func() bool { return len(t.pulsesNow()) > before+2 })
		},
		times: 1,
		check: func(t *trial, v *verdict) {
			t.weighResults(v)
			t.weighPulses(v)
		},
	},
}

const century = 100 * 365 * 24 * time.Hour

// step sets the server's clock so far ahead of this machine's.
func (t *trial) step(ahead time.Duration) {
	t.strike(strike{}, func() { t.offset.Store(int64(ahead)) })
	t.steps = append(t.steps, clockStep{time.Now().UnixMicro(), ahead})
}

// A pulse is an instant of a schedule, and when it was handled, unix us.
type pulse struct{ instant, at int64 }

// beat runs a schedule of one second in a queue of its own, until the trial ends.
func (t *trial) beat() {
	q := delayqueue.NewQueue("pulse", t.admin, nil).WithLogger(slog.New(slog.DiscardHandler))
	q.WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		_, instant := schedule.Of(msg)
		t.pulses = append(t.pulses, pulse{instant.UnixMicro(), time.Now().UnixMicro()})
		return nil
	})
	s := schedule.New(q).WithLogger(slog.New(slog.DiscardHandler))
	if err := s.Set(t.ctx, schedule.Entry{Name: "pulse", Every: time.Second}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx) // until ctx has ended
	}()
	done := q.StartConsume()
	t.Cleanup(func() {
		stop()
		<-ended
		q.StopConsume()
		<-done
	})
}

func (t *trial) pulsesNow() []pulse {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.pulses)
}

// weighPulses wants each instant to be handled once, and none before its time by the server's clock.
func (t *trial) weighPulses(v *verdict) {
	seen := map[int64]bool{}
	for _, p := range t.pulsesNow() {
		if early := us(p.instant - t.clock(p.at)); early > 0 || seen[p.instant] {
			v.problem("the instant %v was handled %v early, or twice", time.UnixMicro(p.instant).UTC(), early)
		}
		seen[p.instant] = true
	}
}

// broughtBack are entries with the due instants that messages have in the end.
func (t *trial) broughtBack(entries []entry) []entry {
	entries = slices.Clone(entries)
	for i := range entries {
		if e := &entries[i]; t.back > 0 && us(e.Due-e.At) > t.back/2 {
			e.Due -= t.back.Microseconds()
		}
	}
	return entries
}

// A clockStep is when the server's clock got another distance from this machine's.
type clockStep struct {
	at     int64
	offset time.Duration
}

// stepLag is how old what a script took for the time may be when its effect is seen.
const stepLag = time.Second

// embedded starts a server in this process whose clock is so far ahead of the machine's as the
// value that it returns says.
func embedded(t *trial) *atomic.Int64 {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	var offset atomic.Int64
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		tick := time.NewTicker(500 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				server.SetTime(time.Now().Add(time.Duration(offset.Load())))
			}
		}
	}()
	t.redis = reach{Addrs: []string{server.Addr()}}
	cli := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	t.admin = cli
	t.clock = func(at int64) int64 { // the furthest ahead of those that may have counted
		ahead := time.Duration(offset.Load())
		if len(t.steps) > 0 {
			ahead = 0
		}
		for i, step := range t.steps {
			until := int64(1 << 62)
			if i+1 < len(t.steps) {
				until = t.steps[i+1].at
			}
			if step.at-stepLag.Microseconds() <= at && at < until+stepLag.Microseconds() {
				ahead = max(ahead, step.offset)
			}
		}
		return at + ahead.Microseconds()
	}
	return &offset
}

// wantExact wants first deliveries on time by the server's clock.
func wantExact(t *trial, v *verdict) {
	due := map[string]int64{}
	for _, e := range t.books.all() {
		if e.Kind == sent {
			due[e.ID] = e.Due
		}
	}
	var late []lateness
	for _, e := range t.books.all() {
		if e.Kind == started && e.Delivery == 1 && due[e.ID] != 0 {
			late = append(late, lateness{e.At, us(t.clock(e.At) - due[e.ID])})
		}
	}
	p99 := percentile(late, 99)
	v.inTime(t.gauge, p99.at-p99.by.Microseconds(), p99.by, time.Second, "the 99th percentile of lateness")
}
