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
			if err := queuetest.Receive(t, "it returns at once", results); err == nil ||
				!strings.Contains(err.Error(), "one of its own handlers") {
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
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
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

// TestShutdownWhoseContextEndsFirst: it releases what is handled before it returns, because a process may exit then.
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
	begun := time.Now()
	err := q.Shutdown(queuetest.Over())
	inTime := time.Since(begun) < time.Second // which releases may take
	if !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "2 handlers were still running") {
		t.Errorf("Shutdown returned %v", err)
	}
	if s := f.Check(); len(s.Ready) != 2 && inTime {
		t.Errorf("when Shutdown returned, %d were released", len(s.Ready))
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

// TestShutdownWaitsForFormerRuns: handlers of a run that a queue had alone are waited for, by the queue that has
// started again, and by its pool, whether that has started or not.
func TestShutdownWaitsForFormerRuns(t *testing.T) {
	t.Parallel()
	for name, shutdown := range map[string]func(t *testing.T, q *delayqueue.DelayQueue) error{
		"queue": func(_ *testing.T, q *delayqueue.DelayQueue) error {
			q.StartConsume()
			return q.Shutdown(queuetest.Over())
		},
		"pool": func(t *testing.T, q *delayqueue.DelayQueue) error {
			return face.PoolOf(t, 1, delayqueue.Share{Queue: q}).Shutdown(queuetest.Over())
		},
		"pool that has started": func(t *testing.T, q *delayqueue.DelayQueue) error {
			p := face.PoolOf(t, 1, delayqueue.Share{Queue: q})
			done := p.StartConsume()
			p.StopConsume()
			queuetest.Receive(t, "the pool's run ends", done)
			return p.Shutdown(queuetest.Over())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, started, release := face.New(t), make(chan struct{}, 2), make(chan struct{})
			q := f.Queue(func(string) bool { started <- struct{}{}; <-release; return true })
			first := q.StartConsume()
			info := f.Send(q, "x")
			queuetest.Receive(t, "it runs", started)
			q.StopConsume()
			if err := shutdown(t, q); err == nil || !strings.Contains(err.Error(), "1 handlers were still running") {
				t.Errorf("it says %v", err)
			}
			queuetest.Eventually(t, "it is released", func() bool { return f.Where(info.ID) == "ready" })
			close(release)
			queuetest.Receive(t, "the former run has ended", first)
		})
	}
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
