package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/redis/go-redis/v9"
)

// A queue of any size is read in pages, so that the server works for nobody else only for milliseconds: see Inspect.

const (
	pageEntries = 200     // at most, of one page
	pageBytes   = 1 << 19 // of envelopes that the server goes through for one page, but for a single larger one
	headBytes   = message.EnvelopeHead + 2 + 2*message.MaxKey + message.MaxLane + 1 + 3*10 + 130
)

// headsScript reads a page of msg, result or parts, and of each value its head alone.
//
// KEYS     msg, result or parts
// ARGV     cursor of HSCAN, COUNT, bytes of a head
// Returns  {cursor, then for each envelope: id, its bytes, its head}
// Cost     O(COUNT), and the bytes of the envelopes
// Keeps    every invariant: it writes nothing
const headsScript = `
local head = tonumber(ARGV[3])
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local out = {page[1]}
for i = 1, #page[2], 2 do
  local envelope = page[2][i + 1]
  local most = string.byte(page[2][i]) == 58 and 8 * head or head -- of parts, a list of groups: it is short
  out[#out + 1], out[#out + 2], out[#out + 3] = page[2][i], #envelope, string.sub(envelope, 1, most)
end
return out
`

// pager reads a queue page by page into a State.
type pager struct {
	cli      redis.UniversalClient
	state    *State
	seen     map[string]bool // SCAN may name an element twice: of the structure that is read
	progress func(done int)
	done     int
	largest  int // bytes of envelopes in one page, for tests
}

