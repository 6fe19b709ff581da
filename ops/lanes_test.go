package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// handledOnce consumes until each message has been handled once, and returns their payloads in that order.
func handledOnce(f *face.Fixture, n int) (payloads []string) {
	f.T.Helper()
	done := make(chan string, n)
	q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		done <- msg.Payload
		return nil
	})
	q.StartConsume()
	for range n {
		payloads = append(payloads, testkit.Receive(f.T, "the next message", done))
	}
	f.Must(q.Shutdown(queuetest.CtxB))
	return payloads
}

// TestLanes: lanes come in the order of how many wait, in pieces too, and one alone says who has its turns.
func TestLanes(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	want := map[string]int64{}
	for i := range 120 {
		name := fmt.Sprintf("\xff %03d", i)
		want[name] = int64(i % 7)
		var batch []delayqueue.Outgoing
		for range 1 + i%7 {
			batch = append(batch,
				delayqueue.Outgoing{Payload: "x", Options: []delayqueue.MsgOption{delayqueue.WithLane(name), face.InAnHour}})
		}
		f.Must(queuetest.Failure(q.SendBatch(queuetest.CtxB, batch)))
	}
	all, err := m.Lanes(queuetest.CtxB, 70, "")
	f.Must(err)
	if len(all.Lanes) != 70 || all.Next == "" || all.Now.IsZero() {
		t.Fatalf("%d lanes, next %q, at %v", len(all.Lanes), all.Next, all.Now)
	}
	more, err := m.Lanes(queuetest.CtxB, 0, all.Next)
	f.Must(err)
	if all.Merge(more); len(all.Lanes) != len(want) || all.Next != "" || all.Others != 0 {
		t.Errorf("%d lanes, next %q, %d others", len(all.Lanes), all.Next, all.Others)
	}
	for i, l := range all.Lanes {
		if i > 0 && l.Waiting > all.Lanes[i-1].Waiting {
			t.Errorf("%d wait, behind %d", l.Waiting, all.Lanes[i-1].Waiting)
		}
		if n, ok := want[l.Name]; !ok || l.Waiting != n || l.Width != 1 || l.Turns != 1 || len(l.Holders) != 1 ||
			l.Since.IsZero() != (n == 0) ||
			l.Blocked(all.Now) || l.Holders[0].State != delayqueue.StatePending {
			t.Errorf("%+v", l)
		}
		delete(want, l.Name)
	}
	if _, err := m.Lanes(queuetest.CtxB, 0, "?"); !errors.Is(err, ErrBadCursor) {
		t.Errorf("bad cursor: %v", err)
	}
	if _, err := m.Lane(queuetest.CtxB, "nobody's"); !errors.Is(err, delayqueue.ErrNotFound) ||
		errors.Is(err, delayqueue.ErrNoQueue) {
		t.Errorf("no lane: %v", err)
	}
	for _, bad := range []string{"", strings.Repeat("x", 201)} {
		if _, err := m.Lane(queuetest.CtxB, bad); !errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestLanePageKeepsMost: of very many lanes those stay in which most wait.
func TestLanePageKeepsMost(t *testing.T) {
	t.Parallel()
	var page LanePage
	for i := range int64(maxLanes) {
		page.Lanes = append(page.Lanes, Lane{Name: fmt.Sprintf("%04d", i), Waiting: i})
	}
	page.Merge(&LanePage{Lanes: []Lane{{Name: "more", Waiting: maxLanes}, {Name: "less"}}, Others: 3, Next: "x"})
	if len(page.Lanes) != maxLanes || page.Others != 5 || page.Lanes[0].Name != "more" ||
		page.Lanes[maxLanes-1].Waiting != 1 || page.Next != "x" {
		t.Errorf("%d lanes, %d others, first %+v, last %+v", len(page.Lanes), page.Others, page.Lanes[0],
			page.Lanes[maxLanes-1])
	}
}

// TestLaneHolders: the message that has the turn of a lane says what it waits for, and who handles it.
func TestLaneHolders(t *testing.T) {
	f, m := newQueue(t)
	started, release := make(chan struct{}, 1), make(chan error)
	q := f.Queue(nil).WithRetryDelays(time.Hour).WithHandler(func(context.Context, *delayqueue.Message) error {
		started <- struct{}{}
		return <-release
	})
	a := f.Send(q, "a", delayqueue.WithLane("l", 2), delayqueue.WithRetryCount(3))
	b := f.Send(q, "b", delayqueue.WithLane("l"))
	c := f.Send(q, "c", delayqueue.WithLane("l"), face.InAnHour)
	lane := func() (*Lane, Holder) {
		t.Helper()
		l, err := m.Lane(queuetest.CtxB, "l")
		f.Must(err)
		if l.Width != 1 || l.Turns != 1 || l.Waiting != 2 || l.Since.IsZero() || len(l.Holders) != 1 ||
			l.Holders[0].ID != a.ID {
			t.Fatalf("%+v", l)
		}
		return l, l.Holders[0]
	}
	l, h := lane()
	if h.State != delayqueue.StateReady || !h.At.Equal(a.Due) || h.Delivery != 1 || h.LastError != "" ||
		!l.Since.Equal(b.Due) || !l.Blocked(time.Now()) {
		t.Errorf("ready: %+v, %+v", l, h)
	}
	q.StartConsume()
	testkit.Receive(t, "a handler", started)
	queuetest.Eventually(t, "the consumer says what it handles", func() bool { _, h := lane(); return h.Consumer != "" })
	if _, h = lane(); h.State != delayqueue.StateUnack || h.At.IsZero() {
		t.Errorf("handled: %+v", h)
	}
	for _, skip := range []func(context.Context, string) error{m.SkipToEnd, m.SkipToGarbage} {
		if err := skip(queuetest.CtxB, a.ID); !errors.Is(err, delayqueue.ErrWrongState) ||
			!strings.Contains(err.Error(), "Cancel ends it") {
			t.Errorf("skip what is handled: %v", err)
		}
		if err := skip(queuetest.CtxB, b.ID); !errors.Is(err, delayqueue.ErrWrongState) ||
			!strings.Contains(err.Error(), "has no turn") {
			t.Errorf("skip what waits: %v", err)
		}
	}
	release <- queuetest.ErrBoom
	queuetest.Eventually(t, "it waits for its retry", func() bool {
		_, h := lane()
		return h.State == delayqueue.StateRetry
	})
	if _, h = lane(); h.Delivery != 2 || h.LastError != queuetest.ErrBoom.Error() || time.Until(h.At) < 50*time.Minute ||
		h.Consumer != "" {
		t.Errorf("retry: %+v", h)
	}
	f.Must(q.Shutdown(queuetest.CtxB))
	for id, want := range map[string]string{a.ID: "l/2 retry", b.ID: "l/1 waiting", c.ID: "l/1 waiting"} {
		got, err := m.Get(queuetest.CtxB, id)
		f.Must(err)
		text := fmt.Sprintf("%s/%d %s", got.Lane, got.LaneWidth, got.State)
		if text != want || got.State == delayqueue.StateWaiting && !got.At.Equal(got.Due) {
			t.Errorf("get: %s at %v, want %s", text, got.At, want)
		}
	}
}

// TestSkip: who has the turn goes to garbage, with the words of the operator, or to the end of what is due. Both
// stand in the journal.
func TestSkip(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli)).WithOperator("ann").WithReason("the order is\nbroken")
	var ids []string
	for _, payload := range []string{"a", "b", "c"} {
		ids = append(ids, f.Send(q, payload, delayqueue.WithLane("l")).ID)
	}
	alone := f.Send(q, "alone", face.InAnHour).ID
	for what, skip := range map[string]func(context.Context, string) error{
		"end": m.SkipToEnd, "garbage": m.SkipToGarbage} {
		if err := skip(queuetest.CtxB, alone); !errors.Is(err, delayqueue.ErrWrongState) ||
			!strings.Contains(err.Error(), "has no lane") {
			t.Errorf("%s, no lane: %v", what, err)
		}
		if err := skip(queuetest.CtxB, queuetest.IDOf("nobody")); !errors.Is(err, delayqueue.ErrNotFound) {
			t.Errorf("%s, nobody: %v", what, err)
		}
	}
	f.Must(m.SkipToEnd(queuetest.CtxB, ids[0]))
	f.Must(m.SkipToGarbage(queuetest.CtxB, ids[1]))
	if got := handledOnce(f, 2); !slices.Equal(got, []string{"c", "a"}) {
		t.Errorf("handled %q", got)
	}
	dead, err := m.Get(queuetest.CtxB, ids[1])
	f.Must(err)
	if dead.State != delayqueue.StateGarbage || dead.LastError != "skipped by ann: the order is broken" ||
		dead.LastErrors[0].Delivery != 0 {
		t.Errorf("%+v", dead)
	}
	page, err := m.Journal(queuetest.CtxB, 0, "")
	f.Must(err)
	var acts []string
	for _, e := range page.Entries {
		acts = append(acts, fmt.Sprintf("%s %s %s", e.Act, e.Target, e.Detail))
	}
	want := []string{"skip " + ids[1] + " to garbage", "skip " + ids[0] + " to the end of its lane"}
	if !slices.Equal(acts, want) || page.Entries[0].By != "ann" {
		t.Errorf("journal %q, want %q", acts, want)
	}
	last := f.Send(q, "last", delayqueue.WithLane("l")).ID
	if err := m.SkipToEnd(queuetest.CtxB, last); !errors.Is(err, delayqueue.ErrWrongState) ||
		!strings.Contains(err.Error(), "waits behind") {
		t.Errorf("nobody waits: %v", err)
	}
	f.Must(m.Requeue(queuetest.CtxB, ids[1]))
	if got := handledOnce(f, 2); !slices.Equal(got, []string{"last", "b"}) {
		t.Errorf("handled %q", got)
	}
	f.Must(m.Delete(queuetest.CtxB, alone))
	f.CheckEmpty()
}

