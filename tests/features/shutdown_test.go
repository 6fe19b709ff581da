package features

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// TestShutdownByAHandler: with the handler's own context, or one made of it, it cannot end.
func TestShutdownByAHandler(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(q *delayqueue.DelayQueue, ctx context.Context) error{
		"Shutdown": func(q *delayqueue.DelayQueue, ctx context.Context) error { return q.Shutdown(ctx) },
		"Shutdown, a context made of it": func(q *delayqueue.DelayQueue, ctx context.Context) error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer cancel()
			return q.Shutdown(ctx)
		},
		"Run": func(q *delayqueue.DelayQueue, ctx context.Context) error { defer q.StopConsume(); return q.Run(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			other := f.Queue(func(string) bool { return true })
			results := make(chan error, 2)
			q := f.Queue(nil)
			q.WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
				other.StartConsume()
				results <- other.Shutdown(ctx)
				results <- call(q, ctx)
				return nil
			})
			done := q.StartConsume()
			f.Send(q, "x")
			if err := queuetest.Receive(t, "another queue ends", results); err != nil {
				t.Errorf("of another queue: %v", err)
			}
			if err := queuetest.Receive(t, "it returns at once", results); err == nil || !strings.Contains(err.Error(), "one of its own handlers") {
				t.Errorf("of its own queue: %v", err)
			}
			queuetest.Receive(t, "consuming ends", done)
			f.CheckEmpty()
		})
	}
}

// TestShutdownSaysWhatItWaitedFor, and a queue without messages is not waited for beyond the context.
func TestShutdownSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	hung, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	f.Must(err)
	defer hung.Close()
	cli := redis.NewClient(&redis.Options{Addr: hung.Addr().String()})
	defer cli.Close()
	called := make(chan string, 100)
	t.Cleanup(link.Interpose(cli, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		select {
		case called <- fmt.Sprint(cmd.Args()...):
		default:
		}
		return next(ctx, cmd)
	})))
	began := testkit.Worked()
	for _, g := range face.Siblings(f, 12) {
		q := g.QueueOn(cli, func(string) bool { return true }).WithLease(2 * time.Second)
		var err error
		queuetest.Eventually(t, "it is stopped while it fetches, not between two attempts", func() bool {
			q.StartConsume()
			for !strings.Contains(queuetest.Receive(t, "it fetches", called), g.Key("pending")) {
			}
			err = q.Shutdown(queuetest.Over())
			return err != nil
		})
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waiting for a fetch to be answered") {
			t.Errorf("Shutdown: %v", err)
		}
	}
	if took := testkit.Worked() - began; took >= 12*time.Second {
		t.Errorf("12 queues took %v to stop", took)
	}
}

func TestShutdownWhoseContextEndsFirst(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	causes := make(chan error, 2)
	started := make(chan struct{}, 2)
	q := f.Queue(nil).WithConcurrent(2).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
		started <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil // void: its message has been released
	})
	ids := []string{f.Send(q, "a").ID, f.Send(q, "b").ID}
	done := q.StartConsume()
	queuetest.Receive(t, "a handler runs", started)
	queuetest.Receive(t, "another handler runs", started)
	err := q.Shutdown(queuetest.Over())
	if !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "2 handlers were still running") {
		t.Errorf("Shutdown returned %v", err)
	}
	for range 2 {
		if cause := queuetest.Receive(t, "the handlers' contexts end", causes); !errors.Is(cause, delayqueue.ErrShutdown) {
			t.Errorf("cause %v, want ErrShutdown", cause)
		}
	}
	queuetest.Receive(t, "done closes", done)
	for _, id := range ids {
		if where := f.Where(id); where != "ready" {
			t.Errorf("message %s is %s, want ready", id, where)
		}
		if record := f.Check().Fail[id]; record.Delivery != 2 || record.Failures != 0 || record.Losses != 0 {
			t.Errorf("record of a released message: %+v", record)
		}
	}
}

