package check

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// This file looks at a queue over several slots of a Redis Cluster: n queues, its shards, under one name. It is a
// second reading of docs/redis.md, "Shards", as the rest of the package is of the rest of that page.

const (
	maxShards = 64
	allSlots  = 16384
	idPlaces  = 1024 // that the last ten bits of an id can say
)

// A Sharded is a queue with all its shards. Each was read at an instant of its own. No message and no name ever moves
// from one shard to another, so what may not be in two shards can be told nevertheless.
type Sharded struct {
	Queue  Queue
	Shards []*State // in the order of their slots; for Between nil if one was not read
}

// slot is that of a text in a Cluster: its CRC-16/XMODEM, bit by bit, as the Cluster specification has it.
func slot(text string) int {
	crc := uint16(0)
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			high := crc&0x8000 != 0
			crc <<= 1
			if high {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % allSlots
}

// tagOf is what decides on the slot of a name: what stands in its first braces, and all of it if there is nothing.
func tagOf(name string) string {
	if open := strings.IndexByte(name, '{'); open >= 0 {
		if end := strings.IndexByte(name[open+1:], '}'); end > 0 {
			return name[open+1 : open+1+end]
		}
	}
	return name
}

// shardOf is the shard i of n shards.
func (q Queue) shardOf(i, n int) Queue {
	if i == 0 {
		return q
	}
	want := (slot(q.Prefix+":"+q.Name) + i*allSlots/n) % allSlots
	for number := 0; ; number++ {
		name := q.Name + "/" + strconv.Itoa(number)
		if slot(q.Prefix+":"+name) == want {
			return Queue{q.Prefix, name}
		}
	}
}

// decodeShards reads how many shards a queue has. A queue that does not say so has one.
func decodeShards(said string) (n int, err error) {
	if said == "" {
		return 1, nil
	}
	if n, err := decimal(said); err == nil && n >= 1 && n <= maxShards {
		return int(n), nil
	}
	return 0, fmt.Errorf("field shards of state is %q, want how many there are, at most %d", said, maxShards)
}

// Shards are the names of all shards of a queue, in the order of their slots.
func Shards(ctx context.Context, cli redis.UniversalClient, prefix, name string) (all []Queue, err error) {
	q := Queue{Prefix: prefix, Name: name}
	said, err := cli.HGet(ctx, q.Key("state"), "shards").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("check: the shards of queue %s:%s: %w", prefix, name, err)
	}
	n, err := decodeShards(said)
	if err != nil {
		return nil, fmt.Errorf("check: queue %s:%s: %w", prefix, name, err)
	}
	for i := range n {
		all = append(all, q.shardOf(i, n))
	}
	return all, nil
}

// ShardOf is the number of the shard, of n, that an id says; 0 if it says none.
func ShardOf(id string, n int) int {
	for i := range n {
		if bits, ok := placeIn(id); ok && bits == i*idPlaces/n {
			return i
		}
	}
	return 0
}

// placeIn is what the last ten bits of an id say.
func placeIn(id string) (bits int, ok bool) {
	n, err := strconv.ParseUint(id[max(len(id)-3, 0):], 16, 16)
	return int(n) % idPlaces, err == nil
}

// ReadShards is Read for all shards of a queue.
func ReadShards(ctx context.Context, cli redis.UniversalClient, prefix, name string) (*Sharded, error) {
	first, err := Read(ctx, cli, prefix, name)
	if err != nil {
		return nil, err
	}
	n, err := decodeShards(first.Fields["shards"])
	if err != nil {
		return nil, fmt.Errorf("check: queue %s:%s: %w", prefix, name, err)
	}
	s := &Sharded{Queue: first.Queue, Shards: []*State{first}}
	for i := 1; i < n; i++ {
		q := s.Queue.shardOf(i, n)
		one, err := Read(ctx, cli, q.Prefix, q.Name)
		if err != nil {
			return nil, err
		}
		s.Shards = append(s.Shards, one)
	}
	return s, nil
}

// Expect is State.Expect for all shards together. In which shard they are missing is not known.
func (s *Sharded) Expect(missing int64) {
	if missing == 0 {
		return
	}
	for _, one := range s.Shards {
		if here, ok := one.Unaccounted(); ok {
			one.Expect(here)
			missing -= here
		}
	}
	s.Shards[0].expected += missing
}

