package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// A laneEnd is a test of what is left of lanes when all their messages have ended in one way.
type laneEnd struct {
	*face.Fixture
	m   *Queue
	ids []string // in the order of the sends
}

// drains handles all that is due, and returns how many deliveries there were.
func (e *laneEnd) drains(handle func(*delayqueue.Message) error) int {
	e.T.Helper()
	q := e.Queue(nil).WithConcurrent(8).WithDefaultRetryCount(1).WithNackRedeliveryDelay(0).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error { return handle(msg) })
	n, err := q.Drain(queuetest.CtxB)
	e.Must(err)
	return n
}

// each calls for each message, and wants no error.
func (e *laneEnd) each(ids []string, call func(ctx context.Context, id string) error) {
	e.T.Helper()
	for _, id := range ids {
		e.Must(call(queuetest.CtxB, id))
	}
}

func (e *laneEnd) intercept(ctx context.Context, id string) error {
	return queuetest.Failure(e.m.Intercept(ctx, id))
}

// wants compares a number of messages with all.
func (e *laneEnd) wants(what string, n int64) {
	e.T.Helper()
	if n != int64(len(e.ids)) {
		e.T.Errorf("%s: %d of %d", what, n, len(e.ids))
	}
}

func (e *laneEnd) garbage() {
	e.T.Helper()
	c, err := e.m.Counts(queuetest.CtxB)
	e.Must(err)
	e.wants("garbage", c.Garbage)
}

func (e *laneEnd) bulk(call func(context.Context, Bulk) (*BulkResult, error), states ...delayqueue.State) {
	e.T.Helper()
	r, err := call(queuetest.CtxB, Bulk{States: states, Filter: Filter{Limit: 7}})
	e.Must(err)
	e.wants("in bulk", r.Done)
}

func acked(*delayqueue.Message) error { return nil }

func dies(*delayqueue.Message) error { return delayqueue.ErrSkipRetry }

