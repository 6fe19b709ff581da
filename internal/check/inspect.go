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
func Inspect(ctx context.Context, cli redis.UniversalClient, prefix, name string,
	progress func(done int)) (*State, []Finding, error) {
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

// A suspect is something to be looked at once more: a message, an entry, a message key, a part, a lease (by a field
// or a member), how much is held of a lease, a member of lanes, or a lane.
type suspect struct{ id, tag, key, part, lease, count, member, lane string }

const (
	seldom = 50 // suspects at most that are looked at in one call, if ready is short
	looks  = 2  // at each suspect
)

// confirm looks at each suspect again. A message that is handed out after the lists were read, and before the look,
// seems to be in no structure. It is not found, unless that happens to it before each look.
func (p *pager) confirm(ctx context.Context, found []Finding) ([]Finding, error) {
	for range looks {
		lists, err := p.lists(ctx)
		if err == nil {
			found, err = p.again(ctx, found, lists)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// lists reads in pages which leases list which message, by id.
func (p *pager) lists(ctx context.Context) (map[string][]string, error) {
	fresh := &pager{cli: p.cli, state: newState(p.state.Queue), seen: map[string]bool{}}
	if err := fresh.scan(ctx, "lease", "hash", p.state.Queue.Key("lease")); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	lists := map[string][]string{}
	for _, name := range sortedKeys(fresh.state.Leases) {
		for _, e := range fresh.state.Leases[name].Tags {
			if !slices.Contains(lists[e.ID], name) {
				lists[e.ID] = append(lists[e.ID], name)
			}
		}
	}
	return lists, nil
}

// again looks at each suspect at one instant, together with what it depends on, and returns what is found again.
func (p *pager) again(ctx context.Context, found []Finding, lists map[string][]string) ([]Finding, error) {
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
	step := max(1, min(seldom, 100_000/(len(p.state.Ready)+1), 1000/p.widest()))
	for first := true; first || len(suspects) > 0; first = false {
		some := suspects[:min(len(suspects), step)]
		suspects = suspects[len(some):]
		s, err := p.look(ctx, some, lists)
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

// widest is how many messages a look at one message may see because of its lane: about as many as have turns.
func (p *pager) widest() int {
	most, turns := 1, map[string]int{}
	for _, m := range p.state.Lanes {
		if !m.Waits {
			turns[m.Lane]++
			most = max(most, turns[m.Lane])
		}
	}
	return most
}

// look is a probe that knows of each message in it which leases list it. What a probe comes upon beside the suspects
// is known only then.
func (p *pager) look(ctx context.Context, some []suspect, lists map[string][]string) (s *State, err error) {
	some = slices.Clone(some)
	named := map[string]bool{}
	name := func(id string) (more bool) {
		for _, lease := range lists[id] {
			if !named[lease] {
				named[lease], more = true, true
				some = append(some, suspect{lease: lease})
			}
		}
		return more
	}
	for _, one := range some {
		name(one.id)
	}
	more := true
	for i := 0; more && i < 5; i++ { // the second knows nearly all
		if s, err = p.probe(ctx, some); err != nil {
			return nil, err
		}
		more = false
		for _, id := range sortedKeys(s.Messages) {
			more = name(id) || more
		}
	}
	return s, nil
}

// suspects are what the findings are about.
func (p *pager) suspects(found []Finding) []suspect {
	all := map[suspect]bool{}
	keys := map[string]bool{}
	big, parts := false, false // fields of state that may be wrong
	for _, f := range found {
		switch f.Structure {
		case "unack":
			all[suspect{lease: f.Item}] = true
		case "lease":
			all[suspect{lease: f.Item}] = true
			if f.Kind == WrongCount {
				all[suspect{count: f.Item}] = true
			}
		case "pending", "ready", "retry", "waiting", "garbage", "done":
			all[suspect{id: decodeTag(f.Item).ID, tag: f.Item}] = true
		case "msg", "fail", "result":
			all[suspect{id: f.Item}] = true
		case "parts":
			id, _, _ := strings.Cut(f.Item, ":")
			all[suspect{id: id}] = true
			if f.Kind == StrayPart || f.Kind == StrayLeft {
				all[suspect{part: f.Item}] = true
			}
		case "key", "holds":
			keys[f.Item] = true
			all[suspect{key: f.Item}] = true
		case "lanes":
			if f.Kind == WrongLane {
				all[suspect{lane: f.Item}] = true
			} else {
				all[suspect{member: f.Item}] = true
			}
		case "state":
			big, parts = big || f.Item == "big", parts || f.Item == "parts"
		}
	}
	limit, _ := (&breaches{State: p.state}).number("big")
	for id, env := range p.state.Messages {
		beside := env.Group.Count > 1 || env.Countdown > 0 || env.Group.Key != ""
		if keys[env.Key] && env.Key != "" || big && int64(env.Size) > limit || parts && beside {
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
	p.membersOf(wrong, all)
	return slices.SortedFunc(maps.Keys(all), suspect.compare)
}

// membersOf adds the members of lanes that are of these messages.
func (p *pager) membersOf(wrong map[string]bool, all map[suspect]bool) {
	for _, m := range p.state.Lanes {
		if wrong[m.Tag.ID] {
			all[suspect{id: m.Tag.ID, member: m.Member}] = true
		}
	}
}

// compare orders suspects.
func (s suspect) compare(other suspect) int {
	return cmp.Or(cmp.Compare(s.id, other.id), cmp.Compare(s.tag, other.tag), cmp.Compare(s.key, other.key),
		cmp.Compare(s.part, other.part),
		cmp.Compare(s.lease, other.lease), cmp.Compare(s.count, other.count), cmp.Compare(s.member, other.member),
		cmp.Compare(s.lane, other.lane))
}
