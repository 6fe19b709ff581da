package features

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
)

// balance reads the books, and wants so many to be unaccounted for.
func balance(f *face.Fixture, unaccounted int64) ops.Balance {
	f.T.Helper()
	b, err := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).Balance(queuetest.CtxB)
	f.Must(err)
	if b.Unaccounted != unaccounted || b.Entered != b.Left+b.Here+b.Unaccounted {
		f.T.Errorf("%+v, want %d unaccounted for", b, unaccounted)
	}
	return b
}

// untilHandled waits until nothing is to be delivered.
func untilHandled(f *face.Fixture) {
	f.T.Helper()
	queuetest.Eventually(f.T, "all is handled", func() bool {
		n, err := delayqueue.NewMonitor(f.Name, f.Cli).Counts(queuetest.CtxB)
		return err == nil && n.Pending+n.Ready+n.Unack+n.Retry == 0
	})
}

// TestBalanceOfEvicted: messages that another program deletes are unaccounted for, before and after their tags are
// dropped.
func TestBalanceOfEvicted(t *testing.T) {
	t.Parallel()
	face.OnServers(t, func(t *testing.T, f *face.Fixture) {
		q := f.Queue(func(string) bool { return true }).WithConcurrent(8)
		batch := make([]delayqueue.Outgoing, 1000)
		for i := range batch {
			batch[i].Payload = fmt.Sprint(i)
		}
		results, err := q.SendBatch(queuetest.CtxB, batch)
		f.Must(err)
		if b := balance(f, 0); b.Sent != 1000 || b.Here != 1000 || b.Since.IsZero() {
			t.Errorf("%+v", b)
		}
		for _, r := range results[300:400] {
			f.Must(f.Cli.HDel(queuetest.CtxB, f.KeyOf(r.Info.ID, "msg"), r.Info.ID).Err())
			f.Vanished++
		}
		if b := balance(f, 100); b.Here != 900 {
			t.Errorf("%+v", b)
		}
		if n, err := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).Counts(queuetest.CtxB); err != nil || n.Unaccounted != 100 {
			t.Errorf("%+v, %v", n, err)
		}
		q.StartConsume()
		untilHandled(f)
		if b := balance(f, 100); b.Acked != 900 || b.Here != 0 {
			t.Errorf("%+v", b)
		}
	})
}

// TestBalanceWhileInUse: the books balance at each instant while messages are sent, handled, fail, follow each other
// and are taken out.
func TestBalanceWhileInUse(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithConcurrent(8).WithRetryDelays(time.Millisecond)
	var n atomic.Int64
	q.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		switch i := n.Add(1); {
		case i%7 == 0:
			return errors.New("no")
		case i%5 == 0 && msg.Payload != "next":
			return delayqueue.Then(ctx, "next")
		}
		return nil
	}).StartConsume()
	f.Send(q, "first")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 2000 {
			opts := []delayqueue.MsgOption{delayqueue.WithDelay(time.Duration(i%20) * time.Millisecond),
				delayqueue.WithRetryCount(i % 3)}
			if i%4 == 0 {
				opts = append(opts, delayqueue.WithRetention(time.Second))
			}
			info, err := q.Send(queuetest.CtxB, "x", opts...)
			f.Must(err)
			if i%3 == 0 {
				_, err = q.Cancel(queuetest.CtxB, info.ID)
				f.Must(err)
			}
		}
	}()
	looks := 0
	for ; ; looks++ {
		if balance(f, 0); t.Failed() {
			return
		}
		select {
		case <-ended:
		default:
			continue
		}
		break
	}
	untilHandled(f)
	if b := balance(f, 0); looks < 50 || b.Followed == 0 || b.Canceled == 0 || b.Acked == 0 || b.Sent != 2001 {
		t.Errorf("%d looks; %+v", looks, b)
	}
}

