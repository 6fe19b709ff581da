package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestBulkOfShards: a call for many does in each shard what it would do in a queue.
func TestBulkOfShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	for i := range 3 {
		for j := range 4 {
			d.end(i, script.OutcomeGarbage, fmt.Sprintf("bad %d", j), "good")
		}
		d.send(i, "later", time.Hour)
		d.end(i, script.OutcomeRetry, "again")
		d.end(i, script.OutcomeReady, "released")
	}
	b := Bulk{Filter: Filter{Contains: "bad", Limit: 3}}
	b.DryRun, b.Progress = true, func(r *BulkResult) bool { return r.Looked < 13 }
	got, err := d.m.BulkRequeue(queuetest.CtxB, b)
	if err != nil || got.Finished || got.Total != 24 || got.Next == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	b.Cursor, b.Progress = got.Next, nil
	got, err = d.m.BulkRequeue(queuetest.CtxB, b)
	bulked(d.Fixture, "dry run", got, err, 24, 12, nil)
	b.DryRun, b.Cursor, b.Before, b.Most = false, "", got.At, got.Done-1
	got, err = d.m.BulkRequeue(queuetest.CtxB, b)
	if err != nil || got.Done != 11 || !got.Finished {
		t.Errorf("%+v, %v", got, err)
	}
	b.Most = 0
	if got, err = d.m.BulkRequeue(queuetest.CtxB, b); err != nil || got.Done != 1 || got.Looked != 13 {
		t.Errorf("the rest: %+v, %v", got, err)
	}
	if got := d.pages(delayqueue.StateReady, Filter{}); len(got) != 15 || slices.Contains(got, "good") {
		t.Errorf("ready: %v", got)
	}
	got, err = d.m.BulkRescheduleBy(queuetest.CtxB,
		Bulk{States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateRetry}, Filter: Filter{Limit: 1}}, time.Hour)
	bulked(d.Fixture, "by an hour", got, err, 6, 6, nil)
	entry, err := d.m.JournalEntry(queuetest.CtxB, got.Entry)
	if err != nil || entry.Messages != 6 || entry.Bulk.Phase != journal.Finished {
		t.Errorf("%+v, %v", entry, err)
	}
	all := []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry,
		delayqueue.StateGarbage}
	got, err = d.m.BulkDelete(queuetest.CtxB, Bulk{States: all, Filter: Filter{Limit: 2}})
	if err != nil || got.Done != got.Total || !got.Finished {
		t.Errorf("delete: %+v, %v", got, err)
	}
	if c, err := d.m.store.Balance(queuetest.CtxB); err != nil || c.Here != 0 || c.Deleted != got.Done ||
		c.Unaccounted != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestSpreadOverShards: the messages of each shard are spread over the whole time.
func TestSpreadOverShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	sizes := []int{4, 8, 2}
	for i, n := range sizes {
		for range n {
			d.end(i, script.OutcomeGarbage, fmt.Sprint(i))
		}
	}
	got, err := d.m.BulkRequeue(queuetest.CtxB, Bulk{Spread: 8 * time.Hour, Filter: Filter{Limit: 3}})
	bulked(d.Fixture, "spread", got, err, 14, 14, nil)
	for i, n := range sizes {
		var due []time.Duration
		for msg, err := range d.m.All(queuetest.CtxB, delayqueue.StateRetry, Filter{Contains: fmt.Sprint(i)}) {
			d.Must(err)
			due = append(due, msg.At.Sub(got.At).Round(time.Minute))
		}
		for msg, err := range d.m.All(queuetest.CtxB, delayqueue.StateReady, Filter{Contains: fmt.Sprint(i)}) {
			d.Must(err)
			due = append(due, msg.At.Sub(got.At).Round(time.Minute))
		}
		slices.Sort(due)
		for j := range due {
			if want := time.Duration(j) * 8 * time.Hour / time.Duration(n); len(due) != n || j > 0 && due[j] != want {
				t.Fatalf("shard %d: due %v", i, due)
			}
		}
	}
}

