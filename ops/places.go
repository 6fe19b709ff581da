package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// This file has the structures of a queue, in which lists and calls for many go through its messages.

// A place is a part of a structure in which messages wait.
type place struct {
	in       delayqueue.State // the structure has the name of this state
	state    delayqueue.State // of the messages in this part
	from, to int64            // scores, the upper one not included
	part     string           // "due", "later", or "" for both
	back     bool             // from its end
	again    bool             // the call was through with it, and looks again for messages with a lane that it has not met

	of     *shard.Set // the queue, of which this is the part in one shard
	shard  int
	merged bool // the part in all shards, in order
}

// A listReply is a page of a place.
type listReply struct {
	now     int64
	left    int // entries from here to the end, with those of this page
	bytes   int // of envelopes and records
	entries []entry
}

// An entry stands in a structure for a message.
type entry struct {
	script.Listed
	msg *MessageStatus // nil if the message was deleted by another program
}

func (l *listReply) more() bool { return l.left > len(l.entries) }

// list reads a page of a place. A shard that does not answer is left out: from then on its places are empty.
func (m *Queue) list(ctx context.Context, p place, limit int, after script.Spot,
	out *shard.Absence) (got listReply, err error) {
	if p.merged {
		return m.listMerged(ctx, p, limit, after, out)
	}
	if !out.Lacks(p.shard) {
		got, err = m.listOne(ctx, p, limit, after)
	}
	return got, p.leaveOut(ctx, p.shard, err, out)
}

// leaveOut leaves out a shard that has returned this error. It returns the error if ctx has ended, or if no other shard
// is left.
func (p *place) leaveOut(ctx context.Context, i int, err error, out *shard.Absence) error {
	if err == nil || ctx.Err() != nil || len(p.of.All) == 1 {
		return err
	}
	if out.Leave(i, err); len(out.Out) < len(p.of.All) {
		return nil
	}
	return err
}

func (m *Queue) listOne(ctx context.Context, p place, limit int, after script.Spot) (listReply, error) {
	q := script.ListRequest{In: script.StateWords[p.in], From: p.from, To: p.to, Part: p.part, Back: p.back, Most: m.most,
		Limit: limit, After: after}
	got, err := shard.One(ctx, p.of.All[p.shard], func(ctx context.Context, s *script.Store) (script.PageReply, error) {
		return link.Read(ctx, func(ctx context.Context) (script.PageReply, error) { return s.List(ctx, q) })
	})
	out := listReply{now: got.Now, left: got.Left, bytes: got.Bytes}
	for _, l := range got.Entries {
		out.entries = append(out.entries, entry{l, m.statusAt(p, &l)})
	}
	return out, err
}

// listMerged is a page of a place in all shards, in order. Each shard is asked for a whole page, because all that
// come next may be in one.
func (m *Queue) listMerged(ctx context.Context, p place, limit int, after script.Spot,
	absent *shard.Absence) (out listReply, err error) {
	got, errs := make([]listReply, len(p.of.All)), make([]error, len(p.of.All))
	var wait sync.WaitGroup
	for i := range got {
		one := p
		one.merged, one.shard = false, i
		if !absent.Lacks(i) {
			wait.Go(func() { got[i], errs[i] = m.listOne(ctx, one, limit, after) })
		}
	}
	wait.Wait()
	for i, err := range errs {
		if err = p.leaveOut(ctx, i, err, absent); err != nil {
			return out, err
		}
	}
	var end *entry // behind it, a shard may have more that come first
	for i := range got {
		out.now, out.left = max(out.now, got[i].now), out.left+got[i].left
		if n := len(got[i].entries); got[i].more() && n > 0 && (end == nil || p.compare(got[i].entries[n-1], *end) < 0) {
			end = &got[i].entries[n-1]
		}
		out.bytes += got[i].bytes
		out.entries = append(out.entries, got[i].entries...)
	}
	slices.SortStableFunc(out.entries, p.compare)
	n := min(limit, len(out.entries))
	if end != nil {
		i, _ := slices.BinarySearchFunc(out.entries, *end, p.compare)
		n = min(n, i+1)
	}
	out.entries = out.entries[:n]
	return out, nil
}

// compare is the order of entries in a place: as in Redis, by score and then by the bytes of the tag.
func (p *place) compare(a, b entry) int {
	x, _ := strconv.ParseFloat(a.Score, 64) // also of "inf"
	y, _ := strconv.ParseFloat(b.Score, 64)
	order := cmp.Or(cmp.Compare(x, y), strings.Compare(a.Tag, b.Tag))
	if p.back {
		return -order
	}
	return order
}

// statusAt is the status of a message of a place. It is nil if another program has deleted the message.
func (m *Queue) statusAt(p place, l *script.Listed) *MessageStatus {
	if l.Text == "" {
		return nil
	}
	id, _ := message.SplitTag(l.Tag)
	msg := statusWithin(id, p.state, script.ScoreInstant(l.Score), l.Text, l.Record, m.most)
	msg.CountdownLeft = l.Missing
	if p.in == delayqueue.StateReady { // the record says since when the message is there
		msg.At = msg.EndedAt
	}
	return msg
}

// placesOf are the structures in which messages of a state wait: those of one shard after those of another.
func placesOf(set *shard.Set, state delayqueue.State, f Filter) (all []place, err error) {
	for i := range set.All {
		some, err := placesIn(state, f)
		if err != nil {
			return nil, err
		}
		for _, p := range some {
			p.of, p.shard = set, i
			all = append(all, p)
		}
	}
	return all, nil
}

