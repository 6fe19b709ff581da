package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var errBoom = errors.New("boom")

// TestFailures covers a callback that returns false, a handler that returns an error,
// panics, ends its goroutine, or runs past its limit.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(q *DelayQueue, handled func() int)
		want error
		text string
	}{
		"callback returns false": {func(q *DelayQueue, handled func() int) {
			q.WithCallback(func(string) bool { handled(); return false })
		}, ErrNacked, "callback returned false"},
		"handler returns an error": {func(q *DelayQueue, handled func() int) {
			q.WithHandler(func(context.Context, *Message) error { return fmt.Errorf("try %d: %w", handled(), errBoom) })
		}, errBoom, "try 3: boom"},
		"handler panics": {func(q *DelayQueue, handled func() int) {
			q.WithHandler(func(context.Context, *Message) error { handled(); panic("oh no") })
		}, ErrPanicked, "panicked: oh no"},
		"callback panics": {func(q *DelayQueue, handled func() int) {
			q.WithCallback(func(string) bool { handled(); panic("oh no") })
		}, ErrPanicked, "panicked: oh no"},
		"handler ends its goroutine": {func(q *DelayQueue, handled func() int) {
			q.WithHandler(func(context.Context, *Message) error { handled(); runtime.Goexit(); return nil })
		}, ErrPanicked, "Goexit"},
		"handler runs past its limit": {func(q *DelayQueue, handled func() int) {
			q.WithMaxConsumeDuration(30 * time.Millisecond).WithHandler(func(ctx context.Context, _ *Message) error {
				handled()
				<-ctx.Done()
				return nil // too late to say so
			})
		}, ErrConsumeTimeout, "past its limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var n atomic.Int64
			failures, deaths := make(chan error, 3), make(chan error, 1)
			q := f.queue(nil).WithNackRedeliveryDelay(10 * time.Millisecond).
				WithErrorHandler(func(_ context.Context, _ *Message, err error) { failures <- err }).
				WithGarbageHandler(func(_ context.Context, _ *Message, err error) { deaths <- err })
			c.set(q, func() int { return int(n.Add(1)) })
			info := f.send(q, "work", WithRetryCount(2))
			q.StartConsume()
			for range 3 {
				if err := receive(t, "each failure is told", failures); !errors.Is(err, c.want) {
					t.Errorf("failure %v, want %v", err, c.want)
				}
			}
			if err := receive(t, "the death is told", deaths); !errors.Is(err, c.want) {
				t.Errorf("death by %v, want %v", err, c.want)
			}
			// One that runs past its limit may be told of before it has counted itself.
			eventually(t, "three have begun", func() bool { return n.Load() >= 3 })
			if n.Load() != 3 {
				t.Errorf("delivered %d times, want 3: 1 + 2 retries", n.Load())
			}
			record := f.check().Fail[info.ID]
			if f.where(info.ID) != "garbage" || record.Failures != 3 || !strings.Contains(record.Error, c.text) {
				t.Errorf("%s with record %+v, want garbage with %q", f.where(info.ID), record, c.text)
			}
			// The worker lives on.
			f.send(q, "work", WithRetryCount(0))
			receive(t, "the next message is handled", failures)
			receive(t, "its death is told", deaths)
		})
	}
}

func TestRetryDelays(t *testing.T) {
	q := NewQueue("settings", newFixture(t).cli, nil)
	after := func(failures int) time.Duration { return q.settings.delayAfter(failures, errBoom, &Message{}) }
	for n, most := 1, 2*time.Second; n < 40; n, most = n+1, min(2*most, 10*time.Minute) {
		for range 20 {
			if d := after(n); d < most/2 || d > most {
				t.Fatalf("default delay after failure %d is %v, want %v to %v", n, d, most/2, most)
			}
		}
	}
	q.WithNackRedeliveryDelay(7 * time.Second)
	if d := after(3); d != 7*time.Second {
		t.Errorf("WithNackRedeliveryDelay: %v", d)
	}
	q.WithRetryDelays(30*time.Second, time.Minute, 10*time.Minute)
	for n, want := range map[int]time.Duration{1: 30 * time.Second, 2: time.Minute, 3: 10 * time.Minute, 9: 10 * time.Minute} {
		if d := after(n); d != want {
			t.Errorf("WithRetryDelays, failure %d: %v, want %v", n, d, want)
		}
	}
	q.WithRetryDelayFunc(func(failures int, err error, _ *Message) time.Duration {
		if !errors.Is(err, errBoom) {
			t.Errorf("the function got %v", err)
		}
		return time.Duration(failures) * time.Hour
	})
	if d := after(2); d != 2*time.Hour {
		t.Errorf("WithRetryDelayFunc: %v", d)
	}
}

