package main

import (
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// A scenario is one row of the table.
type scenario struct {
	name  string
	holds string                     // what must hold beyond "nothing lost", for the document
	setUp func(t *trial)             // starts the servers and says how programs reach them; nil: one server
	load  func(l *load)              // what is other than usual; nil: nothing
	hit   func(t *trial)             // strikes once, and returns when that is over; nil: nothing does
	every time.Duration              // pause between two strikes
	times int                        // how often it strikes at most; 0: while messages are sent
	rules rules                      // what is allowed and asked for
	check func(t *trial, v *verdict) // what else must hold; nil: nothing
}

// oneServer is the usual set-up.
func oneServer(args ...string) func(t *trial) {
	return func(t *trial) { t.serve(redistest.Start(t, args...)) }
}

// wired is a server behind a wire, which programs go over.
func wired(args ...string) func(t *trial) {
	return func(t *trial) {
		oneServer(args...)(t)
		t.wire = redistest.NewWire(t, t.server.Addr())
		t.redis.Addrs = []string{t.wire.Addr()}
	}
}

// scenarios are all rows, in the order of the table.
var scenarios = slices.Concat(consumerFaults, redisFaults, wireFaults, failovers, refusals, company, clocks, results, chains, sequences,
	debounce, groups, imports, schedules, limits, pools, lanes, shards)
