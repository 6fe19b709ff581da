package ops

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// movers are what goes on in each structure, after each message that a walk meets, faster than the walk.
var movers = []struct {
	state delayqueue.State
	put   func(f *face.Fixture, i int, id string, begun time.Time)           // one of the messages that stay
	move  func(f *face.Fixture, i int, met *MessageStatus, newIDs [2]string) // the ith message was met
}{
	{delayqueue.StateUnack, func(f *face.Fixture, i int, id string, begun time.Time) {
		do(f, "ZADD", f.Key("unack"), begun.Add(time.Hour).UnixMicro()+int64(i/3), "c:"+id)
		do(f, "HSET", f.Key("lease"), "c:"+id, id, "c:"+id+"#", "1")
	}, func(f *face.Fixture, i int, met *MessageStatus, _ [2]string) { // its lease is renewed
		do(f, "ZADD", f.Key("unack"), "XX", time.Now().Add(2*time.Hour).UnixMicro()+int64(i), "c:"+met.ID)
	}},
	{delayqueue.StatePending, func(f *face.Fixture, i int, id string, begun time.Time) {
		do(f, "ZADD", f.Key("pending"), begun.Add(time.Hour+time.Duration(i%2*1000)*time.Hour).UnixMicro()+int64(i), id)
	}, func(f *face.Fixture, i int, met *MessageStatus, newIDs [2]string) { // others come in behind its page
		do(f, "ZADD", f.Key("pending"), met.At.UnixMicro()+1e6, newIDs[0], met.At.UnixMicro()+1e6, newIDs[1])
	}},
	{delayqueue.StateGarbage, func(f *face.Fixture, i int, id string, begun time.Time) {
		do(f, "ZADD", f.Key("garbage"), begun.UnixMicro()+int64(i), id)
	}, func(f *face.Fixture, i int, _ *MessageStatus, newIDs [2]string) { // others die
		at := time.Now().Add(time.Second).UnixMicro()
		do(f, "ZADD", f.Key("garbage"), at, newIDs[0], at, newIDs[1])
	}},
	{delayqueue.StateReady, func(f *face.Fixture, i int, id string, _ time.Time) {
		do(f, "RPUSH", f.Key("ready"), "2:"+id)
	},
		func(f *face.Fixture, i int, _ *MessageStatus, newIDs [2]string) { // others are released
			do(f, "RPUSH", f.Key("ready"), "2:"+newIDs[0], "2:"+newIDs[1])
		}},
}

// TestWalksEnd: a walk ends although messages move and come in faster than it goes. It meets each message that stays,
// and none more than twice.
func TestWalksEnd(t *testing.T) {
	t.Parallel()
	walks := map[string]func(m *Queue, state delayqueue.State, meet func(*MessageStatus)) error{
		"all": func(m *Queue, state delayqueue.State, meet func(*MessageStatus)) error {
			for msg, err := range m.All(queuetest.CtxB, state, Filter{Limit: 9}) {
				if err != nil {
					return err
				}
				meet(msg)
			}
			return nil
		},
		"pages": func(m *Queue, state delayqueue.State, meet func(*MessageStatus)) error {
			for cursor := ""; ; {
				page, err := m.List(queuetest.CtxB, state, Filter{Limit: 9}, cursor)
				if err != nil {
					return err
				}
				for _, msg := range page.Messages {
					meet(msg)
				}
				if cursor = page.Next; cursor == "" {
					return nil
				}
			}
		},
		"find": func(m *Queue, state delayqueue.State, meet func(*MessageStatus)) error {
			for cursor := ""; ; {
				found, err := m.Find(queuetest.CtxB, "x", Find{States: []delayqueue.State{state}, Messages: 9}, cursor)
				if err != nil {
					return err
				}
				for _, one := range found.Matches {
					meet(one.MessageStatus)
				}
				if found.Total == 0 {
					return fmt.Errorf("looked at %d of %d", found.Looked, found.Total)
				}
				if cursor = found.Next; cursor == "" {
					return nil
				}
			}
		},
	}
	for name, walk := range walks {
		for _, c := range movers {
			t.Run(fmt.Sprint(name, " ", c.state), func(t *testing.T) {
				f, m := newQueue(t)
				text := textOf(f)
				foreign(f)
				do(f, "HSET", f.Key("state"), "swept", "0") // there is such a queue
				const n = 300
				begun := time.Now() // of what stays, however long that takes to write
				for i := range n {
					id := fmt.Sprintf("stays%03d", i)
					do(f, "HSET", f.Key("msg"), id, text)
					c.put(f, i, id, begun)
				}
				met, all := map[string]int{}, 0
				f.Must(walk(m, c.state, func(msg *MessageStatus) {
					if all++; all > 6*n+3000 {
						t.Fatalf("met %d of %d, %d different", all, n, len(met))
					}
					met[msg.ID]++
					come := [2]string{fmt.Sprint("a", all), fmt.Sprint("b", all)}
					do(f, "HSET", f.Key("msg"), come[0], text, come[1], text)
					c.move(f, all, msg, come)
				}))
				for id, times := range met {
					if times > 2 {
						t.Errorf("%s is met %d times", id, times)
					}
				}
				for i := range n {
					if id := fmt.Sprintf("stays%03d", i); met[id] == 0 {
						t.Errorf("%s is not met", id)
					}
				}
			})
		}
	}
}

