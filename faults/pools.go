package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// Pools: each consumer handles several queues with the same workers. Each queue is judged by itself.
var pools = []scenario{
	{
		name:  "pools: consumers killed and frozen, server restarted",
		holds: "three queues on 32 workers of each consumer: nothing is lost or stuck in any of them",
		setUp: oneServer("--appendonly", "yes", "--appendfsync", "always"),
		load:  pooled,
		hit: func(t *trial) {
			t.killConsumer()
			t.strike(strike{why: "the server was restarted"}, func() {
				t.server.Kill()
				t.wait(300 * time.Millisecond)
				t.server.Restart(t)
			})
			t.freeze(t.anyConsumer())
		},
		every: 500 * time.Millisecond,
		rules: rules{resume: 5 * time.Second},
	},
	{
		name:  "pools: consumers killed and frozen, Sentinel: primary killed, WithReplicaAck(1)",
		holds: "and the same of each message whose send returned nil",
		setUp: sentinel,
		load:  confirmed(1, pooled),
		hit: func(t *trial) {
			t.killConsumer()
			frozen := t.consumers[0]
			t.strike(strike{who: frozen.name, why: "its consumer stood still"}, func() {
				frozen.process.Pause()
				t.failOver()
				frozen.process.Resume()
			})
			t.killConsumer()
		},
		times: 1,
		rules: rules{resume: 5 * time.Second, duplicate: unheard},
	},
}

func pooled(l *load) { l.Pool = []int{6, 3, 1} }

// queueOf is the name of a queue of a pool.
func queueOf(i int) string {
	if i == 0 {
		return queue
	}
	return fmt.Sprint(queue, i+1)
}

// ofQueue is in each payload of a queue of a pool.
func ofQueue(i int) string { return fmt.Sprintf("/%d-", i+1) }

// produceAll produces for each queue as for one, a part of the messages each.
func produceAll(ctx context.Context, queues []*delayqueue.DelayQueue, book ledger, o order) {
	var all sync.WaitGroup
	for i, q := range queues {
		part := o
		part.Name += strings.TrimSuffix(ofQueue(i), "-")
		part.Load.Messages /= len(queues)
		all.Go(func() { produce(ctx, q, book, part) })
	}
	all.Wait()
}

// consumerOf is what handles the messages of these queues: a pool, or the only queue itself.
func consumerOf(queues []*delayqueue.DelayQueue, l load) interface {
	StartConsume() <-chan struct{}
	Shutdown(ctx context.Context) error
} {
	if l.Pool == nil {
		return queues[0]
	}
	var shares []delayqueue.Share
	for i, q := range queues {
		shares = append(shares, delayqueue.Share{Queue: q, Weight: l.Pool[i]})
	}
	return delayqueue.NewPool(l.Workers, shares...)
}

// entriesOf are the entries that are of a queue; those that are of none are of the first.
func (t *trial) entriesOf(i int) []entry {
	all := t.books.all()
	if t.load.Pool == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(e entry) bool {
		return !strings.Contains(e.Payload, ofQueue(i)) && (e.Payload != "" || i > 0)
	})
}

// add puts the verdict on another queue to it.
func (v *verdict) add(o *verdict) {
	v.struck = o.struck // all of them strike all queues
	for _, n := range []struct{ to, of *int }{
		{&v.accepted, &o.accepted}, {&v.handled, &o.handled}, {&v.lost, &o.lost}, {&v.early, &o.early},
		{&v.duplicated, &o.duplicated}, {&v.garbage, &o.garbage},
		{&v.unaccounted, &o.unaccounted},
	} {
		*n.to += *n.of
	}
	if o.gap > v.gap {
		v.gap, v.gapFrom = o.gap, o.gapFrom
	}
	v.allowed = max(v.allowed, o.allowed)
	v.turns, v.beside = append(v.turns, o.turns...), max(v.beside, o.beside)
	v.notes = append(v.notes, o.notes...)
	v.poison = append(v.poison, o.poison...)
	for _, why := range o.causes {
		if !slices.Contains(v.causes, why) {
			v.causes = append(v.causes, why)
		}
	}
	v.problems = append(v.problems, o.problems...)
}
