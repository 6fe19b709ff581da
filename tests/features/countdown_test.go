package features

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// countsFor are n messages whose acks count for a key.
func countsFor(key string, n int) []delayqueue.Outgoing {
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: strconv.Itoa(i), Options: []delayqueue.MsgOption{delayqueue.WithCounts(key)}}
	}
	return batch
}

// TestCountdown: a message that waits for 500 others is handled once, when all of them are acked, and at once, although no consumer looks
// of its own accord.
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
		queues = append(queues, face.NoTick(f.Queue(nil)).WithHandler(handle).WithConcurrent(8).WithNackRedeliveryDelay(50*time.Millisecond))
	}
	parent := f.Send(queues[0], "parent", delayqueue.WithKey("import"), delayqueue.WithCountdown(n), face.InAnHour)
	_, err := queues[0].SendBatch(queuetest.CtxB, countsFor("import", n))
	f.Must(err)
	begun := time.Now()
	for _, q := range queues {
		q.StartConsume()
	}
	msg := queuetest.Receive(t, "the parent", parents)
	if msg.ID != parent.ID || msg.CountdownLeft != 0 || msg.Key != "import" || msg.Delivery != 1 || msg.Due.After(begun.Add(time.Minute)) {
		t.Errorf("%+v", msg)
	}
	f.Drained()
	f.CheckEmpty()
	if len(parents) > 0 {
		t.Error("the parent was handled twice")
	}
}

// TestCountdownAtItsInstant: a message whose acks do not all come is handled at its own instant, and knows how many are missing. It counts on
// until it is acked.
func TestCountdownAtItsInstant(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	got := make(chan *delayqueue.Message, 3)
	q := f.Queue(nil).WithNackRedeliveryDelay(time.Millisecond).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
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
		f.Send(q, payload, delayqueue.WithCounts("k"))
	}
	q.StartConsume()
	queuetest.Eventually(t, "two have counted", func() bool { return f.Check().Missing[parent.ID] == 1 })
	f.Must(q.RescheduleKey(queuetest.CtxB, "k", time.Now()))
	for delivery := 1; delivery <= 2; delivery++ {
		if msg := queuetest.Receive(t, "a delivery", got); msg.CountdownLeft != 1 || msg.Delivery != delivery {
			t.Errorf("%+v", msg)
		}
	}
	queuetest.Eventually(t, "all is settled", func() bool { s := f.Check(); return len(s.Messages) == 1 && len(s.Garbage) == 1 })
}

// TestCountdownReplyLost: a settlement whose reply is lost is repeated, and its acks count once.
func TestCountdownReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := face.Wired(t)
	q := f.QueueOn(cli, func(string) bool { return true })
	parent := f.Send(q, "parent", delayqueue.WithKey("k"), delayqueue.WithCountdown(10), face.InAnHour)
	child := f.Send(q, "child", delayqueue.WithCounts("k"))
	wire.DropReply(redistest.Script(script.SettleScript.SHA))
	q.StartConsume()
	queuetest.Eventually(t, "it is acked", func() bool { return f.Where(child.ID) == "gone" })
	last := f.Send(q, "last")
	queuetest.Eventually(t, "settling goes on", func() bool { return f.Where(last.ID) == "gone" })
	if left := f.Check().Missing[parent.ID]; left != 9 {
		t.Errorf("%d acks are missing, want 9", left)
	}
}