// TestRetryWaits sees the delays in Redis: the queue's own, and RetryAfter above it.
func TestRetryWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	failed := make(chan string, 2)
	q := f.queue(nil).WithRetryDelays(time.Hour).
		WithHandler(func(_ context.Context, msg *Message) error {
			defer func() { failed <- msg.ID }()
			if msg.Payload == "own" {
				return RetryAfter(2*time.Hour, errBoom)
			}
			return errBoom
		})
	plain, own := f.send(q, "plain"), f.send(q, "own")
	q.StartConsume()
	receive(t, "one fails", failed)
	receive(t, "the other fails", failed)
	eventually(t, "both wait for their retry", func() bool { return len(f.check().Retry) == 2 })
	state := f.check()
	for _, e := range state.Retry {
		want := map[string]int64{plain.ID: 1, own.ID: 2}[e.ID] * time.Hour.Microseconds()
		if in := e.Score - state.Fail[e.ID].When; in != want {
			t.Errorf("message %s waits %d us, want %d", e.ID, in, want)
		}
	}
	if text := state.Fail[own.ID].Error; !strings.Contains(text, "boom") {
		t.Errorf("last error %q", text)
	}
}

func TestErrSkipRetry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deaths := make(chan *Message, 1)
	q := f.queue(nil).WithHandler(func(context.Context, *Message) error { return fmt.Errorf("%w: no such account", ErrSkipRetry) }).
		WithGarbageHandler(func(_ context.Context, msg *Message, _ error) { deaths <- msg })
	info := f.send(q, "work", WithRetryCount(9))
	q.StartConsume()
	if msg := receive(t, "it dies", deaths); msg.ID != info.ID || msg.Delivery != 1 {
		t.Errorf("died as %+v", msg)
	}
	if record := f.check().Fail[info.ID]; record.Failures != 1 || !strings.Contains(record.Error, "no such account") {
		t.Errorf("record %+v", record)
	}
}

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

func TestHandlerLongerThanTwoLeases(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const lease = 3 * time.Second
	var runs atomic.Int64
	finished := make(chan error, 1)
	handler := func(ctx context.Context, _ *Message) error {
		runs.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(2*lease + lease/4):
		}
		finished <- ctx.Err()
		return nil
	}
	for range 2 { // the second one is there to take what is not renewed
		f.queueOn(f.client(), nil).WithLease(lease).WithHandler(handler).StartConsume()
	}
	f.send(f.queue(nil), "work", WithRetryCount(0))
	if err := receive(t, "the handler finishes", finished); err != nil {
		t.Errorf("its context ended: %v", err)
	}
	eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 })
	if n := runs.Load(); n != 1 {
		t.Errorf("ran %d times, want once", n)
	}
}

func TestSlowHandlersByDefault(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var got tally
	handled := make(chan struct{}, 500)
	q := f.queue(nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *Message) error {
		got.add(msg.Payload)
		if msg.Failures != 0 {
			t.Errorf("message %s: %d failures", msg.Payload, msg.Failures)
		}
		time.Sleep(100 * time.Millisecond)
		handled <- struct{}{}
		return nil
	})
	batch := make([]Outgoing, 500)
	for i := range batch {
		batch[i].Payload = strconv.Itoa(i)
	}
	if _, err := q.SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	q.StartConsume()
	for range batch {
		receive(t, "the next one of 500 messages of 100 ms on 4 workers", handled)
	}
	eventually(t, "all are settled", func() bool { return len(f.check().Messages) == 0 })
	if _, total := got.counts(); total != 500 {
		t.Errorf("handled %d times, want 500", total)
	}
}