// TestBulkOfLanesInShards: a call that makes messages with lanes due earlier looks at the places of each shard again.
func TestBulkOfLanesInShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	n := 0
	for _, lane := range []string{"a", "b", "c", "d"} {
		for range 5 {
			d.send(d.set.Named(lane), lane, time.Hour, func(e *message.Envelope) { e.Lane = message.Lane{Name: lane, Width: 2} })
			n++
		}
	}
	d.send(2, "without", time.Hour)
	waits := []delayqueue.State{delayqueue.StatePending, delayqueue.StateWaiting}
	got, err := d.m.BulkRunNow(queuetest.CtxB, Bulk{States: waits, Filter: Filter{Limit: 2}})
	if err != nil || got.Done != int64(n+1) || !got.Finished {
		t.Errorf("run now: %+v, %v", got, err)
	}
	for i, s := range d.set.All {
		places := (&operation{task: task{What: script.SteerAt, States: waits}, of: d.set}).places()
		if c, err := s.Counts(queuetest.CtxB); err != nil || c.Pending != 0 || len(places)%3 != 0 ||
			places[len(places)/3*i].shard != i {
			t.Errorf("shard %d: %+v, %v, %d places", i, c, err, len(places))
		}
	}
	got, err = d.m.BulkDelete(queuetest.CtxB, Bulk{States: append(waits, delayqueue.StateReady), Filter: Filter{Limit: 3}})
	if err != nil || got.Done != int64(n+1) || !got.Finished {
		t.Errorf("delete: %+v, %v", got, err)
	}
}

// TestBulkLosesAShard: if a shard fails a change, the call goes on without it.
func TestBulkLosesAShard(t *testing.T) {
	t.Parallel()
	d := divide(t, 2)
	d.end(0, script.OutcomeGarbage, "x")
	d.end(1, script.OutcomeGarbage, "x")
	b := Bulk{States: []delayqueue.State{delayqueue.StateGarbage}}
	spoil := sync.OnceValue(func() func() { return d.spoil(1, "waiting") }) // which steer reads, and list does not
	undo := func() {}
	b.Progress = func(*BulkResult) bool {
		undo = spoil()
		return true
	}
	got, err := d.m.BulkDelete(queuetest.CtxB, b)
	if d.inPart("delete", err, 1); got.Done != 1 || !errors.Is(err, script.ErrWrongType) {
		t.Errorf("%+v, %v", got, err)
	}
	undo()
	b.Progress = nil
	got, err = d.m.BulkDelete(queuetest.CtxB, b)
	bulked(d.Fixture, "the rest", got, err, 1, 1, nil)
}

// TestBulkWithoutAShard: a call for many changes what the other shards hold, says so, and the same call does the rest.
func TestBulkWithoutAShard(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	for i := range 3 {
		d.end(i, script.OutcomeGarbage, "a", "b")
	}
	undo, unclear := d.spoil(1, "garbage"), d.spoil(2, "waiting") // which alone the counts at the beginning read
	dry := Bulk{DryRun: true, Progress: func(*BulkResult) bool { return false }}
	for n := 0; n == 0 || dry.Cursor != "" && n < 9; n++ {
		got, err := d.m.BulkRequeue(queuetest.CtxB, dry)
		if dry.Cursor = got.Next; got.Finished || got.Next == "" && got.Done != 2 {
			t.Errorf("dry run: %+v, %v", got, err)
		}
		if d.inPart("dry run", err, 1); n == 8 {
			t.Fatal("the dry run has no end")
		}
	}
	unclear()
	got, err := d.m.BulkRequeue(queuetest.CtxB, Bulk{})
	d.inPart("requeue", err, 2)
	if got.Done != 4 || got.Finished || !strings.Contains(err.Error(), ": requeued in 2 of 3 shards, not in shard 2: ") {
		t.Errorf("%+v, %v", got, err)
	}
	undo()
	entry, err := d.m.JournalEntry(queuetest.CtxB, got.Entry)
	d.Must(err)
	rest, ok := entry.Rest()
	if !ok || !strings.Contains(entry.Bulk.Error, ": requeued in 2 of 3 shards, not in shard 2: ") {
		t.Errorf("%+v", entry.Bulk)
	}
	if got, err := d.m.BulkRequeue(queuetest.CtxB, rest); err != nil || got.Done != 2 || !got.Finished {
		t.Errorf("the rest: %+v, %v", got, err)
	}
}

