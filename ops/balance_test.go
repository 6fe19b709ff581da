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

func books(f *face.Fixture, m *Queue) delayqueue.Balance {
	f.T.Helper()
	b, err := m.Balance(queuetest.CtxB)
	f.Must(err)
	return b
}

// TestBalanceByCause: each way in and each way out counts as what it is.
func TestBalanceByCause(t *testing.T) { onSharedServer(t, balanceByCause) }

func balanceByCause(f *face.Fixture, m *Queue) {
	handled := make(chan string, 100)
	q := f.Queue(nil).WithGarbageRetention(time.Minute, 2).WithDoneLimit(2).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
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
		queuetest.Receive(f.T, "a handler", handled)
	}
	want := delayqueue.Balance{Sent: 3 + 6 + 3, Followed: 1, Scheduled: 1, Imported: 1, Acked: 1, Superseded: 1, Intercepted: 1, Canceled: 1,
		Deleted: 1, Trimmed: 2}
	want.Entered, want.Left = 15, 7
	want.Here = want.Entered - want.Left
	var got delayqueue.Balance
	defer func() {
		if f.T.Failed() {
			f.T.Logf("%+v, want %+v", got, want)
		}
	}()
	queuetest.Eventually(f.T, "the books are as they should be", func() bool {
		got = books(f, m)
		got.Since = time.Time{}
		return got == want
	})
}

// TestAcceptBalance: a difference is accepted once, under the name of who did it, and the books go on.
func TestAcceptBalance(t *testing.T) { onSharedServer(t, acceptBalance) }

func acceptBalance(f *face.Fixture, m *Queue) {
	if n, err := m.AcceptBalance(queuetest.CtxB); !errors.Is(err, delayqueue.ErrNoQueue) || n != 0 {
		f.T.Errorf("of no queue: %d, %v", n, err)
	}
	var ids []string
	for range 10 {
		ids = append(ids, f.Send(f.Queue(nil), "x", face.InAnHour).ID)
	}
	f.Must(f.Cli.HDel(queuetest.CtxB, f.Key("msg"), ids[:3]...).Err())
	f.Must(f.Cli.Do(queuetest.CtxB, "ZREM", f.Key("pending"), ids[0], ids[1], ids[2]).Err())
	m = Of(m.Monitor).WithOperator("ann").WithReason("an eviction")
	for i, want := range []int64{3, 0} {
		if n, err := m.AcceptBalance(queuetest.CtxB); n != want || err != nil {
			f.T.Errorf("%d: %d, %v", i, n, err)
		}
	}
	if b := books(f, m); b.Unaccounted != 0 || b.WrittenOff != 3 || b.Here != 7 || b.Entered != 10 {
		f.T.Errorf("%+v", b)
	}
	text := f.Cli.HGet(queuetest.CtxB, f.Key("msg"), ids[5]).Val()
	f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("msg"), ids[0], text).Err())
	f.Must(f.Cli.Do(queuetest.CtxB, "ZADD", f.Key("pending"), f.Cli.ZScore(queuetest.CtxB, f.Key("pending"), ids[5]).Val(), ids[0]).Err())
	if n, err := m.AcceptBalance(queuetest.CtxB); n != -1 || err != nil {
		f.T.Errorf("one too many: %d, %v", n, err)
	}
	if b := books(f, m); b.Unaccounted != 0 || b.Found != 1 || b.Here != 8 {
		f.T.Errorf("%+v", b)
	}
	page, err := m.Journal(queuetest.CtxB, 10, "")
	f.Must(err)
	if len(page.Entries) != 2 || page.Entries[1].Act != ActAcceptBalance || page.Entries[1].By != "ann" || page.Entries[1].Reason != "an eviction" ||
		page.Entries[1].Detail != "missing" || page.Entries[1].Messages != 3 || page.Entries[0].Detail != "too many" || page.Entries[0].Messages != 1 {
		f.T.Errorf("%+v", page.Entries)
	}
}