func TestEightPanicsInFourWorkers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handled := make(chan string, 9)
	q := f.queue(nil).WithConcurrent(4).WithNackRedeliveryDelay(time.Hour).WithHandler(func(_ context.Context, msg *Message) error {
		handled <- msg.Payload
		if msg.Payload == "bad" {
			panic(errBoom)
		}
		return nil
	})
	for range 8 {
		f.send(q, "bad")
	}
	q.StartConsume()
	for range 8 {
		receive(t, "each panics", handled)
	}
	f.send(q, "good")
	if p := receive(t, "the next message is handled", handled); p != "good" {
		t.Errorf("handled %q", p)
	}
	eventually(t, "8 failures wait for their retry", func() bool { return len(f.check().Retry) == 8 })
	if n := f.log.count("delayqueue: handler panicked"); n != 8 {
		t.Errorf("%d panics in the log, want 8", n)
	}
}

// TestCallbackThatCannotSeeItsLimit: it is replaced, and its late result is void.
func TestCallbackThatCannotSeeItsLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	release := make(chan struct{})
	var stuck, quick atomic.Int64
	q := f.queue(nil).WithConcurrent(2).WithMaxConsumeDuration(50 * time.Millisecond).WithLease(3 * time.Second).
		WithNackRedeliveryDelay(time.Hour).WithCallback(func(payload string) bool {
		if payload == "stuck" {
			stuck.Add(1)
			<-release
		}
		quick.Add(1)
		return true
	})
	first := f.send(q, "stuck")
	q.StartConsume()
	eventually(t, "the first is a failure", func() bool { return f.where(first.ID) == "retry" })
	f.send(q, "quick")
	eventually(t, "a new worker is in its place", func() bool { return quick.Load() == 1 })
	second := f.send(q, "stuck")
	eventually(t, "the second is a failure", func() bool { return f.where(second.ID) == "retry" })
	close(release)
	eventually(t, "they return", func() bool { return quick.Load() == 3 })
	for _, id := range []string{first.ID, second.ID} {
		if where := f.where(id); where != "retry" {
			t.Errorf("the late result was not void: message is %s", where)
		}
	}
}

func TestStopDoesNotWaitForAbandonedCallbacks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan struct{}, 1), make(chan struct{})
	defer close(release)
	q := f.queue(nil).WithMaxConsumeDuration(30 * time.Millisecond).WithNackRedeliveryDelay(time.Hour).
		WithCallback(func(string) bool { started <- struct{}{}; <-release; return true })
	info := f.send(q, "stuck")
	done := q.StartConsume()
	receive(t, "it is stuck", started)
	q.StopConsume()
	receive(t, "done closes", done)
	if where := f.where(info.ID); where != "retry" {
		t.Errorf("the message is %s, want retry", where)
	}
}

func TestMiddlewareBaseContextAndMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	type contextKey struct{}
	base := context.WithValue(context.Background(), contextKey{}, "from the base")
	calls := make(chan string, 10)
	wrap := func(name string) func(Handler) Handler {
		return func(next Handler) Handler {
			return func(ctx context.Context, msg *Message) error {
				calls <- name + " in"
				err := next(ctx, msg)
				calls <- name + " out: " + fmt.Sprint(err)
				return err
			}
		}
	}
	got := make(chan *Message, 1)
	q := f.queue(nil).WithBaseContext(base).WithMiddleware(wrap("outer")).WithMiddleware(wrap("inner")).
		WithHandler(func(ctx context.Context, msg *Message) error {
			calls <- fmt.Sprint(ctx.Value(contextKey{}))
			got <- msg
			return nil
		})
	info := f.send(q, "payload", WithKey("k"), WithHeader("trace", "1"), WithHeader("other", ""), WithRetryCount(5), WithDelay(time.Millisecond))
	q.StartConsume()
	msg := receive(t, "it arrives", got)
	if msg.ID != info.ID || msg.Key != "k" || msg.Payload != "payload" || msg.MaxRetries != 5 || msg.Delivery != 1 || msg.Failures != 0 ||
		!msg.Due.Equal(info.Due) || len(msg.Headers) != 2 || msg.Headers["trace"] != "1" {
		t.Errorf("message %+v, sent as %+v", msg, info)
	}
	for _, want := range []string{"outer in", "inner in", "from the base", "inner out: <nil>", "outer out: <nil>"} {
		if call := receive(t, want, calls); call != want {
			t.Errorf("%q, want %q", call, want)
		}
	}
	// Around a callback too.
	q.StopConsume()
	f.send(q.WithCallback(func(string) bool { return false }).WithNackRedeliveryDelay(time.Hour), "again")
	q.StartConsume()
	for _, want := range []string{"outer in", "inner in", "inner out: " + ErrNacked.Error(), "outer out: " + ErrNacked.Error()} {
		if call := receive(t, want, calls); call != want {
			t.Errorf("%q, want %q", call, want)
		}
	}
}

