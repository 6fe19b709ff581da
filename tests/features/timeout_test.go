package features

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestLimitOfStuckCallbacks: one that runs on past its limit has a successor, until as many run on as there
// are workers; the log says of each, and when that is reached. What it returns then is void.
func TestLimitOfStuckCallbacks(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.Queue(func(payload string) bool {
		if started <- payload; payload == "stuck" {
			<-release
		}
		return true
	}).WithMaxConsumeDuration(20 * time.Millisecond).WithFetchInterval(100 * time.Millisecond)
	q.StartConsume()
	const replaced, bound = "another worker takes its place", "too many callbacks run on"
	var quick, stuck *delayqueue.MessageInfo
	for i := range 2 {
		stuck = f.Send(q, "stuck", delayqueue.WithRetryCount(0))
		queuetest.Receive(t, "it starts", started)
		queuetest.Eventually(t, "it is told", func() bool { return f.Log.Count(replaced, stuck.ID) == 1 })
		if i == 0 {
			quick = f.Send(q, "quick", delayqueue.WithRetryCount(0))
			queuetest.Receive(t, "its successor goes on", started)
		}
	}
	// On a machine that stands still the quick one runs past its limit as well, and reaches the bound.
	queuetest.Eventually(t, "the bound is told", func() bool {
		return f.Log.Count(bound) == 1+f.Log.Count(replaced, quick.ID)
	})
	waiting := f.Send(q, "quick")
	for range 2 {
		seen := f.Check().Fields["seen"]
		queuetest.Eventually(t, "the consumer ticks", func() bool { return f.Check().Fields["seen"] != seen })
	}
	if where := f.Where(waiting.ID); where != "pending" {
		t.Errorf("with two callbacks of one worker running on, the message is %s", where)
	}
	close(release)
	queuetest.Receive(t, "consuming goes on when they return", started)
	queuetest.Eventually(t, "it is settled", func() bool { w := f.Where(waiting.ID); return w == "gone" || w == "retry" })
	if where := f.Where(stuck.ID); where != "garbage" {
		t.Errorf("the late result was not void: message is %s", where)
	}
}

// TestHandlerHasADeadline: what bounds a handler is the deadline of its context, and of all that is made of it, which
// end with DeadlineExceeded then, and with the library's cause. However soon the handler returns, that is its
// failure. What ends the handler before has another cause, and is no deadline.
func TestHandlerHasADeadline(t *testing.T) {
	t.Parallel()
	const limit, long = 100 * time.Millisecond, 9 * time.Second // a pause of the machine is shorter than long
	for name, c := range map[string]struct {
		limit time.Duration
		opts  func() []delayqueue.MsgOption
		cause error
		err   error
	}{
		"the queue's limit": {limit, nil, delayqueue.ErrConsumeTimeout, context.DeadlineExceeded},
		"the message's own": {time.Hour, func() []delayqueue.MsgOption {
			return []delayqueue.MsgOption{delayqueue.WithTimeout(limit)}
		},
			delayqueue.ErrConsumeTimeout, context.DeadlineExceeded},
		"its deadline": {0, func() []delayqueue.MsgOption {
			return []delayqueue.MsgOption{delayqueue.WithDeadline(time.Now().Add(long))}
		}, delayqueue.ErrExpired, context.DeadlineExceeded},
		"canceled before it": {time.Hour, nil, delayqueue.ErrCanceled, context.Canceled},
		"none":               {0, nil, delayqueue.ErrCanceled, context.Canceled},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			ids, said, failed := make(chan string, 1), make(chan string, 1), make(chan error, 1)
			q := f.Queue(nil).WithLease(long).WithErrorHandler(func(_ context.Context, _ *delayqueue.Message, err error) {
				failed <- err
			}).
				WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
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
			opts := []delayqueue.MsgOption{delayqueue.WithRetryCount(0)}
			if c.opts != nil {
				opts = append(opts, c.opts()...)
			}
			f.Send(q, "x", opts...)
			q.StartConsume()
			if id := queuetest.Receive(t, "it runs", ids); c.cause == delayqueue.ErrCanceled {
				f.Must(queuetest.Failure(q.Cancel(queuetest.CtxB, id)))
			}
			if got, want := queuetest.Receive(t, "its context ends", said),
				fmt.Sprint(name != "none", c.err, c.cause); got != want {
				t.Errorf("it ended with %s, want %s", got, want)
			}
			if c.cause != delayqueue.ErrCanceled {
				if err := queuetest.Receive(t, "it fails", failed); !errors.Is(err, c.cause) {
					t.Errorf("it failed with %v", err)
				}
			}
		})
	}
}

// TestRestartBesideStuckCallbacks: a queue that is started again while so many callbacks of its former runs go on
// that it has no worker says so, and goes on when one returns.
func TestRestartBesideStuckCallbacks(t *testing.T) {
	t.Parallel()
	f, release, started := face.New(t), make(chan struct{}), make(chan struct{}, 10)
	q := f.Queue(func(string) bool { started <- struct{}{}; <-release; return true }).WithConcurrent(1)
	f.Send(q, "x")
	for n := range 3 {
		q.StartConsume()
		if n < 2 {
			queuetest.Receive(t, "it hangs", started)
			if err := q.Shutdown(queuetest.Over()); err == nil {
				t.Error("Shutdown did not give up")
			}
		}
	}
	f.Log.Says(t, f.ShardCount(), "too many callbacks run on", "running_on=2", "workers=0")
	f.Log.Says(t, f.ShardCount(), "too many callbacks run on") // while it had a worker it said nothing
	close(release)
	queuetest.Receive(t, "it goes on", started)
}
