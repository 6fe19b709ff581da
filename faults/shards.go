package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// Shards: the queue lies in several slots. Half of the sends have keys, which all producers share.
var shards = []scenario{
	{
		name: "shards: Cluster: primary killed, WithReplicaAck(1)",
		holds: "six shards on three nodes: the other shards go on meanwhile, and those of that primary within 5 s of the promotion; every send " +
			"that returned nil survives, and no two live messages have one key",
		setUp: nodes(3, 1),
		load:  confirmed(1, spread(6)),
		hit: func(t *trial) {
			old := t.promote(0, func(primary, _ *redistest.Server) { primary.Kill() })
			old.Restart(t) // as a replica: without one no send would be confirmed
		},
		times: 1,
		rules: rules{names: true, resume: 5 * time.Second, duplicate: unheard},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6, 6)
			t.wantEachShard(v, 5*time.Second)
			t.wantOneOutage(v)
			v.wantGap(time.Second)
		},
	},
	{
		name: "shards: Cluster: primary frozen for 20 s, no replica",
		holds: "twelve shards on six nodes: no send without a key fails; a send with a key of the frozen node says so when its time is over; " +
			"the messages of all other shards are on time; a consumer that starts meanwhile works",
		setUp: nodes(6, 0),
		load: func(l *load) {
			spread(12)(l)
			l.Messages, l.Over, l.Patience, l.Haste, l.Lease = 10_000, 23*time.Second, 30*time.Second, 2*time.Second, 6*time.Second
		},
		hit:   (*trial).freezeNode,
		times: 1,
		rules: rules{names: true, grows: 12 * goroutinesOfShard}, // a consumer begins before it knows how many shards there are
		check: (*trial).weighFrozen,
	},
	{
		name:  "shards: planned failovers of a Cluster, WithReplicaAck(1)",
		holds: "six shards on three nodes, of which two change over: all goes on within 5 s",
		setUp: nodes(3, 1),
		load:  confirmed(1, spread(6)),
		hit:   func(t *trial) { t.planShard(2 * len(t.strikes)) },
		every: 3 * time.Second,
		times: 2,
		rules: rules{names: true, resume: 5 * time.Second, duplicate: unheard},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6, 6)
			t.wantEachShard(v, 5*time.Second)
			v.wantGap(time.Second)
		},
	},
	{
		name:  "shards: Cluster: slots migrated",
		holds: "two of six shards move to other nodes: the others go on meanwhile, and those when the last key has moved",
		setUp: nodes(3, 0),
		load:  func(l *load) { longLease(l); spread(6)(l) },
		hit:   func(t *trial) { t.strike(strike{}, func() { t.migrate(3 * len(t.strikes)) }) },
		every: 2 * time.Second,
		times: 2,
		rules: rules{names: true, resume: time.Second},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6, 6)
			t.wantEachShard(v, 5*time.Second)
			v.wantGap(time.Second)
			wantNoRefusals(t, v)
		},
	},
	{
		name: "shards: from three to six",
		holds: "programs that ask for three run on when others ask for six: those consume all six within 12 s, keys stay where they are, and no two " +
			"live messages have one key",
		setUp: nodes(3, 0),
		load: func(l *load) {
			spread(3)(l)
			l.Over = 15 * time.Second
		},
		hit:   (*trial).double,
		times: 1,
		rules: rules{names: true, grows: 3 * goroutinesOfShard},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6, 3)
			t.wantFollowed(v)
			wantNoRefusals(t, v)
		},
	},
	{
		name:  "shards: consumers of three and of six killed",
		holds: "the same beside each other: messages of a killed one are back within a lease and a second, in whichever shard they are",
		load:  spread(6, 3),
		hit:   (*trial).killConsumer,
		every: 700 * time.Millisecond,
		rules: rules{names: true},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6, 6, 3)
			wantNoRefusals(t, v)
		},
	},
	{
		name:  "shards: rolling deploy from one to six",
		holds: "programs without the option are stopped one by one, and others that ask for six start: keys stay in the first shard",
		load: func(l *load) {
			spread(0)(l)
			l.Over = 6 * time.Second
		},
		hit:   (*trial).deploy,
		times: 1,
		rules: rules{names: true, grows: 5 * goroutinesOfShard},
		check: func(t *trial, v *verdict) {
			t.wantShards(v, 6, 1)
			for _, e := range t.books.all() {
				if e.Kind == refused && !strings.Contains(e.Word, "terminated signal") {
					v.problem("the send of %s failed: %s", e.Payload, e.Word)
				}
			}
		},
	},
}

