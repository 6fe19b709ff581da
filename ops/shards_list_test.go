package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// pages are the payloads on all pages of a list.
func (d *divided) pages(state delayqueue.State, f Filter) (all []string) {
	d.T.Helper()
	for cursor, n := "", 0; cursor != "" || n == 0; n++ {
		page, err := d.m.List(queuetest.CtxB, state, f, cursor)
		d.Must(err)
		if page.Looked > f.limit() {
			d.T.Errorf("%d on a page of %d", page.Looked, f.limit())
		}
		for _, msg := range page.Messages {
			all = append(all, msg.Payload)
		}
		if cursor = page.Next; n > 100 {
			d.T.Fatal("the pages have no end")
		}
	}
	return all
}

// TestListOfShardsIsInOrder: pages of any size list the messages of all shards in order of time, each once, from
// either end.
func TestListOfShardsIsInOrder(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	begin := time.Now().Add(time.Hour).UnixMicro()
	var want []string
	for i := range 20 { // shards 0, 1, 1, 2, 0, 1, 1, 2, …
		want = append(want, fmt.Sprintf("%02d", i))
		d.sendAt([]int{0, 1, 1, 2}[i%4], want[i], message.When{Us: begin + int64(i), Absolute: true})
	}
	for range 4 { // some due at the same instant, in the order of their tags
		for i := range 3 {
			d.sendAt(i, "same", message.When{Us: begin + 100, Absolute: true})
		}
	}
	for range 12 {
		want = append(want, "same")
	}
	back := slices.Clone(want)
	slices.Reverse(back)
	for _, limit := range []int{1, 2, 3, 7, 32, 100} {
		if got := d.pages(delayqueue.StatePending, Filter{Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v", limit, got)
		}
		if got := d.pages(delayqueue.StatePending, Filter{Limit: limit, LatestFirst: true}); !slices.Equal(got, back) {
			t.Errorf("pages of %d, the latest first: %v", limit, got)
		}
	}
	met := map[string]bool{}
	for msg, err := range d.m.All(queuetest.CtxB, delayqueue.StatePending, Filter{Limit: 5}) {
		d.Must(err)
		met[msg.ID] = true
	}
	if len(met) != len(want) {
		t.Errorf("%d met by All, want %d", len(met), len(want))
	}
	if page, err := d.m.List(queuetest.CtxB, delayqueue.StatePending, Filter{Limit: 32}, ""); err != nil ||
		page.Next != "" {
		t.Errorf("the last page goes on: %v, %v", page.Next, err)
	}
}

// TestListOfShardsWithLargeMessages: a page of a shard that was cut short for its bytes may be followed by messages
// that come first.
func TestListOfShardsWithLargeMessages(t *testing.T) {
	t.Parallel()
	d := divide(t, 2)
	begin := time.Now().Add(time.Hour).UnixMicro()
	large := strings.Repeat("x", 300<<10)
	var want []string
	for i := range 12 {
		want = append(want, fmt.Sprintf("%02d", i))
		text := want[i]
		if i%3 != 0 { // shard 1
			text += large
		}
		d.sendAt(min(i%3, 1), text, message.When{Us: begin + int64(i), Absolute: true})
	}
	for _, latestFirst := range []bool{false, true} {
		got := d.pages(delayqueue.StatePending, Filter{LatestFirst: latestFirst})
		for i := range got {
			got[i] = got[i][:2]
		}
		if latestFirst {
			slices.Reverse(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("latest first %v: %v", latestFirst, got)
		}
	}
}

// TestListOfReadyInShards: first released messages, then retries, then new ones.
func TestListOfReadyInShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 2)
	d.end(1, script.OutcomeReady, "released 1")
	d.end(0, script.OutcomeReady, "released 0")
	d.send(1, "new 1", 0)
	d.send(0, "new 2", 0)
	d.send(1, "new 3", 0)
	want := []string{"released 0", "released 1", "new 1", "new 2", "new 3"}
	for limit := 1; limit < 5; limit++ {
		if got := d.pages(delayqueue.StateReady, Filter{Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v", limit, got)
		}
	}
}

// TestFindInShards: a search meets the messages of all shards, and goes on by its cursor.
func TestFindInShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	var ids []string
	for i := range 3 {
		ids = append(ids, d.send(i, fmt.Sprintf("needle %d", i), time.Hour))
		d.send(i, "hay", time.Hour)
		d.end(i, script.OutcomeGarbage, fmt.Sprintf("dead needle %d", i), "hay")
	}
	key := "key"
	keyed := d.send(d.set.Named(key), "of a key", time.Hour, func(e *message.Envelope) { e.Key = key })
	for what, want := range map[string]string{ids[2]: ids[2], key: keyed} {
		if got, err := d.m.Find(queuetest.CtxB, what, Find{}, ""); err != nil || len(got.Matches) != 1 ||
			got.Matches[0].ID != want {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	for _, messages := range []int{1, 4, 100} {
		met, looked := map[string]int{}, int64(0)
		for cursor, n := "", 0; cursor != "" || n == 0; n++ {
			got, err := d.m.Find(queuetest.CtxB, "needle", Find{Messages: messages}, cursor)
			d.Must(err)
			for _, m := range got.Matches {
				met[m.Payload]++
			}
			if cursor, looked = got.Next, got.Looked; got.Total != 13 || n > 40 {
				t.Fatalf("%+v after %d calls", got, n)
			}
		}
		if len(met) != 6 || looked != 13 {
			t.Errorf("calls of %d: met %v, looked at %d", messages, met, looked)
		}
	}
	groups, err := d.m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 2, "")
	d.Must(err)
	for n := 0; groups.Next != "" && n < 10; n++ {
		more, err := d.m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 2, groups.Next)
		d.Must(err)
		groups.Merge(more)
	}
	if len(groups.Groups) != 1 || groups.Groups[0].Count != 6 || groups.Looked != 6 || groups.Total != 6 ||
		groups.Next != "" {
		t.Errorf("%+v", groups)
	}
}

