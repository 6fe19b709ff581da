package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestShardNames: the check value of CRC-16/XMODEM, names in braces, and shards that divide the circle of slots.
func TestShardNames(t *testing.T) {
	if got := slot("123456789"); got != 0x31c3 {
		t.Errorf("slot %#x", got)
	}
	for name, want := range map[string]string{"a": "a", "{b}a": "b", "a{b}{c}": "b", "{}a": "{}a", "a{b": "a{b",
		"}{a}": "a", "{{a}}": "{a"} {
		if got := tagOf(name); got != want {
			t.Errorf("%q lies by %q, want %q", name, got, want)
		}
	}
	q := Queue{"dq", "orders"}
	first := slot("dq:orders")
	seen := map[string]bool{}
	for i := range maxShards {
		one := q.shardOf(i, maxShards)
		if got := (slot("dq:"+one.Name) - first + allSlots) % allSlots; got != i*allSlots/maxShards || seen[one.Name] {
			t.Errorf("shard %d is %q, %d slots behind the first", i, one.Name, got)
		}
		seen[one.Name] = true
		if i%16 == 0 && one != q.shardOf(i/16, 4) {
			t.Errorf("shard %d is %q, and was %q when there were four", i, one.Name, q.shardOf(i/16, 4).Name)
		}
	}
	for said, want := range map[string]int{"": 1, "1": 1, "6": 6, "64": 64, "65": 0, "0": 0, "3 3": 0, "06": 0, "x": 0} {
		if n, err := decodeShards(said); n != want || (err == nil) != (n > 0) {
			t.Errorf("%q says %d, %v", said, n, err)
		}
	}
}

// Messages of a queue of four shards, by the shard that their ids say.
var idIn = [4]string{"0190f3a0-0000-7000-8000-000000000c00", "0190f3a0-0000-7000-8000-000000000500",
	"0190f3a0-0000-7000-8000-000000000200",
	"0190f3a0-0000-7000-8000-000000000b00"}

// nameIn is a name that begins like this and lies in a shard, of four.
func nameIn(head string, shard int) string {
	for i := 0; ; i++ {
		if tag := fmt.Sprint(head, i); slot(tag)/(allSlots/4) == shard {
			return "{" + tag + "}"
		}
	}
}

// store adds a message that waits for its time.
func (b *bed) store(id, key string, rest ...any) {
	due := b.now + 60*second
	b.do("ZADD", "pending", due, id)
	b.do("HSET", "msg", id, fields(due, key, append(rest, fieldPayload, "x")...))
	if key != "" {
		b.do("HSET", "key", key, id)
	}
	b.arm(due)
	b.do("HINCRBY", "state", "in:stored", 1)
}

// buildShards stores a queue of four shards. Each shard has a message. Those of the first and the third have keys.
func buildShards(t *testing.T, cli redis.UniversalClient) (shards []*bed) {
	t.Helper()
	for i := range 4 {
		b := &bed{t: t, cli: cli, q: Queue{"dq", t.Name()}.shardOf(i, 4)}
		t.Cleanup(func() {
			for _, key := range b.q.Keys() {
				cli.Del(context.Background(), key)
			}
		})
		b.now = b.read().Now
		b.do("HSET", "state", "canceled", 1, "told", "1 0", "books", b.now)
		key := ""
		if i%2 == 0 {
			key = nameIn("key", i)
		}
		b.store(idIn[i], key)
		shards = append(shards, b)
	}
	shards[0].do("HSET", "state", "shards", "4")
	return shards
}

func TestShardBreaches(t *testing.T) {
	first, second, taken := nameIn("name", 0), nameIn("name", 2), nameIn("key", 0)
	digits := fmt.Sprintf("%020d", 7)
	// Further ids of the first two shards.
	more, more2 := "0190f3a0-0000-7000-8000-00000000f800", "0190f3a0-0000-7000-8000-00000000f900"
	lane := func(s []*bed, i int, name string) {
		s[i].store([]string{more, more2}[i], "", fieldLane, "001"+name)
		s[i].do("ZADD", "lanes", 0, turnOf(name, []string{more, more2}[i], "001"))
	}
	all := map[string]struct {
		make func(s []*bed)
		want []string // what each sentence says behind the name of its shard
	}{
		"none": {func([]*bed) {}, nil},
		"a breach of one": {func(s []*bed) { s[3].do("HSET", "state", "cursor", "x") }, []string{
			`state: field cursor begins with "x", want digits only.`,
		}},
		"an id of another": {func(s []*bed) { s[3].store(more2, "") }, []string{
			"msg: message " + more2 + " is in shard 4 of 4, and its last ten bits are 256, want 768.",
		}},
		"an id of no shard": {func(s []*bed) { s[0].store(more[:35]+"1", "") }, []string{
			"msg: message " + more[:35] + "1 is in shard 1 of 4, and its last ten bits are 1, want 0.",
		}},
		"a message in two": {func(s []*bed) { s[1].store(idIn[0], "") }, []string{
			`msg: "` + idIn[0] + `" is in shard 1 of 4 and in shard 2.`,
			"msg: message " + idIn[0] + " is in shard 2 of 4, and its last ten bits are 0, want 256.",
		}},
		"a key in its shard": {func(s []*bed) { s[0].store(more, first) }, nil},
		"a key of a later shard": {func(s []*bed) { s[0].store(more, second) }, []string{
			`key: key "` + second + `" is in shard 1 of 4, want shard 3.`,
			`msg: key "` + second + `" is in shard 1 of 4, want shard 3.`,
		}},
		"a key in two": {func(s []*bed) { s[1].store(more2, taken) }, []string{
			`key: "` + taken + `" is in shard 1 of 4 and in shard 2.`,
			`key: key "` + taken + `" is in shard 2 of 4, want shard 1.`,
			`msg: key "` + taken + `" is in shard 2 of 4, want shard 1.`,
		}},
		"a lane in its shard": {func(s []*bed) { lane(s, 0, first) }, nil},
		"a lane of an earlier shard": {func(s []*bed) { lane(s, 1, first) }, []string{
			`lanes: lane "` + first + `" is in shard 2 of 4, want shard 1.`,
			`msg: lane "` + first + `" is in shard 2 of 4, want shard 1.`,
		}},
		"a sequence in its shard": {func(s []*bed) { s[2].do("HSET", "sequence", second, digits) }, nil},
		"a sequence of an earlier": {func(s []*bed) { s[2].do("HSET", "sequence", first, digits) }, []string{
			`sequence: sequence "` + first + `" is in shard 3 of 4, want shard 1.`,
		}},
		"a countdown of a later": {func(s []*bed) { s[0].store(more, "", fieldCounts, second) }, []string{
			`msg: key "` + second + `" is in shard 1 of 4, want shard 3.`,
		}},
	}
	onServers(t, func(t *testing.T, cli redis.UniversalClient) {
		for name, c := range all {
			t.Run(name, func(t *testing.T) {
				c.make(buildShards(t, cli))
				r := &recorder{TB: t}
				AssertShards(r, cli, "dq", t.Name(), 0)
				var got []string
				for _, text := range r.errors {
					got = append(got, text[strings.Index(text, ": ")+2:])
				}
				if !slices.Equal(got, c.want) || len(r.fatals) > 0 {
					t.Errorf("breaches:\n%s\nwant:\n%s\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"), r.fatals)
				}
			})
		}
	})
}

