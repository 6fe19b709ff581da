package delayqueue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// TestThrottle: what a handler says of the whole queue uses up no retry, and holds for all consumers.
func TestThrottle(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const pause = time.Second
	var book ledger
	var throttled, handled atomic.Int64
	infos := make(chan Message, 10)
	for range 2 {
		cli := f.client()
		book.of(t, cli)
		unhurried(f.queueOn(cli, nil)).WithHandler(func(_ context.Context, msg *Message) error {
			if msg.Payload == "429" && msg.Delivery == 1 {
				throttled.Add(1)
				return fmt.Errorf("the partner says: %w", Throttle(pause, errBoom))
			}
			infos <- *msg
			handled.Add(1)
			return nil
		}).StartConsume()
	}
	info := f.send(f.queue(nil), "429", WithRetryCount(0))
	eventually(t, "it waits", func() bool { return f.where(info.ID) == "retry" })
	m := NewMonitor(f.name, f.cli)
	if status := f.status(m, info.ID); status.LastError != "boom" || status.Failures != 0 {
		t.Errorf("%+v", status)
	}
	f.send(f.queue(nil), "other")
	reaches(t, "both are handled", 2, func() int { return int(handled.Load()) })
	var first int64 // when the first of them was handed out
	for _, h := range book.fetches() {
		if h.n == 0 {
			continue
		}
		if first == 0 {
			first = h.at
		} else if h.at < first+pause.Microseconds() {
			t.Errorf("handed out after %v", microseconds(h.at-first))
		}
	}
	for range 2 {
		if msg := receive(t, "a message", infos); msg.Failures != 0 {
			t.Errorf("%s has failed %d times", msg.Payload, msg.Failures)
		}
	}
	f.log.says(t, 1, "a handler throttles the queue", "for=1s", "error=boom")
}

// TestUnthrottle: who waits for the end of a throttle goes on at once when it is lifted, without a tick, also where the reply is lost.
func TestUnthrottle(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handled := make(chan string, 10)
	q := noTick(f.queue(nil)).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Payload == "429" && msg.Delivery == 1 {
			return Throttle(time.Hour, errBoom)
		}
		handled <- msg.Payload
		return nil
	})
	cli := f.client()
	loseReplies(t, cli, 2, new(atomic.Int64))
	m := NewMonitor(f.name, cli)
	unthrottle := func(want bool) {
		t.Helper()
		if lifted, err := m.Unthrottle(ctxB); err != nil || lifted != want {
			t.Errorf("lifted: %v, %v", lifted, err)
		}
	}
	f.send(q, "later", inAnHour) // so that there is such a queue
	for range 3 {
		unthrottle(false)
	}
	counts := func() Counts {
		c, err := m.Counts(ctxB)
		f.must(err)
		return c
	}
	q.StartConsume()
	info := f.send(q, "429")
	eventually(t, "it waits", func() bool { return f.where(info.ID) == "retry" })
	until := counts().ThrottledUntil
	if left := time.Until(until); left < 50*time.Minute || left > time.Hour+time.Minute {
		t.Errorf("throttled until %v", until)
	}
	f.send(f.queue(nil), "other")
	eventually(t, "it is put off", func() bool { return counts().Limited })
	unthrottle(true)
	if payload := receive(t, "what was put off", handled); payload != "other" {
		t.Errorf("handled %s", payload)
	}
	if c := counts(); !c.ThrottledUntil.IsZero() || c.Retry != 1 {
		t.Errorf("%+v", c)
	}
	f.must(m.RunNow(ctxB, info.ID))
	receive(t, "the one that was refused", handled)
	f.must(q.Shutdown(ctxB))
}

// TestPlaceOfAnotherWithoutWakeUps: where wake-ups do not work, a place that another consumer frees is seen at the next tick.
func TestPlaceOfAnotherWithoutWakeUps(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got, free := make(chan string, 1), make(chan struct{})
	one := f.queueOn(unknownClient{f.cli}, func(string) bool { got <- "one"; <-free; return true }).WithQueueConcurrency(1)
	f.several(1)
	one.StartConsume()
	receive(t, "it has the place", got)
	f.several(1)
	other := f.queueOn(unknownClient{f.cli}, func(string) bool { got <- "other"; return true }).WithQueueConcurrency(1)
	other.StartConsume()
	m := NewMonitor(f.name, f.cli)
	eventually(t, "it waits for the place", func() bool { c, err := m.Counts(ctxB); return err == nil && c.Limited && c.Ready == 1 })
	one.StopConsume() // it will not take the next one itself
	close(free)
	if by := receive(t, "the place is taken", got); by != "other" {
		t.Errorf("taken by %s", by)
	}
	for _, q := range []*DelayQueue{one, other} {
		f.must(q.Shutdown(ctxB))
	}
}