// TestPagesAreFull: a page of several structures is full, and has a Next only if it is.
func TestPagesAreFull(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	for range 10 {
		f.Send(q, "x")
	}
	var sizes []int
	for cursor := ""; len(sizes) == 0 || cursor != ""; {
		page, err := m.List(queuetest.CtxB, delayqueue.StateReady, Filter{Limit: 4}, cursor)
		f.Must(err)
		sizes, cursor = append(sizes, len(page.Messages)), page.Next
	}
	if !slices.Equal(sizes, []int{4, 4, 2}) {
		t.Errorf("pages have %v messages", sizes)
	}
}

// TestWalksOfReadyGoOn: a walk of ready goes on where its last page ended, although half of the messages that it has
// met are deleted, and although consumers take others from the head.
func TestWalksOfReadyGoOn(t *testing.T) {
	odd := func(f *face.Fixture, i int, tag string) {
		if i%2 == 1 {
			do(f, "LREM", f.Key("ready"), 1, tag)
		}
	}
	for name, c := range map[string]struct {
		back  bool
		after func(f *face.Fixture, i int, tag string)
	}{
		"deleted":           {false, odd},
		"deleted, backward": {true, odd},
		"deleted, and taken from the head": {false, func(f *face.Fixture, i int, tag string) {
			odd(f, i, tag)
			if i%9 == 0 {
				do(f, "LPOP", f.Key("ready"), 2)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := newQueue(t)
			text := textOf(f)
			foreign(f)
			do(f, "HSET", f.Key("state"), "swept", "0") // there is such a queue
			var want, met []string
			for i := range 60 {
				want = append(want, fmt.Sprintf("msg%02d", i))
				do(f, "HSET", f.Key("msg"), want[i], text)
				do(f, "RPUSH", f.Key("ready"), "2:"+want[i])
			}
			for msg, err := range m.All(queuetest.CtxB, delayqueue.StateReady, Filter{Limit: 9, LatestFirst: c.back}) {
				f.Must(err)
				met = append(met, msg.ID)
				c.after(f, len(met), "2:"+msg.ID)
			}
			if c.back {
				slices.Reverse(want)
			}
			if !slices.Equal(met, want) {
				t.Errorf("met %q", met)
			}
		})
	}
}

// TestPagesEndAtAnyScore: a page may end at a score that only another program writes.
func TestPagesEndAtAnyScore(t *testing.T) {
	f, m := newQueue(t)
	text := textOf(f)
	foreign(f)
	do(f, "HSET", f.Key("state"), "swept", "0")
	for _, score := range []string{"-inf", "5", "+inf"} {
		do(f, "HSET", f.Key("msg"), score, text)
		do(f, "ZADD", f.Key("garbage"), score, score)
	}
	for _, back := range []bool{false, true} {
		pages, cursor := 0, ""
		for ; pages == 0 || cursor != ""; pages++ {
			page, err := m.List(queuetest.CtxB, delayqueue.StateGarbage, Filter{Limit: 1, LatestFirst: back}, cursor)
			f.Must(err)
			cursor = page.Next
		}
		if pages != 3 {
			t.Errorf("%d pages, backward %v", pages, back)
		}
	}
}