var laneEnds = map[string]struct {
	opts []delayqueue.MsgOption
	end  func(e *laneEnd)
}{
	"handled": {nil, func(e *laneEnd) { e.wants("handled", int64(e.drains(acked))) }},
	"Again, twice": {nil, func(e *laneEnd) {
		n := e.drains(func(msg *delayqueue.Message) error {
			if msg.Delivery < 3 {
				return delayqueue.Again(0)
			}
			return nil
		})
		e.wants("handled", int64(n/3))
	}},
	"failed, and handled": {nil, func(e *laneEnd) {
		n := e.drains(func(msg *delayqueue.Message) error {
			if msg.Failures == 0 {
				return queuetest.ErrBoom
			}
			return nil
		})
		e.wants("handled", int64(n/2))
	}},
	"garbage that is deleted": {nil, func(e *laneEnd) {
		e.drains(dies)
		e.garbage()
		e.bulk(e.m.BulkDelete, delayqueue.StateGarbage)
	}},
	"garbage that is too old": {nil, func(e *laneEnd) {
		q := e.Queue(nil).WithGarbageRetention(time.Millisecond, 0).
			WithHandler(func(_ context.Context, msg *delayqueue.Message) error { return dies(msg) })
		queuetest.Eventually(e.T, "it is deleted", func() bool {
			e.Must(queuetest.Failure(q.Drain(queuetest.CtxB)))
			c, err := e.m.Counts(queuetest.CtxB)
			return err == nil && c == delayqueue.Counts{}
		})
	}},
	"garbage that is requeued": {nil, func(e *laneEnd) {
		e.drains(dies)
		e.bulk(e.m.BulkRequeue)
		e.wants("handled", int64(e.drains(acked)))
	}},
	"expired": {[]delayqueue.MsgOption{delayqueue.WithMsgTTL(time.Millisecond), delayqueue.WithSchedule(time.Unix(5, 0))}, func(e *laneEnd) {
		e.wants("handled", int64(e.drains(acked)+len(e.ids)))
		e.garbage()
		e.each(e.ids, e.m.Delete)
	}},
	"kept, and deleted": {[]delayqueue.MsgOption{delayqueue.WithRetention(time.Hour)}, func(e *laneEnd) {
		e.drains(acked)
		e.bulk(e.m.BulkDelete, delayqueue.StateDone)
	}},
	"skipped": {nil, func(e *laneEnd) {
		e.each(e.ids, e.m.SkipToGarbage) // the first of a lane has its turn
		e.garbage()
		e.bulk(e.m.BulkDelete, delayqueue.StateGarbage)
	}},
	"intercepted": {nil, func(e *laneEnd) { e.each(e.ids, e.intercept) }},
	"intercepted, the last first": {nil, func(e *laneEnd) {
		slices.Reverse(e.ids)
		e.each(e.ids, e.intercept)
	}},
	"deleted in bulk": {nil, func(e *laneEnd) {
		e.bulk(e.m.BulkDelete, delayqueue.StateWaiting, delayqueue.StateReady)
	}},
	"deleted in bulk, before they are due": {[]delayqueue.MsgOption{face.InAnHour}, func(e *laneEnd) {
		e.bulk(e.m.BulkDelete, delayqueue.StateWaiting, delayqueue.StatePending)
	}},
	"put forward in bulk, and handled": {[]delayqueue.MsgOption{face.InAnHour}, func(e *laneEnd) {
		e.bulk(e.m.BulkRunNow)
		e.wants("handled", int64(e.drains(acked)))
	}},
	"replaced by messages without a lane": {nil, func(e *laneEnd) {
		q := e.Queue(nil)
		for i := range e.ids {
			e.Send(q, "x", delayqueue.WithKey(fmt.Sprint(i), delayqueue.Replace))
		}
		e.wants("handled", int64(e.drains(acked)))
	}},
	"canceled while one is handled": {nil, func(e *laneEnd) {
		running := make(chan struct{})
		q := e.Queue(nil).WithLease(time.Second).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
			running <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		q.StartConsume()
		queuetest.Receive(e.T, "one is handled", running)
		e.Must(e.m.Pause(queuetest.CtxB))
		e.each(e.ids, func(ctx context.Context, id string) error { return queuetest.Failure(e.m.Cancel(ctx, id)) })
		e.Must(q.Shutdown(queuetest.CtxB))
	}},
	"the queue is deleted": {nil, func(e *laneEnd) { e.Must(e.m.DeleteQueue(queuetest.CtxB, false)) }},
}

// TestNothingIsLeftOfLanes: however the messages of lanes end, Redis keeps nothing of them.
func TestNothingIsLeftOfLanes(t *testing.T) {
	t.Parallel()
	for name, c := range laneEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			e := &laneEnd{Fixture: f, m: Of(delayqueue.NewMonitor(f.Name, f.Cli))}
			var batch []delayqueue.Outgoing
			for i := range 60 {
				opts := []delayqueue.MsgOption{delayqueue.WithLane(fmt.Sprint("lane-", i%4), 1+i%4), delayqueue.WithKey(fmt.Sprint(i))}
				batch = append(batch, delayqueue.Outgoing{Payload: "x", Options: append(opts, c.opts...)})
			}
			sent, err := f.Queue(nil).SendBatch(queuetest.CtxB, batch)
			f.Must(err)
			for _, s := range sent {
				e.ids = append(e.ids, s.Info.ID)
			}
			c.end(e)
			nothingLeft(f)
		})
	}
}

// nothingLeft wants no key of the queue in Redis but those that outlast its messages.
func nothingLeft(f *face.Fixture) {
	f.T.Helper()
	f.CheckEmpty()
	keys, err := f.Cli.Keys(queuetest.CtxB, f.Key("*")).Result()
	f.Must(err)
	for _, key := range keys {
		switch strings.TrimPrefix(key, f.Key("")) {
		case "state", "consumers", "history", "journal", "wake":
		case "unack", "lease": // the lease of a delivery that was canceled, without a message
		default:
			f.T.Errorf("%s is left", key)
		}
	}
}
