package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func TestSnooze(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	got := make(chan *delayqueue.Message, 6)
	q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		got <- msg
		if msg.Delivery < 6 {
			return delayqueue.Snooze(10 * time.Millisecond)
		}
		return nil
	})
	f.Send(q, "work", delayqueue.WithRetryCount(0))
	q.StartConsume()
	for n := 1; n <= 6; n++ {
		if msg := queuetest.Receive(t, "it comes again", got); msg.Delivery != n || msg.Failures != 0 {
			t.Errorf("delivery %d is %+v", n, msg)
		}
	}
	queuetest.Eventually(t, "it is acked", func() bool { return len(f.Check().Messages) == 0 })
}

// TestAgain: it is no failure, uses up no retry, and failures count anew.
func TestAgain(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	seen := make(chan delayqueue.Message, 10)
	q := f.Queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		seen <- *msg
		switch {
		case msg.Delivery == 10:
			return nil
		case msg.Delivery%3 == 0:
			return fmt.Errorf("wrapped: %w", delayqueue.Again(-time.Second))
		}
		return queuetest.ErrBoom
	})
	f.Send(q, "poll", delayqueue.WithRetryCount(2))
	q.StartConsume()
	for i := range 10 {
		if msg := queuetest.Receive(t, "it goes on", seen); msg.Delivery != i+1 || msg.Failures != i%3 {
			t.Errorf("delivery %d with %d failures, want %d with %d", msg.Delivery, msg.Failures, i+1, i%3)
		}
	}
	queuetest.Eventually(t, "it is acked", func() bool { return len(f.Check().Messages) == 0 })
	if !errors.Is(delayqueue.Again(0), delayqueue.ErrSnoozed) {
		t.Error("a middleware cannot tell it from a failure")
	}
}

func TestMsgTTL(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	deaths, got := make(chan error, 1), make(chan string, 3)
	const ttl = 8 * time.Second
	q := f.Queue(nil).WithNackRedeliveryDelay(ttl + time.Millisecond).
		WithGarbageHandler(func(_ context.Context, _ *delayqueue.Message, err error) { deaths <- err }).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			got <- msg.Payload
			if msg.Payload == "fails once" && msg.Delivery == 1 {
				return queuetest.ErrBoom
			}
			return nil
		})
	late := f.Send(q, "late", delayqueue.WithMsgTTL(time.Millisecond))
	f.Send(q, "fails once", delayqueue.WithMsgTTL(ttl), delayqueue.WithDelay(100*time.Millisecond)) // only its first delivery is bounded
	queuetest.Eventually(t, "the late one is late", func() bool { return time.Since(late.Due) > 2*time.Millisecond })
	q.StartConsume()
	if err := queuetest.Receive(t, "the late one dies", deaths); !errors.Is(err, delayqueue.ErrExpired) {
		t.Errorf("died of %v", err)
	}
	for range 2 {
		if p := queuetest.Receive(t, "the other is handled", got); p != "fails once" {
			t.Errorf("handled %q", p)
		}
	}
	if record := f.Check().Fail[late.ID]; f.Where(late.ID) != "garbage" || record.Failures != 0 || !strings.Contains(record.Error, "expired") {
		t.Errorf("%s, record %+v", f.Where(late.ID), record)
	}
}

func TestFetchLimit(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan struct{}, 10), make(chan struct{})
	q := f.Queue(func(string) bool { started <- struct{}{}; <-release; return true }).WithConcurrent(4).WithFetchLimit(2)
	for range 10 {
		f.Send(q, "work")
	}
	q.StartConsume()
	queuetest.Receive(t, "one starts", started)
	queuetest.Receive(t, "another starts", started)
	seen := f.Check().Fields["seen"]
	queuetest.Eventually(t, "the consumer ticks", func() bool { return f.Check().Fields["seen"] != seen })
	if n := len(f.Check().Unack); n != 2 {
		t.Errorf("it holds %d, want 2", n)
	}
	close(release)
	queuetest.Eventually(t, "all are handled", func() bool { return len(f.Check().Messages) == 0 })
}

// TestFetchedAheadIsGivenToOthers: a message that waits behind a slow one is given to others.
func TestFetchedAheadIsGivenToOthers(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan struct{}, 100), make(chan struct{})
	q := f.Queue(func(payload string) bool {
		if payload == "slow" {
			started <- struct{}{}
			<-release
		}
		return true
	})
	var batch []delayqueue.Outgoing
	for range 2000 { // quick ones make the consumer fetch ahead
		batch = append(batch, delayqueue.Outgoing{Payload: "quick"})
	}
	batch = append(batch, delayqueue.Outgoing{Payload: "slow"})
	for range 50 {
		batch = append(batch, delayqueue.Outgoing{Payload: "quick"})
	}
	if _, err := q.SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	q.StartConsume()
	queuetest.Receive(t, "the slow one starts", started)
	var got queuetest.Tally
	f.QueueOn(f.Client(), func(payload string) bool { got.Add(payload); return true }).StartConsume()
	queuetest.Eventually(t, "only the slow one is left", func() bool { return len(f.Check().Messages) == 1 })
	if n := got.Of("quick"); n == 0 {
		t.Error("the idle consumer got none")
	}
	close(release)
	f.Drained()
}

