package produce

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A Sender brings the messages of one queue or publisher to the shards of the queue. The Batcher is that of a queue
// with one shard, and shares its settings with all others. A Sender is safe for concurrent use.
type Sender struct {
	Batcher
	Queue *shard.Queue

	spread atomic.Pointer[spread] // nil: no message was sent to several shards yet
}

// A spread has the batchers of a queue with several shards. None of them ever sends for another number of shards, so a
// message is refused if the queue has one.
type spread struct {
	set     *shard.Set
	unnamed *Batcher
	named   []*Batcher // by the number of the shard
}

// A Route says where a message goes.
type Route struct {
	Name string // a name of the message; "": it has none, and may go anywhere
	Err  error  // why its names lie in different shards; nil: they do not. With one shard it does not count
}

// batcherFor returns the batcher of a message, and makes the id of a message with a name say its shard. With one
// shard it costs nothing.
func (s *Sender) batcherFor(ctx context.Context, m *BatchItem, r Route) (*Batcher, error) {
	set, err := s.Queue.Find(ctx)
	if err != nil {
		return nil, err
	}
	if len(set.All) == 1 {
		return &s.Batcher, nil
	}
	over := s.spreadOver(set)
	if r.Name == "" {
		return over.unnamed, nil
	}
	if r.Err != nil {
		return nil, r.Err
	}
	i := set.Named(r.Name)
	m.ID = message.WithShard(m.ID, set.At(i))
	return over.named[i], nil
}

// spreadOver returns the batchers of these shards, and makes them if nobody has.
func (s *Sender) spreadOver(set *shard.Set) *spread {
	was := s.spread.Load()
	if was != nil && was.set == set {
		return was
	}
	over := &spread{set: set, unnamed: &Batcher{Settings: s.Settings, Store: set.All[0]}}
	over.unnamed.spreadOver(set.All, set.At)
	for _, store := range set.All {
		over.named = append(over.named, &Batcher{Settings: s.Settings, Store: store})
	}
	if !s.spread.CompareAndSwap(was, over) { // somebody else was first
		return s.spreadOver(set)
	}
	return over
}

// SendOne sends the only message of a call, and returns when it has its result.
func (s *Sender) SendOne(ctx context.Context, call *SendCall, m *BatchItem, r Route) {
	for {
		b, err := s.batcherFor(ctx, m, r)
		if err != nil {
			m.Err, m.Stored = err, StoredNo
			return
		}
		if b.Send(ctx, call); !m.goesAgain() {
			return
		}
		*call = SendCall{Items: []*BatchItem{m}}
	}
}

// goesAgain makes a message ready for another send, if it was refused because this process took the queue for one with
// another number of shards, and knows better now.
func (m *BatchItem) goesAgain() bool {
	again := m.Err != nil && m.Stored == StoredNo && errors.Is(m.Err, shard.ErrLearned)
	if again {
		*m = BatchItem{SendMessage: m.SendMessage}
	}
	return again
}

// SendAll sends messages, and returns when all have their results. Those of one batcher are one call.
func (s *Sender) SendAll(ctx context.Context, items []*BatchItem, routes []Route) {
	for len(items) > 0 {
		s.sendAll(ctx, items, routes)
		var again []*BatchItem
		var their []Route
		for i, m := range items {
			if m.goesAgain() {
				again, their = append(again, m), append(their, routes[i])
			}
		}
		items, routes = again, their
	}
}

func (s *Sender) sendAll(ctx context.Context, items []*BatchItem, routes []Route) {
	calls := map[*Batcher]*SendCall{}
	for i, m := range items {
		b, err := s.batcherFor(ctx, m, routes[i])
		if err != nil {
			m.Err, m.Stored = err, StoredNo
			continue
		}
		if calls[b] == nil {
			calls[b] = new(SendCall)
		}
		calls[b].Items = append(calls[b].Items, m)
	}
	var wait sync.WaitGroup
	for b, call := range calls {
		wait.Go(func() { b.Send(ctx, call) })
	}
	wait.Wait()
}
