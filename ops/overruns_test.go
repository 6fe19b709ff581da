package ops

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// An atOnce counts the handlers of a queue that run at once. They run until they are let go, whatever their contexts say.
type atOnce struct {
	*face.Fixture
	running atomic.Int64
	most    atomic.Int64
	handled atomic.Int64
	started chan string // ids
	ended   chan error  // causes of the ends of contexts
	leave   chan struct{}
}

func newAtOnce(t *testing.T) *atOnce {
	f := face.New(t)
	return &atOnce{Fixture: f, started: make(chan string, 100), ended: make(chan error, 100), leave: make(chan struct{})}
}

func (c *atOnce) handle(ctx context.Context, msg *delayqueue.Message) error {
	now := c.running.Add(1)
	for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
	}
	c.started <- msg.ID
	select {
	case <-ctx.Done():
		c.ended <- context.Cause(ctx)
		<-c.leave
	case <-c.leave:
	}
	c.running.Add(-1)
	c.handled.Add(1)
	return nil
}

// queue has one place, and a lease that no test waits for.
func (c *atOnce) queue() *delayqueue.DelayQueue {
	return c.Fixture.Queue(nil).WithHandler(c.handle).WithConcurrent(8).WithQueueConcurrency(1).WithLease(15 * time.Minute)
}

// overrun waits until a message has the only place, which nobody else is given.
func (c *atOnce) overrun(id string) {
	c.T.Helper()
	queuetest.Eventually(c.T, "its delivery has ended, and it keeps its place", func() bool {
		n, err := c.Calls().Counts(queuetest.CtxB) // the lease of a canceled message may stay
		c.Must(err)
		return n.Unack == 0 && n.Overruns == 1 && c.Cli.ZScore(queuetest.CtxB, c.Key("unack"), "overrun:"+id).Err() == nil
	})
	got, err := c.Calls().Fetch(queuetest.CtxB, &script.Caller{ID: "other", N: 1},
		script.FetchRequest{Want: 10, Settings: &script.FetchSettings{Lease: time.Minute, MaxLosses: 3},
			Limits: script.RateLimits{Concurrency: 1}})
	if err != nil || len(got.Tags) > 0 || c.most.Load() > 1 {
		c.T.Fatalf("%d handed out, %v; %d handlers at once", len(got.Tags), err, c.most.Load())
	}
}

// goesOn lets all handlers go: so many messages are handled, one at a time, and no place is left.
func (c *atOnce) goesOn(messages int) {
	c.T.Helper()
	close(c.leave)
	queuetest.Reaches(c.T, "handlers return", messages, func() int { return int(c.handled.Load()) })
	if most := c.most.Load(); most != 1 {
		c.T.Errorf("%d handlers at once", most)
	}
	queuetest.Eventually(c.T, "all places are free", func() bool {
		n, err := c.Calls().Counts(queuetest.CtxB)
		c.Must(err)
		return n.Unack+n.Overruns == 0
	})
}

// TestQueueConcurrencyOfOverruns: a handler that runs on after its delivery has ended keeps its place until it returns.
func TestQueueConcurrencyOfOverruns(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Millisecond
	pastLimit := func(c *atOnce, start func()) {
		start()
		id := queuetest.Receive(c.T, "one starts", c.started)
		queuetest.Receive(c.T, "it runs past its limit", c.ended)
		queuetest.Eventually(c.T, "its failure is settled", func() bool { return c.Where(id) == "retry" })
		c.overrun(id)
	}
	cancels := func(cancel func(m *Queue, id string)) func(c *atOnce, q *delayqueue.DelayQueue) {
		return func(c *atOnce, q *delayqueue.DelayQueue) {
			q.StartConsume()
			id := queuetest.Receive(c.T, "one starts", c.started)
			cancel(Of(delayqueue.NewMonitor(c.Name, c.Cli)), id)
			c.overrun(id)
		}
	}
	for name, test := range map[string]func(c *atOnce, q *delayqueue.DelayQueue){
		"past its limit": func(c *atOnce, q *delayqueue.DelayQueue) {
			pastLimit(c, func() { q.WithMaxConsumeDuration(limit).WithRetryDelays(time.Hour).StartConsume() })
		},
		"past its limit, in a pool": func(c *atOnce, q *delayqueue.DelayQueue) {
			q.WithMaxConsumeDuration(limit).WithRetryDelays(time.Hour)
			pool := delayqueue.NewPool(8, delayqueue.Share{Queue: q})
			c.T.Cleanup(pool.StopConsume)
			pastLimit(c, func() { pool.StartConsume() })
		},
		"canceled": cancels(func(m *Queue, id string) {
			if r, err := m.Cancel(queuetest.CtxB, id); err != nil || !r.Intercepted {
				t.Errorf("%+v, %v", r, err)
			}
		}),
		"canceled with others": cancels(func(m *Queue, id string) {
			if r, err := m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateUnack}}); err != nil || r.Done != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		}),
		"abandoned beside others": func(c *atOnce, q *delayqueue.DelayQueue) {
			q.StartConsume()
			id := queuetest.Receive(c.T, "one starts", c.started)
			c.queue().StartConsume()
			if err := q.Shutdown(queuetest.Over()); !errors.Is(err, context.Canceled) {
				c.T.Error(err)
			}
			q.StartConsume()
			c.overrun(id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newAtOnce(t)
			face.Several(c.Fixture, 3)
			test(c, c.queue())
			c.goesOn(3)
		})
	}
}