// TestRolledBack: a server that comes back with older data is noticed by its consumer, once, also if more has been
// sent since. It says how much was forgotten at most: all that it has seen since it started.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		forgotten, after int // messages sent
		handled          bool
		most             int
		noted            int64 // sends that others have not made up for
	}{
		"sends":             {20, 0, false, 20, 20},
		"sends, and others": {20, 50, false, 20, 0},
		"acks":              {20, 0, true, 40, 5}, // others than those 20 are in the queue
		"nothing":           {0, 0, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, server := face.OwnServer(t)
			events := make(chan delayqueue.Event, 100)
			q := f.Queue(func(string) bool { return true }).WithFetchInterval(100 * time.Millisecond)
			defer q.ListenEvent(func(e delayqueue.Event) {
				if e.Code == delayqueue.RolledBackEvent {
					events <- e
				}
			}).Stop()
			other := f.Publisher(server.Client(t))
			send := func(n int, opts ...delayqueue.MsgOption) {
				for range n {
					_, err := other.Send(queuetest.CtxB, "x", opts...)
					f.Must(err)
				}
			}
			const before = 5
			q.StartConsume()
			send(before, face.InAnHour)
			time.Sleep(1500 * time.Millisecond) // so that what follows is of another second
			saved := time.Now()
			f.Must(f.Cli.Save(queuetest.CtxB).Err())
			queuetest.Eventually(t, "it has looked", func() bool {
				return f.Cli.HExists(queuetest.CtxB, f.Key("state"), "seen").Val()
			})
			if c.handled {
				send(c.forgotten)
				queuetest.Eventually(t, "all are acked", func() bool { return balance(f, 0).Acked == int64(c.forgotten) })
			} else {
				send(c.forgotten, face.InAnHour)
			}
			time.Sleep(500 * time.Millisecond) // the consumer sees that
			server.Kill()
			server.Restart(t)
			send(c.after, face.InAnHour)
			if c.most == 0 {
				time.Sleep(time.Second)
				if len(events) > 0 || f.Log.Count("has gone back") > 0 {
					t.Errorf("nothing was forgotten, and it said so: %+v", <-events)
				}
				return
			}
			e := queuetest.Receive(t, "the event", events)
			time.Sleep(500 * time.Millisecond)
			said, shards := 1, max(queuetest.Shards(), 1)
			for ; len(events) > 0; said++ {
				e.Count += (<-events).Count
			}
			if e.Count < c.most || e.Count > c.most+before || e.Since.Before(saved.Add(-time.Second)) ||
				e.Since.After(time.Now()) {
				t.Errorf("%+v, want %d or a few more since %v", e, c.most, saved)
			}
			if n := f.Log.Count("has gone back"); n != said || n > shards {
				t.Errorf("it was said %d times in the log, and in %d events, of %d shards", n, said, shards)
			}
			balance(f, 0)
			if c.after > 0 { // it depends on when the consumer looks
				return
			}
			queuetest.Eventually(t, "the loss is noted", func() bool {
				counts, err := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).Counts(queuetest.CtxB)
				return err == nil && counts.LossMessages == c.noted && !counts.LossSince.IsZero()
			})
		})
	}
}

