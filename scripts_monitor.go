package delayqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The typed calls of the scripts that only a Monitor uses.

func (s *store) counts(ctx context.Context) (Counts, error) {
	r, err := s.run(ctx, countsScript, s.countsKeys, nil)
	if err != nil {
		return Counts{}, err
	}
	now := r.instant()
	n := Counts{Pending: r.instant(), Ready: r.instant(), Unack: r.instant(), Retry: r.instant(), Garbage: r.instant()}
	if oldest := r.instant(); oldest > 0 {
		n.Behind = max(time.Duration(now-oldest)*time.Microsecond, 0)
	}
	n.NextDue = instantTime(r.instant())
	n.Paused, n.PausedUntil = pausedUntil(r.instant())
	return n, r.err("counts")
}

// instantTime is an instant of a script; zero for none.
func instantTime(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// forever is the instant until which a queue is paused that is paused until Resume: the year 2200.
var forever = maxDue.UnixMicro()

func pausedUntil(us int64) (bool, time.Time) {
	if us >= forever {
		return true, time.Time{}
	}
	return us > 0, instantTime(us)
}

// look returns nil if the message is nowhere.
func (s *store) look(ctx context.Context, by, what string) (*MessageStatus, error) {
	r, err := s.run(ctx, lookScript, s.lookKeys, []any{by, what})
	if err != nil || len(r.rest) == 0 {
		return nil, err
	}
	now := r.instant()
	id, name, at, text, record := r.text(), r.text(), r.instant(), r.text(), r.text()
	state := stateOf(r, name)
	said := r.take(len(r.rest))
	if err := r.err("look"); err != nil {
		return nil, err
	}
	m := statusOf(id, state, at, text, record)
	for pair := range slices.Chunk(said, 2) {
		if len(pair) < 2 {
			break
		}
		c, alive := consumerOf(pair[0], pair[1], now)
		if alive && slices.ContainsFunc(c.Handling, func(h Handling) bool { return h.ID == id }) {
			m.Consumer = c.ID
		}
	}
	return m, nil
}

func stateOf(r *reply, name string) State {
	state := slices.Index(stateNames[:], name)
	if state < 0 {
		r.fail("state %q", name)
		return StateGone
	}
	return State(state)
}

// A place is a structure that messages wait in, and what part of it is wanted.
type place struct {
	key      string
	state    State
	from, to string
	part     string // "due", "later", or "" for both
}

// listed is a page of a place.
type listed struct {
	messages []*MessageStatus
	score    string // of the last one that was looked at
	tag      string // of it
	full     bool   // there may be more
}

func (s *store) list(ctx context.Context, p place, limit int, score, tag string, back bool) (listed, error) {
	kind := "set"
	if p.key == s.keys.ready {
		kind = "list"
	}
	r, err := s.run(ctx, listScript, []any{p.key, s.keys.msg, s.keys.fail}, []any{kind, limit, p.from, p.to, score, tag, back, p.part})
	if err != nil {
		return listed{}, err
	}
	r.instant()
	n := r.number()
	out := listed{full: n > 0}
	for range min(n, limit) {
		tag, at, text, record := r.text(), r.text(), r.text(), r.text()
		out.tag, out.score = tag, at
		us, err := strconv.ParseInt(at, 10, 64)
		if id, _ := splitTag(tag); err == nil && text != "" {
			out.messages = append(out.messages, statusOf(id, p.state, us, text, record))
		}
	}
	return out, r.err("list")
}

// steered is what became of one message.
type steered struct {
	state  State // before
	done   bool
	holder string // of its key, if that is why it was not done
}

// steer says of each id what became of it.
func (s *store) steer(ctx context.Context, c *caller, what string, us int64, only string, ids []string) ([]steered, error) {
	args := append(c.args(3+len(ids)), what, us, only)
	for i := range ids {
		args = append(args, &ids[i])
	}
	r, err := s.run(ctx, steerScript, s.steerKeys, args)
	if err != nil {
		return nil, err
	}
	r.instant()
	words := strings.Fields(r.text())
	if len(words) != len(ids) {
		r.fail("%d answers for %d messages", len(words), len(ids))
		return nil, r.err("steer")
	}
	out := make([]steered, len(ids))
	for i, word := range words {
		if holder, ok := strings.CutPrefix(word, "="); ok {
			out[i] = steered{state: StateGarbage, holder: holder}
			continue
		}
		name, not := strings.CutPrefix(word, "!")
		out[i] = steered{state: stateOf(r, name), done: !not}
	}
	return out, r.err("steer")
}

func (s *store) pause(ctx context.Context, c *caller, until int64) error {
	r, err := s.run(ctx, pauseScript, s.pauseKeys, append(c.args(1), until))
	if err != nil {
		return err
	}
	r.instant()
	return r.err("pause")
}

// drop returns how many consumers are alive.
func (s *store) drop(ctx context.Context, force bool) (int, error) {
	r, err := s.run(ctx, dropScript, s.fetchKeys, []any{force})
	if err != nil {
		return 0, err
	}
	alive := r.number()
	return alive, r.err("drop")
}

func (s *store) consumers(ctx context.Context) ([]Consumer, error) {
	r, err := s.run(ctx, consumersScript, s.consumersKeys, nil)
	if err != nil {
		return nil, err
	}
	now := r.instant()
	var alive []Consumer
	for len(r.rest) > 0 && r.bad == nil {
		name, said := r.text(), r.text()
		if c, ok := consumerOf(name, said, now); ok {
			alive = append(alive, c)
		}
	}
	return alive, r.err("consumers")
}

// history returns the server's clock, and what was counted in each hour, by hours since 1970.
func (s *store) history(ctx context.Context) (now int64, hours map[int64]*Tally, err error) {
	r, err := s.run(ctx, historyScript, s.historyKeys, nil)
	if err != nil {
		return 0, nil, err
	}
	now = r.instant()
	hours = map[int64]*Tally{}
	for len(r.rest) > 0 && r.bad == nil {
		field, n := r.text(), r.instant()
		text, what, _ := strings.Cut(field, ":")
		hour, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue // somebody else's
		}
		if hours[hour] == nil {
			hours[hour] = new(Tally)
		}
		hours[hour].count(what, n)
	}
	return now, hours, r.err("history")
}

