package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
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
	for _, sc := range []*script{singleScript, sendScript, fetchScript, settleScript, extendScript, interceptScript} {
		if err := f.cli.ScriptLoad(context.Background(), sc.text).Err(); err != nil {
			t.Fatal(err)
		}
	}
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
			if wantFailures := map[string]int64{"retry": 1, "garbage": 1}[name]; record.Failures != wantFailures || want != "gone" && record.Delivery != 2 {
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
	q := f.queueOn(cli, nil).WithLease(6 * time.Second).WithHandler(func(ctx context.Context, msg *Message) error {
		started <- msg.Delivery
		select {
		case <-release:
		case <-ctx.Done():
			t.Errorf("its context ended: %v", context.Cause(ctx))
		}
		return nil
	})
	renewal := wire.DropReply(redistest.Script(extendScript.sha))
	repeat := wire.DropReply(redistest.Script(extendScript.sha)) // soon after: the lease has 4 s left
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

// TestMidRun covers a restart of Redis, dropped connections and SCRIPT FLUSH under load:
// logged once, and consuming goes on by itself.
func TestMidRun(t *testing.T) {
	t.Parallel()
	const outage = 1500 * time.Millisecond // how long Redis is away
	for name, c := range map[string]struct {
		fault   func(ctx context.Context, server *redistest.Server, wire *redistest.Wire, admin *redis.Client)
		outages int
	}{
		"Redis restarts": {func(_ context.Context, server *redistest.Server, _ *redistest.Wire, _ *redis.Client) {
			server.Kill()
			time.Sleep(outage)
			server.Restart(t)
		}, 1},
		"connections drop": {func(_ context.Context, _ *redistest.Server, wire *redistest.Wire, _ *redis.Client) {
			wire.Cut()
			time.Sleep(outage)
			wire.Mend()
		}, 1},
		"SCRIPT FLUSH": {func(ctx context.Context, _ *redistest.Server, _ *redistest.Wire, admin *redis.Client) {
			for range 5 {
				if err := admin.ScriptFlush(ctx).Err(); err != nil {
					t.Error(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			wire := redistest.NewWire(t, server.Addr())
			f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
			cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1})
			t.Cleanup(func() { _ = cli.Close() })
			var got tally
			q := f.queueOn(cli, nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *Message) error {
				got.add(msg.Payload)
				if msg.Failures > 0 {
					t.Errorf("message %s used a retry", msg.Payload)
				}
				return nil
			})
			q.StartConsume()
			const n = 400
			var accepted atomic.Int64
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for i := range n {
					if err := q.SendDelayMsg(strconv.Itoa(i), time.Duration(i%50)*time.Millisecond); err != nil {
						t.Errorf("send %d: %v", i, err)
					}
					accepted.Add(1)
				}
			}()
			reaches(t, "half is sent", n/2+1, func() int { return int(accepted.Load()) })
			c.fault(ctx, server, wire, server.Client(t))
			reaches(t, "all sends return", n, func() int { return int(accepted.Load()) })
			receive(t, "the sender ends", sent)
			f.drained()
			if distinct, _ := got.counts(); distinct != n {
				t.Errorf("%d of %d are handled", distinct, n)
			}
			// What sends and what consumes each say it.
			eventually(t, "the ends are in the log", func() bool {
				return f.log.count("working with Redis again") == max(2*c.outages, f.log.count("cannot work with Redis"))
			})
			// An attempt without an answer in time is an outage too, of a machine that stands still.
			const away, slow = "cannot work with Redis", "within "
			all, ofSends := f.log.count(away), f.log.count(away, "call=send")
			if all < 2*c.outages || ofSends < c.outages || all-f.log.count(away, slow) > 2*c.outages || ofSends-f.log.count(away, "call=send", slow) > c.outages {
				t.Errorf("%d outages in the log, %d of them of sends, want %d of sends and as many of the consumer", all, ofSends, c.outages)
			}
			if _, total := got.counts(); total != n {
				t.Errorf("handled %d times, want %d: the data was kept", total, n)
			}
		})
	}
}

func TestFlushAllUnderRunningConsumers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	started, release, finished := make(chan string, 3), make(chan struct{}), make(chan string, 3)
	q := f.queue(func(payload string) bool {
		started <- payload
		if payload == "running" {
			<-release
		}
		finished <- payload
		return true
	}).WithConcurrent(2).WithLease(time.Minute) // no renewal notices
	q.StartConsume()
	f.send(q, "running")
	receive(t, "it runs", started)
	f.send(q, "waiting", WithDelay(time.Hour))
	if err := f.cli.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	close(release)
	receive(t, "what was running finishes", finished)
	eventually(t, "its settlement is void", func() bool { return f.log.count("came too late") == 1 })
	f.send(q, "new", WithDelay(20*time.Millisecond))
	if p := receive(t, "new messages work", started); p != "new" {
		t.Errorf("got %q", p)
	}
	eventually(t, "it is settled", func() bool { return len(f.check().Messages) == 0 })
}

