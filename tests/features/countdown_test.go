package features

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
)

// countsFor are n messages whose acks count for a key.
func countsFor(key string, n int) []delayqueue.Outgoing {
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: strconv.Itoa(i), Options: []delayqueue.MsgOption{delayqueue.WithCounts(key)}}
	}
	return batch
}

// TestCountdown: a message that waits for 500 others is handled once, when all of them are acked, and at once,
// although no consumer looks of its own accord.
func TestCountdown(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const n = 500
	var children atomic.Int64
	parents := make(chan *delayqueue.Message, 2)
	handle := func(_ context.Context, msg *delayqueue.Message) error {
		switch {
		case msg.Payload == "parent":
			if done := children.Load(); done != n {
				t.Errorf("handled when %d of %d were done", done, n)
			}
			parents <- msg
		case msg.Payload == "7" && msg.Delivery == 1:
			return queuetest.ErrBoom
		default:
			children.Add(1)
		}
		return nil
	}
	var queues []*delayqueue.DelayQueue
	for range 3 {
		queues = append(queues,
			face.NoTick(f.Queue(nil)).WithHandler(handle).WithConcurrent(8).WithNackRedeliveryDelay(50*time.Millisecond))
	}
	parent := f.Send(queues[0], "parent", delayqueue.WithKey("import"), delayqueue.WithCountdown(n), face.InAnHour)
	_, err := queues[0].SendBatch(queuetest.CtxB, countsFor("import", n))
	f.Must(err)
	begun := time.Now()
	for _, q := range queues {
		q.StartConsume()
	}
	msg := queuetest.Receive(t, "the parent", parents)
	if msg.ID != parent.ID || msg.CountdownLeft != 0 || msg.Key != "import" || msg.Delivery != 1 ||
		msg.Due.After(begun.Add(time.Minute)) {
		t.Errorf("%+v", msg)
	}
	f.Drained()
	f.CheckEmpty()
	if len(parents) > 0 {
		t.Error("the parent was handled twice")
	}
}

// TestCountdownAtItsInstant: a message whose acks do not all come is handled at its own instant, and knows how many
// are missing. It counts on until it is acked.
func TestCountdownAtItsInstant(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	got := make(chan *delayqueue.Message, 3)
	q := f.Queue(nil).WithNackRedeliveryDelay(time.Millisecond).WithHandler(
		func(ctx context.Context, msg *delayqueue.Message) error {
			switch msg.Payload {
			case "parent":
				got <- msg
				if msg.Delivery == 1 { // the others are done before it comes again
					return delayqueue.Then(ctx, "never sent", delayqueue.WithCounts("k"))
				}
				return nil
			case "bad":
				return delayqueue.ErrSkipRetry
			}
			return nil
		})
	q.WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
		return func(ctx context.Context, msg *delayqueue.Message) error {
			err := next(ctx, msg)
			if msg.Payload == "parent" && msg.Delivery == 1 {
				return errors.Join(err, queuetest.ErrBoom)
			}
			return err
		}
	})
	parent := f.Send(q, "parent", delayqueue.WithKey("k"), delayqueue.WithCountdown(3), face.InAnHour)
	for _, payload := range []string{"good", "bad", "good"} {
		f.Send(q, payload, delayqueue.WithCounts("k"), delayqueue.WithRetention(time.Hour))
	}
	q.StartConsume()
	queuetest.Eventually(t, "two have counted", func() bool { return f.Check().Missing[parent.ID] == 1 })
	f.Must(q.RescheduleKey(queuetest.CtxB, "k", time.Now()))
	for delivery := 1; delivery <= 2; delivery++ {
		if msg := queuetest.Receive(t, "a delivery", got); msg.CountdownLeft != 1 || msg.Delivery != delivery {
			t.Errorf("%+v", msg)
		}
	}
	queuetest.Eventually(t, "all is settled", func() bool {
		s := f.Check()
		return len(s.Messages) == 3 && len(s.Garbage) == 1
	})
}

