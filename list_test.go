package delayqueue

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestListsOfForeignEntriesEnd: whatever another program wrote, a list and a call for many come to their end, and
// meet each entry of a sorted set once.
func TestListsOfForeignEntriesEnd(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		m := &Monitor{steerer: steerer{store: r.store, events: new(events)}}
		text := (&envelope{payload: "x"}).encode(when{us: rigBase, absolute: true})
		add := func(key, member, score string) {
			r.do("ZADD", key, score, member)
			r.do("HSET", r.keys.msg, member, text)
		}
		r.do("HSET", r.keys.state, "sent", "0") // there is such a queue
		const n = 200
		for i := range n { // more than a page at one score that is no whole number
			add(r.keys.pending, fmt.Sprintf("fraction %03d", i), fmt.Sprint(rigBase+1_000_000)+".25")
		}
		for _, score := range []string{"+inf", "1.79e18", "1e300"} {
			add(r.keys.pending, "far "+score, score)
		}
		for _, member := range []string{"\xff", "\xff\xfe", "\xfd", "", "\x00"} {
			add(r.keys.garbage, member, "-1e300")
		}
		r.do("HSET", r.keys.msg, "same", text)
		for range n + 1 {
			r.do("RPUSH", r.keys.ready, "2:same")
		}
		for state, want := range map[State]int{StatePending: n + 3, StateGarbage: 5} {
			got := map[string]int{}
			for msg, err := range m.All(ctxB, state, Filter{Limit: 3}) {
				if err != nil {
					r.t.Fatal(err)
				}
				if _, err := json.Marshal(msg); err != nil {
					r.t.Errorf("%q: %v", msg.ID, err)
				}
				if got[msg.ID]++; got[msg.ID] > 1 {
					r.t.Fatalf("%s: %q is listed again", state, msg.ID)
				}
			}
			if len(got) != want {
				r.t.Errorf("%s: %d listed, want %d", state, len(got), want)
			}
		}
		for _, err := range m.All(ctxB, StateReady, Filter{}) {
			if err != nil {
				r.t.Fatal(err)
			}
		}
		for what, call := range map[string]func() (*BulkResult, error){
			"by": func() (*BulkResult, error) {
				return m.BulkRescheduleBy(ctxB, Bulk{Filter: Filter{Limit: 7}}, time.Hour)
			},
			"now": func() (*BulkResult, error) { return m.BulkRunNow(ctxB, Bulk{Filter: Filter{Limit: 7}}) },
			"delete": func() (*BulkResult, error) {
				return m.BulkDelete(ctxB, Bulk{States: []State{StateReady, StateRetry, StateGarbage}})
			},
		} {
			if got, err := call(); err != nil || got.Next != "" || got.Looked > 4*n {
				r.t.Errorf("%s: %+v, %v", what, got, err)
			}
		}
	})
}

// TestListsTurnRound: the latest first is the earliest first read from its end, for each state and size of a page, and what goes between
// two pages is neither missed nor met twice.
func TestListsTurnRound(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		m := &Monitor{steerer: steerer{store: r.store, events: new(events)}}
		text := (&envelope{payload: "x"}).encode(when{us: rigBase, absolute: true})
		for i := range int64(17) {
			for key, score := range map[string]int64{
				r.keys.pending: rigBase - 8 + i, r.keys.retry: rigBase - 2 + i/3, r.keys.garbage: rigBase + i/5,
			} {
				tag := fmt.Sprintf("%s %02d", key[len(key)-3:], i)
				r.do("ZADD", key, fmt.Sprint(score), tag)
				r.do("HSET", r.keys.msg, tag, text)
			}
			r.do("HSET", r.keys.msg, fmt.Sprint("ready ", i), text)
			r.do("RPUSH", r.keys.ready, fmt.Sprint("2:ready ", i))
		}
		all := func(state State, f Filter) (ids []string) {
			for msg, err := range m.All(ctxB, state, f) {
				if err != nil {
					r.t.Fatal(err)
				}
				ids = append(ids, msg.ID)
			}
			return ids
		}
		for _, state := range []State{StatePending, StateReady, StateRetry, StateGarbage} {
			for _, limit := range []int{1, 3, 17, 100} {
				earliest, latest := all(state, Filter{Limit: limit}), all(state, Filter{Limit: limit, LatestFirst: true})
				slices.Reverse(latest)
				if len(earliest) == 0 || !slices.Equal(earliest, latest) {
					r.t.Errorf("%s by %d: %q, turned round %q", state, limit, earliest, latest)
				}
			}
		}
		page, err := m.List(ctxB, StateGarbage, Filter{Limit: 4, LatestFirst: true}, "")
		if err != nil || len(page.Messages) != 4 {
			r.t.Fatal(page, err)
		}
		r.do("ZREM", r.keys.garbage, page.Messages[3].ID)
		if page, err = m.List(ctxB, StateGarbage, Filter{LatestFirst: true}, page.Next); err != nil || len(page.Messages) != 13 {
			r.t.Errorf("after the one that has gone: %+v, %v", page, err)
		}
	})
}

// TestStepsOfLargeMessagesAreShort: listing and steering 500 messages of 8 KB holds the server in no call for longer
// than twice what one plain HSET of them takes.
func TestStepsOfLargeMessagesAreShort(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	cli, m, q := redisClient(t, server.Addr()), NewMonitor(f.name, f.cli), f.queue(nil)
	payload := strings.Repeat("x", 8<<10)
	plain := make([]any, 0, 1000)
	for i := range 500 {
		plain = append(plain, idOf(fmt.Sprint(i)), payload)
	}
	least := []float64{math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)} // others use this machine too
	eventually(t, "no call takes more than twice as long", func() bool {
		f.must(cli.Del(ctxB, "plain").Err())
		hset := heldFor(t, server, "hset", func() { f.must(cli.HSet(ctxB, "plain", plain...).Err()) })
		batch := make([]Outgoing, 500)
		for i := range batch {
			batch[i] = Outgoing{Payload: payload, Options: []MsgOption{WithDelay(time.Hour), WithKey(fmt.Sprint(i))}}
		}
		_, err := q.SendBatch(ctxB, batch)
		f.must(err)
		all := Bulk{States: []State{StatePending}, Filter: Filter{Limit: 500}}
		for i, call := range []func(){
			func() { f.must(first(m.All(ctxB, StatePending, all.Filter))) },
			func() { _, err := m.BulkRescheduleBy(ctxB, all, time.Hour); f.must(err) },
			func() { _, err := m.BulkReschedule(ctxB, all, time.Now().Add(time.Hour)); f.must(err) },
			func() { _, err := m.BulkDelete(ctxB, all); f.must(err) },
		} {
			least[i] = min(least[i], float64(heldFor(t, server, "evalsha", call))/float64(hset))
		}
		return slices.Max(least) <= 2
	})
	t.Logf("the longest call took %.2f as long as a plain HSET", slices.Max(least))
	f.checkEmpty()
}
