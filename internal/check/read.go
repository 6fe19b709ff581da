package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// structures lists the keys of a queue in the order of snapshotScript's
// KEYS, each with its type.
var structures = []struct{ name, kind string }{
	{"pending", "zset"},
	{"ready", "list"},
	{"unack", "zset"},
	{"lease", "hash"},
	{"retry", "zset"},
	{"garbage", "zset"},
	{"msg", "hash"},
	{"fail", "hash"},
	{"key", "hash"},
	{"wake", "zset"},
	{"state", "hash"},
	{"consumers", "hash"},
	{"history", "hash"},
	{"sequence", "hash"},
	{"done", "zset"},
	{"result", "hash"},
	{"holds", "zset"},
	{"parts", "hash"},
	{"schedules", "hash"},
	{"journal", "zset"},
	{"lanes", "zset"},
	{"waiting", "zset"}, // the last: pager.read
}

// snapshotScript reads a whole queue at one instant. A script and not a
// MULTI, because a client of a Cluster routes TIME, which has no key, to a node
// of its own choice; a script goes where its keys are.
//
// KEYS     the keys of the queue
// ARGV     for each of them the type it must have, as TYPE names it
// Returns  {seconds, microseconds, then for each key {type, PTTL, content}};
// content is the reply of ZRANGE WITHSCORES, LRANGE or HGETALL,
// and empty for a key that does not exist or has another type
// Cost     O(size of the queue), unbounded: for tests, and for a person who was asked
// Keeps    every invariant: it writes nothing
//
// Scores and the clock pass through as the text that Redis gave.
const snapshotScript = `
local now = redis.call('TIME')
local out = {now[1], now[2]}
for i = 1, #KEYS do
  local want = ARGV[i]
  local kind = redis.call('TYPE', KEYS[i]).ok
  local content = {}
  if kind == want then
    if kind == 'zset' then
      content = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
    elseif kind == 'list' then
      content = redis.call('LRANGE', KEYS[i], 0, -1)
    elseif kind == 'hash' then
      content = redis.call('HGETALL', KEYS[i])
    end
  end
  out[#out + 1] = {kind, redis.call('PTTL', KEYS[i]), content}
end
return out
`

// readTimeout is how long a snapshot may take: it is as large as the queue.
const readTimeout = time.Minute

// Read takes one consistent snapshot of the queue, then looks for keys under
// its base that do not belong there (on every master of a Cluster). It returns
// an error only if Redis cannot be read; what is wrong with the content is for
// Breaches to say.
func Read(ctx context.Context, cli redis.UniversalClient, prefix, name string) (*State, error) {
	q := Queue{Prefix: prefix, Name: name}
	var kinds []any
	for _, st := range structures {
		kinds = append(kinds, st.kind)
	}
	if one, ok := cli.(*redis.Client); ok {
		cli = one.WithTimeout(readTimeout)
	}
	reply, err := cli.Eval(ctx, snapshotScript, q.Keys(), kinds...).Slice()
	if err != nil {
		return nil, fmt.Errorf("check: reading queue %s:%s: %w", prefix, name, err)
	}
	s, err := decodeSnapshot(q, reply)
	if err != nil {
		return nil, fmt.Errorf("check: reading queue %s:%s: %w", prefix, name, err)
	}
	s.Strays, err = strays(ctx, cli, q)
	if err != nil {
		return nil, fmt.Errorf("check: scanning for keys of queue %s:%s: %w", prefix, name, err)
	}
	return s, nil
}

// decodeSnapshot turns the script's reply into a State.
func decodeSnapshot(q Queue, reply []any) (*State, error) {
	if len(reply) != 2+len(structures) {
		return nil, fmt.Errorf("snapshot of %d parts, want %d", len(reply), 2+len(structures))
	}
	s := newState(q)
	s.whole = true
	if err := s.setClock(reply); err != nil {
		return nil, err
	}
	for i, st := range structures {
		part := reply[2+i].([]any) // the script alone says what it is made of
		if kind := part[0].(string); kind != st.kind && kind != "none" {
			s.WrongType[st.name] = kind
		}
		if ttlMs := part[1].(int64); ttlMs >= 0 { // -1: lives for ever; -2: no such key
			s.TTLs[st.name] = ttlMs
		}
		var content []string
		for _, v := range part[2].([]any) {
			content = append(content, v.(string))
		}
		s.fill(st.name, content)
	}
	s.hold()
	return s, nil
}