// TestCountdownOfTheDead: a message that waits for a dead one is found until the dead one is requeued and acked.
func TestCountdownOfTheDead(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var mended atomic.Bool
	q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		if msg.Payload == "bad" && !mended.Load() {
			return delayqueue.ErrSkipRetry
		}
		return nil
	})
	f.Send(q, "parent", delayqueue.WithKey("k"), delayqueue.WithCountdown(2), face.InAnHour)
	f.Send(q, "good", delayqueue.WithCounts("k"))
	f.Send(q, "nobody waits for it", delayqueue.WithCounts("gone"))
	bad := f.Send(q, "bad", delayqueue.WithCounts("k"))
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	stuck := func() []health.Countdown {
		n, err := m.Counts(queuetest.CtxB)
		f.Must(err)
		all, err := health.Countdowns(queuetest.CtxB, m, &n)
		f.Must(err)
		return all
	}
	if all := stuck(); len(all) != 0 {
		t.Errorf("nothing is dead: %+v", all)
	}
	q.StartConsume()
	queuetest.Eventually(t, "one is dead, one is acked", func() bool {
		all := stuck()
		return len(all) == 1 && all[0].Left == 1
	})
	if all := stuck(); len(all) != 1 || all[0].Key != "k" || all[0].Dead != bad.ID || all[0].Since.IsZero() {
		t.Errorf("%+v", all)
	}
	mended.Store(true)
	f.Must(m.Requeue(queuetest.CtxB, bad.ID))
	f.Drained()
	if all := stuck(); len(all) != 0 {
		t.Errorf("all are acked: %+v", all)
	}
}

// TestCountdownOptions: what cannot be is refused with a sentence, and a countdown of nothing is due now.
func TestCountdownOptions(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	key, hour := delayqueue.WithKey("k"), face.InAnHour
	refusesOptions(f, map[string]badOptions{
		"negative": {[]delayqueue.MsgOption{key, hour, delayqueue.WithCountdown(-1)},
			[]string{"WithCountdown(-1)"}},
		"too many": {[]delayqueue.MsgOption{key, hour, delayqueue.WithCountdown(1_000_000_001)},
			[]string{"from 0 to 1000000000"}},
		"no key": {[]delayqueue.MsgOption{hour, delayqueue.WithCountdown(5)},
			[]string{"WithCountdown(5) without a key", "WithCounts"}},
		"none, and no key": {[]delayqueue.MsgOption{hour, delayqueue.WithCountdown(0)}, []string{"without a key"}},
		"due now": {[]delayqueue.MsgOption{key, delayqueue.WithCountdown(5)},
			[]string{"due now", "WithDelay", "WithSchedule"}},
		"due now, it says": {[]delayqueue.MsgOption{key, delayqueue.WithDelay(0), delayqueue.WithCountdown(5)},
			[]string{"due now"}},
		"counts for no key": {[]delayqueue.MsgOption{delayqueue.WithCounts("")}, []string{"WithCounts", "1 to 512"}},
		"counts for a long": {[]delayqueue.MsgOption{delayqueue.WithCounts(strings.Repeat("k", 513))},
			[]string{"513 bytes"}},
		"counts for itself": {[]delayqueue.MsgOption{key, delayqueue.WithCounts("k")},
			[]string{`WithCounts("k")`, "itself"}},
		"a deadline too soon": {[]delayqueue.MsgOption{key, hour, delayqueue.WithCountdown(5),
			delayqueue.WithDeadline(time.Now().Add(time.Minute))}, []string{"WithDeadline"}},
	})
	f.Must(q.SendDelayMsg("due now", time.Hour, key, delayqueue.WithCountdown(0)))
	if s := f.Check(); len(s.Pending) != 1 || s.Pending[0].Score > s.Now || len(s.Missing) > 0 {
		t.Errorf("due at %d, now is %d: %v", s.Pending[0].Score, s.Now, s.Missing)
	}
	if err := q.SendDelayMsg("x", 0, delayqueue.WithKey("l"), delayqueue.WithCountdown(1)); !errors.Is(err,
		delayqueue.ErrBadOption) {
		t.Error(err)
	}
	f.Must(q.SendScheduleMsg("x", time.Now().Add(time.Hour), delayqueue.WithKey("l"), delayqueue.WithCountdown(1)))
}

