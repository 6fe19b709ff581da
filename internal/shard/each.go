package shard

import (
	"context"
	"slices"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file has lists over all shards, and finds the shard that has something. The calls hide those of the first
// shard. They are tried until Redis answers, as link.Read does.

// Sequences finds one sequence, or, without a name, a page of all. The pages go through one shard after the other. A
// page may be empty although others follow.
func (q *Queue) Sequences(ctx context.Context, name, cursor string) (got script.SequencesReply, err error) {
	read := func(ctx context.Context, s *script.Store, cursor string) (string, error) {
		got, err = s.Sequences(ctx, name, cursor)
		return got.Cursor, err
	}
	got.Cursor, err = q.page(ctx, name, cursor, "0", read)
	return got, err
}

// Lanes reads one lane, or a page of the lanes. The pages go through one shard after the other. A page may be empty
// although others follow.
func (q *Queue) Lanes(ctx context.Context, ask script.LanesRequest) (got script.LanesReply, err error) {
	read := func(ctx context.Context, s *script.Store, after string) (string, error) {
		ask.After = after
		got, err = s.Lanes(ctx, ask)
		return got.Last, err
	}
	got.Last, err = q.page(ctx, ask.Name, ask.After, "", read)
	return got, err
}

// page calls read for the shard of a name, or without a name for the shard of a cursor, and returns the cursor of the
// page behind it. bound is the cursor of a shard before its first page and behind its last. If a shard with others does
// not answer, the cursor is that of the next shard, and the error is a *MissingError.
func (q *Queue) page(ctx context.Context, name, cursor, bound string,
	read func(ctx context.Context, s *script.Store, cursor string) (next string, err error)) (next string, err error) {
	set, err := q.Look(ctx)
	if err != nil {
		return "", err
	}
	i, at := set.cut(cursor)
	if name != "" {
		i, at = set.Named(name), bound
	}
	if i >= len(set.All) {
		return bound, nil
	}
	next, err = One(ctx, set.All[i], func(ctx context.Context, s *script.Store) (string, error) {
		return link.Read(ctx, func(ctx context.Context) (string, error) { return read(ctx, s, at) })
	})
	switch {
	case err != nil && name == "" && len(set.All) > 1 && ctx.Err() == nil:
		var out Absence
		out.Leave(i, err)
		if next, err = bound, out.Err(len(set.All), ""); i+1 < len(set.All) {
			next = set.cursor(i+1, bound)
		}
		return next, err
	case err != nil:
		return "", set.All[i].InShard(err)
	case next != bound:
		next = set.cursor(i, next)
	case name == "" && i+1 < len(set.All):
		next = set.cursor(i+1, bound)
	}
	return next, nil
}

// Consumers are the entries of all consumers in all shards. A consumer has one in each shard. If some shards do not
// answer, the entries of the others come beside a *MissingError.
func (q *Queue) Consumers(ctx context.Context) ([]script.ConsumerEntry, error) {
	_, got, err := readAll(ctx, q, func(ctx context.Context, s *script.Store) ([]script.ConsumerEntry, error) {
		return s.Consumers(ctx)
	})
	return slices.Concat(got...), err
}