// TestWaitingInLists: messages that wait for their lane are listed, found, counted in the forecast, and changed by
// calls for many.
func TestWaitingInLists(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	for i := range 5 {
		f.Send(q, fmt.Sprint("payload ", i), delayqueue.WithLane("l"), delayqueue.WithDelay(time.Duration(1+i)*time.Hour))
	}
	page, err := m.List(queuetest.CtxB, delayqueue.StateWaiting, Filter{}, "")
	f.Must(err)
	if len(page.Messages) != 4 || page.Messages[0].Payload != "payload 1" ||
		page.Messages[0].State != delayqueue.StateWaiting || page.Messages[0].Lane != "l" {
		t.Errorf("%+v", page)
	}
	found, err := m.Find(queuetest.CtxB, "payload 3", Find{}, "")
	f.Must(err)
	if len(found.Matches) != 1 || found.Matches[0].State != delayqueue.StateWaiting || found.Total != 5 {
		t.Errorf("%+v", found)
	}
	forecast, err := m.Forecast(queuetest.CtxB, time.Time{}, 3*time.Hour, 2)
	f.Must(err)
	if forecast.Buckets[0].Pending < 2 || forecast.Buckets[0].Pending+forecast.Buckets[1].Pending != 5 {
		t.Errorf("%+v", forecast)
	}
	waiting := []delayqueue.State{delayqueue.StateWaiting}
	r, err := m.BulkDelete(queuetest.CtxB, Bulk{States: waiting, Filter: Filter{Contains: "4"}})
	f.Must(err)
	if r.Done != 1 || r.Total != 4 {
		t.Errorf("delete: %+v", r)
	}
	r, err = m.BulkRunNow(queuetest.CtxB, Bulk{})
	f.Must(err)
	if c, err := m.Counts(queuetest.CtxB); err != nil || r.Done != 4 || c.Ready != 1 || c.Waiting != 3 ||
		c.LaneSince.IsZero() {
		t.Errorf("run now: %+v, then %+v, %v", r, c, err)
	}
	if r, err = m.BulkRunNow(queuetest.CtxB, Bulk{States: waiting}); err != nil || r.Done != 0 {
		t.Errorf("again: %+v, %v", r, err)
	}
	if got := handledOnce(f, 4); len(got) != 4 {
		t.Errorf("%q", got)
	}
	f.CheckEmpty()
}