// TestCountdownOptions: what cannot be is refused with a sentence, and a countdown of nothing is due now.
func TestCountdownOptions(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	key, hour := delayqueue.WithKey("k"), face.InAnHour
	for name, c := range map[string]struct {
		opts  []delayqueue.MsgOption
		texts []string
	}{
		"negative":            {[]delayqueue.MsgOption{key, hour, delayqueue.WithCountdown(-1)}, []string{"WithCountdown(-1)"}},
		"too many":            {[]delayqueue.MsgOption{key, hour, delayqueue.WithCountdown(1_000_000_001)}, []string{"from 0 to 1000000000"}},
		"no key":              {[]delayqueue.MsgOption{hour, delayqueue.WithCountdown(5)}, []string{"WithCountdown(5) without a key", "WithCounts"}},
		"none, and no key":    {[]delayqueue.MsgOption{hour, delayqueue.WithCountdown(0)}, []string{"without a key"}},
		"due now":             {[]delayqueue.MsgOption{key, delayqueue.WithCountdown(5)}, []string{"due now", "WithDelay", "WithSchedule"}},
		"due now, it says":    {[]delayqueue.MsgOption{key, delayqueue.WithDelay(0), delayqueue.WithCountdown(5)}, []string{"due now"}},
		"counts for no key":   {[]delayqueue.MsgOption{delayqueue.WithCounts("")}, []string{"WithCounts", "1 to 512"}},
		"counts for a long":   {[]delayqueue.MsgOption{delayqueue.WithCounts(strings.Repeat("k", 513))}, []string{"513 bytes"}},
		"counts for itself":   {[]delayqueue.MsgOption{key, delayqueue.WithCounts("k")}, []string{`WithCounts("k")`, "itself"}},
		"a deadline too soon": {[]delayqueue.MsgOption{key, hour, delayqueue.WithCountdown(5), delayqueue.WithDeadline(time.Now().Add(time.Minute))}, []string{"WithDeadline"}},
	} {
		_, err := q.Send(queuetest.CtxB, "x", c.opts...)
		if !errors.Is(err, delayqueue.ErrBadOption) || face.Fate(f, err) != delayqueue.StoredNo {
			t.Errorf("%s: %v", name, err)
		}
		for _, text := range c.texts {
			if !strings.Contains(fmt.Sprint(err), text) {
				t.Errorf("%s: %v; want %q in it", name, err, text)
			}
		}
	}
	f.Must(q.SendDelayMsg("due now", time.Hour, key, delayqueue.WithCountdown(0)))
	if s := f.Check(); len(s.Pending) != 1 || s.Pending[0].Score > s.Now || len(s.Missing) > 0 {
		t.Errorf("due at %d, now is %d: %v", s.Pending[0].Score, s.Now, s.Missing)
	}
	if err := q.SendDelayMsg("x", 0, delayqueue.WithKey("l"), delayqueue.WithCountdown(1)); !errors.Is(err, delayqueue.ErrBadOption) {
		t.Error(err)
	}
	f.Must(q.SendScheduleMsg("x", time.Now().Add(time.Hour), delayqueue.WithKey("l"), delayqueue.WithCountdown(1)))
}

// TestCountdownInABatch: a batch may begin with the message that waits, also while consumers run, because a batch is stored in its order.
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
	parent := delayqueue.Outgoing{Payload: "parent", Options: []delayqueue.MsgOption{delayqueue.WithKey("k"), delayqueue.WithCountdown(1200), face.InAnHour}}
	_, err := q.SendBatch(queuetest.CtxB, append([]delayqueue.Outgoing{parent}, countsFor("k", 1200)...))
	f.Must(err)
	if msg := queuetest.Receive(t, "the parent", parents); msg.CountdownLeft != 0 {
		t.Errorf("%+v", msg)
	}
	f.Drained()
}

// TestCountdownOfUnknownNumber: a sender that does not know the number begins with more, and says the number when it knows. What has counted
// by then stays counted.
func TestCountdownOfUnknownNumber(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var handled queuetest.Tally
	q := face.NoTick(f.Queue(nil)).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		handled.Add(msg.Payload)
		return nil
	})
	q.StartConsume()
	first := f.Send(q, "parent", delayqueue.WithKey("k"), delayqueue.WithCountdown(1_000_000), face.InAnHour)
	_, err := q.SendBatch(queuetest.CtxB, countsFor("k", 20))
	f.Must(err)
	queuetest.Eventually(t, "most have counted", func() bool { return f.Check().Missing[first.ID] == 999980 })
	again := f.Send(q, "parent", delayqueue.WithKey("k", delayqueue.Replace), delayqueue.WithCountdown(20))
	if again.ID != first.ID || !again.Existed {
		t.Errorf("%+v, want that of %s", again, first.ID)
	}
	f.Drained()
	if handled.Of("parent") != 1 {
		t.Errorf("handled %d times", handled.Of("parent"))
	}
}

// TestThenAppends: the results of many handlers come together in one message, each once, although handlers run twice; it is due with the last.
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
			err := delayqueue.Then(ctx, msg.Payload, delayqueue.WithKey("sum", delayqueue.Append), delayqueue.WithMaxParts(n), face.InAnHour)
			if msg.Delivery == 1 && strings.HasSuffix(msg.Payload, "3") {
				return errors.Join(err, queuetest.ErrBoom) // what was named is void
			}
			return err
		})
	var told atomic.Int64
	events := q.ListenEvent(func(e delayqueue.Event) {
		if e.Code == delayqueue.RescheduledEvent {
			told.Add(int64(e.Count))
		}
	})
	defer events.Stop()
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

