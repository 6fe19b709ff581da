package weather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

func TestSendReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := face.Wired(t)
	sender, got := f.QueueOn(cli, nil), queuetest.Tally{}
	consumer := f.Queue(func(payload string) bool { got.Add(payload); return true })
	consumer.StartConsume()

	// The message is handled before the repeat arrives: it must not come back.
	struck, release := wire.HoldReply(redistest.Script(script.SingleScript.SHA))
	repeats := wire.DropReply(redistest.Script(script.SingleScript.SHA))
	sent := make(chan *delayqueue.MessageInfo)
	go func() { sent <- f.Send(sender, "once") }()
	queuetest.Receive(t, "the reply is held", struck)
	queuetest.Eventually(t, "it is handled", func() bool { return len(f.Check().Messages) == 0 && got.Of("once") == 1 })
	wire.Cut()
	release()
	wire.Mend()
	queuetest.Receive(t, "the repeat's reply is lost as well", repeats)
	info := queuetest.Receive(t, "Send returns", sent)
	f.Send(sender, "after")
	queuetest.Eventually(t, "what is sent afterwards is handled", func() bool { return got.Of("after") == 1 })
	if n := got.Of("once"); n != 1 {
		t.Errorf("message %s was handled %d times", info.ID, n)
	}
}

func TestSendReplyLostWithKeys(t *testing.T) {
	t.Parallel()
	f, wire, cli := face.Wired(t)
	q := f.QueueOn(cli, nil)
	holder := f.Send(q, "holder", delayqueue.WithKey("taken"), delayqueue.WithDelay(time.Hour))
	struck := wire.DropReply(redistest.Script(script.SendScript.SHA))
	results, err := q.SendBatch(context.Background(), []delayqueue.Outgoing{
		{Payload: "a", Options: []delayqueue.MsgOption{delayqueue.WithKey("a"), delayqueue.WithDelay(time.Hour)}},
		{Payload: "b", Options: []delayqueue.MsgOption{delayqueue.WithKey("taken"), delayqueue.WithDelay(time.Hour)}},
	})
	queuetest.Receive(t, "the reply is dropped", struck)
	var dup *delayqueue.DuplicateKeyError
	if results[0].Err != nil || !errors.As(results[1].Err, &dup) || dup.ID != holder.ID || dup.Key != "taken" ||
		dup.Queue != f.Name || !errors.Is(err, delayqueue.ErrDuplicateKey) {
		t.Errorf("the repeat answers %+v, want what the first call did", results)
	}
	if due := f.Check().Messages[results[0].Info.ID].Due; due != results[0].Info.Due.UnixMicro() {
		t.Errorf("due %v, stored %d", results[0].Info.Due, due)
	}
}

func TestFetchReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := face.Wired(t)
	deliveries := make(chan int, 10)
	q := f.QueueOn(cli, nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		deliveries <- msg.Delivery
		return nil
	})
	for range 4 {
		f.Send(q, "x")
	}
	struck := wire.DropReply(redistest.Script(script.FetchScript.SHA))
	q.StartConsume()
	queuetest.Receive(t, "the reply is dropped", struck)
	for range 4 {
		if n := queuetest.Receive(t, "the repeat returns the same deliveries", deliveries); n != 1 {
			t.Errorf("delivery %d: a loss was counted", n)
		}
	}
	queuetest.Eventually(t, "all are acked", func() bool { return len(f.Check().Messages) == 0 })
	if f.Log.Count("leases ran out") != 0 {
		t.Error("a loss was logged")
	}
}

// TestFetchArrivesAfterItsRepeat: the delayed original must not hand out a thing.
func TestFetchArrivesAfterItsRepeat(t *testing.T) {
	t.Parallel()
	f, wire, _ := face.Wired(t)
	cli := queuetest.ClientWith(t, &redis.Options{Addr: wire.Addr(), ReadTimeout: 200 * time.Millisecond})
	var got queuetest.Tally
	q := f.QueueOn(cli, nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		got.Add(fmt.Sprint(msg.Payload, " ", msg.Delivery))
		return nil
	})
	f.Send(f.Queue(nil), "x")
	struck, release := wire.HoldCommand(redistest.Script(script.FetchScript.SHA))
	done := q.StartConsume()
	queuetest.Receive(t, "the command is held", struck)
	queuetest.Eventually(t, "the repeat hands it out", func() bool { return got.Of("x 1") == 1 })
	queuetest.Eventually(t, "it is acked", func() bool { return len(f.Check().Messages) == 0 })
	q.StopConsume()
	queuetest.Receive(t, "it stops", done)
	f.Send(f.Queue(nil), "y") // what the original could take, with nobody there
	release()
	if state := f.Check(); len(state.Unack) != 0 || len(state.Pending) != 1 {
		t.Errorf("the delayed fetch handed out messages to nobody:\n%s", state.Dump())
	}
}

