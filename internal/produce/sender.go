package produce

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A Sender brings the messages of one queue or publisher to the shards of the queue. The Batcher is for all messages, or with several shards
// for those without a name. Each shard with names has a batcher of its own, with the same settings. A Sender is safe for concurrent use.
type Sender struct {
	Batcher
	Queue *shard.Queue

	spread atomic.Pointer[shard.Set] // to which the Batcher sends; nil: to the first alone

	mu     sync.Mutex       // guards the fields below, and changes of spread
	named  map[int]*Batcher // by the place of the shard
	outage link.Outage      // of all batchers
}

// A Route says where a message goes.
type Route struct {
	Name string // a name of the message; "": it has none, and may go anywhere
	Err  error  // why its names lie in different shards; nil: they do not. With one shard it does not count
}

// batcherFor returns the batcher of a message, and makes the id of a message with a name say its shard. With one shard it costs nothing but a
// question to Redis before the first message with a name, and one every ten seconds.
func (s *Sender) batcherFor(ctx context.Context, m *BatchItem, r Route) (*Batcher, error) {
	set := s.Queue.Current()
	if r.Name == "" && s.spread.Load() == nil && (set == nil && s.Queue.Asked <= 1 || set != nil && len(set.All) == 1) {
		return &s.Batcher, nil
	}
	if r.Name != "" || set == nil && s.Queue.Asked > 1 {
		var err error
		if set, err = s.Queue.Find(ctx); err != nil {
			return nil, fmt.Errorf("how many shards the queue has is not known: %w", err)
		}
	}
	if len(set.All) == 1 && s.spread.Load() == nil {
		return &s.Batcher, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.spread.Load(); set != before && (before != nil || len(set.All) > 1) {
		s.spread.Store(set)
		if s.outage.Log == nil {
			s.outage.Log = s.Events.Logger().With(slog.String("queue", s.Queue.Store.Queue))
		}
		s.Queue.Sends()
		s.Spread(set.All, set.At, &s.outage)
	}
	if r.Name == "" || len(set.All) == 1 {
		return &s.Batcher, nil
	}
	if r.Err != nil && set.Names > 1 {
		return nil, r.Err
	}
	i := set.Named(r.Name)
	at := set.At(i)
	m.ID = message.WithShard(m.ID, at)
	b := s.named[at]
	if b == nil {
		b = &Batcher{Store: set.All[i], Events: s.Events, Outage: &s.outage, OnStored: s.OnStored, ForgetOdds: s.ForgetOdds,
			Replicas: s.Replicas, ReplicaTimeout: s.ReplicaTimeout}
		if s.named == nil {
			s.named = map[int]*Batcher{}
		}
		s.named[at] = b
	}
	return b, nil
}

// SendOne sends the only message of a call, and returns when it has its result.
func (s *Sender) SendOne(ctx context.Context, call *SendCall, m *BatchItem, r Route) {
	b, err := s.batcherFor(ctx, m, r)
	if err != nil {
		m.Err, m.Stored = err, StoredNo
		return
	}
	b.Send(ctx, call)
}

// SendAll sends messages, and returns when all have their results. Those of one batcher are one call. It may reorder items.
func (s *Sender) SendAll(ctx context.Context, items []*BatchItem, routes []Route) {
	var first *Batcher
	var others map[*Batcher]*SendCall
	call := &SendCall{Items: items[:0]}
	for i, m := range items {
		b, err := s.batcherFor(ctx, m, routes[i])
		switch {
		case err != nil:
			m.Err, m.Stored = err, StoredNo
		case first == nil || b == first:
			first = b
			call.Items = append(call.Items, m)
		default:
			if others == nil {
				others = map[*Batcher]*SendCall{}
			}
			if others[b] == nil {
				others[b] = new(SendCall)
			}
			others[b].Items = append(others[b].Items, m)
		}
	}
	var wait sync.WaitGroup
	for b, call := range others {
		wait.Go(func() { b.Send(ctx, call) })
	}
	if first != nil {
		first.Send(ctx, call)
	}
	wait.Wait()
}
