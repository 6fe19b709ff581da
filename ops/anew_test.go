package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestExpiredIsRefused: what would expire before it is handled is neither brought back nor made due, unless its
// deadline is lifted. Then it is handled.
func TestExpiredIsRefused(t *testing.T) {
	f, m := newQueue(t)
	handled := make(chan string, 100)
	fails := true
	q := f.Queue(nil).WithRetryDelays(time.Millisecond).WithHandler(
		func(_ context.Context, msg *delayqueue.Message) error {
			if fails {
				return queuetest.ErrBoom
			}
			handled <- msg.Payload
			return nil
		})
	ctx, soon := queuetest.CtxB, time.Now().Add(time.Second)
	dies := f.Send(q, "dies", delayqueue.WithDeadline(soon), delayqueue.WithRetryCount(1_000_000))
	f.Send(q, "dies too", delayqueue.WithDeadline(soon), delayqueue.WithRetryCount(1_000_000))
	f.Send(q, "without", delayqueue.WithRetryCount(0))
	q.StartConsume()
	queuetest.Eventually(t, "all are garbage", func() bool { return len(f.Check().Garbage) == 3 })
	f.Must(q.Shutdown(ctx))
	later := f.Send(q, "later", face.InAnHour, delayqueue.WithDeadline(time.Now().Add(90*time.Minute)),
		delayqueue.WithKey("k"))

	beyond := time.Now().Add(2 * time.Hour)
	for what, err := range map[string]error{
		"requeue": m.Requeue(ctx, dies.ID), "reschedule": m.Reschedule(ctx, later.ID, beyond),
		"reschedule by": m.RescheduleBy(ctx, later.ID, time.Hour), "key": m.RescheduleKey(ctx, "k", beyond),
		"of the sender": q.Reschedule(ctx, later.ID, beyond), "of a Monitor": m.Monitor().RescheduleKey(ctx, "k", beyond),
	} {
		if !errors.Is(err, delayqueue.ErrExpired) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, dry := range []bool{true, false} {
		got, err := m.BulkRescheduleBy(ctx, Bulk{DryRun: dry}, time.Hour)
		bulked(f, "later", got, err, 1, 0, map[Reason]int64{PassedExpired: 1})
		got, err = m.BulkReschedule(ctx, Bulk{DryRun: dry}, beyond)
		bulked(f, "beyond", got, err, 1, 0, map[Reason]int64{PassedExpired: 1})
		got, err = m.BulkRequeue(ctx, Bulk{DryRun: dry})
		bulked(f, "requeue", got, err, 3, 1, map[Reason]int64{PassedExpired: 2})
	}
	if s := statusInQueue(f, m, later.ID); !s.Due.Equal(later.Due) || s.Deadline.IsZero() {
		t.Errorf("refused, and changed: %+v", s)
	}
	f.Must(m.RescheduleBy(ctx, later.ID, -time.Minute))

	late := f.Send(q, "late", delayqueue.WithMsgTTL(time.Millisecond))
	queuetest.Eventually(t, "its TTL is over", func() bool {
		return errors.Is(m.RunNow(ctx, late.ID), delayqueue.ErrExpired)
	})
	anew := Of(m.Monitor()).Anew()
	f.Must(anew.RunNow(ctx, late.ID))
	f.Must(anew.RescheduleBy(ctx, later.ID, time.Hour))
	if s := statusInQueue(f, m, later.ID); !s.Deadline.IsZero() {
		t.Errorf("its deadline was lifted: %+v", s)
	}
	f.Must(m.RunNow(ctx, later.ID))
	got, err := m.BulkRequeue(ctx, Bulk{Anew: true})
	bulked(f, "requeue", got, err, 2, 2, nil)
	f.Must(m.RescheduleBy(ctx, late.ID, time.Hour))
	f.Must(m.RunNow(ctx, late.ID))
	fails = false
	q = f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		handled <- msg.Payload
		return nil
	})
	q.StartConsume()
	for range 4 {
		queuetest.Receive(t, "it is handled", handled)
	}
}