// TestBalanceByCause: each way in and each way out counts as what it is.
func TestBalanceByCause(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	handled := make(chan string, 100)
	q := f.Queue(nil).WithGarbageRetention(time.Minute,
		2).WithDoneLimit(2).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		defer func() { handled <- msg.Payload }()
		switch msg.Payload {
		case "dies":
			return delayqueue.ErrSkipRetry
		case "followed":
			return delayqueue.Then(ctx, "next", face.InAnHour)
		case "overtaken":
			_, err := f.Queue(nil).Send(ctx, "newer", delayqueue.WithKey("k", delayqueue.Replace), face.InAnHour)
			return err
		}
		return nil
	})
	send := func(payload string, opts ...delayqueue.MsgOption) string { return f.Send(q, payload, opts...).ID }
	waits := func() string { return send("waits", face.InAnHour) }
	send("by a schedule", delayqueue.WithSequence("schedule/a", 1), face.InAnHour)
	send("imported", delayqueue.WithSequence("import a b", 1), face.InAnHour)
	_, err := m.Intercept(queuetest.CtxB, waits())
	f.Must(err)
	_, err = m.Cancel(queuetest.CtxB, waits())
	f.Must(err)
	f.Must(m.Delete(queuetest.CtxB, waits()))
	q.StartConsume()
	for range 3 {
		send("dies", delayqueue.WithRetryCount(0)) // garbage has room for two
		send("kept", delayqueue.WithRetention(time.Minute))
	}
	send("followed")
	send("overtaken", delayqueue.WithKey("k"))
	for range 8 {
		queuetest.Receive(t, "a handler", handled)
	}
	queuetest.Eventually(t, "what was trimmed is in the log", func() bool { return f.Log.Count("deleted garbage") > 0 })
	want := ops.Balance{Sent: 3 + 6 + 3, Followed: 1, Scheduled: 1, Imported: 1, Acked: 1, Superseded: 1, Intercepted: 1,
		Canceled: 1,
		Deleted:  1, Trimmed: 2}
	want.Entered, want.Left = 15, 7
	want.Here = want.Entered - want.Left
	var got ops.Balance
	defer func() {
		if t.Failed() {
			t.Logf("%+v, want %+v", got, want)
		}
	}()
	queuetest.Eventually(t, "the books are as they should be", func() bool {
		got = balance(f, 0)
		got.Since = time.Time{}
		return got == want
	})
}

// TestAcceptBalance: a difference is accepted once, under the name of who did it, and the books go on.
func TestAcceptBalance(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	if b, err := m.Balance(queuetest.CtxB); !errors.Is(err, delayqueue.ErrNoQueue) || b != (ops.Balance{}) {
		t.Errorf("of no queue: %+v, %v", b, err)
	}
	if n, err := m.AcceptBalance(queuetest.CtxB); !errors.Is(err, delayqueue.ErrNoQueue) || n != 0 {
		t.Errorf("of no queue: %d, %v", n, err)
	}
	var ids []string
	for range 10 {
		ids = append(ids, f.Send(f.Queue(nil), "x", face.InAnHour).ID)
	}
	f.Must(f.Cli.HDel(queuetest.CtxB, f.Key("msg"), ids[:3]...).Err())
	f.Must(f.Cli.Do(queuetest.CtxB, "ZREM", f.Key("pending"), ids[0], ids[1], ids[2]).Err())
	m = ops.Of(m.Monitor()).WithOperator("ann").WithReason("an eviction")
	for i, want := range []int64{3, 0} {
		if n, err := m.AcceptBalance(queuetest.CtxB); n != want || err != nil {
			t.Errorf("%d: %d, %v", i, n, err)
		}
	}
	if b := balance(f, 0); b.WrittenOff != 3 || b.Here != 7 || b.Entered != 10 {
		t.Errorf("%+v", b)
	}
	text := f.Cli.HGet(queuetest.CtxB, f.Key("msg"), ids[5]).Val()
	f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("msg"), ids[0], text).Err())
	f.Must(f.Cli.Do(queuetest.CtxB, "ZADD", f.Key("pending"), f.Cli.ZScore(queuetest.CtxB, f.Key("pending"), ids[5]).Val(),
		ids[0]).Err())
	if n, err := m.AcceptBalance(queuetest.CtxB); n != -1 || err != nil {
		t.Errorf("one too many: %d, %v", n, err)
	}
	if b := balance(f, 0); b.Found != 1 || b.Here != 8 {
		t.Errorf("%+v", b)
	}
	page, err := m.Journal(queuetest.CtxB, 10, "")
	f.Must(err)
	if len(page.Entries) != 2 || page.Entries[1].Act != journal.AcceptBalance || page.Entries[1].By != "ann" ||
		page.Entries[1].Reason != "an eviction" ||
		page.Entries[1].Detail != "missing" || page.Entries[1].Messages != 3 || page.Entries[0].Detail != "too many" ||
		page.Entries[0].Messages != 1 {
		t.Errorf("%+v", page.Entries)
	}
}