// TestOverrunOfACanceledMessage: once a process has noticed that a message is canceled, it renews the place of the handler that runs on.
func TestOverrunOfACanceledMessage(t *testing.T) {
	t.Parallel()
	c := newAtOnce(t)
	face.Several(c.Fixture, 2)
	c.queue().WithLease(9 * time.Second).StartConsume()
	id := queuetest.Receive(t, "one starts", c.started)
	if r, err := Of(delayqueue.NewMonitor(c.Name, c.Cli)).Cancel(queuetest.CtxB, id); err != nil || !r.Intercepted {
		t.Fatalf("%+v, %v", r, err)
	}
	before := queuetest.ScoreIn(c.Base, c.Key("unack"), "overrun:"+id)
	if err := queuetest.Receive(t, "its context ends", c.ended); !errors.Is(err, delayqueue.ErrCanceled) {
		t.Error(err)
	}
	queuetest.Eventually(t, "its place is renewed twice", func() bool {
		return queuetest.ScoreIn(c.Base, c.Key("unack"), "overrun:"+id) > before+3e6
	})
	c.goesOn(2)
}

// TestOverrunBeforeLimits: handlers that run on when a Monitor bounds the concurrency have places, too.
func TestOverrunBeforeLimits(t *testing.T) {
	t.Parallel()
	c := newAtOnce(t)
	face.Several(c.Fixture, 1)
	q := c.Fixture.Queue(nil).WithHandler(c.handle).WithLease(9 * time.Second).WithMaxConsumeDuration(20 * time.Millisecond).
		WithRetryDelays(time.Hour)
	q.StartConsume()
	id := queuetest.Receive(t, "one starts", c.started)
	queuetest.Receive(t, "it runs past its limit", c.ended)
	queuetest.Eventually(t, "its failure is settled", func() bool { return c.Where(id) == "retry" })
	if n := c.Cli.ZCard(queuetest.CtxB, c.Key("unack")).Val(); n != 0 {
		t.Errorf("%d have places", n)
	}
	m := Of(delayqueue.NewMonitor(c.Name, c.Cli))
	_, err := m.SetLimits(queuetest.CtxB, Limits{Concurrency: 1})
	c.Must(err)
	c.overrun(id)
	if err := m.DeleteQueue(queuetest.CtxB, true); err != nil {
		t.Error(err)
	}
	c.goesOn(1)
}

// TestOverrunAfterItsConsumer: what a consumer needs for the places of handlers that run on it lets go when these have returned.
func TestOverrunAfterItsConsumer(t *testing.T) {
	t.Parallel()
	c := newAtOnce(t)
	face.Several(c.Fixture, 1)
	q := c.queue().WithLease(9 * time.Second)
	done := q.StartConsume()
	id := queuetest.Receive(t, "one starts", c.started)
	another := c.Calls().ForConsumer(time.Minute)
	defer another.Release()
	l := another.Link
	if err := q.Shutdown(queuetest.Over()); err == nil {
		t.Error("it runs on")
	}
	before := queuetest.ScoreIn(c.Base, c.Key("unack"), "overrun:"+id)
	queuetest.Eventually(t, "its place is renewed", func() bool { return queuetest.ScoreIn(c.Base, c.Key("unack"), "overrun:"+id) > before+1e6 })
	if n := l.ConsumersNow(); n != 2 {
		t.Errorf("%d consumers use the link, want this one and another", n)
	}
	c.goesOn(1)
	queuetest.Receive(t, "consuming ends", done)
	queuetest.Eventually(t, "the other one alone uses the link", func() bool { return l.ConsumersNow() == 1 })
}
