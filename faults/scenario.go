package main

import (
	"context"
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

	run func(ctx context.Context) (*verdict, error) // in place of a trial; nil: there is one
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

// fast are the ten rows that make check runs, in about four minutes: those whose faults found the most defects, as far
// as the changelog and the log of commits say, and between them each kind of trouble (process, server, network,
// failover, Cluster). Above each stands what it found, or what it is there for. make faults runs all rows.
var fast = []string{
	// Messages on their last chance passed one at a time through all consumers together.
	"consumer killed",
	// Handlers were started for messages that others had handled while the consumer stood still.
	"consumer frozen past its lease",
	// A restart of a server that keeps its data.
	"Redis killed, appendfsync always",
	// A call whose reply was lost has the effect of one call, for each script.
	"wire: replies lost, or cut in the middle",
	// A send met the dead connections of its pool one after the other, and waited for the read timeout at each.
	"wire: half open, 12 warm connections",
	// A silent server was waited for on dead connections after it had come back.
	"wire: nothing is answered for 40 s",
	// Consumers went on at the old primary, and all of that was handed out again by the new one.
	"Sentinel: planned failover, WithReplicaAck(all replicas)",
	// The ack of a delivery that the promoted replica had not heard of deleted an accepted change that nobody had handled.
	"debounce: Sentinel: primary killed, WithReplicaAck(1)",
	// The order of messages under the same kills and lost replies: the widest state that scripts keep.
	"lanes: consumers killed, replies lost",
	// An outage was in the log once for each shard.
	"shards: Cluster: primary killed, WithReplicaAck(1)",
}

// scenarios are all rows, in the order of the table.
var scenarios = slices.Concat(consumerFaults, redisFaults, wireFaults, failovers, refusals, company, clocks, results,
	chains, sequences,
	debounce, groups, imports, schedules, limits, pools, lanes, shards, storms)
