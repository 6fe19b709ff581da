package weather

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

func TestSendReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := face.Wired(t)
	sender, got := f.QueueOn(cli, nil), queuetest.Tally{}
	consumer := f.Queue(func(payload string) bool { got.Add(payload); return true })
	consumer.StartConsume()

	f.Send(sender, "first")
	shards, err := check.Shards(queuetest.CtxB, f.Cli, "dq", f.Name)
	f.Must(err)
	queuetest.Eventually(t, "all shards have books, without which single leaves a message to send", func() bool {
		return !slices.ContainsFunc(shards, func(q check.Queue) bool {
			return !f.Cli.HExists(queuetest.CtxB, q.Key("state"), "in:stored").Val()
		})
	})

	// The message is handled before the repeat arrives, because the wire is cut until then: it must not come back.
	struck, _ := wire.HoldReply(redistest.Script(script.SingleScript.SHA))
	sent := make(chan *delayqueue.MessageInfo)
	go func() { sent <- f.Send(sender, "once") }()
	queuetest.Receive(t, "the reply is held", struck)
	wire.Cut()
	repeats := wire.DropReply(redistest.Script(script.SingleScript.SHA))
	queuetest.Eventually(t, "it is handled", func() bool { return len(f.Check().Messages) == 0 && got.Of("once") == 1 })
	wire.Mend()
	queuetest.Receive(t, "the repeat's reply is lost as well", repeats)
	info := queuetest.Receive(t, "Send returns", sent)
	f.Send(sender, "after")
	queuetest.Eventually(t, "what is sent afterwards is handled", func() bool { return got.Of("after") == 1 })
	if n := got.Of("once"); n != 1 {
		t.Errorf("message %s was handled %d times", info.ID, n)
	}
}

// TestSettleReplyLost: what a handler names follows an ack once, the ack counts once, and its result is kept.
func TestSettleReplyLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result   error
		where    string
		failures int64
	}{
		"ack":     {nil, "done", 0},
		"retry":   {queuetest.ErrBoom, "retry", 1},
		"garbage": {delayqueue.ErrSkipRetry, "garbage", 1},
		"snooze":  {delayqueue.Snooze(time.Hour), "retry", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := face.Wired(t)
			q := f.QueueOn(cli,
				nil).WithNackRedeliveryDelay(time.Hour).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
				f.Must(errors.Join(delayqueue.Then(ctx, "next", face.InAnHour), delayqueue.SetResult(ctx, "result")))
				return c.result
			})
			parent := f.Send(q, "parent", delayqueue.WithKey("{k}parent"), delayqueue.WithCountdown(10), face.InAnHour)
			info := f.Send(q, "x", delayqueue.WithKey("k"), delayqueue.WithCounts("{k}parent"),
				delayqueue.WithRetention(time.Hour))
			struck := wire.DropReply(redistest.Script(script.SettleScript.SHA))
			done := q.StartConsume()
			queuetest.Receive(t, "the reply is dropped", struck)
			queuetest.Eventually(t, "it is settled", func() bool { return f.Where(info.ID) == c.where })
			q.StopConsume()
			queuetest.Receive(t, "it stops", done)
			acks := map[bool]int{true: 1}[c.result == nil]
			s := f.Check()
			if record := s.Fail[info.ID]; record.Failures != c.failures || record.Delivery != 2 {
				t.Errorf("record %+v", record)
			}
			if n := s.Results[info.ID]; n != acks*len("result") {
				t.Errorf("a result of %d bytes", n)
			}
			if len(s.Pending) != 1+acks || s.Missing[parent.ID] != int64(10-acks) {
				t.Errorf("%d acks are missing; pending: %v", s.Missing[parent.ID], s.Pending)
			}
			if f.Log.Count("came too late") != 0 {
				t.Error("the repeat was taken for a late settlement")
			}
		})
	}
}

func TestExtendReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := face.Wired(t)
	release := make(chan struct{})
	started := make(chan int, 2)
	q := f.QueueOn(cli,
		nil).WithLease(24 * time.Second).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		started <- msg.Delivery
		select {
		case <-release:
		case <-ctx.Done():
			t.Errorf("its context ended: %v", context.Cause(ctx))
		}
		return nil
	})
	renewal := wire.DropReply(redistest.Script(script.ExtendScript.SHA))
	repeat := wire.DropReply(redistest.Script(script.ExtendScript.SHA)) // soon after: the lease has 16 s left
	q.StartConsume()
	f.Send(q, "x")
	queuetest.Receive(t, "it starts", started)
	queuetest.Receive(t, "the renewal's reply is dropped", renewal)
	queuetest.Receive(t, "the repeat's reply is dropped", repeat)
	close(release)
	queuetest.Eventually(t, "it is acked", func() bool { return len(f.Check().Messages) == 0 })
	if len(started) != 0 {
		t.Error("it was delivered twice")
	}
}

func TestInterceptReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := face.Wired(t)
	q := f.QueueOn(cli, nil)
	info := f.Send(q, "x", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	struck := wire.DropReply(redistest.Script(script.InterceptScript.SHA))
	r, err := q.InterceptKey(context.Background(), "k")
	queuetest.Receive(t, "the reply is dropped", struck)
	if err != nil || !r.Intercepted || r.State != delayqueue.StatePending {
		t.Errorf("the repeat answers %+v, %v", r, err)
	}
	// The key is given to another, and the same interception must not take that one.
	f.Send(q, "y", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	if f.Where(info.ID) != "gone" || len(f.Check().Pending) != 1 {
		t.Error("the repeat took another message")
	}
}