// rest leaves the server alone for as long as the page took that began then.
func (p *pager) rest(ctx context.Context, begun time.Time, n int) error {
	if p.done += n; p.progress != nil {
		p.progress(p.done)
	}
	timer := time.NewTimer(min(time.Since(begun), time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read fills the State. What moves meanwhile may be in it twice or not at all. Waiting is read first, because
// messages go from there to pending.
func (p *pager) read(ctx context.Context) error {
	if err := p.frame(ctx); err != nil || len(p.state.WrongType) > 0 {
		return err
	}
	last := len(structures) - 1
	for _, st := range slices.Concat(structures[last:], structures[:last]) {
		p.seen = map[string]bool{}
		key := p.state.Queue.Key(st.name)
		var err error
		switch {
		case st.name == "msg", st.name == "result", st.name == "parts":
			err = p.heads(ctx, st.name, key)
		case st.kind == "list":
			err = p.list(ctx, key)
		default:
			err = p.scan(ctx, st.name, st.kind, key)
		}
		if st.name == "journal" && err == nil {
			err = p.journal(ctx, key)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	p.order()
	return nil
}

// frame reads the clock, the types and the times to live.
func (p *pager) frame(ctx context.Context) error {
	pipe := p.cli.Pipeline()
	kinds, ttls := make([]*redis.StatusCmd, len(structures)), make([]*redis.DurationCmd, len(structures))
	for i, st := range structures {
		kinds[i], ttls[i] = pipe.Type(ctx, p.state.Queue.Key(st.name)), pipe.PTTL(ctx, p.state.Queue.Key(st.name))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	for i, st := range structures {
		if kind := kinds[i].Val(); kind != st.kind && kind != "none" {
			p.state.WrongType[st.name] = kind
		}
		if ttl := ttls[i].Val(); ttl >= 0 { // -1 ns: lives for ever; -2 ns: no such key
			p.state.TTLs[st.name] = ttl.Milliseconds()
		}
	}
	return nil
}

// heads reads msg, result or parts. How many values are in a page follows from how large those of the page before were.
func (p *pager) heads(ctx context.Context, structure, key string) error {
	cursor, count := "0", 10
	for {
		begun := time.Now()
		reply, err := p.cli.Eval(ctx, headsScript, []string{key}, cursor, count, headBytes).Slice()
		if err != nil {
			return err
		}
		n, size := len(reply)/3, 0
		if len(reply)%3 != 1 {
			return fmt.Errorf("a page of %d parts", len(reply))
		}
		for part := range slices.Chunk(reply[1:], 3) {
			id, ok1 := part[0].(string)
			bytes, ok2 := part[1].(int64)
			head, ok3 := part[2].(string)
			if !ok1 || !ok2 || !ok3 {
				return fmt.Errorf("unexpected part {%T, %T, %T} of a page", part[0], part[1], part[2])
			}
			size += int(bytes)
			switch structure {
			case "result":
				p.state.Results[id] = int(bytes)
			case "parts":
				p.state.setPart(id, head, int(bytes))
			default:
				p.state.Messages[id] = decodeHead(head, int(bytes))
			}
		}
		p.largest = max(p.largest, size)
		cursor, _ = reply[0].(string)
		if cursor == "0" || cursor == "" {
			return nil
		}
		count = min(2*count, pageEntries)
		if n > 0 && size > 0 {
			count = max(1, min(count, pageBytes/(size/n+1)))
		}
		if err := p.rest(ctx, begun, n); err != nil {
			return err
		}
	}
}

// list reads ready.
func (p *pager) list(ctx context.Context, key string) error {
	for from := int64(0); ; from += pageEntries {
		begun := time.Now()
		tags, err := p.cli.LRange(ctx, key, from, from+pageEntries-1).Result()
		if err != nil {
			return err
		}
		p.state.fill("ready", tags)
		if len(tags) < pageEntries {
			return nil
		}
		if err := p.rest(ctx, begun, len(tags)); err != nil {
			return err
		}
	}
}

// scan reads a sorted set or a hash whose values are small.
func (p *pager) scan(ctx context.Context, structure, kind, key string) error {
	count := int64(pageEntries)
	if structure == "consumers" || structure == "lease" { // each may name 1,000 messages
		count = 10
	}
	for cursor := uint64(0); ; {
		begun := time.Now()
		var page []string
		var err error
		if kind == "zset" {
			page, cursor, err = p.cli.ZScan(ctx, key, cursor, "", count).Result()
		} else {
			page, cursor, err = p.cli.HScan(ctx, key, cursor, "", count).Result()
		}
		if err != nil {
			return err
		}
		var fresh []string
		for pair := range slices.Chunk(page, 2) {
			if len(pair) == 2 && !p.seen[pair[0]] {
				p.seen[pair[0]] = true
				fresh = append(fresh, pair...)
			}
		}
		p.state.fill(structure, fresh)
		if cursor == 0 {
			return nil
		}
		if err := p.rest(ctx, begun, len(fresh)/2); err != nil {
			return err
		}
	}
}

// journal takes out the oldest entries if there are more than at one instant: each step of a call for many writes one
// anew.
func (p *pager) journal(ctx context.Context, key string) error {
	slices.SortStableFunc(p.state.Journal, func(a, b Marker) int { return cmp.Compare(a.Score, b.Score) })
	n := len(p.state.Journal)
	if n <= maxJournal {
		return nil
	}
	there, err := p.cli.ZCard(ctx, key).Result()
	p.state.Journal = p.state.Journal[max(0, n-int(there)):]
	return err
}

// order puts entries in the order of their scores, as a State has them.
func (p *pager) order() {
	slices.SortStableFunc(p.state.Holds, func(a, b Marker) int {
		return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Member, b.Member))
	})
	slices.SortStableFunc(p.state.Lanes, func(a, b LaneMember) int { return cmp.Compare(a.Member, b.Member) })
	for _, entries := range [][]Entry{p.state.Pending, p.state.Retry, p.state.Waiting, p.state.Garbage, p.state.Done} {
		slices.SortStableFunc(entries, func(a, b Entry) int {
			return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Tag, b.Tag))
		})
	}
	p.state.hold()
}

// newState is an empty one.
func newState(q Queue) *State {
	return &State{
		Queue:     q,
		Leases:    map[string]Lease{},
		Messages:  map[string]Envelope{},
		Fail:      map[string]Fail{},
		Keys:      map[string]string{},
		Results:   map[string]int{},
		Parts:     map[string]int{},
		Left:      map[string]string{},
		Counted:   map[string]string{},
		Missing:   map[string]int64{},
		Fields:    map[string]string{},
		Sequences: map[string]string{},
		Consumers: map[string]string{},
		History:   map[string]string{},
		TTLs:      map[string]int64{},
		WrongType: map[string]string{},
	}
}

// setClock reads the two parts of the reply of TIME.
func (s *State) setClock(reply []any) error {
	var clock [2]int64
	for i := range clock {
		text, ok := reply[i].(string)
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil {
			return fmt.Errorf("unexpected part %v of the clock", reply[i])
		}
		clock[i] = n
	}
	s.Now = clock[0]*1_000_000 + clock[1]
	return nil
}
