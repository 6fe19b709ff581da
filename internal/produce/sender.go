package produce

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A Sender brings the messages of one queue or publisher to the shards of the queue. The Batcher is for all messages, or with several shards
// for those without a name. Each shard with names has a batcher of its own, with the same settings. A Sender is safe for concurrent use.
type Sender struct {
	Batcher
	Queue *shard.Queue

	spread atomic.Pointer[shard.Set] // to which the Batcher sends; nil: to the first alone

	mu     sync.Mutex       // guards the fields below, and changes of spread
	named  map[int]*Batcher // by the number of the shard, of spread
	outage link.Outage      // of all batchers
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
	if len(set.All) == 1 && s.spread.Load() == nil {
		return &s.Batcher, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if set != s.spread.Load() {
		s.spread.Store(set)
		if s.outage.Log == nil {
			s.outage.Log = s.Events.Logger().With(slog.String("queue", s.Queue.Store.Queue))
		}
		s.named = map[int]*Batcher{}
		s.Spread(set.All, set.At, &s.outage)
	}
	if r.Name == "" || len(set.All) == 1 {
		return &s.Batcher, nil
	}
	if r.Err != nil {
		return nil, r.Err
	}
	i := set.Named(r.Name)
	m.ID = message.WithShard(m.ID, set.At(i))
	if s.named[i] == nil {
		s.named[i] = &Batcher{Store: set.All[i], Events: s.Events, Outage: &s.outage, OnStored: s.OnStored,
			ForgetOdds: s.ForgetOdds, Replicas: s.Replicas, ReplicaTimeout: s.ReplicaTimeout}
	}
	return s.named[i], nil
}

// SendOne sends the only message of a call, and returns when it has its result.
func (s *Sender) SendOne(ctx context.Context, call *SendCall, m *BatchItem, r Route) {
	for {
		set := s.Queue.Known()
		b, err := s.batcherFor(ctx, m, r)
		if err != nil {
			m.Err, m.Stored = err, StoredNo
			return
		}
		b.Send(ctx, call)
		if !s.wasElsewhere(set, m) {
			return
		}
		*m = BatchItem{SendMessage: m.SendMessage}
		*call = SendCall{Items: []*BatchItem{m}}
	}
}

// wasElsewhere says whether a message was refused because the queue has another number of shards than this process
// knew, and knows since.
func (s *Sender) wasElsewhere(before *shard.Set, m *BatchItem) bool {
	return m.Err != nil && m.Stored == StoredNo && errors.Is(m.Err, script.ErrShardCount) && s.Queue.Known() != before
}

// SendAll sends messages, and returns when all have their results. Those of one batcher are one call.
func (s *Sender) SendAll(ctx context.Context, items []*BatchItem, routes []Route) {
	for {
		set := s.Queue.Known()
		s.sendAll(ctx, items, routes)
		var again []*BatchItem
		var their []Route
		for i, m := range items {
			if s.wasElsewhere(set, m) {
				*m = BatchItem{SendMessage: m.SendMessage}
				again, their = append(again, m), append(their, routes[i])
			}
		}
		if items, routes = again, their; len(items) == 0 {
			return
		}
	}
}

func (s *Sender) sendAll(ctx context.Context, items []*BatchItem, routes []Route) {
	calls, first := map[*Batcher]*SendCall{}, (*Batcher)(nil)
	for i, m := range items {
		b, err := s.batcherFor(ctx, m, routes[i])
		if err != nil {
			m.Err, m.Stored = err, StoredNo
			continue
		}
		if calls[b] == nil {
			calls[b] = new(SendCall)
		}
		if first == nil {
			first = b
		}
		calls[b].Items = append(calls[b].Items, m)
	}
	var wait sync.WaitGroup
	for b, call := range calls {
		if b != first {
			wait.Go(func() { b.Send(ctx, call) })
		}
	}
	if first != nil {
		first.Send(ctx, calls[first])
	}
	wait.Wait()
}