func TestMsgTTL(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deaths, got := make(chan error, 1), make(chan string, 3)
	const ttl = 3 * time.Second
	q := f.queue(nil).WithNackRedeliveryDelay(ttl + time.Millisecond).
		WithGarbageHandler(func(_ context.Context, _ *Message, err error) { deaths <- err }).
		WithHandler(func(_ context.Context, msg *Message) error {
			got <- msg.Payload
			if msg.Payload == "fails once" && msg.Delivery == 1 {
				return errBoom
			}
			return nil
		})
	late := f.send(q, "late", WithMsgTTL(time.Microsecond))
	f.send(q, "fails once", WithMsgTTL(ttl), WithDelay(100*time.Millisecond)) // only its first delivery is bounded
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

// TestFetchedButNotStarted: a message that waits behind a slow one is given to others.
func TestFetchedButNotStarted(t *testing.T) {
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
	eventually(t, "all are settled", func() bool { return len(f.check().Messages) == 0 })
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

// TestNoChurnBesideASlowHandler: what was fetched ahead on the strength of quick handlers is
// given back once, not again and again.
func TestNoChurnBesideASlowHandler(t *testing.T) {
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
	eventually(t, "the quick ones are through", func() bool { return len(f.check().Messages) == 0 })
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
	eventually(t, "all are through", func() bool { return len(f.check().Messages) == 0 })
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
	eventually(t, "the retries are due", func() bool { s := f.check(); return s.Retry[39].Score < s.Now })
	send("new")
	q.WithConcurrent(1).StartConsume()
	for range 40 {
		receive(t, "one is handled", handled)
	}
	if retries, fresh := got.of("retry"), got.of("new"); retries < 5 || fresh < 5 {
		t.Errorf("of the first 40 handed out %d were retries and %d new", retries, fresh)
	}
}

// TestErrorWithoutText leaves its type, not the error before it.
func TestErrorWithoutText(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Delivery == 1 {
			return errBoom
		}
		return errors.New("")
	})
	info := f.send(q, "x", WithRetryCount(1))
	q.StartConsume()
	eventually(t, "it dies", func() bool { return f.where(info.ID) == "garbage" })
	if text := f.check().Fail[info.ID].Error; text != "*errors.errorString" {
		t.Errorf("last error %q", text)
	}
}

func TestMiddlewareThatReturnsNil(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(func(string) bool { return true }).WithMiddleware(func(Handler) Handler { return nil })
	if text := panicText(func() { q.StartConsume() }); !strings.Contains(text, "middleware 1 returned a nil Handler") {
		t.Errorf("panicked with %q", text)
	}
}

// TestManyLastChances: they pass one at a time, in a moment each, and without a busy loop.
func TestManyLastChances(t *testing.T) {
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
		out, err := q.store.fetch(context.Background(), dying, fetchRequest{want: want, settings: set})
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
	eventually(t, "all pass", func() bool { return len(f.check().Messages) == 0 })
	if distinct, total := got.counts(); distinct != n || total != n {
		t.Errorf("%d handled %d times, want %d once", distinct, total, n)
	}
}
