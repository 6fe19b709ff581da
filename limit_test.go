package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestLimitThatACallbackCannotSee: it is replaced, and its late result is void.
func TestLimitThatACallbackCannotSee(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	release := make(chan struct{})
	var stuck, quick atomic.Int64
	q := f.queue(nil).WithConcurrent(2).WithMaxConsumeDuration(50 * time.Millisecond).WithLease(time.Minute).
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

// TestLimitOfStuckCallbacks: one that runs on past its limit has a successor, until as many run on as there
// are workers; the log says of each, and when that is reached.
func TestLimitOfStuckCallbacks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.queue(func(payload string) bool {
		started <- payload
		if payload == "stuck" {
			<-release
		}
		return true
	}).WithMaxConsumeDuration(20 * time.Millisecond).WithFetchInterval(100 * time.Millisecond)
	q.StartConsume()
	const replaced, bound = "another worker takes its place", "too many callbacks run on"
	var quick *MessageInfo
	for i := range 2 {
		stuck := f.send(q, "stuck", WithRetryCount(0))
		receive(t, "it starts", started)
		eventually(t, "it is told", func() bool { return f.log.count(replaced, stuck.ID) == 1 })
		if i == 0 {
			quick = f.send(q, "quick", WithRetryCount(0))
			receive(t, "its successor goes on", started)
		}
	}
	// On a machine that stands still the quick one runs past its limit as well, and reaches the bound.
	eventually(t, "the bound is told", func() bool { return f.log.count(bound) == 1+f.log.count(replaced, quick.ID) })
	waiting := f.send(q, "quick")
	for range 2 {
		seen := f.check().Fields["seen"]
		eventually(t, "the consumer ticks", func() bool { return f.check().Fields["seen"] != seen })
	}
	if where := f.where(waiting.ID); where != "pending" {
		t.Errorf("with two callbacks of one worker running on, the message is %s", where)
	}
	close(release)
	receive(t, "consuming goes on when they return", started)
	q.StopConsume()
	settledDown(t, q.current())
}

func TestLimitWhenTheSettlementIsVoid(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered, release := make(chan string, 2), make(chan struct{})
	q := f.queue(func(payload string) bool {
		entered <- payload
		if payload == "stuck" {
			<-release
		}
		return true
	}).WithMaxConsumeDuration(8 * time.Second).WithLease(time.Minute) // no renewal notices the cancellation first
	q.StartConsume()
	info := f.send(q, "stuck", WithRetryCount(0))
	receive(t, "it starts", entered)
	if r, err := q.Cancel(context.Background(), info.ID); err != nil || r.State != StateUnack {
		t.Fatalf("cancel: %+v, %v", r, err)
	}
	eventually(t, "its failure comes too late", func() bool { return f.log.count("came too late") == 1 })
	close(release)
	f.send(q, "next")
	if p := receive(t, "consuming goes on", entered); p != "next" {
		t.Errorf("handled %q", p)
	}
	q.StopConsume()
	settledDown(t, q.current())
}

func TestLimitThenGoexit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered := make(chan string, 2)
	q := f.queue(nil).WithMaxConsumeDuration(50 * time.Millisecond).WithHandler(func(ctx context.Context, msg *Message) error {
		entered <- msg.Payload
		if msg.Payload == "exits" {
			<-ctx.Done()
			runtime.Goexit()
		}
		return nil
	})
	q.StartConsume()
	f.send(q, "exits", WithRetryCount(0))
	receive(t, "it starts", entered)
	f.send(q, "next")
	receive(t, "consuming goes on", entered)
	q.StopConsume()
	settledDown(t, q.current())
}

