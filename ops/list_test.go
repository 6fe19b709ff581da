package ops

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// foreign makes a queue what no checker understands, until the end of the test.
func foreign(f *face.Fixture) {
	f.T.Cleanup(func() { f.Cli.Del(queuetest.CtxB, check.Queue{Prefix: "dq", Name: f.Name}.Keys()...) })
}

func do(f *face.Fixture, args ...any) {
	f.T.Helper()
	f.Must(f.Cli.Do(queuetest.CtxB, args...).Err())
}

// textOf is what Redis keeps of a message, which is deleted.
func textOf(f *face.Fixture) string {
	f.T.Helper()
	id := f.Send(f.Queue(nil), "x").ID
	text, err := f.Cli.HGet(queuetest.CtxB, f.Key("msg"), id).Result()
	f.Must(err)
	f.Must(Of(delayqueue.NewMonitor(f.Name, f.Cli)).Delete(queuetest.CtxB, id))
	return text
}

// TestListsOfForeignEntriesEnd: whatever another program wrote, a list and a call for many come to their end, and
// meet each entry of a sorted set once.
func TestListsOfForeignEntriesEnd(t *testing.T) {
	t.Parallel()
	face.OnServers(t, func(t *testing.T, f *face.Fixture) {
		m, begin, text := Of(delayqueue.NewMonitor(f.Name, f.Cli)), time.Now().UnixMicro(), textOf(f)
		foreign(f)
		add := func(key, member, score string) {
			do(f, "ZADD", key, score, member)
			do(f, "HSET", f.Key("msg"), member, text)
		}
		do(f, "HSET", f.Key("state"), "swept", "0") // there is such a queue
		const n = 200
		for i := range n { // more than a page at one score that is no whole number
			add(f.Key("pending"), fmt.Sprintf("fraction %03d", i), fmt.Sprint(begin+3_600_000_000)+".25")
		}
		for _, score := range []string{"+inf", "1.79e18", "1e300"} {
			add(f.Key("pending"), "far "+score, score)
		}
		for _, member := range []string{"\xff", "\xff\xfe", "\xfd", "", "\x00"} {
			add(f.Key("garbage"), member, "-1e300")
		}
		do(f, "HSET", f.Key("msg"), "same", text)
		for range n + 1 {
			do(f, "RPUSH", f.Key("ready"), "2:same")
		}
		for state, want := range map[delayqueue.State]int{delayqueue.StatePending: n + 3, delayqueue.StateGarbage: 5} {
			got := map[string]int{}
			for msg, err := range m.All(queuetest.CtxB, state, Filter{Limit: 3}) {
				f.Must(err)
				if _, err := json.Marshal(msg); err != nil {
					t.Errorf("%q: %v", msg.ID, err)
				}
				if got[msg.ID]++; got[msg.ID] > 1 {
					t.Fatalf("%s: %q is listed again", state, msg.ID)
				}
			}
			if len(got) != want {
				t.Errorf("%s: %d listed, want %d", state, len(got), want)
			}
		}
		for _, err := range m.All(queuetest.CtxB, delayqueue.StateReady, Filter{}) {
			f.Must(err)
		}
		for what, call := range map[string]func() (*BulkResult, error){
			"by": func() (*BulkResult, error) {
				return m.BulkRescheduleBy(queuetest.CtxB, Bulk{Filter: Filter{Limit: 7}}, time.Hour)
			},
			"now": func() (*BulkResult, error) { return m.BulkRunNow(queuetest.CtxB, Bulk{Filter: Filter{Limit: 7}}) },
			"delete": func() (*BulkResult, error) {
				return m.BulkDelete(queuetest.CtxB,
					Bulk{States: []delayqueue.State{delayqueue.StateReady, delayqueue.StateRetry, delayqueue.StateGarbage}})
			},
		} {
			if got, err := call(); err != nil || got.Next != "" || got.Looked > 4*n {
				t.Errorf("%s: %+v, %v", what, got, err)
			}
		}
	})
}

