package main

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
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
		name:  "clients' clocks an hour ahead of the server's",
		holds: "delays and leases are exact all the same",
		setUp: func(t *trial) { t.strike(strike{}, func() { embedded(t).Store(-int64(time.Hour)) }) },
		check: wantExact,
	},
	{
		name:  "server's clock stepped by an hour, both ways",
		holds: "messages are delayed or hurried; none is lost, none handled twice",
		setUp: func(t *trial) { t.offset = embedded(t) },
		hit: func(t *trial) {
			for _, offset := range []time.Duration{time.Hour, 0, time.Hour} { // the last lets all become due
				t.strike(strike{}, func() { t.offset.Store(int64(offset)) })
				t.steps = append(t.steps, clockStep{time.Now().UnixMicro(), offset})
				t.wait(3 * time.Second)
			}
		},
		times: 1,
	},
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
	var late []time.Duration
	for _, e := range t.books.all() {
		if e.Kind == started && e.Delivery == 1 && due[e.ID] != 0 {
			late = append(late, us(t.clock(e.At)-due[e.ID]))
		}
	}
	slices.Sort(late)
	if p99 := late[len(late)*99/100]; p99 > time.Second {
		v.tooSlow("the 99th percentile of lateness is %v", p99)
	}
}