// TestListsWithoutAShard: what the other shards hold is listed, found and counted page by page, and each page says that
// a shard is missing.
func TestListsWithoutAShard(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	for i := range 3 {
		d.send(i, "later", time.Hour)
		d.end(i, script.OutcomeGarbage, "dead", "dead")
		d.end(i, script.OutcomeReady, "released")
	}
	for _, structure := range []string{"pending", "ready"} {
		defer d.spoil(1, structure)()
	}
	undo := d.spoil(1, "garbage")
	for state, want := range map[delayqueue.State]int{delayqueue.StatePending: 2, delayqueue.StateReady: 2,
		delayqueue.StateGarbage: 4} {
		listed, n := 0, 0
		for cursor := ""; cursor != "" || n == 0; n++ {
			page, err := d.m.List(queuetest.CtxB, state, Filter{Limit: 1}, cursor)
			if page == nil || n > 10 {
				t.Fatalf("%s: %v after %d pages", state, err, n)
			}
			if listed, cursor = listed+len(page.Messages), page.Next; n > 1 || state != delayqueue.StateReady {
				d.inPart(state.String(), err, 2) // of ready, one shard comes after the other
			}
		}
		all, last := 0, error(nil)
		for msg, err := range d.m.All(queuetest.CtxB, state, Filter{}) {
			if last = err; msg != nil {
				all++
			}
		}
		if d.inPart("all", last, 2); listed != want || all != want {
			t.Errorf("%s: %d and %d messages", state, listed, all)
		}
		for range d.m.All(queuetest.CtxB, state, Filter{}) {
			break
		}
	}
	met, cursor := 0, ""
	for n := 0; cursor != "" || n == 0; n++ {
		got, err := d.m.Find(queuetest.CtxB, "dea", Find{Messages: 1}, cursor)
		if d.inPart("find", err, 2); n > 20 {
			t.Fatal("the search has no end")
		}
		met, cursor = met+len(got.Matches), got.Next
	}
	groups, err := d.m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 2, "")
	d.inPart("groups", err, 2)
	for n := 0; groups.Next != "" && n < 10; n++ {
		more, err := d.m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 2, groups.Next)
		d.inPart("groups", err, 2)
		groups.Merge(more)
	}
	if met != 4 || len(groups.Groups) != 1 || groups.Groups[0].Count != 4 || groups.Total != 4 {
		t.Errorf("found %d, %+v", met, groups)
	}
	undo()

	// If no shard answers, the cursor is good for later.
	got, err := d.m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 1, "")
	d.Must(err)
	for i := range 3 {
		defer d.spoil(i, "garbage")()
	}
	more, err := d.m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 1, got.Next)
	if err == nil || errors.Is(err, delayqueue.ErrMissingShards) || more.Next != got.Next {
		t.Errorf("no shard answers: %+v, %v", more, err)
	}
}
