package check

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Inspect is what Read and Findings are, for a queue of any size that is in use: it reads page by page, of envelopes
// the heads alone, and no call holds the server for more than a few milliseconds. The state is that of no one instant,
// so what looks wrong in it is looked at once more, each thing at one instant, and a finding is what shows in both
// looks. The rules are the same.
//
// progress, if it is not nil, is told how many entries were read.
func Inspect(ctx context.Context, cli redis.UniversalClient, prefix, name string, progress func(done int)) (*State, []Finding, error) {
	q := Queue{Prefix: prefix, Name: name}
	p := &pager{cli: cli, state: newState(q), progress: progress}
	bad := func(err error) (*State, []Finding, error) {
		return nil, nil, fmt.Errorf("reading queue %s:%s: %w", prefix, name, err)
	}
	if err := p.read(ctx); err != nil {
		return bad(err)
	}
	var err error
	if p.state.Strays, err = strays(ctx, cli, q); err != nil {
		return bad(err)
	}
	if len(p.state.WrongType) > 0 {
		return p.state, p.state.Findings(), nil
	}
	found, err := p.confirm(ctx, p.state.Findings())
	if err != nil {
		return bad(err)
	}
	return p.state, found, nil
}

// A suspect is something to be looked at once more: a message, an entry, a message key or a part.
type suspect struct{ id, tag, key, part string }

// seldom is how many suspects are looked at in one call, if ready is short.
const seldom = 50

// confirm looks at each suspect at one instant, together with what it depends on.
func (p *pager) confirm(ctx context.Context, found []Finding) ([]Finding, error) {
	type name struct {
		Kind
		structure, item string
	}
	suspected := map[name]bool{}
	for _, f := range found {
		suspected[name{f.Kind, f.Structure, f.Item}] = true
	}
	seen := map[name]bool{}
	var sure []Finding
	suspects := p.suspects(found)
	step := max(1, min(seldom, 100_000/(len(p.state.Ready)+1)))
	for first := true; first || len(suspects) > 0; first = false {
		some := suspects[:min(len(suspects), step)]
		suspects = suspects[len(some):]
		s, err := p.probe(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, f := range s.Findings() {
			n := name{f.Kind, f.Structure, f.Item}
			whole := f.Structure == "wake" || f.Kind == LateAlarm // each probe sees all of that
			if (suspected[n] || whole) && !seen[n] {
				seen[n] = true
				sure = append(sure, f)
			}
		}
	}
	return sure, nil
}

// suspects are what the findings are about.
func (p *pager) suspects(found []Finding) []suspect {
	all := map[suspect]bool{}
	keys := map[string]bool{}
	big := false
	for _, f := range found {
		switch f.Structure {
		case "pending", "ready", "unack", "retry", "garbage", "done":
			all[suspect{id: decodeTag(f.Item).ID, tag: f.Item}] = true
		case "msg", "fail", "result":
			all[suspect{id: f.Item}] = true
		case "parts":
			id, _, _ := strings.Cut(f.Item, ":")
			all[suspect{id: id}] = true
			if f.Kind == StrayPart || f.Kind == StrayLeft {
				all[suspect{part: f.Item}] = true
			}
		case "key", "held":
			keys[f.Item] = true
			all[suspect{key: f.Item}] = true
		case "state":
			big = big || f.Item == "big"
		}
	}
	limit, _ := (&breaches{State: p.state}).number("big")
	for id, env := range p.state.Messages {
		if keys[env.Key] && env.Key != "" || big && int64(env.Size) > limit {
			all[suspect{id: id}] = true
		}
	}
	wrong := map[string]bool{}
	for s := range all {
		if s.id != "" {
			wrong[s.id] = true
		}
	}
	for _, place := range p.state.places() { // under all names that a message was seen under
		for _, e := range place.entries {
			if wrong[e.ID] {
				all[suspect{id: e.ID, tag: e.Tag}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b suspect) int {
		return cmp.Compare(a.id+"\x00"+a.tag+"\x00"+a.key+"\x00"+a.part, b.id+"\x00"+b.tag+"\x00"+b.key+"\x00"+b.part)
	})
}