func TestGarbageRetention(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	deaths := make(chan string, 20)
	q := f.Queue(nil).WithGarbageRetention(0, 3).WithLease(2 * time.Second).WithFetchInterval(100 * time.Millisecond).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error { return delayqueue.ErrSkipRetry }).
		WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, _ error) { deaths <- msg.Payload })
	for i := range 10 {
		f.Send(q, strconv.Itoa(i), delayqueue.WithKey(strconv.Itoa(i)))
	}
	done := q.StartConsume()
	for range 10 {
		queuetest.Receive(t, "each dies", deaths)
	}
	queuetest.Eventually(t, "only the newest 3 stay", func() bool { return len(f.Check().Garbage) == 3 })
	queuetest.Eventually(t, "what was trimmed is in the log", func() bool { return f.Log.Count("deleted garbage") > 0 })
	q.StopConsume()
	queuetest.Receive(t, "it stops", done)
	q.WithGarbageRetention(time.Millisecond, 0).StartConsume()
	queuetest.Eventually(t, "garbage ages out", func() bool { return len(f.Check().Messages) == 0 })
}

// TestFetchedAheadIsGivenBackOnce: what was fetched ahead on the strength of quick handlers is
// given back once, not again and again.
func TestFetchedAheadIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan struct{}), make(chan struct{})
	q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		if msg.Payload == "slow" {
			close(started)
			<-release
		}
		return nil
	}).WithFetchInterval(300 * time.Millisecond)
	quick := make([]delayqueue.Outgoing, 3000)
	for i := range quick {
		quick[i].Payload = "quick"
	}
	if _, err := q.SendBatch(context.Background(), quick); err != nil {
		t.Fatal(err)
	}
	q.StartConsume()
	f.Drained()
	f.Send(q, "slow")
	queuetest.Receive(t, "the slow one starts", started)
	if _, err := q.SendBatch(context.Background(), quick); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		seen := f.Check().Fields["seen"]
		queuetest.Eventually(t, "the consumer ticks", func() bool { return f.Check().Fields["seen"] != seen })
	}
	for id, record := range f.Check().Fail { // of those that were handed out
		if record.Delivery > 2 {
			t.Errorf("message %s comes as delivery %d though nothing failed, want the second", id, record.Delivery)
		}
	}
	close(release)
	f.Drained()
}

// TestRetriesAndNewMessagesTakeTurns, with one worker, whose fetches are for one message each.
func TestRetriesAndNewMessagesTakeTurns(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var got queuetest.Tally
	var failing atomic.Bool
	failing.Store(true)
	handled := make(chan struct{}, 200)
	q := f.Queue(nil).WithFetchInterval(20 * time.Millisecond).WithConcurrent(40).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		if failing.Load() {
			return delayqueue.RetryAfter(3*time.Second, queuetest.ErrBoom)
		}
		time.Sleep(30 * time.Millisecond) // more than a tick
		got.Add(msg.Payload)
		handled <- struct{}{}
		return nil
	})
	send := func(payload string) {
		t.Helper()
		batch := make([]delayqueue.Outgoing, 40)
		for i := range batch {
			batch[i].Payload = payload
		}
		if _, err := q.SendBatch(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
	send("retry")
	done := q.StartConsume()
	queuetest.Eventually(t, "all wait for their retry", func() bool { return len(f.Check().Retry) == 40 })
	q.StopConsume()
	queuetest.Receive(t, "it stops", done)
	failing.Store(false)
	queuetest.Eventually(t, "the retries are due", func() bool {
		s := f.Check()
		return len(s.Retry) == 0 || s.Retry[len(s.Retry)-1].Score < s.Now // on a slow machine some were, and are ready
	})
	send("new")
	q.WithConcurrent(1).StartConsume()
	for range 40 {
		queuetest.Receive(t, "one is handled", handled)
	}
	if retries, fresh := got.Of("retry"), got.Of("new"); retries < 5 || fresh < 5 {
		t.Errorf("of the first 40 handed out %d were retries and %d new", retries, fresh)
	}
}

// TestLastChanceOfMany: they pass one at a time, in a moment each, and without a busy loop.
func TestLastChanceOfMany(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var got queuetest.Tally
	q := f.Queue(func(payload string) bool { got.Add(payload); return true })
	const n = 30
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i].Payload = strconv.Itoa(i)
	}
	if _, err := q.SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	// A consumer that dies twice with all of them in hand.
	dying := script.NewCaller()
	set := &script.FetchSettings{Lease: time.Second, MaxLosses: 3}
	fetch := func(want int) script.FetchReply {
		t.Helper()
		dying.Next()
		out, err := f.Calls().Fetch(context.Background(), dying, script.FetchRequest{Want: want, Settings: set})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for range 2 {
		queuetest.Eventually(t, "all are due", func() bool {
			s := f.Check()
			return len(s.Pending) == n || s.Retry[n-1].Score < s.Now
		})
		if held := len(fetch(n).Tags); held != n {
			t.Fatalf("it holds %d, want %d", held, n)
		}
		queuetest.Eventually(t, "all are lost", func() bool { fetch(0); return len(f.Check().Retry) == n })
	}
	q.StartConsume()
	f.Drained()
	if distinct, total := got.Counts(); distinct != n || total != n {
		t.Errorf("%d handled %d times, want %d once", distinct, total, n)
	}
}
