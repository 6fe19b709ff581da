package delayqueue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestPrefixOnce: an error that a call returns says whose it is once, in front, and names the queue; what it
// wraps does not say it again.
func TestPrefixOnce(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		ErrSkipRetry, ErrNacked, ErrPanicked, ErrConsumeTimeout, ErrExpired, ErrPoison, ErrDeliveryLost, ErrCanceled, ErrShutdown,
		ErrDuplicateKey, ErrNotReplicated, ErrBadOption, ErrPayloadTooLarge, ErrBadReply, ErrConsuming, ErrStopped,
		ErrWrongType, ErrSnoozed, ErrWrongState,
		ErrConsumersAlive, ErrUnknownLayout, ErrBadCursor, errNewerVersion, errBadEnvelope, errNoNode, Snooze(time.Second),
		RetryAfter(time.Second, nil),
	} {
		if strings.Contains(err.Error(), "delayqueue") {
			t.Errorf("%q has a prefix of its own", err)
		}
	}

	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	f.buried("a")
	holder := f.send(q, "x", WithKey("key of a"), WithDelay(time.Hour))
	garbage := f.check().Garbage[0].ID
	_, duplicate := q.Send(context.Background(), "y", WithKey("key of a"))
	_, badOption := q.Send(context.Background(), "y", nil)
	_, batch := q.SendBatch(context.Background(), []Outgoing{{Options: []MsgOption{WithKey("key of a")}}})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, intercept := q.Intercept(ended, "x")
	_, get := m.Get(ended, "x")
	_, list := m.List(context.Background(), StatePending, Filter{}, "x")
	for call, err := range map[string]error{
		"Send, duplicate": duplicate, "Send, bad option": badOption, "SendBatch": batch, "Intercept": intercept, "Get": get, "List": list,
		"Requeue, duplicate": m.Requeue(context.Background(), garbage), "Requeue, wrong state": m.Requeue(context.Background(), holder.ID),
		"RunNow, gone": m.RunNow(context.Background(), "nobody"),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), `delayqueue: queue "`+f.name+`": `) || strings.Count(err.Error(), "delayqueue") != 1 {
			t.Errorf("%s: %v; want the prefix once, and the queue", call, err)
		}
	}
	if !errors.Is(duplicate, ErrDuplicateKey) {
		t.Errorf("duplicate: %v", duplicate)
	}
}
