package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// Shards: the queue lies in several slots. Half of the sends have keys, which all producers share.
var shards = []scenario{
	{
		name: "shards: Cluster: primary killed, WithReplicaAck(1)",
		holds: "six shards on three nodes: the other shards go on meanwhile, and those of that primary within 5 s of the " +
			"promotion; every send that returned nil survives, and no two live messages have one key",
		setUp: nodes(3, 1),
		load:  confirmed(1, spread(6)),
		hit: func(t *trial) {
			old := t.promote(0, func(primary, _ *redistest.Server) { primary.Kill() })
			old.Restart(t) // as a replica: without one no send would be confirmed
		},
		times: 1,
		rules: rules{names: true, resume: 5 * time.Second, duplicate: unheard},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6)
			t.wantEachShard(v, 5*time.Second)
			t.wantConfirmations(v)
			t.wantOneOutage(v)
			t.weighOthers(v, t.besideShard(0)) // no gap is judged, because all senders may wait for that primary
		},
	},
	{
		name: "shards: Cluster: primary frozen for 20 s, no replica",
		holds: "twelve shards on six nodes: no send without a key fails; a send with a key of the frozen node says so " +
			"when its time is over; the messages of all other shards are on time; a consumer that starts meanwhile works",
		setUp: nodes(6, 0),
		load: func(l *load) {
			spread(12)(l)
			l.Messages, l.Over, l.Patience, l.Haste, l.Lease = 10_000, 23*time.Second, 30*time.Second, 2*time.Second,
				6*time.Second
		},
		hit:   (*trial).freezeNode,
		times: 1,
		rules: rules{names: true,
			grows: 12 * goroutinesOfShard}, // a consumer begins before it knows how many shards there are
		check: (*trial).weighFrozen,
	},
	{
		name:  "shards: planned failovers of a Cluster, WithReplicaAck(1)",
		holds: "six shards on three nodes, of which two change over: all goes on within 5 s",
		setUp: nodes(3, 1),
		load:  confirmed(1, spread(6)),
		hit:   func(t *trial) { t.planShard(2 * len(t.strikes)) },
		every: 3 * time.Second,
		times: 2,
		rules: rules{names: true, resume: 5 * time.Second, duplicate: unheard},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6)
			t.wantEachShard(v, 5*time.Second)
			t.wantConfirmations(v)
			v.wantGap(t.gauge, time.Second)
		},
	},
	{
		name:  "shards: Cluster: slots migrated",
		holds: "two of six shards move to other nodes: the others go on meanwhile, and those when the last key has moved",
		setUp: nodes(3, 0),
		load:  func(l *load) { longLease(l); spread(6)(l) },
		hit:   func(t *trial) { t.strike(strike{}, func() { t.migrate(3 * len(t.strikes)) }) },
		every: 2 * time.Second,
		times: 2,
		rules: rules{names: true, resume: time.Second},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6)
			t.wantEachShard(v, 5*time.Second)
			v.wantGap(t.gauge, time.Second)
			wantNoRefusals(t, v)
		},
	},
	{
		name:  "shards: consumers killed",
		holds: "messages of a killed one are back within a lease and a second, in whichever shard they are",
		load:  spread(6),
		hit:   (*trial).killConsumer,
		every: time.Second,
		rules: rules{names: true},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6)
			wantNoRefusals(t, v)
		},
	},
}

// goroutinesOfShard is how many goroutines a consumer has for each shard.
const goroutinesOfShard = 4

// spread makes all programs ask for so many shards.
func spread(shards int) func(l *load) {
	return func(l *load) {
		l.Shards, l.Names = shards, 1000
		l.Messages, l.Over, l.MaxDelay = 12_000, 9*time.Second, 2*time.Second
	}
}

// sendersOf is how many sends a producer has under way at most. If some of them wait for a node, others must not wait
// for those.
func sendersOf(l load) int {
	if l.Haste > 0 {
		return 128
	}
	return 16
}

// inNames gives every second pair of steps keys that producers share, and the others none. It returns how long the
// sends try.
func inNames(l load, first int, batch []delayqueue.Outgoing) (patience time.Duration) {
	named := first/step%4 > 1
	for i := range batch {
		m := &batch[i]
		m.Options = []delayqueue.MsgOption{withSomeDelay(l)}
		if named && (i > 0 || l.Haste > 0) { // beside one without
			name := fmt.Sprintf("key%03d", rand.N(l.Names))
			m.Payload = name + laneMark + m.Payload
			m.Options = append(m.Options, delayqueue.WithKey(name))
		}
	}
	if named {
		return cmp.Or(l.Haste, l.Patience)
	}
	return l.Patience
}

// nameOf is the key of a payload; "": it has none.
func nameOf(payload string) string {
	name, _, found := strings.Cut(payload, laneMark)
	if !found {
		return ""
	}
	return name
}

// nodes is a Cluster of so many primaries, each with so many replicas, that goes on without some of its slots.
func nodes(primaries, replicas int) func(t *trial) {
	return func(t *trial) {
		clusterOf(t, primaries, replicas)
		for _, node := range t.cluster.Nodes {
			if err := node.Client(t).ConfigSet(t.ctx, "cluster-require-full-coverage", "no").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// lateStart is how long after the beginning of a freeze a consumer starts.
const lateStart = 5 * time.Second

// freezeNode lets the node of the first shard stand still. A consumer that starts meanwhile cannot ask the first shard.
func (t *trial) freezeNode() {
	i, _ := t.owner(t.shardKey(0))
	t.strike(strike{}, func() {
		t.cluster.Nodes[i].Pause()
		t.wait(lateStart)
		t.startConsumer()
		t.wait(20*time.Second - lateStart)
		t.cluster.Nodes[i].Resume()
	})
}