// ordered says whether a place has its messages in the order of scores.
func (p *place) ordered() bool { return p.in != delayqueue.StateReady && p.in != delayqueue.StateUnack }

// merged puts the parts of all shards together that are in the order of scores. In the others the shards come one
// after the other.
func merged(places []place) (all []place) {
	if len(places[0].of.All) == 1 {
		return places
	}
	for _, p := range places {
		if !p.ordered() {
			all = append(all, p)
		}
	}
	for _, p := range places {
		if p.ordered() && p.shard == 0 {
			p.merged = true
			all = append(all, p)
		}
	}
	return all
}

// placesIn are those of one shard.
func placesIn(state delayqueue.State, f Filter) ([]place, error) {
	from, to := f.bounds()
	switch state {
	case delayqueue.StatePending, delayqueue.StateRetry, delayqueue.StateDone:
		return []place{{in: state, state: state, from: from, to: to, part: "later"}}, nil
	case delayqueue.StateUnack, delayqueue.StateGarbage, delayqueue.StateWaiting:
		return []place{{in: state, state: state, from: from, to: to}}, nil
	case delayqueue.StateReady:
		return []place{
			{in: delayqueue.StateReady, state: state},
			{in: delayqueue.StateRetry, state: state, from: from, to: to, part: "due"},
			{in: delayqueue.StatePending, state: state, from: from, to: to, part: "due"},
		}, nil
	default:
		return nil, fmt.Errorf("%w: state %s has no messages", delayqueue.ErrBadOption, state)
	}
}

// places are the structures to go through, some in two parts. Their order and direction are such that no message is
// missed, or met again where it has gone to. For example, a message that leaves ready goes to retry, which the call
// is through with by then.
//
// Waiting is first for what is deleted or made later, because turns that end move messages from waiting to the
// others, and last for what is made earlier, because turns that are taken away move messages from the others to
// waiting. There handlers that end move some the other way, the first of their lanes, so these places are gone
// through again, in the other order.
//
// A queue with several shards is gone through shard by shard, each like a queue of its own.
func (o *operation) places() (all []place) {
	shards := 1
	if o.of != nil {
		shards = len(o.of.All)
	}
	for i := range shards {
		for _, p := range o.placesOfShard() {
			p.of, p.shard = o.of, i
			all = append(all, p)
		}
	}
	return all
}

func (o *operation) placesOfShard() (all []place) {
	in := func(s delayqueue.State) bool { return slices.Contains(o.States, s) }
	from, to := o.Filter.hot().bounds()
	if in(delayqueue.StateUnack) {
		all = append(all, place{in: delayqueue.StateUnack, state: delayqueue.StateUnack, from: from, to: to})
	}
	if in(delayqueue.StateGarbage) {
		all = append(all, place{in: delayqueue.StateGarbage, state: delayqueue.StateGarbage, from: from,
			to: min(to, o.Begun+1)})
	}
	if in(delayqueue.StateDone) {
		all = append(all, place{in: delayqueue.StateDone, state: delayqueue.StateDone, from: max(from, o.Begun+1), to: to})
	}
	waiting := func(structure delayqueue.State) {
		from, to := from, to
		if !in(delayqueue.StateReady) {
			from = max(from, o.Begun+1)
		}
		if !in(structure) {
			to = min(to, o.Begun+1)
		}
		all = o.parts(all, place{in: structure, state: structure}, from, to)
	}
	if in(delayqueue.StateRetry) || in(delayqueue.StateReady) {
		waiting(delayqueue.StateRetry)
	}
	if in(delayqueue.StateReady) && (o.What == script.SteerDelete || o.shifts() > 0) {
		all = append(all, place{in: delayqueue.StateReady, state: delayqueue.StateReady})
	}
	if in(delayqueue.StatePending) || in(delayqueue.StateReady) {
		waiting(delayqueue.StatePending)
	}
	if in(delayqueue.StateWaiting) {
		p := place{in: delayqueue.StateWaiting, state: delayqueue.StateWaiting,
			back: o.What == script.SteerDelete} // at its head a width may end
		for _, p := range o.parts(nil, p, from, to) {
			if p.part == "later" { // made earlier
				all = append(all, p)
			} else {
				all = slices.Insert(all, 0, p)
			}
		}
		for _, p := range slices.Backward(all) { // turns are not taken away any more
			if p.part == "later" && in(delayqueue.StatePending) {
				p.again = true
				all = append(all, p)
			}
		}
	}
	return all
}

// shifts is by how many us the call makes due messages due later. 0 or less: due messages stay where they are.
func (o *operation) shifts() int64 {
	if o.What == script.SteerAt {
		return o.Us - o.Begun
	}
	return o.Us
}

// parts adds the parts of retry or pending between two scores.
func (o *operation) parts(all []place, p place, from, to int64) []place {
	add := func(from, to int64) {
		if from < to {
			p.from, p.to = from, to
			all = append(all, p)
		}
	}
	switch {
	case o.What == script.SteerAt: // the messages due before that instant, and those due after it
		target := max(o.Us, o.Begun)
		if o.shifts() > 0 {
			add(from, min(to, target))
		}
		p.part = "later"
		add(max(from, target+o.Spread+1), to)
		if last := len(all) - 1; last >= 0 && all[last].part == p.part {
			all[last].from = max(all[last].from, o.Now+o.Spread+1) // messages that have come due since stay
		}
	case o.What == script.SteerBy && o.Us > 0:
		p.back = true
		add(from, to)
	case o.What == script.SteerBy:
		p.part = "later"
		add(max(from, o.Begun+1), to)
	default:
		add(from, to)
	}
	return all
}