// TestOutageLongerThanTheLease: handlers that run right through it are not handed out again. Their contexts end with
// the leases, as far as those are known; what they return counts all the same.
func TestOutageLongerThanTheLease(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	const lease = 2 * time.Second
	var runs tally
	release, causes := make(chan struct{}), make(chan error, 4)
	handler := func(ctx context.Context, msg *Message) error {
		runs.add(msg.Payload)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		<-release
		if msg.Payload == "0" && runs.of("0") == 1 {
			return ctx.Err() // no failure of its own
		}
		return nil
	}
	for range 2 {
		f.queueOn(cli, nil).WithLease(lease).WithConcurrent(3).WithHandler(handler).StartConsume()
	}
	q := f.queue(nil)
	for i := range 4 {
		f.send(q, strconv.Itoa(i), WithRetryCount(0))
	}
	eventually(t, "all run", func() bool { n, _ := runs.counts(); return n == 4 })
	wire.Cut()
	for range 4 {
		if cause := receive(t, "its context ends", causes); !errors.Is(cause, ErrDeliveryLost) {
			t.Errorf("its context ends for %v", cause)
		}
	}
	wire.Mend()
	eventually(t, "the leases are renewed", func() bool {
		state := f.check()
		ok := len(state.Unack) == 4
		for _, e := range state.Unack {
			ok = ok && e.Score > state.Now
		}
		return ok
	})
	close(release)
	eventually(t, "the one that failed for its context is handed out again", func() bool { return runs.of("0") == 2 })
	wire.Cut() // its context waits for that
	receive(t, "its context ends", causes)
	wire.Mend()
	eventually(t, "all are acked", func() bool { return len(f.check().Messages) == 0 })
	if _, total := runs.counts(); total != 5 {
		t.Errorf("handled %d times, want 5", total)
	}
}

// TestStopWithRedisAway: done closes after one lease of trying, and the log names what was
// not settled.
func TestStopWithRedisAway(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	started, release := make(chan struct{}), make(chan struct{})
	q := f.queueOn(cli, nil).WithLease(2 * time.Second).WithHandler(func(context.Context, *Message) error {
		close(started)
		<-release
		return nil
	})
	info := f.send(q, "x")
	done := q.StartConsume()
	receive(t, "it starts", started)
	wire.Cut()
	q.StopConsume()
	close(release)
	receive(t, "done closes", done)
	if f.log.count(info.ID) == 0 || f.log.count("gave up settling") != 1 {
		t.Error("the log does not name what was not settled")
	}
	if where := f.where(info.ID); where != "unack" {
		t.Errorf("the message is %s, want unack until its lease runs out", where)
	}
}

// TestStopWithALongHandler: it may take longer than its lease, and runs once, for Redis is well.
func TestStopWithALongHandler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const lease = 3 * time.Second
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

// deadEnd is a network that swallows connections from some point on.
type deadEnd struct {
	on      atomic.Bool
	dialing atomic.Int64
	over    chan struct{} // ends what is under way, when the test does
}

func (d *deadEnd) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	if !d.on.Load() {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	d.dialing.Add(1)
	defer d.dialing.Add(-1)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.over:
		return nil, net.ErrClosed
	}
}

// TestNetworkThatSwallowsConnections: the log says so soon, though no dial has failed often, and
// a stop does not wait for the dials.
func TestNetworkThatSwallowsConnections(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	network := &deadEnd{over: make(chan struct{})}
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), Dialer: network.dial, DialTimeout: time.Second, DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	t.Cleanup(func() { close(network.over) })
	q := f.queueOn(cli, func(string) bool { return true }).WithLease(500 * time.Millisecond)
	done := q.StartConsume()
	eventually(t, "it listens", func() bool { return q.current().wakeUps.answered.Load() > 0 || blockedClients(t, f) > 0 })
	network.on.Store(true)
	wire.Cut()
	eventually(t, "the log says so", func() bool { return f.log.count("cannot work with Redis") == 1 })
	q.StopConsume()
	receive(t, "done closes", done)
	if network.dialing.Load() == 0 { // each takes dialTime
		t.Error("the stop waited for all dials")
	}
}

// TestOutageIsNoRoundTrip: after it, no more is fetched ahead than before.
func TestOutageIsNoRoundTrip(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	var handled, most, longest atomic.Int64
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		begun := time.Now()
		err := next(ctx, cmd)
		if err == nil {
			longest.Store(max(longest.Load(), int64(time.Since(begun))))
		}
		return err
	}))
	q := f.queueOn(cli, nil)
	q.WithHandler(func(context.Context, *Message) error {
		most.Store(max(most.Load(), q.current().workers.unhandled.Load()))
		time.Sleep(5 * time.Millisecond)
		handled.Add(1)
		return nil
	})
	sender := f.queue(nil)
	send := func(n int) {
		t.Helper()
		if _, err := sender.SendBatch(context.Background(), make([]Outgoing, n)); err != nil {
			t.Fatal(err)
		}
	}
	send(20)
	q.StartConsume()
	eventually(t, "20 are handled", func() bool { return handled.Load() == 20 })
	wire.Cut()
	time.Sleep(2 * time.Second) // the outage
	send(200)
	wire.Mend()
	eventually(t, "the rest is handled", func() bool { return handled.Load() == 220 })
	if n, trip := most.Load(), time.Duration(longest.Load()); n > 60+4*int64(trip/(5*time.Millisecond)) {
		t.Errorf("one worker of 5 ms held %d messages, with round trips of %v at most", n, trip)
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
