package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// wired is a fixture whose queue talks to the shared server over a faulty wire.
func wired(t *testing.T) (*fixture, *redistest.Wire, *redis.Client) {
	f := newFixture(t)
	wire := redistest.NewWire(t, shared.Addr())
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	return f, wire, cli
}

func TestSendReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	sender, got := f.queueOn(cli, nil), tally{}
	consumer := f.queue(func(payload string) bool { got.add(payload); return true })
	consumer.StartConsume()

	// The message is handled before the repeat arrives: it must not come back.
	struck, release := wire.HoldReply(redistest.Script(singleScript.sha))
	repeats := wire.DropReply(redistest.Script(singleScript.sha))
	sent := make(chan *MessageInfo)
	go func() { sent <- f.send(sender, "once") }()
	receive(t, "the reply is held", struck)
	eventually(t, "it is handled", func() bool { return len(f.check().Messages) == 0 && got.of("once") == 1 })
	wire.Cut()
	release()
	wire.Mend()
	receive(t, "the repeat's reply is lost as well", repeats)
	info := receive(t, "Send returns", sent)
	f.send(sender, "after")
	eventually(t, "what is sent afterwards is handled", func() bool { return got.of("after") == 1 })
	if n := got.of("once"); n != 1 {
		t.Errorf("message %s was handled %d times", info.ID, n)
	}
}

func TestSendReplyLostWithKeys(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	q := f.queueOn(cli, nil)
	holder := f.send(q, "holder", WithKey("taken"), WithDelay(time.Hour))
	struck := wire.DropReply(redistest.Script(sendScript.sha))
	results, err := q.SendBatch(context.Background(), []Outgoing{
		{Payload: "a", Options: []MsgOption{WithKey("a"), WithDelay(time.Hour)}},
		{Payload: "b", Options: []MsgOption{WithKey("taken"), WithDelay(time.Hour)}},
	})
	receive(t, "the reply is dropped", struck)
	var dup *DuplicateKeyError
	if results[0].Err != nil || !errors.As(results[1].Err, &dup) || dup.ID != holder.ID || !errors.Is(err, ErrDuplicateKey) {
		t.Errorf("the repeat answers %+v, want what the first call did", results)
	}
	if due := f.check().Messages[results[0].Info.ID].Due; due != results[0].Info.Due.UnixMicro() {
		t.Errorf("due %v, stored %d", results[0].Info.Due, due)
	}
}

func TestFetchReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	deliveries := make(chan int, 10)
	q := f.queueOn(cli, nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *Message) error {
		deliveries <- msg.Delivery
		return nil
	})
	for range 4 {
		f.send(q, "x")
	}
	struck := wire.DropReply(redistest.Script(fetchScript.sha))
	q.StartConsume()
	receive(t, "the reply is dropped", struck)
	for range 4 {
		if n := receive(t, "the repeat returns the same deliveries", deliveries); n != 1 {
			t.Errorf("delivery %d: a loss was counted", n)
		}
	}
	eventually(t, "all are acked", func() bool { return len(f.check().Messages) == 0 })
	if f.log.count("leases ran out") != 0 {
		t.Error("a loss was logged")
	}
}

// TestFetchArrivesAfterItsRepeat: the delayed original must not hand out a thing.
func TestFetchArrivesAfterItsRepeat(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), ReadTimeout: 200 * time.Millisecond})
	t.Cleanup(func() { _ = cli.Close() })
	var got tally
	q := f.queueOn(cli, nil).WithHandler(func(_ context.Context, msg *Message) error {
		got.add(fmt.Sprint(msg.Payload, " ", msg.Delivery))
		return nil
	})
	f.send(f.queue(nil), "x")
	struck, release := wire.HoldCommand(redistest.Script(fetchScript.sha))
	q.StartConsume()
	receive(t, "the command is held", struck)
	eventually(t, "the repeat hands it out", func() bool { return got.of("x 1") == 1 })
	eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 })
	q.StopConsume()
	<-q.consumer.lifecycle.done
	f.send(f.queue(nil), "y") // what the original could take, with nobody there
	release()
	if state := f.check(); len(state.Unack) != 0 || len(state.Pending) != 1 {
		t.Errorf("the delayed fetch handed out messages to nobody:\n%s", state.Dump())
	}
}

