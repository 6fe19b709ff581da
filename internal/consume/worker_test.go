package consume

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestLimitOfALostDelivery: the limit's timer fires just when the worker has left a lost delivery.
func TestLimitOfALostDelivery(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	s.settings.Limit = time.Hour
	s.settings.Handle = func(context.Context, *message.Delivered) Verdict { return Verdict{} }
	c := s.start()
	d := &delivery{consumer: c, lease: unknownLease(), tag: "x", msg: message.Delivered{ID: "x", Delivery: 1},
		terms: &noTerms}
	c.leases.held.add(d)
	w := &worker{workers: &s.workers}
	c.leases.lose(d, ErrDeliveryLost)
	w.serve(d)
	if w.replaced {
		t.Error("the worker was replaced")
	}
	if d.abandon(fateAbandoned, ErrConsumeTimeout, time.Hour, nil) {
		t.Error("it counts as abandoned")
	}
}

// TestDeadlineInTheBuffer: a message whose deadline comes while it waits for a worker comes to no handler.
func TestDeadlineInTheBuffer(t *testing.T) {
	d, c := expiring(-time.Microsecond, ""), &Consumer{lifecycle: newLifecycle(time.Hour, slog.Default(), nil)}
	defer c.lifecycle.force()
	d.lease, d.consumer, c.settings.Base, c.settings.Lease = unknownLease(), c, t.Context(), time.Hour
	c.settings.Callback = func(string) bool { t.Error("it is handled"); return true }
	d.lease.began.Set(time.Now())
	c.settler.lifecycle = c.lifecycle
	new(worker).serve(d)
	o := c.settler.outbox.All()[0]
	if o.kind != script.OutcomeGarbage || o.failures != 1 || !errors.Is(o.err, ErrExpired) {
		t.Errorf("%+v", o)
	}
}

// onDone runs code inside serve, between the context and the first look at the fate.
type onDone struct {
	context.Context
	f func()
}

func (c onDone) Done() <-chan struct{} { c.f(); return nil }

func TestShutdownWhileAHandlerIsAboutToStart(t *testing.T) {
	t.Parallel()
	s, starts := newServing(t), make(chan *Consumer, 1)
	var looks atomic.Int64 // the first is the consumer's own, at its start
	s.settings.Handle = func(context.Context, *message.Delivered) Verdict {
		t.Error("a handler started")
		return Verdict{}
	}
	s.settings.Base = onDone{context.Background(), func() {
		if looks.Add(1) == 2 {
			c := <-starts
			c.Stop()
			c.lifecycle.force()
			c.member.abandonAll()
		}
	}}
	c := s.start()
	id := s.send("x")
	starts <- c
	settledDown(t, c)
	if where := s.Where(id); where != "ready" {
		t.Errorf("the message is %s", where)
	}
}

// TestDrain: after a stop, calls to Redis go on while handlers run, and for a lease after each answer.
func TestDrain(t *testing.T) {
	handling := true
	l := newLifecycle(time.Hour, slog.Default(), func() bool { return handling })
	defer l.force()
	if l.stopping() || l.redisCtx.Err() != nil {
		t.Error("it stops at its start")
	}
	l.stop()
	l.stop()
	if !l.stopping() || l.redisCtx.Err() != nil {
		t.Error("calls end with the stop")
	}
	l.redisDeadline.Set(time.Now().Add(-time.Second))
	if l.drained(); l.redisCtx.Err() != nil {
		t.Error("calls end while a handler runs")
	}
	handling = false
	l.extendDrain()
	if l.drained(); l.redisCtx.Err() != nil {
		t.Error("calls end within a lease of an answer")
	}
	l.redisDeadline.Set(time.Now().Add(-time.Second))
	if l.drained(); l.redisCtx.Err() == nil {
		t.Error("calls go on for longer than a lease")
	}
	l.drainTimer.Stop()
}
