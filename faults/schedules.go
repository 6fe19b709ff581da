package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/schedule"
)

// Schedules: all producers are replicas that run the same entries, whatever the others do. Each instant is one message.
var schedules = []scenario{
	{
		name:  "schedules: replicas killed and frozen, Sentinel: primary killed, WithReplicaAck(1)",
		holds: "four replicas run 60 entries of 1 to 3 s: each instant is one message, and none is left out",
		setUp: withEntries(sentinel),
		load:  func(l *load) { replicas(l, 4, 12*time.Second, 1) },
		hit: func(t *trial) {
			t.killProducer()
			frozen := t.producers[0]
			t.strike(strike{who: frozen.name}, frozen.process.Pause)
			t.wait(time.Second)
			t.killProducer() // perhaps the one that is frozen
			t.failOver()
			frozen.process.Resume()
			t.killProducer()
			t.killConsumer()
		},
		times: 1,
		rules: rules{resume: 5 * time.Second, duplicate: unheard},
	},
	{
		name:  "schedules: planned failover of Sentinel, WithReplicaAck(all replicas)",
		holds: "two replicas run 60 entries of 1 to 3 s, and wait 4.2 s for a confirmation: none is left out",
		setUp: withEntries(sentinel),
		load:  patientReplicas(sentinelReplicas),
		hit:   (*trial).planSentinel,
		times: 1,
		rules: rules{resume: 5 * time.Second, duplicate: unheard},
	},
	{
		name:  "schedules: planned failovers of a Cluster, WithReplicaAck(all replicas)",
		holds: "and the same",
		setUp: withEntries(cluster),
		load:  patientReplicas(1),
		hit:   (*trial).planCluster,
		every: 5 * time.Second,
		times: 2,
		rules: rules{resume: 5 * time.Second, duplicate: unheard},
	},
	{
		name: "schedules: Cluster, WithShards(6), primary of the third killed",
		holds: "four replicas run 60 entries of 1 to 3 s: what that primary's replica had not heard of is sent again, and " +
			"none is left out",
		setUp: withEntries(nodes(3, 1)),
		load:  func(l *load) { replicas(l, 4, 16*time.Second, 0); l.Shards = 6 },
		hit: func(t *trial) {
			t.promote(another, func(primary, replica *redistest.Server) {
				t.writeAlone(primary, replica)
				t.wait(1200 * time.Millisecond) // in which entries of all three intervals send
				primary.Kill()
				replica.Resume()
			})
		},
		times: 1,
		rules: rules{resume: 5 * time.Second, duplicate: unheard},
	},
	{
		name: "schedules: Cluster, WithShards(6), node of the third frozen for 10 s, no replica",
		holds: "replicas that start meanwhile run the entries of the other nodes within 2 s of each instant, and when the " +
			"node is back, those that lie there: none is left out",
		setUp: withEntries(nodes(3, 0)),
		load:  func(l *load) { replicas(l, 2, 22*time.Second, 0); l.Shards, l.Lease = 6, 20*time.Second },
		hit:   (*trial).startWithoutNode,
		times: 1,
		rules: rules{resume: 5 * time.Second},
		check: (*trial).weighElsewhere,
	},
}

// another is a shard that lies on another node than the first, if six lie on three.
const another = 2

// startWithoutNode kills all replicas, and starts others, while the node of another shard stands still.
func (t *trial) startWithoutNode() {
	i, _ := t.owner(t.shardKey(another))
	t.strike(strike{}, func() {
		t.cluster.Nodes[i].Pause()
		old := t.producers
		t.producers = nil
		for _, p := range old {
			p.process.Kill()
			t.startProducer(p.share)
		}
		t.wait(10 * time.Second)
		t.cluster.Nodes[i].Resume()
	})
}

// weighElsewhere wants the entries of other nodes to have been on time while that node stood still.
func (t *trial) weighElsewhere(v *verdict) {
	state, st := t.read(), t.strikes[0]
	if state == nil {
		v.problem("the queue cannot be read")
		return
	}
	node, _ := t.owner(t.shardKey(another))
	elsewhere := make([]bool, state.count())
	for i := range elsewhere {
		at, _ := t.owner(t.shardKey(i))
		elsewhere[i] = at != node
	}
	first := map[string]lateness{}
	for _, e := range t.books.all() {
		due, found := instantAt(e.Payload)
		if e.Kind != started || !found || due < st.from || due >= st.to || !elsewhere[state.shardOf(e.ID)] {
			continue
		}
		if one, ran := first[e.Payload]; !ran || e.At < one.at {
			first[e.Payload] = lateness{e.At, us(e.At - due)}
		}
	}
	if len(first) == 0 {
		v.problem("no instant of another node came meanwhile")
		return
	}
	p99 := percentile(slices.Collect(maps.Values(first)), 99)
	v.inTime(t.gauge, p99.at-p99.by.Microseconds(), p99.by, 2*time.Second,
		"the 99th percentile of lateness on other nodes")
	v.notes = append(v.notes, fmt.Sprintf("99%% of %d instants of the other nodes meanwhile were run within %v",
		len(first),
		p99.by.Round(time.Millisecond)))
}