// fill decodes the content of one structure, or a part of it, into its field.
func (s *State) fill(structure string, content []string) {
	switch structure {
	case "pending":
		s.Pending = append(s.Pending, scored(content)...)
	case "ready":
		for _, tag := range content {
			s.Ready = append(s.Ready, decodeTag(tag))
		}
	case "unack":
		for pair := range slices.Chunk(content, 2) {
			s.setMember(pair[0], pair[1])
		}
	case "retry":
		s.Retry = append(s.Retry, scored(content)...)
	case "waiting":
		s.Waiting = append(s.Waiting, scored(content)...)
	case "lanes":
		for pair := range slices.Chunk(content, 2) {
			s.Lanes = append(s.Lanes, decodeLaneMember(pair[0], pair[1]))
		}
	case "garbage":
		s.Garbage = append(s.Garbage, scored(content)...)
	case "done":
		s.Done = append(s.Done, scored(content)...)
	case "holds":
		s.Holds = append(s.Holds, marked(content)...)
	case "journal":
		s.Journal = append(s.Journal, marked(content)...)
	case "wake":
		for _, m := range marked(content) {
			if m.Member == "w" {
				s.Wake = m.Score
			}
			s.Markers = append(s.Markers, m)
		}
	default:
		for pair := range slices.Chunk(content, 2) {
			s.setField(structure, pair[0], pair[1])
		}
	}
}

// setField adds a field of a hash.
func (s *State) setField(structure, field, value string) {
	switch structure {
	case "lease":
		s.setLease(field, value)
	case "msg":
		s.Messages[field] = decodeEnvelope(value, len(value))
	case "fail":
		s.Fail[field] = decodeFail(value)
	case "key":
		s.Keys[field] = value
	case "result":
		s.Results[field] = len(value)
	case "parts":
		s.setPart(field, value, len(value))
	case "state":
		s.Fields[field] = value
	case "consumers":
		s.Consumers[field] = value
	case "history":
		s.History[field] = value
	case "sequence":
		s.Sequences[field] = value
	}
}

// setPart adds a field of parts: a part of so many bytes; behind a colon and a message key, the groups that have left
// that; or, before a colon and 0, what is left of a countdown.
func (s *State) setPart(field, value string, bytes int) {
	if key, ok := strings.CutPrefix(field, ":"); ok {
		s.Left[key] = value
	} else if id, ok := strings.CutSuffix(field, ":0"); ok {
		s.Counted[id] = value
		if counted, n, ok := decodeCounted(value); ok {
			s.Missing[id] = max(n-counted, 0)
		}
	} else {
		s.Parts[field] = bytes
	}
}

// scored decodes the reply of ZRANGE WITHSCORES.
func scored(content []string) []Entry {
	var entries []Entry
	for pair := range slices.Chunk(content, 2) {
		e := decodeTag(pair[0])
		e.Score, e.ScoreProblem = decodeScore(pair[1])
		entries = append(entries, e)
	}
	return entries
}

// marked decodes the reply of ZRANGE WITHSCORES whose members are no tags.
func marked(content []string) (all []Marker) {
	for pair := range slices.Chunk(content, 2) {
		m := Marker{Member: pair[0]}
		m.Score, m.Problem = decodeScore(pair[1])
		all = append(all, m)
	}
	return all
}

// strays finds the keys under the queue's base that are none of its own, sorted. In a Cluster it asks the node that
// has their slot alone.
func strays(ctx context.Context, cli redis.UniversalClient, q Queue) ([]string, error) {
	own := q.Keys()
	pattern := globEscaper.Replace(q.Base()) + "*"
	var node redis.Cmdable = cli
	cluster, ok := cli.(interface {
		MasterForKey(context.Context, string) (*redis.Client, error)
	})
	if ok {
		master, err := cluster.MasterForKey(ctx, q.Base())
		if err != nil {
			return nil, err
		}
		node = master
	}
	found := map[string]bool{}
	it := node.Scan(ctx, 0, pattern, 1000).Iterator()
	for it.Next(ctx) {
		if key := it.Val(); strings.HasPrefix(key, q.Base()) && !slices.Contains(own, key) {
			found[key] = true // SCAN may name a key twice
		}
	}
	return sortedKeys(found), it.Err()
}

// globEscaper makes text match itself in a pattern of SCAN.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