// TestShutdownTellsEverybody: after one Shutdown has given up on a handler, nobody else is told that consuming has
// ended, until it has.
func TestShutdownTellsEverybody(t *testing.T) {
	t.Parallel()
	type consumer interface {
		StartConsume() <-chan struct{}
		Run(context.Context) error
		Shutdown(context.Context) error
	}
	for name, of := range map[string]func(t *testing.T, q *delayqueue.DelayQueue) consumer{
		"queue": func(_ *testing.T, q *delayqueue.DelayQueue) consumer { return q },
		"pool": func(t *testing.T, q *delayqueue.DelayQueue) consumer {
			return face.PoolOf(t, 1, delayqueue.Share{Queue: q})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, started, release := face.New(t), make(chan struct{}, 1), make(chan struct{})
			q := f.Queue(func(string) bool { started <- struct{}{}; <-release; return true })
			f.Send(q, "x")
			c := of(t, q)
			ran, patient := make(chan error, 1), make(chan error, 1)
			go func() { ran <- c.Run(queuetest.CtxB) }()
			queuetest.Receive(t, "a handler runs", started)
			done := c.StartConsume()
			go func() { patient <- c.Shutdown(queuetest.WithTimeout(t)) }()
			const says = "1 handlers were still running"
			for range 2 {
				if err := c.Shutdown(queuetest.Over()); !strings.Contains(fmt.Sprint(err), says) {
					t.Errorf("an impatient Shutdown returned %v", err)
				}
			}
			if err := queuetest.Receive(t, "Run returns", ran); !errors.Is(err, delayqueue.ErrShutdown) ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("Run returned %v", err)
			}
			if conc.Closed(done) || len(patient) > 0 {
				t.Error("somebody is told that consuming has ended, and a handler runs")
			}
			close(release)
			f.Must(queuetest.Receive(t, "a patient Shutdown returns", patient))
			queuetest.Receive(t, "the channel closes", done)
		})
	}
}

func TestShutdownTellsOfLostDeliveries(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	entered, ended, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	q := f.Queue(nil).WithLease(3 * time.Second).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
		close(entered)
		<-ctx.Done()
		close(ended)
		<-release // goes on for long
		return nil
	})
	done := q.StartConsume()
	info := f.Send(q, "x")
	queuetest.Receive(t, "it starts", entered)
	f.Must(queuetest.Failure(q.Cancel(context.Background(), info.ID)))
	queuetest.Receive(t, "its context ends", ended)
	if err := q.Shutdown(queuetest.Over()); err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	close(release)
	queuetest.Receive(t, "done closes", done)
}

// TestShutdownReleasesBeforeItReturns: a process may exit right after it.
func TestShutdownReleasesBeforeItReturns(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	for range 10 {
		entered, release := make(chan struct{}), make(chan struct{})
		q := f.Queue(func(string) bool { close(entered); <-release; return true })
		info := f.Send(q, "x")
		q.StartConsume()
		queuetest.Receive(t, "it starts", entered)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		begun := time.Now()
		if err := q.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		inTime := time.Since(begun) < time.Second // which releases may take
		cancel()
		if where := f.Where(info.ID); where != "ready" && inTime {
			t.Errorf("when Shutdown returned the message was %s", where)
		}
		close(release)
		queuetest.Eventually(t, "it is released", func() bool { return f.Where(info.ID) == "ready" })
		f.Must(queuetest.Failure(q.TryIntercept(info)))
	}
}

// TestShutdownWaitsForEarlierRuns that were stopped and have not ended.
func TestShutdownWaitsForEarlierRuns(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	q := f.Queue(func(string) bool { entered <- struct{}{}; <-release; return true })
	first := q.StartConsume()
	f.Send(q, "x")
	queuetest.Receive(t, "it starts", entered)
	q.StopConsume()
	q.StartConsume()
	result := make(chan error)
	go func() { result <- q.Shutdown(context.Background()) }()
	select {
	case err := <-result:
		t.Errorf("Shutdown returned %v with a handler of the earlier run at work", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	if err := queuetest.Receive(t, "Shutdown returns", result); err != nil {
		t.Error(err)
	}
	queuetest.Receive(t, "the earlier run has ended", first)
}

func TestShutdownDoesNotWaitForAGarbageHandler(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	entered, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	q := f.Queue(func(string) bool { return false }).
		WithGarbageHandler(func(context.Context, *delayqueue.Message, error) { close(entered); <-release })
	done := q.StartConsume()
	f.Send(q, "x", delayqueue.WithRetryCount(0))
	queuetest.Receive(t, "the garbage handler hangs", entered)
	if err := q.Shutdown(queuetest.Over()); err == nil {
		t.Error("Shutdown returned nil")
	}
	queuetest.Receive(t, "done closes", done)
}