// TestMerged: the state of all shards together, and a queue that is not spread is as before.
func TestMerged(t *testing.T) {
	onServers(t, func(t *testing.T, cli redis.UniversalClient) {
		shards := buildShards(t, cli)
		shards[2].arm(shards[2].now)
		shards[3].do("HSET", "history", "1", "1 2 3 4 5 6 7 8 9 10")
		shards[1].do("HSET", "history", "1", "1 1 1 1 1 1 1 1 1 1")
		for _, b := range shards[1:] {
			b.do("HSET", "consumers", "c", fmt.Sprintf("1 %d {}", b.now))
			b.lease(leaseName, b.now+second, 0)
		}
		all, err := ReadShards(context.Background(), cli, "dq", t.Name())
		if err != nil {
			t.Fatal(err)
		}
		s := all.Merged()
		var ids []string
		for i, e := range s.Pending {
			if ids = append(ids, e.ID); i > 0 && e.Score < s.Pending[i-1].Score {
				t.Errorf("pending is not in order: %v", s.Pending)
			}
		}
		slices.Sort(ids)
		if !slices.Equal(ids, slices.Sorted(slices.Values(idIn[:]))) || len(s.Messages) != 4 || len(s.Keys) != 2 ||
			s.Where(idIn[2]) != "pending" {
			t.Errorf("messages %v, %d, keys %v", ids, len(s.Messages), s.Keys)
		}
		if s.Fields["canceled"] != "4" || s.Fields["in:stored"] != "4" || s.Fields["armed"] != fmt.Sprint(shards[2].now) ||
			s.Wake != shards[2].now ||
			s.Fields["told"] != "1 0" || s.History["1"] != "2 3 4 5 6 7 8 9 10 11" {
			t.Errorf("fields %v, wake %d, history %v", s.Fields, s.Wake, s.History)
		}
		if len(s.Leases) != 3 || len(s.Consumers) != 1 || s.Consumers["c"] == "" || !s.Leases[leaseName+" (shard 3)"].Listed {
			t.Errorf("leases %v, consumers %v", s.Leases, s.Consumers)
		}
	})
}

// TestAssertShards: what is missing by the books is so in any shard, what is left over is said of each, and a queue
// that does not say how many shards it has has one.
func TestAssertShards(t *testing.T) {
	onServers(t, func(t *testing.T, cli redis.UniversalClient) {
		shards := buildShards(t, cli)
		shards[1].do("HINCRBY", "state", "in:stored", 2)
		shards[3].do("HINCRBY", "state", "in:stored", -1)
		if s := AssertShards(t, cli, "dq", t.Name(), 1); len(s.Messages) != 4 {
			t.Errorf("%d messages", len(s.Messages))
		}
		for missing, want := range map[int64]int{0: 2, 2: 1} {
			r := &recorder{TB: t}
			if AssertShards(r, cli, "dq", t.Name(), missing); len(r.errors) != want || len(r.logs) != 4 ||
				!strings.Contains(r.errors[0], "by the books") {
				t.Errorf("with %d missing: %q", missing, r.errors)
			}
		}
		r := &recorder{TB: t}
		if AssertShardsEmpty(r, cli, "dq", t.Name(), 1); len(r.errors) != 4+4+2 {
			t.Errorf("left over: %q", r.errors)
		}
		one := AssertShards(t, cli, "dq", shards[2].q.Name, 0)
		if len(one.Messages) != 1 || one.Queue != shards[2].q {
			t.Errorf("one shard: %v of %v", one.Messages, one.Queue)
		}
		shards[0].do("HSET", "state", "shards", "4 4")
		r = &recorder{TB: t}
		s := AssertShards(r, cli, "dq", t.Name(), 1)
		if s != nil || len(r.fatals) != 1 || !strings.Contains(r.fatals[0], `field shards of state is "4 4"`) {
			t.Errorf("%q", r.fatals)
		}
	})
}
