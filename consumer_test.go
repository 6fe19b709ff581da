package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestSnooze(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan *Message, 6)
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error {
		got <- msg
		if msg.Delivery < 6 {
			return Snooze(10 * time.Millisecond)
		}
		return nil
	})
	f.send(q, "work", WithRetryCount(0))
	q.StartConsume()
	for n := 1; n <= 6; n++ {
		if msg := receive(t, "it comes again", got); msg.Delivery != n || msg.Failures != 0 {
			t.Errorf("delivery %d is %+v", n, msg)
		}
	}
	eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 })
}

// TestAgain: it is no failure, uses up no retry, and failures count anew.
func TestAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	seen := make(chan Message, 10)
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *Message) error {
		seen <- *msg
		switch {
		case msg.Delivery == 10:
			return nil
		case msg.Delivery%3 == 0:
			return fmt.Errorf("wrapped: %w", Again(-time.Second))
		}
		return errBoom
	})
	f.send(q, "poll", WithRetryCount(2))
	q.StartConsume()
	for i := range 10 {
		if msg := receive(t, "it goes on", seen); msg.Delivery != i+1 || msg.Failures != i%3 {
			t.Errorf("delivery %d with %d failures, want %d with %d", msg.Delivery, msg.Failures, i+1, i%3)
		}
	}
	eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 })
	if !errors.Is(Again(0), ErrSnoozed) {
		t.Error("a middleware cannot tell it from a failure")
	}
}

func TestMsgTTL(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deaths, got := make(chan error, 1), make(chan string, 3)
	const ttl = 8 * time.Second
	q := f.queue(nil).WithNackRedeliveryDelay(ttl + time.Millisecond).
		WithGarbageHandler(func(_ context.Context, _ *Message, err error) { deaths <- err }).
		WithHandler(func(_ context.Context, msg *Message) error {
			got <- msg.Payload
			if msg.Payload == "fails once" && msg.Delivery == 1 {
				return errBoom
			}
			return nil
		})
	late := f.send(q, "late", WithMsgTTL(time.Millisecond))
	f.send(q, "fails once", WithMsgTTL(ttl), WithDelay(100*time.Millisecond)) // only its first delivery is bounded
	eventually(t, "the late one is late", func() bool { return time.Since(late.Due) > 2*time.Millisecond })
	q.StartConsume()
	if err := receive(t, "the late one dies", deaths); !errors.Is(err, ErrExpired) {
		t.Errorf("died of %v", err)
	}
	for range 2 {
		if p := receive(t, "the other is handled", got); p != "fails once" {
			t.Errorf("handled %q", p)
		}
	}
	if record := f.check().Fail[late.ID]; f.where(late.ID) != "garbage" || record.Failures != 0 || !strings.Contains(record.Error, "expired") {
		t.Errorf("%s, record %+v", f.where(late.ID), record)
	}
}

func TestFetchLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan struct{}, 10), make(chan struct{})
	q := f.queue(func(string) bool { started <- struct{}{}; <-release; return true }).WithConcurrent(4).WithFetchLimit(2)
	for range 10 {
		f.send(q, "work")
	}
	q.StartConsume()
	receive(t, "one starts", started)
	receive(t, "another starts", started)
	seen := f.check().Fields["seen"]
	eventually(t, "the consumer ticks", func() bool { return f.check().Fields["seen"] != seen })
	if n := len(f.check().Unack); n != 2 {
		t.Errorf("it holds %d, want 2", n)
	}
	close(release)
	eventually(t, "all are handled", func() bool { return len(f.check().Messages) == 0 })
}

// TestFetchedAheadIsGivenToOthers: a message that waits behind a slow one is given to others.
func TestFetchedAheadIsGivenToOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan struct{}, 100), make(chan struct{})
	q := f.queue(func(payload string) bool {
		if payload == "slow" {
			started <- struct{}{}
			<-release
		}
		return true
	})
	var batch []Outgoing
	for range 2000 { // quick ones make the consumer fetch ahead
		batch = append(batch, Outgoing{Payload: "quick"})
	}
	batch = append(batch, Outgoing{Payload: "slow"})
	for range 50 {
		batch = append(batch, Outgoing{Payload: "quick"})
	}
	if _, err := q.SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	q.StartConsume()
	receive(t, "the slow one starts", started)
	var got tally
	f.queueOn(f.client(), func(payload string) bool { got.add(payload); return true }).StartConsume()
	eventually(t, "only the slow one is left", func() bool { return len(f.check().Messages) == 1 })
	if n := got.of("quick"); n == 0 {
		t.Error("the idle consumer got none")
	}
	close(release)
	f.drained()
}

