package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file judges rows of queues with shards.

// wantShards wants the queue to have so many shards.
func (t *trial) wantShards(v *verdict, n int) {
	state := t.read()
	if state == nil {
		v.problem("the queue cannot be read")
		return
	}
	if state.count() != n {
		v.problem("the queue has %d shards, want %d", state.count(), n)
	}
	sends := make([]int, n)
	for _, e := range t.books.all() {
		if i := state.shardOf(e.ID); e.Kind == sent && i >= 0 && i < n {
			sends[i]++
		}
	}
	v.notes = append(v.notes, fmt.Sprintf("%d messages went to its shards; %d sends found their keys taken", sends,
		t.books.count(taken)))
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
			if at == 0 {
				v.problem("no handler started in shard %d after the strike at %s", i, clock(st.from))
				continue
			}
			took := us(at - st.to)
			longest = max(longest, took)
			v.inTime(t.gauge, st.to, took, within, "the first start of a handler in shard %d after the strike at %s", i,
				clock(st.from))
		}
	}
	v.notes = append(v.notes, fmt.Sprintf("all shards went on within %v", longest.Round(10*time.Millisecond)))
}

// wantGap wants handlers to have started all the while.
func (v *verdict) wantGap(g *gauge, most time.Duration) {
	v.inTime(g, v.gapFrom, v.gap, most, "the time without a handler's start")
}

// wantOneOutage wants no program to have said more than once that a node is away, and each that said so to have said
// that it is back. A machine that was slow for as long as an answer is waited for may have made outages of its own.
func (t *trial) wantOneOutage(v *verdict) {
	const patience = time.Second
	said, slow := 0, t.gauge.allowance(t.begun, us(time.Now().UnixMicro()-t.begun)) >= patience
	for _, p := range slices.Concat(t.consumers, t.producers) {
		lines := t.loggedBy(p.name, "cannot work with Redis", "working with Redis again")
		if len(lines) > 2*len(t.strikes) && !slow || len(lines)%2 > 0 {
			v.problem("the outages in the log of %s: %q", p.name, lines)
		}
		said += len(lines)
	}
	if said == 0 {
		v.problem("no program has noticed an outage")
	}
}

// loggedBy are the lines of a program's log that hold one of these texts.
func (t *trial) loggedBy(name string, texts ...string) (found []string) {
	log, err := os.ReadFile(filepath.Join(t.dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// wantConfirmations wants no send to have failed but for its confirmation.
func (t *trial) wantConfirmations(v *verdict) {
	for _, e := range t.books.all() {
		if e.Kind == refused && !strings.Contains(e.Word, "not confirmed by enough replicas") {
			v.problem("the send of %s failed: %s", e.Payload, e.Word)
		}
	}
}

// weighFrozen judges sends and deliveries while a node stood still.
func (t *trial) weighFrozen(v *verdict) {
	t.wantShards(v, 12)
	t.wantEachShard(v, 5*time.Second)
	t.wantOneOutage(v)
	v.wantGap(t.gauge, time.Second)
	frozen := t.besideShard(0)
	t.weighFrozenSends(v, frozen)
	t.weighNewcomer(v)
	t.weighOthers(v, frozen)
}

// besideShard are the shards of the node that has one of them.
func (t *trial) besideShard(shard int) (beside []int) {
	node, _ := t.owner(t.shardKey(shard))
	for i := range t.read().count() {
		if at, _ := t.owner(t.shardKey(i)); at == node {
			beside = append(beside, i)
		}
	}
	return beside
}

// weighFrozenSends wants sends to fail only if they have keys of the shards that stood still, and to say so.
func (t *trial) weighFrozenSends(v *verdict, frozen []int) {
	failed, waited, longest := 0, 0, time.Duration(0)
	for _, e := range t.books.all() {
		name := nameOf(e.Payload)
		says := strings.Contains(e.Word, "deadline exceeded (last attempt: shard ") || e.At > t.strikes[0].to
		switch {
		case e.Kind == refused && (name == "" || !slices.Contains(frozen, script.ShardOf(name, 12))):
			v.problem("%s: its send failed after %v: %s", e.Payload, us(e.Took), e.Word)
		case e.Kind == refused && !says:
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
	v.notes = append(v.notes,
		fmt.Sprintf(
			"%d sends with keys of the two shards failed; %d sends without keys were under way to them, and waited up to %v",
			failed, waited, longest.Round(10*time.Millisecond)))
}

// weighNewcomer wants the consumer that started during the strike to have worked.
func (t *trial) weighNewcomer(v *verdict) {
	st, newcomer, begins := t.strikes[0], t.consumers[len(t.consumers)-1].name, int64(0)
	for _, e := range t.books.all() {
		if e.who == newcomer && e.Kind == started && (begins == 0 || e.At < begins) {
			begins = e.At
		}
	}
	if begins == 0 {
		v.problem("%s, which started meanwhile, handled no message", newcomer)
		return
	}
	took := us(begins-st.from) - lateStart
	v.inTime(t.gauge, begins-took.Microseconds(), took, 5*time.Second,
		"%s, which started meanwhile, handled its first message", newcomer)
	v.notes = append(v.notes, fmt.Sprintf("the new consumer began after %v", took.Round(10*time.Millisecond)))
}

// weighOthers wants messages of shards that were not struck to have been on time during the strike.
func (t *trial) weighOthers(v *verdict, struck []int) {
	state, st := t.read(), t.strikes[0]
	late := t.latenesses(st.from, st.to, func(id string) bool { return !slices.Contains(struck, state.shardOf(id)) })
	if len(late) == 0 {
		v.problem("no message of another shard was due meanwhile")
		return
	}
	p99 := percentile(late, 99)
	v.inTime(t.gauge, p99.at-p99.by.Microseconds(), p99.by, 250*time.Millisecond,
		"the 99th percentile of lateness in the other shards")
	v.notes = append(v.notes,
		fmt.Sprintf(
			"of %d messages of the other shards that were due meanwhile, half started within %v, 99%% within %v, and all "+
				"within %v", len(late), percentile(late, 50).by.Round(time.Millisecond),
			p99.by.Round(time.Millisecond),
			percentile(late, 100).by.Round(time.Millisecond)))
}

// A lateness is how long after its due instant a message started.
type lateness struct {
	at int64 // unix us, when it started
	by time.Duration
}

// percentile is the lateness that so many of a hundred do not exceed.
func percentile(all []lateness, of int) lateness {
	slices.SortFunc(all, func(a, b lateness) int { return cmp.Compare(a.by, b.by) })
	return all[min(len(all)*of/100, len(all)-1)]
}

// latenesses are those of the first starts of messages that were due between two instants and whose ids are some.
func (t *trial) latenesses(from, to int64, some func(id string) bool) (all []lateness) {
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
		all = append(all, lateness{at, us(at - due[id])})
	}
	return all
}

// weighNames wants no two messages that have one key to live at a time. A message certainly lives when its sender
// knows that it is accepted, and when the handler of its last delivery ends.
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
				v.problem("%s: two messages live: %s from %s to %s as %s, %s from %s to %s as %s", name, latest.payload,
					clock(latest.from),
					clock(latest.to), latest.sent.ID, l.payload, clock(l.from), clock(l.to), l.sent.ID)
			}
			if l.to > latest.to {
				latest = l
			}
		}
	}
}
