package ops

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestPrefixOnce: an error that a call returns says whose it is once, in front, and names the queue; what it
// wraps does not say it again.
func TestPrefixOnce(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		delayqueue.ErrSkipRetry, delayqueue.ErrNacked, delayqueue.ErrPanicked, delayqueue.ErrConsumeTimeout,
		delayqueue.ErrExpired, delayqueue.ErrPoison, delayqueue.ErrDeliveryLost, delayqueue.ErrCanceled,
		delayqueue.ErrShutdown,
		delayqueue.ErrDuplicateKey, delayqueue.ErrNotReplicated, delayqueue.ErrBadOption, delayqueue.ErrPayloadTooLarge,
		script.ErrBadReply,
		delayqueue.ErrWrongType, delayqueue.ErrSnoozed, delayqueue.ErrWrongState,
		ErrConsumersAlive, ErrUnknownLayout, ErrBadCursor, message.ErrNewerVersion, link.ErrNoNode,
		delayqueue.Snooze(time.Second),
		delayqueue.RetryAfter(time.Second, nil),
	} {
		if strings.Contains(err.Error(), "delayqueue") {
			t.Errorf("%q has a prefix of its own", err)
		}
	}

	f := face.New(t)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	buriedIn(f, "a")
	holder := f.Send(q, "x", delayqueue.WithKey("key of a"), delayqueue.WithDelay(time.Hour))
	garbage := f.Check().Garbage[0].ID
	_, duplicate := q.Send(context.Background(), "y", delayqueue.WithKey("key of a"))
	_, badOption := q.Send(context.Background(), "y", nil)
	_, batch := q.SendBatch(context.Background(),
		[]delayqueue.Outgoing{{Options: []delayqueue.MsgOption{delayqueue.WithKey("key of a")}}})
	ended := queuetest.Over()
	_, intercept := q.Intercept(ended, "x")
	_, get := m.Get(ended, "x")
	_, list := m.List(context.Background(), delayqueue.StatePending, Filter{}, "x")
	for call, err := range map[string]error{
		"Send, duplicate": duplicate, "Send, bad option": badOption, "SendBatch": batch, "Intercept": intercept, "Get": get,
		"List":                 list,
		"Requeue, duplicate":   m.Requeue(context.Background(), garbage),
		"Requeue, wrong state": m.Requeue(context.Background(), holder.ID),
		"RunNow, gone":         m.RunNow(context.Background(), "nobody"),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), `delayqueue: queue "`+f.Name+`": `) ||
			strings.Count(err.Error(), "delayqueue") != 1 {
			t.Errorf("%s: %v; want the prefix once, and the queue", call, err)
		}
	}
	if !errors.Is(duplicate, delayqueue.ErrDuplicateKey) {
		t.Errorf("duplicate: %v", duplicate)
	}
}

// TestForeignHolderOfAKey: whatever holds a key, the others that are sent with it are stored, and say so.
func TestForeignHolderOfAKey(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	buriedIn(f, "dead")
	for _, holder := range []string{"a b", " ", "\n", "\u00a0", "1=2 3=4", "\xff"} {
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("key"), "taken", holder, "key of dead", holder).Err())
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("msg"), holder, "x").Err())
		got, err := q.SendBatch(queuetest.CtxB,
			[]delayqueue.Outgoing{{Payload: "free", Options: []delayqueue.MsgOption{face.InAnHour}},
				{Payload: "not", Options: []delayqueue.MsgOption{delayqueue.WithKey("taken")}}})
		if !errors.Is(err, delayqueue.ErrDuplicateKey) || got[0].Err != nil ||
			!errors.Is(got[1].Err, delayqueue.ErrDuplicateKey) {
			t.Errorf("%q: %v, %v", holder, got[0].Err, got[1].Err)
		}
		bulk, err := m.BulkRequeue(queuetest.CtxB, Bulk{})
		bulked(f, "requeue", bulk, err, 1, 0, map[Reason]int64{PassedKey: 1})
		f.Must(f.Cli.HDel(queuetest.CtxB, f.Key("key"), "taken", "key of dead").Err())
		f.Must(f.Cli.HDel(queuetest.CtxB, f.Key("msg"), holder).Err())
	}
}