// goroutinesOfShard is how many goroutines a consumer has for each shard.
const goroutinesOfShard = 4

// spread makes programs ask for these numbers of shards, in turn.
func spread(shards ...int) func(l *load) {
	return func(l *load) {
		l.Shards, l.Names = shards, 1000
		l.Messages, l.Over, l.MaxDelay = 12_000, 9*time.Second, 2*time.Second
	}
}

// asked is how many shards the nth consumer or producer asks for.
func (t *trial) asked(n int) int {
	if t.load.Shards == nil {
		return 0
	}
	return t.load.Shards[n%len(t.load.Shards)]
}

// sendersOf is how many sends a producer has under way at most. If some of them wait for a node, others must not wait for those.
func sendersOf(l load) int {
	if l.Haste > 0 {
		return 128
	}
	return 16
}

// inNames gives every second pair of steps keys that producers share, and the others none. It returns how long the sends try.
func inNames(l load, first int, batch []delayqueue.Outgoing) (patience time.Duration) {
	named := first/step%4 > 1
	for i := range batch {
		m := &batch[i]
		m.Options = []delayqueue.MsgOption{withSomeDelay(l)}
		if named && (i > 0 || l.Haste > 0) { // beside one without
			name := fmt.Sprintf("key%03d", rand.N(l.Names))
			m.Payload = name + laneMark + m.Payload
			m.Options = append(m.Options, delayqueue.WithKey(name))
		}
	}
	if named {
		return cmp.Or(l.Haste, l.Patience)
	}
	return l.Patience
}

// nameOf is the key of a payload; "": it has none.
func nameOf(payload string) string {
	name, _, found := strings.Cut(payload, laneMark)
	if !found {
		return ""
	}
	return name
}