func TestSettleReplyLost(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"ack": nil, "retry": errBoom, "garbage": ErrSkipRetry, "snooze": Snooze(time.Hour)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := wired(t)
			q := f.queueOn(cli, nil).WithNackRedeliveryDelay(time.Hour).WithHandler(func(context.Context, *Message) error { return err })
			info := f.send(q, "x", WithKey("k"))
			struck := wire.DropReply(redistest.Script(settleScript.sha))
			done := q.StartConsume()
			receive(t, "the reply is dropped", struck)
			want := map[string]string{"ack": "gone", "retry": "retry", "garbage": "garbage", "snooze": "retry"}[name]
			eventually(t, "it is settled", func() bool { return f.where(info.ID) == want })
			q.StopConsume()
			receive(t, "it stops", done)
			record := f.check().Fail[info.ID]
			if wantFailures := map[string]int64{"retry": 1, "garbage": 1}[name]; record.Failures != wantFailures ||
				want != "gone" && record.Delivery != 2 {
				t.Errorf("record %+v", record)
			}
			if f.log.count("came too late") != 0 {
				t.Error("the repeat was taken for a late settlement")
			}
		})
	}
}

func TestExtendReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	release := make(chan struct{})
	started := make(chan int, 2)
	q := f.queueOn(cli, nil).WithLease(24 * time.Second).WithHandler(func(ctx context.Context, msg *Message) error {
		started <- msg.Delivery
		select {
		case <-release:
		case <-ctx.Done():
			t.Errorf("its context ended: %v", context.Cause(ctx))
		}
		return nil
	})
	renewal := wire.DropReply(redistest.Script(extendScript.sha))
	repeat := wire.DropReply(redistest.Script(extendScript.sha)) // soon after: the lease has 16 s left
	q.StartConsume()
	f.send(q, "x")
	receive(t, "it starts", started)
	receive(t, "the renewal's reply is dropped", renewal)
	receive(t, "the repeat's reply is dropped", repeat)
	close(release)
	eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 })
	if len(started) != 0 {
		t.Error("it was delivered twice")
	}
}

func TestInterceptReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	q := f.queueOn(cli, nil)
	info := f.send(q, "x", WithDelay(time.Hour), WithKey("k"))
	struck := wire.DropReply(redistest.Script(interceptScript.sha))
	r, err := q.InterceptKey(context.Background(), "k")
	receive(t, "the reply is dropped", struck)
	if err != nil || !r.Intercepted || r.State != StatePending {
		t.Errorf("the repeat answers %+v, %v", r, err)
	}
	// The key is given to another, and the same interception must not take that one.
	f.send(q, "y", WithDelay(time.Hour), WithKey("k"))
	if f.where(info.ID) != "gone" || len(f.check().Pending) != 1 {
		t.Error("the repeat took another message")
	}
}