// TestBulkWithoutAShardHasMost: a call that has changed Most is finished, whatever shard does not answer. What it would
// be told for the rest would have no bound. The journal says which shard was left out.
func TestBulkWithoutAShardHasMost(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	for i := range 3 {
		d.end(i, script.OutcomeGarbage, "a", "b")
	}
	defer d.spoil(0, "garbage")()
	got, err := d.m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateGarbage}, Most: 2})
	if err != nil || got.Done != 2 || !got.Finished {
		t.Errorf("%+v, %v", got, err)
	}
	entry, err := d.m.JournalEntry(queuetest.CtxB, got.Entry)
	if err != nil || entry.Bulk.Phase != journal.Finished ||
		!strings.Contains(entry.Bulk.Error, "in 2 of 3 shards, not in shard 1") {
		t.Errorf("%+v, %v", entry.Bulk, err)
	}
}

// TestBulkGoesOnAfterAllShards: if all shards have fallen silent, the cursor goes on with all in which the call stands,
// or has not changed anything since.
func TestBulkGoesOnAfterAllShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 2)
	for i := range 2 {
		for range 4 {
			d.send(i, "x", time.Hour)
		}
	}
	for _, dry := range []bool{true, false} {
		var undo []func()
		b := Bulk{States: []delayqueue.State{delayqueue.StatePending}, DryRun: dry, Filter: Filter{Limit: 2}}
		b.Progress = func(*BulkResult) bool {
			if undo == nil {
				undo = []func(){d.spoil(0, "pending"), d.spoil(1, "pending")}
			}
			return true
		}
		got, err := d.m.BulkRescheduleBy(queuetest.CtxB, b, time.Hour)
		if err == nil || got.Done != 2 || got.Next == "" {
			t.Fatalf("dry %v: %+v, %v", dry, got, err)
		}
		for _, f := range undo {
			f()
		}
		b.Progress, b.Cursor = nil, got.Next
		first := got.Entry
		got, err = d.m.BulkRescheduleBy(queuetest.CtxB, b, time.Hour)
		if bulked(d.Fixture, "gone on", got, err, 8, 8, nil); dry {
			continue
		}
		for id, want := range map[string]int64{first: 2, got.Entry: 6} { // each what it has done itself
			if entry, err := d.m.JournalEntry(queuetest.CtxB, id); err != nil || entry.Messages != want {
				t.Errorf("%d in the journal, %v; want %d", entry.Messages, err, want)
			}
		}
	}
	n := 0
	for msg, err := range d.m.All(queuetest.CtxB, delayqueue.StatePending, Filter{}) {
		if d.Must(err); time.Until(msg.At) > 90*time.Minute && time.Until(msg.At) < 3*time.Hour {
			n++
		}
	}
	if n != 8 {
		t.Errorf("%d of 8 were shifted once", n)
	}
}

// TestWhyAllWithoutAShard: what waits in the other shards is counted, and the error says which is missing.
func TestWhyAllWithoutAShard(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	for i := range 3 {
		d.send(i, "x", time.Hour)
	}
	for _, key := range []string{"pending", "fail"} { // fail: the counts read it
		undo := d.spoil(1, key)
		groups, _, err := d.m.WhyAll(queuetest.CtxB, Filter{}, 0)
		if d.inPart(key, err, 2); len(groups) != 1 || groups[0].Count != 2 {
			t.Errorf("%s: %+v, %v", key, groups, err)
		}
		undo()
	}
}

// TestWalkRewindsNothingMet: after all shards have fallen silent, nothing is met again that was met before.
func TestWalkRewindsNothingMet(t *testing.T) {
	t.Parallel()
	d := divide(t, 2)
	d.end(0, script.OutcomeGarbage, "a")
	for range 5 {
		d.end(1, script.OutcomeGarbage, "b", "c")
	}
	places, err := placesOf(d.set, delayqueue.StateGarbage, Filter{})
	d.Must(err)
	var w walk
	d.Must(w.start(queuetest.CtxB, d.m, places))
	undo, n := []func(){d.spoil(0, "garbage")}, 0
	err = w.goOn(queuetest.CtxB, d.m, places, 4, 1000, 64<<20, func(*MessageStatus) bool {
		if n++; n == 4 {
			undo = append(undo, d.spoil(1, "garbage"))
		}
		return true
	})
	if err == nil || n != 4 || w.Looked != 4 {
		t.Fatalf("%d met, the cursor says %d, %v", n, w.Looked, err)
	}
	for _, f := range undo {
		f()
	}
	d.Must(w.goOn(queuetest.CtxB, d.m, places, 4, 1000, 64<<20, func(*MessageStatus) bool { n++; return true }))
	if n != 10 {
		t.Errorf("%d met in all, want 10", n)
	}
	if w.Err(2, "") == nil {
		t.Error("nobody is told of the shard that is missing")
	}
}