func TestSettleReplyLost(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"ack": nil, "retry": queuetest.ErrBoom, "garbage": delayqueue.ErrSkipRetry, "snooze": delayqueue.Snooze(time.Hour)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := face.Wired(t)
			q := f.QueueOn(cli, nil).WithNackRedeliveryDelay(time.Hour).WithHandler(func(context.Context, *delayqueue.Message) error { return err })
			info := f.Send(q, "x", delayqueue.WithKey("k"))
			struck := wire.DropReply(redistest.Script(script.SettleScript.SHA))
			done := q.StartConsume()
			queuetest.Receive(t, "the reply is dropped", struck)
			want := map[string]string{"ack": "gone", "retry": "retry", "garbage": "garbage", "snooze": "retry"}[name]
			queuetest.Eventually(t, "it is settled", func() bool { return f.Where(info.ID) == want })
			q.StopConsume()
			queuetest.Receive(t, "it stops", done)
			record := f.Check().Fail[info.ID]
			if wantFailures := map[string]int64{"retry": 1, "garbage": 1}[name]; record.Failures != wantFailures ||
				want != "gone" && record.Delivery != 2 {
				t.Errorf("record %+v", record)
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
	q := f.QueueOn(cli, nil).WithLease(24 * time.Second).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
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

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	f := face.On(t, cluster.Client(t))
	var got queuetest.Tally
	q := f.Queue(nil).WithConcurrent(4).WithNackRedeliveryDelay(10 * time.Millisecond).WithLease(5 * time.Second).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			got.Add(msg.Payload)
			if msg.Payload == "7" && msg.Failures == 0 {
				return queuetest.ErrBoom
			}
			return nil
		})
	q.StartConsume()
	send := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			ctx, cancel := context.WithTimeout(context.Background(), queuetest.Patience)
			f.Must(queuetest.Failure(q.Send(ctx, strconv.Itoa(i), delayqueue.WithKey("k"+strconv.Itoa(i)), delayqueue.WithDelay(20*time.Millisecond))))
			cancel()
		}
	}
	send(0, 50)
	queuetest.Eventually(t, "all are handled", func() bool { n, _ := got.Counts(); return n == 50 && len(f.Check().Messages) == 0 })
	if got.Of("7") != 2 {
		t.Errorf("the failed one was handled %d times", got.Of("7"))
	}
	info := f.Send(q, "x", delayqueue.WithDelay(time.Hour))
	if r, err := q.TryIntercept(info); err != nil || r.State != delayqueue.StatePending {
		t.Errorf("intercept: %+v, %v", r, err)
	}

	// The primary that holds the queue dies, and its replica takes over.
	owner, err := f.Cli.(*redis.ClusterClient).MasterForKey(queuetest.CtxB, f.Key("state"))
	f.Must(err)
	for _, node := range cluster.Nodes {
		if node.Addr() == owner.Options().Addr {
			node.Kill()
		}
	}
	send(50, 60)
	queuetest.Eventually(t, "consuming goes on after the failover", func() bool { n, _ := got.Counts(); return n == 60 })
}

// TestClusterPrimaryFrozen: a primary that stands still is no reason to wait for it when its replica has been promoted, though
// the client may still take it for the one that holds the queue.
func TestClusterPrimaryFrozen(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	f := face.On(t, cluster.Client(t))
	var got queuetest.Tally
	q := f.Queue(func(payload string) bool { got.Add(payload); return true })
	q.StartConsume()
	f.Send(q, "before")
	queuetest.Eventually(t, "it is handled", func() bool { return got.Of("before") == 1 })
	owner, err := f.Cli.(*redis.ClusterClient).MasterForKey(queuetest.CtxB, f.Key("state"))
	f.Must(err)
	frozen := slices.IndexFunc(cluster.Nodes, func(n *redistest.Server) bool { return n.Addr() == owner.Options().Addr })
	cluster.Nodes[frozen].Pause()
	defer cluster.Nodes[frozen].Resume()
	if _, err := q.Send(queuetest.Within(t, queuetest.Patience), "while"); err != nil {
		t.Error(err)
	}
	queuetest.Eventually(t, "consuming goes on", func() bool { return got.Of("while") == 1 })
}
