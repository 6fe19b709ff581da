package shard

import (
	"context"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file has lists over all shards, and finds the shard that has something. The calls hide those of the first shard. They are tried until Redis
// answers, as link.Read does.

// Sequences finds one sequence, or, without a name, a page of all. The pages go through one shard after the other. A page may be empty although
// others follow.
func (q *Queue) Sequences(ctx context.Context, name, cursor string) (got script.SequencesReply, err error) {
	set, err := q.Look(ctx)
	if err != nil {
		return got, err
	}
	i, at := set.cut(cursor)
	if name != "" {
		i, at = set.Named(name), "0"
	}
	if i >= len(set.All) {
		return script.SequencesReply{Cursor: "0"}, nil
	}
	got, err = link.Read(ctx, func(ctx context.Context) (script.SequencesReply, error) { return set.All[i].Sequences(ctx, name, at) })
	switch {
	case err != nil:
		return got, set.Failed(i, err)
	case got.Cursor != "0":
		got.Cursor = set.cursor(i, got.Cursor)
	case name == "" && i+1 < len(set.All):
		got.Cursor = set.cursor(i+1, "0")
	}
	return got, nil
}

// Lanes reads one lane, or a page of the lanes. The pages go through one shard after the other. A page may be empty although others follow.
func (q *Queue) Lanes(ctx context.Context, ask script.LanesRequest) (got script.LanesReply, err error) {
	set, err := q.Look(ctx)
	if err != nil {
		return got, err
	}
	i, after := set.cut(ask.After)
	if ask.Name != "" {
		i, after = set.Named(ask.Name), ""
	}
	if i >= len(set.All) {
		return got, nil
	}
	ask.After = after
	got, err = link.Read(ctx, func(ctx context.Context) (script.LanesReply, error) { return set.All[i].Lanes(ctx, ask) })
	switch {
	case err != nil:
		return got, set.Failed(i, err)
	case got.Last != "":
		got.Last = set.cursor(i, got.Last)
	case ask.Name == "" && i+1 < len(set.All):
		got.Last = set.cursor(i+1, "")
	}
	return got, nil
}

// Consumers are the entries of all consumers in all shards. A consumer has one in each shard. If some shards do not answer, the entries of the
// others come beside a *MissingError.
func (q *Queue) Consumers(ctx context.Context) ([]script.ConsumerEntry, error) {
	set, err := q.Look(ctx)
	if err != nil {
		return nil, err
	}
	got, err := readEach(ctx, set, entriesOf)
	var entries []script.ConsumerEntry
	for _, some := range got {
		entries = append(entries, some...)
	}
	return entries, err
}

func entriesOf(ctx context.Context, s *script.Store) (entries []script.ConsumerEntry, err error) {
	at := map[string]int{} // an entry may come twice
	for e, err := range s.Consumers(ctx) {
		if err != nil {
			return nil, err
		}
		i, met := at[e.ID]
		if !met {
			i = len(entries)
			at[e.ID], entries = i, append(entries, script.ConsumerEntry{})
		}
		entries[i] = e
	}
	return entries, nil
}
