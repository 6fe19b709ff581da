package delayqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// An atOnce counts the handlers of a queue that run at once. They run until they are let go, whatever their contexts say.
type atOnce struct {
	*fixture
	keys    *keys
	running atomic.Int64
	most    atomic.Int64
	handled atomic.Int64
	started chan string // ids
	ended   chan error  // causes of the ends of contexts
	leave   chan struct{}
}

func newAtOnce(t *testing.T) *atOnce {
	f := newFixture(t)
	return &atOnce{fixture: f, keys: newStore(f.cli, "dq", f.name).keys,
		started: make(chan string, 100), ended: make(chan error, 100), leave: make(chan struct{})}
}

func (c *atOnce) handle(ctx context.Context, msg *Message) error {
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
func (c *atOnce) queue() *DelayQueue {
	return c.fixture.queue(nil).WithHandler(c.handle).WithConcurrent(8).WithQueueConcurrency(1).WithLease(15 * time.Minute)
}

// overrun waits until a message has the only place, which nobody else is given.
func (c *atOnce) overrun(id string) {
	c.t.Helper()
	eventually(c.t, "its delivery has ended, and it keeps its place", func() bool {
		tags := c.cli.ZRange(ctxB, c.keys.unack, 0, -1).Val()
		return len(tags) == 1 && tags[0] == "overrun:"+id
	})
	got, err := c.calls().fetch(ctxB, newCaller(), fetchRequest{want: 10, settings: &fetchSettings{lease: time.Minute, maxLosses: 3},
		limits: Limits{Concurrency: 1}})
	if err != nil || len(got.tags) > 0 || c.most.Load() > 1 {
		c.t.Fatalf("%d handed out, %v; %d handlers at once", len(got.tags), err, c.most.Load())
	}
	if n, err := NewMonitor(c.name, c.cli).Counts(ctxB); err != nil || n.Overruns != 1 || n.Unack != 0 {
		c.t.Errorf("%+v, %v", n, err)
	}
}

// goesOn lets all handlers go: so many messages are handled, one at a time, and no place is left.
func (c *atOnce) goesOn(messages int) {
	c.t.Helper()
	close(c.leave)
	reaches(c.t, "handlers return", messages, func() int { return int(c.handled.Load()) })
	if most := c.most.Load(); most != 1 {
		c.t.Errorf("%d handlers at once", most)
	}
	eventually(c.t, "all places are free", func() bool { return c.cli.ZCard(ctxB, c.keys.unack).Val() == 0 })
}

// TestQueueConcurrencyOfOverruns: a handler that runs on after its delivery has ended keeps its place until it returns.
func TestQueueConcurrencyOfOverruns(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Millisecond
	pastLimit := func(c *atOnce, start func()) {
		start()
		id := receive(c.t, "one starts", c.started)
		receive(c.t, "it runs past its limit", c.ended)
		eventually(c.t, "its failure is settled", func() bool { return c.where(id) == "retry" })
		c.overrun(id)
	}
	cancels := func(cancel func(m *Monitor, id string)) func(c *atOnce, q *DelayQueue) {
		return func(c *atOnce, q *DelayQueue) {
			q.StartConsume()
			id := receive(c.t, "one starts", c.started)
			cancel(NewMonitor(c.name, c.cli), id)
			c.overrun(id)
		}
	}
	for name, test := range map[string]func(c *atOnce, q *DelayQueue){
		"past its limit": func(c *atOnce, q *DelayQueue) {
			pastLimit(c, func() { q.WithMaxConsumeDuration(limit).WithRetryDelays(time.Hour).StartConsume() })
		},
		"past its limit, in a pool": func(c *atOnce, q *DelayQueue) {
			q.WithMaxConsumeDuration(limit).WithRetryDelays(time.Hour)
			pool := NewPool(8, Share{Queue: q})
			c.t.Cleanup(pool.StopConsume)
			pastLimit(c, func() { pool.StartConsume() })
		},
		"canceled": cancels(func(m *Monitor, id string) {
			if r, err := m.Cancel(ctxB, id); err != nil || !r.Intercepted {
				t.Errorf("%+v, %v", r, err)
			}
		}),
		"canceled with others": cancels(func(m *Monitor, id string) {
			if r, err := m.BulkDelete(ctxB, Bulk{States: []State{StateUnack}}); err != nil || r.Done != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		}),
		"abandoned beside others": func(c *atOnce, q *DelayQueue) {
			q.StartConsume()
			id := receive(c.t, "one starts", c.started)
			c.queue().StartConsume()
			if err := q.Shutdown(over()); !errors.Is(err, context.Canceled) {
				c.t.Error(err)
			}
			q.StartConsume()
			c.overrun(id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newAtOnce(t)
			c.several(3)
			test(c, c.queue())
			c.goesOn(3)
		})
	}
}

// TestOverrunOfACanceledMessage: once a process has noticed that a message is canceled, it renews the place of the handler that runs on.
func TestOverrunOfACanceledMessage(t *testing.T) {
	t.Parallel()
	c := newAtOnce(t)
	c.several(2)
	c.queue().WithLease(9 * time.Second).StartConsume()
	id := receive(t, "one starts", c.started)
	if r, err := NewMonitor(c.name, c.cli).Cancel(ctxB, id); err != nil || !r.Intercepted {
		t.Fatalf("%+v, %v", r, err)
	}
	before := c.score(c.keys.unack, "overrun:"+id)
	if err := receive(t, "its context ends", c.ended); !errors.Is(err, ErrCanceled) {
		t.Error(err)
	}
	eventually(t, "its place is renewed twice", func() bool {
		return c.score(c.keys.unack, "overrun:"+id) > before+3e6
	})
	c.goesOn(2)
}

// TestOverrunBeforeLimits: handlers that run on when a Monitor bounds the concurrency have places, too.
func TestOverrunBeforeLimits(t *testing.T) {
	t.Parallel()
	c := newAtOnce(t)
	c.several(1)
	q := c.fixture.queue(nil).WithHandler(c.handle).WithLease(9 * time.Second).WithMaxConsumeDuration(20 * time.Millisecond).
		WithRetryDelays(time.Hour)
	q.StartConsume()
	id := receive(t, "one starts", c.started)
	receive(t, "it runs past its limit", c.ended)
	eventually(t, "its failure is settled", func() bool { return c.where(id) == "retry" })
	o := &q.current().overruns
	o.mu.Lock()
	ticks := o.timer != nil
	o.mu.Unlock()
	if n := c.cli.ZCard(ctxB, c.keys.unack).Val(); n != 0 || ticks {
		t.Errorf("%d have places", n)
	}
	m := NewMonitor(c.name, c.cli)
	_, err := m.SetLimits(ctxB, Limits{Concurrency: 1})
	c.must(err)
	c.overrun(id)
	if err := m.DeleteQueue(ctxB, true); err != nil {
		t.Error(err)
	}
	c.goesOn(1)
}

// TestOverrunAfterItsConsumer: what a consumer needs for the places of handlers that run on it lets go when these have returned.
func TestOverrunAfterItsConsumer(t *testing.T) {
	t.Parallel()
	c := newAtOnce(t)
	c.several(1)
	q := c.queue().WithLease(9 * time.Second)
	done := q.StartConsume()
	id := receive(t, "one starts", c.started)
	l := linkOf(c.cli)
	defer l.release()
	if err := q.Shutdown(over()); err == nil {
		t.Error("it runs on")
	}
	receive(t, "consuming ends", done)
	before := c.score(c.keys.unack, "overrun:"+id)
	eventually(t, "its place is renewed", func() bool { return c.score(c.keys.unack, "overrun:"+id) > before+1e6 })
	if n := l.consumersNow(); n != 1 {
		t.Errorf("%d consumers use the link", n)
	}
	c.goesOn(1)
	eventually(t, "nobody uses the link", func() bool { return l.consumersNow() == 0 })
}
