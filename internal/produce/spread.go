package produce

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file spreads batches over the shards of a queue. Each batch goes to the next shard that answers, and its
// messages get ids that say so. A batch that was not written to a connection may go to another shard. A batch that
// may have been stored must not: it waits for its own shard, and other batches do not wait for it.

// A target is a shard to which a Batcher sends.
type target struct {
	store *script.Store
	at    int // place on the circle of slots, for the ids of its messages

	// Guarded by Batcher.mu.
	inFlight int  // batches that go there
	down     bool // its last attempt found no server: batches pass it over until a probe is answered
}

// spreadOver makes a new batcher send to these shards in turn. at are their places.
func (b *Batcher) spreadOver(stores []*script.Store, at func(i int) int) {
	for i, s := range stores {
		b.targets = append(b.targets, &target{store: s, at: at(i)})
	}
	b.turn = rand.IntN(len(stores)) // many processes that send one message each must not all send to the first shard
}

// aim gives a new batch a target, with mu held. While only two batches are in flight, all shards have fewer. If a
// full batch leaves messages that wait, another one is sent beside it, up to two for each shard.
func (b *Batcher) aim(batch *batch) {
	batch.target = b.pick(nil)
	batch.target.inFlight++
	b.takenAt = time.Now()
	if len(batch.items) == batch.most() && len(b.waiting) > b.withdrawn && b.inFlight < maxInFlight*len(b.targets) {
		b.inFlight++
		go b.flush(script.ProcessCallers.Take())
	}
}

// pick is the target with the fewest batches in flight among those that answer, the next in turn of several, with mu
// held. It is another one than not, if there are several.
func (b *Batcher) pick(not *target) *target {
	next := b.turn % len(b.targets)
	inTurn := slices.Concat(b.targets[next:], b.targets[:next])
	if len(inTurn) > 1 {
		inTurn = slices.DeleteFunc(inTurn, func(t *target) bool { return t == not })
	}
	best := slices.MinFunc(inTurn, func(t, than *target) int {
		if t.down == than.down {
			return t.inFlight - than.inFlight
		}
		if t.down {
			return 1
		}
		return -1
	})
	b.turn = slices.Index(b.targets, best) + 1
	return best
}

// address makes the ids of a batch say where it goes, with mu held, before an attempt that is the first that may be
// carried out. If the target does not answer, or refuses the batch, that goes to another one. The shards beside it
// may be on the same node, so a far one is next in turn.
func (b *Batcher) address(batch *batch) {
	if batch.target.down || batch.refused {
		b.turn = slices.Index(b.targets, batch.target) + len(b.targets)/2
		batch.target.inFlight--
		batch.target = b.pick(batch.target)
		batch.target.inFlight++
	}
	batch.refused = false
	for _, m := range batch.items {
		if at := batch.target.at; m.Sent == nil || message.ShardIn(m.ID) != at {
			m.ID = message.WithShard(m.ID, at)
			id := m.ID // an attempt that is late may still read the one before
			m.Sent = &id
		}
	}
}

// goesElsewhere says whether a batch goes to another shard, because its server is full or cannot save, or a key of
// the shard is another program's.
func (b *Batcher) goesElsewhere(batch *batch, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if batch.target == nil || batch.maybeStored || !errors.Is(err, script.ErrWrongType) &&
		!link.Says(err, "OOM", "MISCONF") {
		return false
	}
	batch.refusals++
	batch.refused = batch.refusals < len(b.targets)
	return batch.refused
}

// missed notes that a target did not answer, with mu held.
func (b *Batcher) missed(batch *batch) {
	t := batch.target
	if !t.down {
		t.down = true
		go b.probe(t)
	}
	up := slices.ContainsFunc(b.targets, func(t *target) bool { return !t.down })
	if !batch.maybeStored || batch.stuck || !up {
		return
	}
	batch.stuck = true
	if len(b.waiting) > b.withdrawn {
		go b.flush(script.ProcessCallers.Take()) // in its place
	} else {
		b.inFlight--
	}
}

// leave notes that a batch is done, with mu held.
func (b *Batcher) leave(batch *batch) {
	if batch.target == nil {
		return
	}
	batch.target.inFlight--
	if batch.stuck { // its goroutine goes on to the next batch
		batch.stuck = false
		b.inFlight++
	}
}

// probeFor is how long a shard is asked whether it answers, after the last batch was made up. Later the next batch
// finds out.
const probeFor = 10 * time.Second

// probe asks a shard until it answers.
func (b *Batcher) probe(t *target) {
	for n := 1; ; n++ {
		link.Sleep(context.Background(), link.Backoff(n))
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), NoContextTimeout)
		_, err := t.store.Shards(ctx, 0)
		cancel()
		if link.Transient(err) {
			b.report(t.store, begun, err) // or after a minute the outage would count as over
		}
		b.mu.Lock()
		if !link.Transient(err) && !errors.Is(err, context.DeadlineExceeded) || time.Since(b.takenAt) > probeFor {
			t.down = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}
