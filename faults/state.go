package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/redis/go-redis/v9"
)

// A whole is a queue with all its shards. The State has the messages of all of them, and is that of the first in all else.
type whole struct {
	*check.State
	shards []*check.State // in the order of their slots
	names  int            // so many of them have names
}

// wholeOf puts the states of all shards together.
func wholeOf(names int, shards ...*check.State) *whole {
	all := *shards[0]
	w := &whole{&all, shards, names}
	if len(shards) == 1 {
		return w
	}
	all.Messages, all.Fail = map[string]check.Envelope{}, map[string]check.Fail{}
	lists := func(s *check.State) []*[]check.Entry {
		return []*[]check.Entry{&s.Pending, &s.Ready, &s.Unack, &s.Retry, &s.Waiting, &s.Garbage, &s.Done}
	}
	for i, s := range shards {
		for j, to := range lists(&all) {
			if i > 0 {
				*to = append(slices.Clip(*to), *lists(s)[j]...)
			}
		}
		if i > 0 {
			all.Lanes = append(slices.Clip(all.Lanes), s.Lanes...)
		}
		maps.Copy(all.Messages, s.Messages)
		maps.Copy(all.Fail, s.Fail)
	}
	return w
}

// Breaches are those of each shard, and messages that lie in another shard than their ids say.
func (w *whole) Breaches() (all []string) {
	for i, s := range w.shards {
		all = append(all, s.Breaches()...)
		if len(w.shards) == 1 {
			continue
		}
		for id := range s.Messages {
			if at := w.at(i); message.ShardIn(id) != at {
				all = append(all, fmt.Sprintf("%s: lies in shard %d, and its id says %d of 1024, not %d", id, i, message.ShardIn(id), at))
			}
		}
	}
	return all
}

// at is what ids say of shard i.
func (w *whole) at(i int) int { return (&shard.Set{All: make([]*script.Store, len(w.shards))}).At(i) }

// shardOf is the shard that an id says; -1: there is none.
func (w *whole) shardOf(id string) int {
	for i := range w.shards {
		if w.at(i) == message.ShardIn(id) {
			return i
		}
	}
	return -1
}

// Unaccounted is the sum over all shards.
func (w *whole) Unaccounted() (missing int64, ok bool) {
	ok = true
	for _, s := range w.shards {
		n, known := s.Unaccounted()
		missing, ok = missing+n, ok && known
	}
	return missing, ok
}

// Expect says what is missing by the books of the first shard.
func (w *whole) Expect(missing int64) { w.shards[0].Expect(missing) }

// read reads the queue, nil if that is not possible now.
func (t *trial) read() *whole { return t.readQueue(queue) }

func (t *trial) readQueue(name string) *whole {
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
	defer cancel()
	shards, names, err := t.shards(ctx, name)
	if err != nil {
		return nil
	}
	var states []*check.State
	for _, shard := range shards {
		state, err := check.Read(ctx, t.admin, "dq", shard)
		if err != nil {
			return nil
		}
		states = append(states, state)
	}
	return wholeOf(names, states...)
}

// shards are the names under which the shards of a queue lie, and how many of them have names.
func (t *trial) shards(ctx context.Context, queue string) (all []string, names int, err error) {
	said, err := t.admin.HGet(ctx, "{dq:"+queue+"}:state", "shards").Result()
	switch {
	case errors.Is(err, redis.Nil):
		return []string{queue}, 1, nil
	case err != nil:
		return nil, 0, err
	}
	var n int
	if _, err := fmt.Sscanf(said, "%d %d", &n, &names); err != nil {
		return nil, 0, fmt.Errorf("%q: %w", said, err)
	}
	for i := range n {
		_, rest, _ := strings.Cut(script.NewShard(t.admin, "dq", queue, i, n).Keys.State, ":")
		name, _, _ := strings.Cut(rest, "}")
		all = append(all, name)
	}
	return all, names, nil
}

// counts says how many messages are where.
func counts(s *whole) string {
	if s == nil {
		return "the queue cannot be read"
	}
	worst := int64(0)
	for _, e := range s.Retry {
		worst = max(worst, s.Fail[e.ID].Losses)
	}
	return fmt.Sprintf("pending %d, ready %d, unack %d, retry %d with up to %d losses, waiting %d, garbage %d",
		len(s.Pending), len(s.Ready), len(s.Unack), len(s.Retry), worst, len(s.Waiting), len(s.Garbage))
}

// readAll reads all queues, nil if that is not possible now.
func (t *trial) readAll() (all []*whole) {
	for i := range max(len(t.load.Pool), 1) {
		state := t.readQueue(queueOf(i))
		if state == nil {
			return nil
		}
		all = append(all, state)
	}
	return all
}