// queues finds the queues under a prefix on each server, a page of the keyspace at a time.
func queues(ctx context.Context, cli redis.UniversalClient, prefix string, yield func(string, error) bool) {
	head, tail := "{"+prefix+":", "}:state"
	pattern := globEscape(head) + "*" + globEscape(tail)
	var mu sync.Mutex
	var nodes []*redis.Client
	add := func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	}
	var err error
	switch cli := cli.(type) {
	case *redis.Client:
		nodes = append(nodes, cli)
	case *redis.ClusterClient:
		err = cli.ForEachMaster(ctx, add)
	case *redis.Ring:
		err = cli.ForEachShard(ctx, add)
	default:
		err = fmt.Errorf("%w: %T", errNoNode, cli)
	}
	if err != nil {
		yield("", err)
		return
	}
	seen := map[string]bool{} // SCAN may name a key twice
	for _, node := range nodes {
		pages := node.Scan(ctx, 0, pattern, 1000).Iterator()
		for pages.Next(ctx) {
			name := strings.TrimSuffix(strings.TrimPrefix(pages.Val(), head), tail)
			if seen[name] {
				continue
			}
			seen[name] = true
			if !yield(name, nil) {
				return
			}
		}
		if err := pages.Err(); err != nil {
			yield("", err)
			return
		}
	}
}

// globEscape makes Redis take a text as it is in a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// publish tells the Monitors of all machines. In a Cluster any node would do, but from one to the next
// events overtake each other; so it is the queue's own, which a subscriber asks too.
func (s *store) publish(ctx context.Context, text []byte) error {
	node, err := s.node(ctx)
	if err != nil {
		return err
	}
	return node.Publish(ctx, s.keys.events, text).Err()
}

// subscribe hears what others publish.
func (s *store) subscribe(ctx context.Context) *redis.PubSub {
	return s.cli.Subscribe(ctx, s.keys.events)
}
