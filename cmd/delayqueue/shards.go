package main

import (
	"context"
	"strings"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// This file finds the shards of a queue, for what the command does by itself. The library finds them for its own calls.

// shards are those of a queue; one if the queue has no more, or is not there.
func (a *app) shards(ctx context.Context, name string) (*shard.Set, error) {
	ctx, cancel := context.WithTimeout(ctx, link.ReadFor)
	defer cancel()
	return shard.New(script.NewStore(a.cli, a.prefix, name), 0).Look(ctx)
}

// keyspace is a shard, or a queue with one, as the checker names it.
func keyspace(s *script.Store) check.Queue {
	name := strings.TrimSuffix(strings.TrimPrefix(s.Keys.State, "{"+s.Prefix+":"), "}:state")
	return check.Queue{Prefix: s.Prefix, Name: name}
}

func (a *app) publisher(name string) *delayqueue.Publisher {
	return delayqueue.NewPublisher(name, a.cli, delayqueue.UseCustomPrefix(a.prefix))
}