// TestThenReplaces: with Keep, Replace and Reschedule a follower does what a send would, also to a message that is long, of which one call of
// settle may read few.
func TestThenReplaces(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const n = 20
	q := f.Queue(nil).WithConcurrent(n).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		return errors.Join(delayqueue.Then(ctx, "kept not", delayqueue.WithKey("key {"+msg.Payload+"}", delayqueue.Keep)),
			delayqueue.Then(ctx, "new "+msg.Payload, delayqueue.WithKey("key {"+msg.Payload+"}", delayqueue.Replace), delayqueue.WithDelay(2*time.Hour)))
	})
	for i := range n {
		f.Send(q, strings.Repeat("x", 200<<10), delayqueue.WithKey("key {"+strconv.Itoa(i)+"}"), face.InAnHour)
		f.Send(q, strconv.Itoa(i), delayqueue.WithKey(strconv.Itoa(i))) // which lies where its followers do
	}
	q.StartConsume()
	queuetest.Eventually(t, "all are acked", func() bool { return len(f.Check().Messages) == n && len(f.Check().Unack) == 0 })
	s := f.Check()
	for _, e := range s.Pending {
		if m := s.Messages[e.ID]; m.Key != "key {"+strings.TrimPrefix(m.Payload, "new ")+"}" || e.Score < s.Now+100*60e6 {
			t.Errorf("%s has %.20q, due at %d, now is %d", m.Key, m.Payload, e.Score, s.Now)
		}
	}
}

// TestThenChangesTooMuch: a message whose followers would change over 4 MB is garbage, and the garbage handler is told why. Its neighbours are
// acked.
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
				err = errors.Join(err, delayqueue.Then(ctx, "x", delayqueue.WithKey("{all}"+strconv.Itoa(i), delayqueue.Reschedule), delayqueue.WithDelay(2*time.Hour)))
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
	if err := queuetest.Receive(t, "the garbage handler", told); !errors.Is(err, delayqueue.ErrPayloadTooLarge) || !strings.Contains(err.Error(), "all: ") ||
		!strings.Contains(err.Error(), "4 MB") {
		t.Error(err)
	}
	queuetest.Eventually(t, "the others are acked", func() bool { return len(f.Check().Messages) == n+1 && len(f.Check().Unack) == 0 })
	if s := f.Check(); s.Where(all.ID) != "garbage" || !strings.Contains(s.Fail[all.ID].Error, "4 MB") || s.Pending[n-1].Score > s.Now+3600e6 {
		t.Errorf("%s, %q", s.Where(all.ID), s.Fail[all.ID].Error)
	}
}

// TestDescribeCountdown: the options are data, and come back.
func TestDescribeCountdown(t *testing.T) {
	none := 0
	for _, opts := range [][]delayqueue.MsgOption{
		{delayqueue.WithCountdown(0), delayqueue.WithKey("k")}, {delayqueue.WithCountdown(500)}, {delayqueue.WithCounts("k")}, nil,
	} {
		d := delayqueue.Describe(opts...)
		if again := delayqueue.Describe(d.Options()...); !reflect.DeepEqual(again, d) {
			t.Errorf("%v, and again %v", d, again)
		}
	}
	d := delayqueue.Describe(delayqueue.WithCountdown(0), delayqueue.WithCounts("k"))
	if !reflect.DeepEqual(d, delayqueue.Description{Countdown: &none, Counts: "k"}) || d.String() != "countdown=0 counts=k" {
		t.Errorf("%v", d)
	}
}

// TestGroupOfOne: a group of at most one part is full with the first, so it is due now, and each is a message of its own.
func TestGroupOfOne(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	one := func() *delayqueue.MessageInfo {
		return f.Send(q, "x", delayqueue.WithKey("k", delayqueue.Append), delayqueue.WithMaxParts(1), face.InAnHour)
	}
	if first, second := one(), one(); first.ID == second.ID || second.Existed || second.Due.After(time.Now().Add(time.Minute)) {
		t.Errorf("%+v, then %+v", first, second)
	}
	parts := make(chan []string, 2)
	q.WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		parts <- msg.Parts
		return nil
	}).StartConsume()
	for range 2 {
		if got := queuetest.Receive(t, "a group", parts); !slices.Equal(got, []string{"x"}) {
			t.Errorf("parts %q", got)
		}
	}
	f.Drained()
}