// TestCountdownInABatch: a batch may begin with the message that waits, also while consumers run, because a batch is
// stored in its order.
func TestCountdownInABatch(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	parents := make(chan *delayqueue.Message, 2)
	q := face.NoTick(f.Queue(nil)).WithConcurrent(8).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		if msg.Payload == "parent" {
			parents <- msg
		}
		return nil
	})
	q.StartConsume()
	parent := delayqueue.Outgoing{Payload: "parent",
		Options: []delayqueue.MsgOption{delayqueue.WithKey("k"), delayqueue.WithCountdown(1200), face.InAnHour}}
	_, err := q.SendBatch(queuetest.CtxB, append([]delayqueue.Outgoing{parent}, countsFor("k", 1200)...))
	f.Must(err)
	if msg := queuetest.Receive(t, "the parent", parents); msg.CountdownLeft != 0 {
		t.Errorf("%+v", msg)
	}
	f.Drained()
}

// TestThenAppends: the results of many handlers come together in one message, each once, although handlers run twice;
// it is due with the last.
func TestThenAppends(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const n = 200
	sums := make(chan []string, 2)
	q := f.Queue(nil).WithConcurrent(16).WithNackRedeliveryDelay(time.Millisecond).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			if msg.Key == "sum" {
				sums <- msg.Parts
				return nil
			}
			err := delayqueue.Then(ctx, msg.Payload, delayqueue.WithKey("sum", delayqueue.Append), delayqueue.WithMaxParts(n),
				face.InAnHour)
			if msg.Delivery == 1 && strings.HasSuffix(msg.Payload, "3") {
				return errors.Join(err, queuetest.ErrBoom) // what was named is void
			}
			return err
		})
	told := face.CountEvents(t, q, delayqueue.RescheduledEvent)
	for i := range n {
		f.Send(q, strconv.Itoa(i), delayqueue.WithKey("{sum}"+strconv.Itoa(i)))
	}
	q.StartConsume()
	parts := queuetest.Receive(t, "the results", sums)
	slices.SortFunc(parts, func(a, b string) int { return len(a)*1000 - len(b)*1000 + strings.Compare(a, b) })
	for i, part := range parts {
		if part != strconv.Itoa(i) || len(parts) != n {
			t.Fatalf("%d parts: %v", len(parts), parts)
		}
	}
	f.Drained()
	f.CheckEmpty()
	queuetest.Eventually(t, "it is told that the group moved", func() bool { return told.Load() == n-1 })
}

// TestThenChangesTooMuch: a message whose followers would change over 4 MB is garbage, and the garbage handler is
// told why. Its neighbours are acked.
func TestThenChangesTooMuch(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const n = 6
	told := make(chan error, 2)
	q := f.Queue(nil).WithConcurrent(8).WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, err error) {
		told <- fmt.Errorf("%s: %w", msg.Payload, err)
	}).WithHandler(func(ctx context.Context, msg *delayqueue.Message) (err error) {
		if msg.Payload == "all" {
			for i := range n {
				err = errors.Join(err, delayqueue.Then(ctx, "x", delayqueue.WithKey("{all}"+strconv.Itoa(i), delayqueue.Reschedule),
					delayqueue.WithDelay(2*time.Hour)))
			}
		}
		return err
	})
	for i := range n {
		f.Send(q, strings.Repeat("x", 1<<20), delayqueue.WithKey("{all}"+strconv.Itoa(i)), face.InAnHour)
	}
	all := f.Send(q, "all", delayqueue.WithKey("all"))
	face.Several(f, 20)
	q.StartConsume()
	if err := queuetest.Receive(t, "the garbage handler", told); !errors.Is(err, delayqueue.ErrPayloadTooLarge) ||
		!strings.Contains(err.Error(), "all: ") ||
		!strings.Contains(err.Error(), "4 MB") {
		t.Error(err)
	}
	queuetest.Eventually(t, "the others are acked", func() bool {
		return len(f.Check().Messages) == n+1 && len(f.Check().Unack) == 0
	})
	if s := f.Check(); s.Where(all.ID) != "garbage" || !strings.Contains(s.Fail[all.ID].Error, "4 MB") ||
		s.Pending[n-1].Score > s.Now+3600e6 {
		t.Errorf("%s, %q", s.Where(all.ID), s.Fail[all.ID].Error)
	}
}
