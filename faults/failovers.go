package main

import (
	"context"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// unreplicated is how old what a failover loses may be: replication lags by milliseconds.
const unreplicated = time.Second

// Faults of several servers. Acks are not waited for on replicas, so a failover may forget
// the last of them.
var failovers = []scenario{
	{
		name:  "Sentinel: primary killed",
		holds: "consuming goes on within 5 s of the promotion; each result is that of a delivery that was acked",
		setUp: sentinel,
		load:  confirmed(0, keeping),
		hit:   killPrimary(unreplicated),
		times: 1,
		rules: rules{resume: 5 * time.Second, lossy: notThereYet, duplicate: unheard},
		check: (*trial).weighResults,
	},
	{
		name:  "Sentinel: primary killed, WithReplicaAck(1)",
		holds: "and every send that returned nil survives; one that was not confirmed says so, with its id",
		setUp: sentinel,
		load:  confirmed(1),
		hit: func(t *trial) {
			t.strike(strike{}, func() {
				for _, replica := range t.sentinel.Nodes[1:] {
					replica.Pause()
				}
				t.wait(800 * time.Millisecond)
				for _, replica := range t.sentinel.Nodes[1:] {
					replica.Resume()
				}
			})
			t.wait(time.Second)
			killPrimary(0)(t)
		},
		times: 1,
		rules: rules{resume: 5 * time.Second, duplicate: unheard},
		check: func(t *trial, v *verdict) {
			unconfirmed := 0
			for _, e := range t.books.all() {
				if e.Kind == refused && strings.Contains(e.Word, "not confirmed by enough replicas") &&
					strings.Contains(e.Word, "send message ") {
					unconfirmed++
				}
			}
			if unconfirmed == 0 {
				v.problem("no send was left unconfirmed while the replicas stood still")
			}
		},
	},
	{
		name:  "Sentinel: planned failover, WithReplicaAck(all replicas)",
		holds: "consuming goes on within 5 s of the promotion; every send that returned nil survives",
		setUp: sentinel,
		load:  confirmed(sentinelReplicas),
		hit:   (*trial).planSentinel,
		times: 1,
		rules: rules{late: 5 * time.Second, resume: 3500 * time.Millisecond, duplicate: unheard},
	},
	{
		name:  "Cluster: primary killed, WithReplicaAck(1)",
		holds: "consuming goes on within 5 s of the promotion; every send that returned nil survives",
		setUp: cluster,
		load:  confirmed(1),
		hit: func(t *trial) {
			old := t.promote(0, func(primary, _ *redistest.Server) { primary.Kill() })
			old.Restart(t) // as a replica: without one no send would be confirmed
		},
		times: 1,
		rules: rules{resume: 5 * time.Second, duplicate: unheard},
	},
	{
		name: "Cluster: primary frozen, WithReplicaAck(1)",
		holds: "sends and consuming go on within 7 s of the promotion, for 5 s of which the client may wait for the " +
			"frozen node; every send that returned nil survives",
		setUp: cluster,
		load:  confirmed(1),
		hit: func(t *trial) {
			old := t.promote(0, func(primary, _ *redistest.Server) { primary.Pause() })
			t.wait(9 * time.Second) // in which the queue is the new primary's
			old.Resume()
		},
		times: 1,
		rules: rules{resume: 7 * time.Second, duplicate: unheard},
		check: func(t *trial, v *verdict) { t.wantSendsAfter(v, 7*time.Second) },
	},
	{
		name:  "Cluster: the queue's slot migrated",
		holds: "it goes on when the last key has moved",
		setUp: cluster,
		load:  longLease,
		hit:   func(t *trial) { t.strike(strike{}, func() { t.migrate(0) }) },
		every: 3 * time.Second,
		times: 2,
		rules: rules{resume: 5 * time.Second},
	},
}

const sentinelReplicas = 2

// wantSendsAfter wants, after each strike, a send within a time. Sends that are under way at its end, or begin later,
// take no longer from then on, and those that have so much time left do not fail.
func (t *trial) wantSendsAfter(v *verdict, within time.Duration) {
	for _, st := range t.strikes {
		first := int64(0)
		for _, e := range t.books.all() {
			if e.Kind != sent && e.Kind != refused || e.At <= st.to {
				continue
			}
			begun := e.At - e.Took
			answered := e.Kind == sent || strings.Contains(e.Word, "not confirmed by enough replicas")
			if answered && (first == 0 || e.At < first) {
				first = e.At
			}
			from := max(begun, st.to)
			switch {
			case answered:
				v.inTime(t.gauge, from, us(e.At-from), within, "the send of %s, which began %v after the end of the strike at %s, "+
					"returned after that end or its own begin", e.Payload, us(begun-st.to), clock(st.from))
			case us(st.to-begun)+within+t.gauge.allowance(from, within) < t.load.Patience:
				v.problem("%s began %v after the end of the strike at %s and failed: %s", e.Payload, us(begun-st.to),
					clock(st.from), e.Word)
			}
		}
		if first == 0 {
			v.problem("no send returned after the strike at %s", clock(st.from))
			continue
		}
		v.inTime(t.gauge, st.to, us(first-st.to), within, "the first send after the strike at %s", clock(st.from))
	}
}

func sentinel(t *trial) {
	t.sentinel = redistest.StartSentinel(t, sentinelReplicas, 3)
	t.redis = reach{Addrs: t.sentinel.Addrs(), Master: redistest.SentinelMaster}
	t.admin = t.sentinel.Client(t)
}

func cluster(t *trial) { clusterOf(t, 3, 1) }

func clusterOf(t *trial, primaries, replicas int) {
	t.cluster = redistest.StartCluster(t, primaries, replicas)
	t.redis = reach{Addrs: t.cluster.Addrs(), Cluster: true}
	t.admin = t.cluster.Client(t)
}

// killPrimary kills the primary of a Sentinel and waits for another. What was accepted within
// a time before may be lost.
func killPrimary(loses time.Duration) func(t *trial) {
	return func(t *trial) {
		t.strike(strike{loses: loses}, func() {
			old := t.sentinel.Primary(t.ctx)
			if old != t.sentinel.Nodes[0] {
				t.Fatal("the sentinels took the primary for dead before it was: the machine is too busy")
			}
			old.Kill()
			for _, replica := range t.sentinel.Nodes[1:] {
				replica.Resume()
			}
			t.awaitPromotion(old)
		})
	}
}

// failOver kills the primary of a Sentinel while its replicas do not have what was written last.
func (t *trial) failOver() {
	t.writeAlone(t.sentinel.Nodes[0], t.sentinel.Nodes[1:]...)
	killPrimary(0)(t)
}

// failOverCluster kills the Cluster's primary that holds the queue while its replica does not have what was written
// last.
func (t *trial) failOverCluster() {
	old := t.promote(0, func(primary, replica *redistest.Server) {
		t.writeAlone(primary, replica)
		primary.Kill()
		replica.Resume()
	})
	old.Restart(t) // as a replica: without one no send would be confirmed
}

// writeAlone lets a primary write for a while what its replicas, which stand still from then on, will not get.
func (t *trial) writeAlone(primary *redistest.Server, replicas ...*redistest.Server) {
	for _, replica := range replicas {
		replica.Pause() // it would be back at once
	}
	if err := primary.Client(t).Do(t.ctx, "CLIENT", "KILL", "TYPE", "REPLICA").Err(); err != nil {
		t.Fatal(err)
	}
	t.wait(300 * time.Millisecond) // in which much is written
}

// amongKills is a failover between the kills of consumers and producers.
func amongKills(failOver func(t *trial)) func(t *trial) {
	return func(t *trial) {
		t.killConsumer()
		t.killProducer()
		// a consumer that is killed may have been woken for all; after a second another one looks
		t.wait(1200 * time.Millisecond)
		failOver(t)
		t.killProducer()
		t.killConsumer()
	}
}

// failOverAmongKills is failOver between the kills of two consumers.
func (t *trial) failOverAmongKills() {
	t.killConsumer()
	t.failOver()
	t.killConsumer()
}

// planSentinel has the sentinels promote a replica while the primary is well.
func (t *trial) planSentinel() {
	t.strike(strike{}, func() {
		old := t.sentinel.Primary(t.ctx)
		cli := redis.NewSentinelClient(&redis.Options{Addr: t.sentinel.Addrs()[0]})
		defer cli.Close()
		if err := cli.Failover(t.ctx, redistest.SentinelMaster).Err(); err != nil {
			t.Fatal(err)
		}
		t.awaitPromotion(old)
		t.wait(1500 * time.Millisecond) // in which the consumers' connections to the old primary end
	})
}

// planCluster has the replica of the primary that holds the queue take over while that is well.
func (t *trial) planCluster() { t.planShard(0) }

// planShard has the replica of the primary that holds a shard take over while that is well.
func (t *trial) planShard(shard int) {
	t.promote(shard, func(_, replica *redistest.Server) {
		if err := replica.Client(t).Do(t.ctx, "CLUSTER", "FAILOVER").Err(); err != nil {
			t.Fatal(err)
		}
	})
}

// promote strikes the Cluster's primary that holds a shard until its replica is promoted, and returns it.
func (t *trial) promote(shard int, hit func(primary, replica *redistest.Server)) *redistest.Server {
	i, _ := t.owner(t.shardKey(shard))
	nodes := t.cluster.Nodes
	replica := nodes[(i+len(nodes)/2)%len(nodes)]
	t.strike(strike{}, func() {
		hit(nodes[i], replica)
		cli := replica.Client(t)
		t.await("the replica is promoted", settleLimit, func() bool {
			role, err := cli.Do(t.ctx, "ROLE").Slice()
			return err == nil && role[0] == "master"
		})
	})
	return nodes[i]
}

func (t *trial) awaitPromotion(old *redistest.Server) {
	t.await("a replica is promoted", settleLimit, func() bool {
		now := t.sentinel.Primary(t.ctx)
		return now != nil && now != old
	})
}

// owner is the number of the node that holds a key, and a client for it.
func (t *trial) owner(key string) (int, *redis.Client) {
	for i, node := range t.cluster.Nodes {
		cli := node.Client(t)
		if cli.Exists(t.ctx, key).Err() == nil { // any other says MOVED
			return i, cli
		}
	}
	t.Fatalf("no node holds %s", key)
	return 0, nil
}

// shardKey is one of the keys of a shard of the queue, of which 0 is the first: all are in its slot.
func (t *trial) shardKey(i int) string {
	all, err := check.Shards(t.ctx, t.admin, "dq", queue)
	if err != nil || i >= len(all) {
		t.Fatalf("no shard %d of %d: %v", i, len(all), err)
	}
	return all[i].Key("pending")
}

// migrate moves the slot of a shard of the queue to the next primary, as redis-cli --cluster reshard does:
// key by key, so for a while some are here and some there.
func (t *trial) migrate(shard int) {
	slotKey := t.shardKey(shard)
	i, source := t.owner(slotKey)
	targetServer := t.cluster.Nodes[(i+1)%3]
	target := targetServer.Client(t)
	host, port, _ := strings.Cut(targetServer.Addr(), ":")
	ctx, cancel := context.WithTimeout(t.ctx, settleLimit)
	defer cancel()
	do := func(cli *redis.Client, args ...any) any {
		v, err := cli.Do(ctx, args...).Result()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return v
	}
	slot := do(source, "CLUSTER", "KEYSLOT", slotKey)
	to := do(target, "CLUSTER", "MYID")
	do(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", do(source, "CLUSTER", "MYID"))
	do(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", to)
	for moved := 0; ; moved++ {
		keys := do(source, "CLUSTER", "GETKEYSINSLOT", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		do(source, "MIGRATE", host, port, keys[0], 0, 5000)
		if moved == 0 {
			t.wait(time.Second) // one key is there and the others here
		}
	}
	for _, node := range t.cluster.Nodes[:3] {
		do(node.Client(t), "CLUSTER", "SETSLOT", slot, "NODE", to)
	}
}