// patientReplicas are two replicas that wait long for so many confirmations. Sentinel makes the old primary a replica
// only ten seconds after a planned failover, so not all are confirmed before.
func patientReplicas(acks int) func(l *load) {
	return func(l *load) {
		replicas(l, 2, 20*time.Second, acks)
		l.Confirm = 4200 * time.Millisecond
	}
}

// withEntries is a set-up in which all entries are there already.
func withEntries(setUp func(t *trial)) func(t *trial) {
	return func(t *trial) {
		setUp(t)
		if n := t.load.Shards; n > 0 {
			if _, err := script.NewStore(t.admin, "dq", queue).Shards(t.ctx, n); err != nil {
				t.Fatal(err)
			}
		}
		s := schedule.New(delayqueue.NewPublisher(queue,
			t.admin)).WithLogger(slog.New(slog.DiscardHandler)) // a line for each
		for _, e := range entriesOf(scheduled) {
			if err := s.Set(t.ctx, e); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// replicas makes so many producers replicas that run all entries for a time, and wait for so many replicas of the
// server.
func replicas(l *load, producers int, over time.Duration, confirm int) {
	longLease(l)
	l.Entries, l.Producers, l.Over, l.Replicas = scheduled, producers, over, confirm
	l.Messages = len(instantsOf(scheduled, 0, int64(over/time.Second)))
}

// scheduled is how many entries there are.
const scheduled = 60

// entriesOf are n entries, of 1 to 3 seconds.
func entriesOf(n int) (all []schedule.Entry) {
	for i := range n {
		every := time.Duration(1+i%3) * time.Second
		all = append(all, schedule.Entry{Name: fmt.Sprintf("entry%02d", i), Every: every, Offset: every - time.Second,
			CatchUp: 1000})
	}
	return all
}

// instantsOf are the payloads of all instants of n entries after one second, up to another, both unix.
func instantsOf(n int, after, last int64) (all []string) {
	for _, e := range entriesOf(n) {
		every, offset := int64(e.Every/time.Second), int64(e.Offset/time.Second)
		for at := after + 1; at <= last; at++ {
			if at%every == offset {
				all = append(all, instantOf(e.Name, time.Unix(at, 0)))
			}
		}
	}
	return all
}

// instantOf is what stands in ledgers for the payload of the message of an instant.
func instantOf(name string, at time.Time) string { return fmt.Sprintf("%s@%d", name, at.Unix()) }

// payloadOf is what stands in ledgers for a message.
func payloadOf(msg *delayqueue.Message) string {
	if name, at := schedule.Of(msg); name != "" {
		return instantOf(name, at)
	}
	if isSum(msg) {
		return storyOfSum(msg.Key, msg.ID)
	}
	return msg.Payload
}

// replicate runs all entries until ctx, or the time of the trial, is over. Each replica sets them first, as a service
// does at its start.
func replicate(ctx context.Context, q *delayqueue.DelayQueue, book ledger, o order) {
	ctx, cancel := context.WithDeadline(ctx, time.UnixMicro(o.Begun).Add(o.Load.Over))
	defer cancel()
	s := schedule.New(q)
	defer s.ListenEvent(func(e schedule.Event) {
		book.write(entry{Kind: told, Payload: instantOf(e.Entry, e.Instant), ID: e.ID, Word: e.Code.String()})
	}).Stop()
	for _, e := range entriesOf(o.Load.Entries) {
		for s.Set(ctx, e) != nil && ctx.Err() == nil { // while there is no primary
			select {
			case <-ctx.Done():
			case <-time.After(retryDelay):
			}
		}
	}
	_ = s.Run(ctx) // until ctx has ended
}

// instantAt is when the instant is that stands for a payload, in unix us; false: no entry has such a one.
func instantAt(payload string) (us int64, found bool) {
	name, text, _ := strings.Cut(payload, "@")
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, false
	}
	return at * 1_000_000, slices.Contains(instantsOf(scheduled, at-1, at), instantOf(name, time.Unix(at, 0)))
}

// adoptInstant takes the first run for what tells that the message of an instant was stored, which is due then.
func (v *verdict) adoptInstant(ev *evidence, s *story) {
	at, found := instantAt(s.payload)
	if !found {
		v.problem("%s: no entry has such an instant", s.payload)
	}
	s.adopt(ev)
	s.sent.Due = at
}