func TestGarbageRetention(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deaths := make(chan string, 20)
	q := f.queue(nil).WithGarbageRetention(0, 3).WithLease(2 * time.Second).WithFetchInterval(100 * time.Millisecond).
		WithHandler(func(_ context.Context, msg *Message) error { return ErrSkipRetry }).
		WithGarbageHandler(func(_ context.Context, msg *Message, _ error) { deaths <- msg.Payload })
	for i := range 10 {
		f.send(q, strconv.Itoa(i), WithKey(strconv.Itoa(i)))
	}
	done := q.StartConsume()
	for range 10 {
		receive(t, "each dies", deaths)
	}
	eventually(t, "only the newest 3 stay", func() bool { return len(f.check().Garbage) == 3 })
	eventually(t, "what was trimmed is in the log", func() bool { return f.log.count("deleted garbage") > 0 })
	q.StopConsume()
	receive(t, "it stops", done)
	q.WithGarbageRetention(time.Millisecond, 0).StartConsume()
	eventually(t, "garbage ages out", func() bool { return len(f.check().Messages) == 0 })
}

// TestFetchedAheadIsGivenBackOnce: what was fetched ahead on the strength of quick handlers is
// given back once, not again and again.
func TestFetchedAheadIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan struct{}), make(chan struct{})
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Payload == "slow" {
			close(started)
			<-release
		}
		return nil
	}).WithFetchInterval(300 * time.Millisecond)
	quick := make([]Outgoing, 3000)
	for i := range quick {
		quick[i].Payload = "quick"
	}
	if _, err := q.SendBatch(context.Background(), quick); err != nil {
		t.Fatal(err)
	}
	q.StartConsume()
	f.drained()
	f.send(q, "slow")
	receive(t, "the slow one starts", started)
	if _, err := q.SendBatch(context.Background(), quick); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		seen := f.check().Fields["seen"]
		eventually(t, "the consumer ticks", func() bool { return f.check().Fields["seen"] != seen })
	}
	for id, record := range f.check().Fail { // of those that were handed out
		if record.Delivery > 2 {
			t.Errorf("message %s comes as delivery %d though nothing failed, want the second", id, record.Delivery)
		}
	}
	close(release)
	f.drained()
}

// TestRetriesAndNewMessagesTakeTurns, with one worker, whose fetches are for one message each.
func TestRetriesAndNewMessagesTakeTurns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var got tally
	var failing atomic.Bool
	failing.Store(true)
	handled := make(chan struct{}, 200)
	q := f.queue(nil).WithFetchInterval(20 * time.Millisecond).WithConcurrent(40).WithHandler(func(_ context.Context, msg *Message) error {
		if failing.Load() {
			return RetryAfter(3*time.Second, errBoom)
		}
		time.Sleep(30 * time.Millisecond) // more than a tick
		got.add(msg.Payload)
		handled <- struct{}{}
		return nil
	})
	send := func(payload string) {
		t.Helper()
		batch := make([]Outgoing, 40)
		for i := range batch {
			batch[i].Payload = payload
		}
		if _, err := q.SendBatch(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
	send("retry")
	done := q.StartConsume()
	eventually(t, "all wait for their retry", func() bool { return len(f.check().Retry) == 40 })
	q.StopConsume()
	receive(t, "it stops", done)
	failing.Store(false)
	eventually(t, "the retries are due", func() bool {
		s := f.check()
		return len(s.Retry) == 0 || s.Retry[len(s.Retry)-1].Score < s.Now // on a slow machine some were, and are ready
	})
	send("new")
	q.WithConcurrent(1).StartConsume()
	for range 40 {
		receive(t, "one is handled", handled)
	}
	if retries, fresh := got.of("retry"), got.of("new"); retries < 5 || fresh < 5 {
		t.Errorf("of the first 40 handed out %d were retries and %d new", retries, fresh)
	}
}

// TestLastChanceOfMany: they pass one at a time, in a moment each, and without a busy loop.
func TestLastChanceOfMany(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var got tally
	q := f.queue(func(payload string) bool { got.add(payload); return true })
	const n = 30
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i].Payload = strconv.Itoa(i)
	}
	if _, err := q.SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	// A consumer that dies twice with all of them in hand.
	dying := newCaller()
	set := &fetchSettings{lease: time.Second, maxLosses: 3}
	fetch := func(want int) fetchReply {
		t.Helper()
		dying.next()
		out, err := f.calls().fetch(context.Background(), dying, fetchRequest{want: want, settings: set})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for range 2 {
		eventually(t, "all are due", func() bool {
			s := f.check()
			return len(s.Pending) == n || s.Retry[n-1].Score < s.Now
		})
		if held := len(fetch(n).tags); held != n {
			t.Fatalf("it holds %d, want %d", held, n)
		}
		eventually(t, "all are lost", func() bool { fetch(0); return len(f.check().Retry) == n })
	}
	q.StartConsume()
	f.drained()
	if distinct, total := got.counts(); distinct != n || total != n {
		t.Errorf("%d handled %d times, want %d once", distinct, total, n)
	}
}