// Findings are those of each shard, and what is wrong between them.
func (s *Sharded) Findings() []Finding {
	var found []Finding
	for _, one := range s.Shards {
		found = append(found, one.Findings()...)
	}
	return append(found, s.Between()...)
}

// Between are the findings that take more than one shard to see, of the shards that were read.
func (s *Sharded) Between() (found []Finding) {
	if len(s.Shards) == 1 {
		return nil
	}
	messages, keys := map[string]int{}, map[string]int{} // and the number of the first shard that has each, from 1
	for i, one := range s.Shards {
		if one == nil {
			continue
		}
		b := &breaches{State: one}
		for _, id := range sortedKeys(one.Messages) {
			s.once(b, messages, i, "msg", id)
			s.place(b, i, id)
		}
		for _, key := range sortedKeys(one.Keys) {
			s.once(b, keys, i, "key", key)
			s.name(b, i, "key", key, "key")
		}
		for _, key := range sortedKeys(one.Left) {
			s.name(b, i, "parts", key, "key")
		}
		for _, m := range one.Holds {
			s.name(b, i, "holds", m.Member, "key")
		}
		for _, m := range one.Lanes {
			if m.Problem == "" {
				s.name(b, i, "lanes", m.Lane, "lane")
			}
		}
		for _, name := range sortedKeys(one.Sequences) {
			s.name(b, i, "sequence", name, "sequence")
		}
		for _, id := range sortedKeys(one.Messages) {
			env := one.Messages[id]
			s.name(b, i, "msg", env.Key, "key")
			s.name(b, i, "msg", env.Group.Key, "key")
			s.name(b, i, "msg", env.Counts, "key")
			s.name(b, i, "msg", env.Lane.Name, "lane")
		}
		found = append(found, b.found...)
	}
	return found
}

// once wants that no other shard has a message or a key.
func (s *Sharded) once(b *breaches, seen map[string]int, i int, structure, item string) {
	if first := seen[item]; first > 0 {
		b.add(ManyShards, structure, item, "%q is in shard %d of %d and in shard %d", item, first, len(s.Shards), i+1)
		return
	}
	seen[item] = i + 1
}

// place wants that an id says where its message is.
func (s *Sharded) place(b *breaches, i int, id string) {
	bits, ok := placeIn(id)
	if want := i * idPlaces / len(s.Shards); ok && bits != want {
		b.add(WrongShard, "msg", id, "message %s is in shard %d of %d, and its last ten bits are %d, want %d", id, i+1,
			len(s.Shards), bits, want)
	}
}

// name wants that a name is in the shard of its hash.
func (s *Sharded) name(b *breaches, i int, structure, name, kind string) {
	if name == "" {
		return
	}
	if want := slot(tagOf(name)) * len(s.Shards) / allSlots; i != want {
		b.add(WrongShard, structure, name, "%s %q is in shard %d of %d, want shard %d", kind, name, i+1, len(s.Shards),
			want+1)
	}
}

// AssertShards is AssertMissing for all shards of a queue. The State that it returns is that of Merged.
func AssertShards(t testing.TB, cli redis.UniversalClient, prefix, name string, missing int64) *State {
	t.Helper()
	return assertShards(t, cli, prefix, name, missing, func(*State) []string { return nil })
}

// AssertShardsEmpty is AssertEmpty for all shards of a queue.
func AssertShardsEmpty(t testing.TB, cli redis.UniversalClient, prefix, name string, missing int64) *State {
	t.Helper()
	return assertShards(t, cli, prefix, name, missing, (*State).leftovers)
}

func assertShards(t testing.TB, cli redis.UniversalClient, prefix, name string, missing int64,
	more func(*State) []string) *State {
	t.Helper()
	s := must(t, cli, func(ctx context.Context) (*Sharded, error) { return ReadShards(ctx, cli, prefix, name) })
	if s == nil {
		return nil
	}
	s.Expect(missing)
	wrong := texts(s.Findings())
	for _, one := range s.Shards {
		wrong = append(wrong, more(one)...)
	}
	report(t, wrong, s.Shards...)
	return s.Merged()
}