// TestStopWithALongHandler: it may take longer than its lease, and runs once, for Redis is well.
func TestStopWithALongHandler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const lease = 9 * time.Second // a pause of the machine is shorter than what is left after a third of it
	started := make(chan struct{}, 2)
	handler := func(ctx context.Context, _ *Message) error {
		started <- struct{}{}
		select {
		case <-time.After(2*lease + lease/4):
		case <-ctx.Done():
			t.Errorf("its context ended: %v", context.Cause(ctx))
		}
		return nil
	}
	stopped, other := f.queue(nil).WithLease(lease).WithHandler(handler), f.queue(nil).WithLease(lease).WithHandler(handler)
	f.send(stopped, "x")
	done := stopped.StartConsume()
	receive(t, "it starts", started)
	other.StartConsume()
	stopped.StopConsume()
	receive(t, "done closes", done)
	f.checkEmpty()
	if len(started) != 0 || f.log.count("gave up settling") != 0 {
		t.Error("it was handed out again")
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	f := fixtureOn(t, cluster.Client(t))
	var got tally
	q := f.queue(nil).WithConcurrent(4).WithNackRedeliveryDelay(10 * time.Millisecond).WithLease(5 * time.Second).
		WithHandler(func(_ context.Context, msg *Message) error {
			got.add(msg.Payload)
			if msg.Payload == "7" && msg.Failures == 0 {
				return errBoom
			}
			return nil
		})
	q.StartConsume()
	send := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			if _, err := q.Send(ctx, strconv.Itoa(i), WithKey("k"+strconv.Itoa(i)), WithDelay(20*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
	}
	send(0, 50)
	eventually(t, "all are handled", func() bool { n, _ := got.counts(); return n == 50 && len(f.check().Messages) == 0 })
	if got.of("7") != 2 {
		t.Errorf("the failed one was handled %d times", got.of("7"))
	}
	info := f.send(q, "x", WithDelay(time.Hour))
	if r, err := q.TryIntercept(info); err != nil || r.State != StatePending {
		t.Errorf("intercept: %+v, %v", r, err)
	}

	// The primary that holds the queue dies, and its replica takes over.
	owner, err := q.store.node(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range cluster.Nodes {
		if node.Addr() == owner.Options().Addr {
			node.Kill()
		}
	}
	send(50, 60)
	eventually(t, "consuming goes on after the failover", func() bool { n, _ := got.counts(); return n == 60 })
}

// TestClusterPrimaryFrozen: a primary that stands still is no reason to wait for it when its replica has been promoted, though
// the client may still take it for the one that holds the queue.
func TestClusterPrimaryFrozen(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	f := fixtureOn(t, cluster.Client(t))
	var got tally
	q := f.queue(func(payload string) bool { got.add(payload); return true })
	q.StartConsume()
	f.send(q, "before")
	eventually(t, "it is handled", func() bool { return got.of("before") == 1 })
	owner, err := q.store.node(ctxB)
	f.must(err)
	frozen := slices.IndexFunc(cluster.Nodes, func(n *redistest.Server) bool { return n.Addr() == owner.Options().Addr })
	cluster.Nodes[frozen].Pause()
	defer cluster.Nodes[frozen].Resume()
	if _, err := q.Send(within(t, patience), "while"); err != nil {
		t.Error(err)
	}
	eventually(t, "consuming goes on", func() bool { return got.of("while") == 1 })
	p := NewPublisher(f.name, f.cli)
	l := linkOf(f.cli)
	defer l.release()
	p.store.nodeAddr.Store(&nodeAddr{addr: owner.Options().Addr, at: time.Now()})
	p.store.askWhereItIs(ctxB, l, io.EOF)
	known := p.store.nodeAddr.Load()
	if promoted := cluster.Nodes[frozen+3].Addr(); known == nil || known.addr != promoted || known.not != owner.Options().Addr {
		t.Fatalf("it takes %+v for the node that holds the queue, want %s", known, promoted)
	}
	stale := *known
	stale.at, stale.not = time.Time{}, f.clusterSays(p.store)
	p.store.nodeAddr.Store(&stale)
	if addr, err := p.store.findNode(ctxB, l); addr != known.addr || err != nil {
		t.Errorf("what another node said holds no longer than the client's map: %s, %v", addr, err)
	}
}

// clusterSays is who holds a queue as the client knows it.
func (f *fixture) clusterSays(s *store) string {
	f.t.Helper()
	node, err := s.node(ctxB)
	f.must(err)
	return node.Options().Addr
}
