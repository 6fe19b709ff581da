package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// This file has what doctor examines: a queue, shard by shard.

// An examined queue is what doctor looks at.
type examined struct {
	name   string
	shards []*part
}

// A part is a shard of an examined queue, or the queue itself if it has one.
type part struct {
	check.Queue
	at, of int
	store  *script.Store
	size   int64 // messages in it, before it was read
	err    error // why it cannot be read; nil: it was read
	state  *check.State
	broken []check.Finding
}

// number is that of a shard, from 1; 0 if the queue has one, or if a finding is of no shard.
func (b *part) number() int {
	if b == nil || b.of == 1 {
		return 0
	}
	return b.at + 1
}

// A finding says of which shard it is.
type finding struct {
	check.Finding
	shard *part // nil: the whole queue
}

// missingJSON is a shard that cannot be read.
type missingJSON struct {
	Shard int    `json:"shard"` // from 1
	Error string `json:"error"`
}

// toExamine finds the shards of a queue, and how many messages are in them.
func (a *app) toExamine(ctx context.Context, name string) (*examined, error) {
	set, err := a.shards(ctx, name)
	if err != nil && !errors.Is(err, delayqueue.ErrWrongType) { // the checker says more about WRONGTYPE
		return nil, err
	}
	p := &examined{name: name}
	all := []*script.Store{script.NewStore(a.cli, a.prefix, name)}
	if err == nil {
		all = set.All
	}
	var asking sync.WaitGroup
	for i, store := range all {
		one := &part{Queue: keyspace(store), at: i, of: len(all), store: store}
		p.shards = append(p.shards, one)
		asking.Go(func() {
			one.size, one.err = link.Within(ctx, store.Server, func(ctx context.Context) (int64, error) {
				return a.cli.HLen(ctx, one.Key("msg")).Result()
			})
			if redis.HasErrorPrefix(one.err, "WRONGTYPE") {
				one.err = nil
			}
		})
	}
	asking.Wait()
	return p, p.hopeless()
}

// hopeless is why no shard can be read.
func (p *examined) hopeless() error {
	if len(p.readable()) > 0 {
		return nil
	}
	return p.shards[0].err
}

// readable are the shards that can be read.
func (p *examined) readable() (all []*part) {
	for _, one := range p.shards {
		if one.err == nil {
			all = append(all, one)
		}
	}
	return all
}

// unread is why not all shards can be read, and how many can.
func (p *examined) unread() error {
	for _, one := range p.shards {
		if one.err != nil {
			return fmt.Errorf("queue %q: only %d of %d shards were checked: shard %d of %d: %w", p.name, len(p.readable()),
				len(p.shards),
				one.number(), one.of, one.err)
		}
	}
	return nil
}

// missing are the shards that cannot be read.
func (a *app) missing(p *examined) (all []missingJSON) {
	for _, one := range p.shards {
		if one.err != nil {
			_, text := a.explain(one.err)
			all = append(all, missingJSON{one.number(), text})
		}
	}
	return all
}

func (p *examined) introduce() {
	size := 0
	for _, one := range p.shards {
		size += int(one.size)
	}
	in := ""
	if n := len(p.shards); n > 1 {
		in = fmt.Sprintf(" in %d shards", n)
	}
	if n := len(p.readable()); n < len(p.shards) {
		in = fmt.Sprintf(" in %d of %d shards", n, len(p.shards))
	}
	say("queue %s holds %s%s", p.name, plural(size, "message"), in)
}

// inspect checks all shards that can be read, and shows a bar. The checker meets each message in msg, in its
// structure, and perhaps in fail and key.
func (a *app) inspect(ctx context.Context, p *examined) error {
	var total, before int64
	for _, one := range p.readable() {
		total += 2 * one.size
	}
	bar := a.progress("reading", total)
	defer finish(bar)
	for _, one := range p.readable() {
		one.state, one.broken, one.err = check.Inspect(ctx, a.cli, one.Prefix, one.Name, func(done int) {
			_ = bar.Set64(min(before+int64(done), max(total, 1))) // a bar that cannot be drawn stops nothing
		})
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), one.err)
		}
		before += 2 * one.size
	}
	return p.hopeless()
}

// broken are the breaches of invariants in each shard, and between the shards.
func (p *examined) broken() (all []finding) {
	s := &check.Sharded{Queue: p.shards[0].Queue}
	for _, one := range p.shards {
		if one.err != nil {
			s.Shards = append(s.Shards, nil)
			continue
		}
		s.Shards = append(s.Shards, one.state)
		for _, f := range one.broken {
			all = append(all, finding{f, one})
		}
	}
	for _, f := range s.Between() {
		all = append(all, finding{f, nil})
	}
	return all
}

// sentence is a finding without the name of the queue, and with the shard.
func (p *examined) sentence(f finding) string {
	text := f.Text
	for _, one := range p.shards {
		text = strings.TrimPrefix(text, "queue "+one.Prefix+":"+one.Name+": ")
	}
	if n := f.shard.number(); n > 0 {
		return fmt.Sprintf("shard %d of %d: %s", n, f.shard.of, text)
	}
	return text
}

// now is the clock of the first shard that was read.
func (p *examined) now() time.Time { return time.UnixMicro(p.readable()[0].state.Now).UTC() }

// messages is how many messages were read.
func (p *examined) messages() (n int) {
	for _, one := range p.readable() {
		n += len(one.state.Messages)
	}
	return n
}

// wrongType says whether a key of any shard is of another type.
func (p *examined) wrongType() bool {
	for _, one := range p.readable() {
		if len(one.state.WrongType) > 0 {
			return true
		}
	}
	return false
}

// plan lists the repairs, shard by shard, and then those of the whole queue.
func (p *examined) plan(found []finding) (all []repair) {
	for _, one := range append(p.readable(), nil) {
		var own []finding
		for _, f := range found {
			if f.shard == one {
				own = append(own, f)
			}
		}
		if one == nil {
			for _, f := range own {
				switch f.Kind {
				case check.Unbalanced:
					all = append(all, repair{What: "books", Item: f.Item})
				case loss:
					all = append(all, repair{What: "loss", Item: f.Item})
				}
			}
			continue
		}
		for _, r := range plan(one.state, own) {
			r.Shard, r.store = one.number(), one.store
			all = append(all, r)
		}
	}
	return all
}