// TestListsTurnRound: the latest first is the earliest first read from its end, for each state and size of a page,
// and what goes between two pages is neither missed nor met twice.
func TestListsTurnRound(t *testing.T) {
	t.Parallel()
	face.OnServers(t, func(t *testing.T, f *face.Fixture) {
		m, begin, text := Of(delayqueue.NewMonitor(f.Name, f.Cli)), time.Now().UnixMicro(), textOf(f)
		foreign(f)
		const step = int64(time.Hour / time.Microsecond) // some are due, and some of an instant
		for i := range int64(17) {
			for key, score := range map[string]int64{
				f.Key("pending"): begin + (i-8)*step, f.Key("retry"): begin + (i/3-2)*step, f.Key("garbage"): begin + i/5,
			} {
				tag := fmt.Sprintf("%s %02d", key[len(key)-3:], i)
				do(f, "ZADD", key, fmt.Sprint(score), tag)
				do(f, "HSET", f.Key("msg"), tag, text)
			}
			do(f, "HSET", f.Key("msg"), fmt.Sprint("ready ", i), text)
			do(f, "RPUSH", f.Key("ready"), fmt.Sprint("2:ready ", i))
		}
		all := func(state delayqueue.State, f Filter) (ids []string) {
			for msg, err := range m.All(queuetest.CtxB, state, f) {
				queuetest.Must(t, err)
				ids = append(ids, msg.ID)
			}
			return ids
		}
		for _, state := range []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry,
			delayqueue.StateGarbage} {
			for _, limit := range []int{1, 3, 17, 100} {
				earliest, latest := all(state, Filter{Limit: limit}), all(state, Filter{Limit: limit, LatestFirst: true})
				slices.Reverse(latest)
				if len(earliest) == 0 || !slices.Equal(earliest, latest) {
					t.Errorf("%s by %d: %q, turned round %q", state, limit, earliest, latest)
				}
			}
		}
		page, err := m.List(queuetest.CtxB, delayqueue.StateGarbage, Filter{Limit: 4, LatestFirst: true}, "")
		if err != nil || len(page.Messages) != 4 {
			t.Fatal(page, err)
		}
		do(f, "ZREM", f.Key("garbage"), page.Messages[3].ID)
		if page, err = m.List(queuetest.CtxB, delayqueue.StateGarbage, Filter{LatestFirst: true}, page.Next); err != nil ||
			len(page.Messages) != 13 {
			t.Errorf("after the one that has gone: %+v, %v", page, err)
		}
	})
}

// TestStepsOfLargeMessagesAreShort: sending, listing and steering 500 messages of 8 KB takes so many calls that none
// moves more than about half a megabyte.
func TestStepsOfLargeMessagesAreShort(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	cli, m, q := queuetest.RedisClient(t, server.Addr()), Of(delayqueue.NewMonitor(f.Name, f.Cli)), f.Queue(nil)
	sends := func(options func(i int) []delayqueue.MsgOption) func() {
		batch := make([]delayqueue.Outgoing, 500)
		for i := range batch {
			batch[i] = delayqueue.Outgoing{Payload: strings.Repeat("x", 8<<10), Options: options(i)}
		}
		return func() { f.Must(queuetest.Failure(q.SendBatch(queuetest.CtxB, batch))) }
	}
	all := Bulk{States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady}, Filter: Filter{Limit: 500}}
	const steps = 8
	for _, c := range []struct {
		what  string
		least int // calls; a step of a call for many lists, changes, and tells the journal twice
		call  func()
	}{
		{"send, later", steps, sends(func(int) []delayqueue.MsgOption { return []delayqueue.MsgOption{face.InAnHour} })},
		{"list", steps, func() { f.Must(first(m.All(queuetest.CtxB, delayqueue.StatePending, all.Filter))) }},
		{"reschedule by", 4 * steps, func() {
			f.Must(queuetest.Failure(m.BulkRescheduleBy(queuetest.CtxB, all, time.Hour)))
		}},
		{"reschedule", 4 * steps, func() {
			f.Must(queuetest.Failure(m.BulkReschedule(queuetest.CtxB, all, time.Now().Add(time.Hour))))
		}},
		{"delete", 4 * steps, func() { f.Must(queuetest.Failure(m.BulkDelete(queuetest.CtxB, all))) }},
		{"send, with keys", steps, sends(func(i int) []delayqueue.MsgOption {
			return []delayqueue.MsgOption{face.InAnHour, delayqueue.WithKey(fmt.Sprint(i))}
		})},
		{"send, due", steps, sends(func(int) []delayqueue.MsgOption {
			return []delayqueue.MsgOption{delayqueue.WithSchedule(time.Unix(5, 0))}
		})},
	} {
		spent := queuetest.Commands(t, cli, c.call)
		if n := spent["evalsha"] + spent["eval"]; n < c.least {
			t.Errorf("%s: 4 MB in %d calls, want %d", c.what, n, c.least)
		}
	}
	f.Must(queuetest.Failure(m.BulkDelete(queuetest.CtxB, all)))
	f.CheckEmpty()
}

// TestReadLimit: a key finds what is large, and a call for many does it too.
func TestReadLimit(t *testing.T) {
	f, m := newQueue(t)
	m.WithReadLimit(10_000)
	large := f.Send(f.Queue(nil), strings.Repeat("x", 20_000), face.InAnHour, delayqueue.WithKey("k")).ID
	for what, get := range map[string]func() (*MessageStatus, error){
		"id": func() (*MessageStatus, error) { return m.Get(queuetest.CtxB, large) }, "key": func() (*MessageStatus, error) {
			return m.GetKey(queuetest.CtxB, "k")
		},
	} {
		if got, err := get(); err != nil || got.ID != large || got.Payload != "" || !errors.Is(got.Broken, ErrNotRead) {
			t.Errorf("by %s: %+v, %v", what, got, err)
		}
	}
	if page, err := m.List(queuetest.CtxB, delayqueue.StatePending, Filter{}, ""); err != nil || len(page.Messages) != 1 ||
		!errors.Is(page.Messages[0].Broken, ErrNotRead) {
		t.Errorf("%+v, %v", page, err)
	}
	got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StatePending}})
	bulked(f, "delete", got, err, 1, 1, nil)
	f.CheckEmpty()
}