// nodes is a Cluster of so many primaries, each with so many replicas, that goes on without some of its slots.
func nodes(primaries, replicas int) func(t *trial) {
	return func(t *trial) {
		clusterOf(t, primaries, replicas)
		for _, node := range t.cluster.Nodes {
			if err := node.Client(t).ConfigSet(t.ctx, "cluster-require-full-coverage", "no").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// lateStart is how long after the beginning of a freeze a consumer starts.
const lateStart = 5 * time.Second

// freezeNode lets the node of the first shard stand still. A consumer that starts meanwhile cannot ask the first shard.
func (t *trial) freezeNode() {
	i, _ := t.owner(t.shardKey(0))
	t.strike(strike{}, func() {
		t.cluster.Nodes[i].Pause()
		t.wait(lateStart)
		t.startConsumer()
		t.wait(20*time.Second - lateStart)
		t.cluster.Nodes[i].Resume()
	})
}

// double starts programs that ask for twice as many shards, beside those that are there.
func (t *trial) double() {
	t.load.Shards = []int{2 * t.load.Shards[0]}
	t.strike(strike{}, func() {
		t.startConsumer()
		t.startProducer(0)
	})
}

// deploy replaces all programs, one after the other, by such as ask for six shards.
func (t *trial) deploy() {
	t.load.Shards = []int{6}
	old := slices.Concat(t.consumers, t.producers)
	rand.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	for _, p := range old {
		if strings.HasPrefix(p.name, producer) {
			t.startProducer(p.share)
		} else {
			t.startConsumer()
		}
		t.strike(strike{}, p.process.Terminate)
		t.wait(700 * time.Millisecond)
	}
}

// wantShards wants the queue to have so many shards, of which one of these numbers have names.
func (t *trial) wantShards(v *verdict, n int, names ...int) {
	state := t.read()
	if state == nil {
		v.problem("the queue cannot be read")
		return
	}
	if state.count() != n || !slices.Contains(names, state.sharded.Named) {
		v.problem("the queue has %d shards, and %d with names, want %d and one of %d", state.count(), state.sharded.Named, n, names)
	}
	sends := make([]int, n)
	for _, e := range t.books.all() {
		if i := state.shardOf(e.ID); e.Kind == sent && i >= 0 && i < n {
			sends[i]++
		}
	}
	v.notes = append(v.notes, fmt.Sprintf("%d messages went to its shards; %d sends found their keys taken", sends, t.books.count(taken)))
	if slices.Contains(sends, 0) {
		v.problem("a shard got no message")
	}
	if t.books.count(taken) == 0 {
		v.problem("no two sends had one key")
	}
}

// wantEachShard wants, after each strike, the start of a handler in each shard within a time.
func (t *trial) wantEachShard(v *verdict, within time.Duration) {
	state := t.read()
	if state == nil {
		v.problem("the queue cannot be read")
		return
	}
	longest := time.Duration(0)
	for _, st := range t.strikes {
		first := make([]int64, state.count())
		for _, e := range t.books.all() {
			if i := state.shardOf(e.ID); e.Kind == started && e.At >= st.to && i >= 0 && (first[i] == 0 || e.At < first[i]) {
				first[i] = e.At
			}
		}
		for i, at := range first {
			took := us(at - st.to)
			if longest = max(longest, took); at == 0 || took > within {
				v.tooSlow("the first start of a handler in shard %d was %v after the strike at %s, want at most %v", i, took, clock(st.from), within)
			}
		}
	}
	v.notes = append(v.notes, fmt.Sprintf("all shards went on within %v", longest.Round(10*time.Millisecond)))
}

// wantGap wants handlers to have started all the while.
func (v *verdict) wantGap(most time.Duration) {
	if v.gap > most {
		v.tooSlow("%v without a handler's start, want at most %v", v.gap, most)
	}
}

// wantOneOutage wants no program to have said more than once that a node is away, and each that said so to have said that it is back.
func (t *trial) wantOneOutage(v *verdict) {
	said := 0
	for _, p := range slices.Concat(t.consumers, t.producers) {
		lines := t.loggedBy(p.name, "cannot work with Redis", "working with Redis again")
		if len(lines) > 2*len(t.strikes) || len(lines)%2 > 0 {
			v.problem("the outages in the log of %s: %q", p.name, lines)
		}
		said += len(lines)
	}
	if said == 0 {
		v.problem("no program has noticed an outage")
	}
}

// wantFollowed wants the consumers that were there before the number of shards changed to have consumed the new ones soon after.
func (t *trial) wantFollowed(v *verdict) {
	const within = 12 * time.Second
	state, first := t.read(), map[string]int64{}
	for _, e := range t.books.all() {
		isNew := e.ID != "" && state.shardOf(e.ID)%2 == 1
		if e.Kind == started && isNew && (first[e.who] == 0 || e.At < first[e.who]) {
			first[e.who] = e.At
		}
	}
	longest := time.Duration(0)
	for _, p := range t.consumers {
		took := us(first[p.name] - t.strikes[0].from)
		if first[p.name] == 0 || took > within {
			v.tooSlow("%s consumed a new shard %v after there were more, want within %v", p.name, took, within)
		}
		longest = max(longest, took)
	}
	v.notes = append(v.notes, fmt.Sprintf("the last consumer consumed a new shard %v after there were more", longest.Round(10*time.Millisecond)))
}

// weighFrozen judges sends and deliveries while a node stood still.
func (t *trial) weighFrozen(v *verdict) {
	t.wantShards(v, 12, 12)
	t.wantEachShard(v, 5*time.Second)
	t.wantOneOutage(v)
	v.wantGap(time.Second)
	state, st := t.read(), t.strikes[0]
	node, _ := t.owner(t.shardKey(0))
	var frozen []int
	for i := range state.count() {
		if at, _ := t.owner(t.shardKey(i)); at == node {
			frozen = append(frozen, i)
		}
	}
	failed, waited, longest := 0, 0, time.Duration(0)
	for _, e := range t.books.all() {
		name := nameOf(e.Payload)
		switch {
		case e.Kind == refused && (name == "" || !slices.Contains(frozen, script.ShardOf(name, 12))):
			v.problem("%s: its send failed after %v: %s", e.Payload, us(e.Took), e.Word)
		case e.Kind == refused && e.At < st.to && (!strings.Contains(e.Word, "deadline exceeded (last attempt: ") || !strings.Contains(e.Word, "of 12: ")):
			v.problem("%s: its send does not say why it failed: %s", e.Payload, e.Word)
		case e.Kind == refused:
			failed++
		case e.Kind == sent && name == "" && us(e.Took) > 2*time.Second:
			waited++
			longest = max(longest, us(e.Took))
		}
	}
	if failed == 0 {
		v.problem("no send with a key of the frozen node failed")
	}
	newcomer, begins := t.consumers[len(t.consumers)-1].name, int64(0)
	for _, e := range t.books.all() {
		if e.who == newcomer && e.Kind == started && (begins == 0 || e.At < begins) {
			begins = e.At
		}
	}
	took := us(begins-st.from) - lateStart
	if begins == 0 || took > 5*time.Second {
		v.tooSlow("%s, which started meanwhile, handled its first message after %v, want within 5s", newcomer, took)
	}
	late := t.latenesses(st.from, st.to, func(id string) bool { return !slices.Contains(frozen, state.shardOf(id)) })
	p99 := late[len(late)*99/100]
	v.notes = append(v.notes, fmt.Sprintf("%d sends with keys of shards %v failed, %d sends without keys waited up to %v; of %d messages of the "+
		"other shards that were due meanwhile, half started within %v, 99%% within %v, and all within %v; the new consumer began after %v", failed, frozen, waited,
		longest.Round(time.Millisecond), len(late), late[len(late)/2].Round(time.Millisecond), p99.Round(time.Millisecond),
		late[len(late)-1].Round(time.Millisecond), took.Round(10*time.Millisecond)))
	if p99 > 250*time.Millisecond {
		v.tooSlow("a hundredth of the messages of the other shards started %v late, want 250ms at most", p99)
	}
}

// latenesses are those of the first starts of messages that were due between two instants and whose ids are some, in order.
func (t *trial) latenesses(from, to int64, some func(id string) bool) (all []time.Duration) {
	due := map[string]int64{}
	entries := t.books.all()
	for _, e := range entries {
		if e.Kind == sent && e.Due >= from && e.Due < to && some(e.ID) {
			due[e.ID] = e.Due
		}
	}
	first := map[string]int64{}
	for _, e := range entries {
		if e.Kind == started && due[e.ID] > 0 && (first[e.ID] == 0 || e.At < first[e.ID]) {
			first[e.ID] = e.At
		}
	}
	for id, at := range first {
		all = append(all, us(at-due[id]))
	}
	slices.Sort(all)
	return append(all, 0)[:max(len(all), 1)]
}

// weighNames wants no two messages that have one key to live at a time. A message certainly lives when its sender knows that it is accepted, and
// when the handler of its last delivery ends.
func (v *verdict) weighNames(ev *evidence, stories []*story) {
	if !ev.rules.names {
		return
	}
	type life struct {
		*story
		from, to int64
	}
	byName := map[string][]life{}
	for _, s := range stories {
		name := nameOf(s.payload)
		if name == "" || s.sent == nil || len(s.runs) == 0 {
			continue
		}
		last := slices.MaxFunc(s.runs, func(a, b run) int { return cmp.Compare(a.start.Delivery, b.start.Delivery) })
		byName[name] = append(byName[name], life{s, s.sent.At, last.until()})
	}
	for name, lives := range byName {
		slices.SortFunc(lives, func(a, b life) int { return cmp.Compare(a.from, b.from) })
		latest := lives[0]
		for _, l := range lives[1:] {
			if l.from < latest.to && l.from < l.to {
				v.problem("%s: two messages live: %s from %s to %s as %s, %s from %s to %s as %s", name, latest.payload, clock(latest.from),
					clock(latest.to), latest.sent.ID, l.payload, clock(l.from), clock(l.to), l.sent.ID)
			}
			if l.to > latest.to {
				latest = l
			}
		}
	}
}