// TestHandlerHasADeadline: what bounds a handler is the deadline of its context, and of all that is made of it, which end with
// DeadlineExceeded then, and with the library's cause. However soon the handler returns, that is its failure. What ends the
// handler before has another cause, and is no deadline.
func TestHandlerHasADeadline(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	for name, c := range map[string]struct {
		limit time.Duration
		opts  func() []MsgOption
		cause error
		err   error
	}{
		"the queue's limit":  {limit, nil, ErrConsumeTimeout, context.DeadlineExceeded},
		"the message's own":  {time.Hour, func() []MsgOption { return []MsgOption{WithTimeout(limit)} }, ErrConsumeTimeout, context.DeadlineExceeded},
		"its deadline":       {0, func() []MsgOption { return []MsgOption{WithDeadline(time.Now().Add(5 * time.Second))} }, ErrExpired, context.DeadlineExceeded},
		"canceled before it": {time.Hour, nil, ErrCanceled, context.Canceled},
		"none":               {0, nil, ErrCanceled, context.Canceled},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			ids, said, failed := make(chan string, 1), make(chan string, 1), make(chan error, 1)
			q := f.queue(nil).WithLease(5 * time.Second).WithErrorHandler(func(_ context.Context, _ *Message, err error) { failed <- err }).
				WithHandler(func(ctx context.Context, msg *Message) error {
					ids <- msg.ID
					_, limited := ctx.Deadline()
					made, cancel := context.WithTimeout(ctx, 2*time.Hour)
					defer cancel()
					<-made.Done()
					if made.Err() != ctx.Err() || context.Cause(made) != context.Cause(ctx) {
						said <- "another end of a context made of it"
					}
					said <- fmt.Sprint(limited, ctx.Err(), context.Cause(ctx))
					return nil // at once, and in vain
				})
			if c.limit > 0 {
				q.WithMaxConsumeDuration(c.limit)
			}
			opts := []MsgOption{WithRetryCount(0)}
			if c.opts != nil {
				opts = append(opts, c.opts()...)
			}
			f.send(q, "x", opts...)
			q.StartConsume()
			if id := receive(t, "it runs", ids); c.cause == ErrCanceled {
				f.must(failure(q.Cancel(ctxB, id)))
			}
			if got, want := receive(t, "its context ends", said), fmt.Sprint(name != "none", c.err, c.cause); got != want {
				t.Errorf("it ended with %s, want %s", got, want)
			}
			if c.cause != ErrCanceled {
				if err := receive(t, "it fails", failed); !errors.Is(err, c.cause) {
					t.Errorf("it failed with %v", err)
				}
			}
		})
	}
}

// TestLimitIsSettledBeforeDone: a failure at the limit, while the queue stops, is settled before done closes.
func TestLimitIsSettledBeforeDone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered, failing := make(chan struct{}), make(chan struct{})
	q := f.queue(nil).WithMaxConsumeDuration(100 * time.Millisecond).
		WithErrorHandler(func(context.Context, *Message, error) { close(failing); time.Sleep(200 * time.Millisecond) }).
		WithHandler(func(ctx context.Context, _ *Message) error { close(entered); <-ctx.Done(); return nil })
	info := f.send(q, "x", WithRetryCount(0))
	done := q.StartConsume()
	receive(t, "it starts", entered)
	q.StopConsume()
	receive(t, "it fails", failing)
	receive(t, "done closes", done)
	if where := f.where(info.ID); where != "garbage" {
		t.Errorf("done is closed, and the message is %s", where)
	}
}

// TestRestartBesideStuckCallbacks: a queue that is started again while so many callbacks of its former runs go on that it
// has no worker says so, and goes on when one returns.
func TestRestartBesideStuckCallbacks(t *testing.T) {
	t.Parallel()
	f, release, started := newFixture(t), make(chan struct{}), make(chan struct{}, 10)
	q := f.queue(func(string) bool { started <- struct{}{}; <-release; return true }).WithConcurrent(1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f.send(q, "x")
	for n := range 3 {
		q.StartConsume()
		if n < 2 {
			receive(t, "it hangs", started)
			if err := q.Shutdown(ctx); err == nil {
				t.Error("Shutdown did not give up")
			}
		}
	}
	f.log.says(t, 1, "too many callbacks run on", "running_on=2", "workers=0")
	f.log.says(t, 1, "too many callbacks run on") // while it had a worker it said nothing
	close(release)
	receive(t, "it goes on", started)
}

// TestLimitOfALostDelivery: the limit's timer fires just when the worker has left a lost delivery.
func TestLimitOfALostDelivery(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithMaxConsumeDuration(time.Hour).WithHandler(func(context.Context, *Message) error { return nil })
	q.StartConsume()
	c := q.current()
	d := &delivery{settler: &c.settler, tag: "x", msg: Message{ID: "x", Delivery: 1}}
	c.leases.held.add(d)
	w := &worker{workers: &q.workers}
	c.leases.lose(d, ErrDeliveryLost)
	w.serve(d)
	if w.replacedOf != nil {
		t.Error("the worker was replaced")
	}
	if d.abandon(ErrConsumeTimeout, time.Hour, nil) {
		t.Error("it counts as abandoned")
	}
	q.StopConsume()
	settledDown(t, c)
}
