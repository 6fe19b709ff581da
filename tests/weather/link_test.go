package weather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// The clients of these tests have no settings but their address: a fault of the network is the library's to
// notice, whatever the timeouts are.

// soon is far above what must happen takes, pauses of the machine included, and below the time in which attempts of the
// library try six dead connections one after the other, which is doubled each time: 63 s. Some of the clients would wait for
// an hour by themselves.
const soon = 40 * time.Second

// warm makes a client hold n idle connections.
func warm(t *testing.T, cli *redis.Client, n int) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := cli.BLPop(context.Background(), 500*time.Millisecond, "nothing of "+t.Name()).Err(); !errors.Is(err, redis.Nil) {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestLinkHalfOpen: every pooled connection dies without a word; new ones work.
func TestLinkHalfOpen(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]redis.Options{
		"defaults":             {},
		"no read timeout":      {ReadTimeout: -1},
		"an hour":              {ReadTimeout: time.Hour},
		"one connection":       {PoolSize: 1},
		"contexts bound calls": {ContextTimeoutEnabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.OnShared(t)
			wire := redistest.NewWire(t, queuetest.Shared.Addr())
			opt.Addr = wire.Addr()
			cli := queuetest.ClientWith(t, &opt)
			var got queuetest.Tally
			release := make(chan struct{})
			q := f.QueueOn(cli, nil).WithLease(time.Minute).WithConcurrent(2).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
				if got.Add(msg.Payload); msg.Payload == "long" {
					<-release
				}
				return nil
			})
			q.StartConsume()
			f.Send(q, "long")
			queuetest.Eventually(t, "a handler is at work", func() bool { return got.Of("long") == 1 })
			warm(t, cli, cmp.Or(opt.PoolSize, 12))
			wire.HalfOpen()
			struck := time.Now()
			f.Send(q, "after")
			if took := time.Since(struck); took > soon {
				t.Errorf("the first send took %v", took)
			}
			queuetest.Eventually(t, "consuming goes on", func() bool { return got.Of("after") == 1 })
			if took := time.Since(struck); took > soon {
				t.Errorf("consuming went on after %v", took)
			}
			for i := range 5 { // not one dead connection after the other
				f.Send(q, fmt.Sprint(i))
			}
			if took := time.Since(struck); took > 2*soon {
				t.Errorf("six sends took %v", took)
			}
			close(release)
			queuetest.Eventually(t, "all is acked", func() bool { return len(f.Check().Messages) == 0 })
			if n, total := got.Counts(); total != n {
				t.Errorf("%d messages were handled %d times", n, total)
			}
		})
	}
}

// TestWakeConnectionIsSilent: one that brings nothing although messages come due is replaced long before it is noticed to
// be dead.
func TestWakeConnectionIsSilent(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	wire := redistest.NewWire(t, server.Addr())
	cli := queuetest.RedisClient(t, wire.Addr())
	got := make(chan string, 100)
	f.QueueOn(cli, func(payload string) bool { got <- payload; return true }).WithFetchInterval(time.Second).StartConsume()
	for tries := 1; ; tries++ {
		queuetest.Eventually(t, "it listens", func() bool { return f.BlockedClients() == f.ShardCount() })
		wire.HalfOpen()
		queuetest.Eventually(t, "the server has noticed", func() bool { return f.BlockedClients() == 0 })
		begun := time.Now()
		for f.BlockedClients() == 0 && time.Since(begun) < queuetest.Patience {
			f.Send(f.Queue(nil), "x")
			queuetest.Receive(t, "it is handled", got)
		}
		took := time.Since(begun)
		if took <= 10*time.Second { // as long as the call waits
			return
		}
		if tries == 5 { // a slow machine is not slow five times
			t.Fatalf("it listens again after %v", took)
		}
	}
}

// TestLinkHungServer: a server that stands still for a while is no reason to hand out anything twice.
func TestLinkHungServer(t *testing.T) {
	t.Parallel()
	f, server := face.OnDefaults(t)
	var got queuetest.Tally
	q := f.Queue(func(payload string) bool { got.Add(payload); return true })
	q.StartConsume()
	f.Send(q, "before")
	queuetest.Eventually(t, "it is handled", func() bool { return got.Of("before") == 1 })
	server.Pause()
	hung := time.AfterFunc(2500*time.Millisecond, server.Resume)
	defer hung.Stop()
	begun := time.Now()
	f.Send(q, "while")
	if took := time.Since(begun); took > 2500*time.Millisecond+soon {
		t.Errorf("the send took %v", took)
	}
	queuetest.Eventually(t, "it is handled", func() bool { return got.Of("while") == 1 })
	queuetest.Eventually(t, "all is acked", func() bool { return len(f.Check().Messages) == 0 })
	if _, total := got.Counts(); total != 2 {
		t.Errorf("handled %d times, want 2", total)
	}
}

// TestLinkBesideUsedUpPool: blocking calls of others on the same client keep neither sends nor consuming from going on.
func TestLinkBesideUsedUpPool(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]redis.Options{
		"waits":   {PoolSize: 10},
		"refuses": {PoolSize: 10, MaxActiveConns: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.OnShared(t)
			opt.Addr = queuetest.Shared.Addr()
			cli := redis.NewClient(&opt)
			ctx, cancel := context.WithCancel(context.Background())
			var strangers sync.WaitGroup
			defer func() { cancel(); _ = cli.Close(); strangers.Wait() }()
			for range 40 {
				strangers.Go(func() {
					for ctx.Err() == nil {
						_ = cli.BLPop(ctx, 0, "nothing of "+f.Name).Err() // until the client is closed
					}
				})
			}
			queuetest.Eventually(t, "the pool is used up", func() bool { return cli.PoolStats().TotalConns >= 10 })
			got := make(chan string, 10)
			q := f.QueueOn(cli, func(payload string) bool { got <- payload; return true })
			done := q.StartConsume()
			begun := time.Now()
			for i := range 10 {
				f.Send(q, fmt.Sprint(i))
				queuetest.Receive(t, "it is handled", got)
			}
			if took := time.Since(begun); took > soon {
				t.Errorf("10 messages took %v", took)
			}
			q.StopConsume()
			queuetest.Receive(t, "it stops", done)
		})
	}
}

// TestLinkPlannedFailover: the old primary is alive, takes writes and answers for some 8 s after it was replaced; here for ever.
func TestLinkPlannedFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1, 3)
	ctx, cancel := context.WithTimeout(context.Background(), 3*queuetest.Patience)
	defer cancel()
	f := face.On(t, s.Client(t))
	var got queuetest.Tally
	q := f.Queue(func(payload string) bool { got.Add(payload); return true })
	q.StartConsume()
	f.Send(q, "before")
	queuetest.Eventually(t, "it is handled", func() bool { return got.Of("before") > 0 })
	f.Must(s.Nodes[0].Client(t).Do(ctx, "ACL", "SETUSER", "default", "-slaveof", "-replicaof").Err())
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Addrs()[0]})
	defer sentinel.Close()
	f.Must(sentinel.Failover(ctx, redistest.SentinelMaster).Err())
	for s.Primary(ctx) != s.Nodes[1] { // sentinels that saw a pause of the machine do nothing for 30 s
		f.Must(ctx.Err())
		time.Sleep(50 * time.Millisecond)
	}
	f.Send(f.QueueOn(s.Nodes[1].Client(t), nil), "after")
	queuetest.Eventually(t, "it is handled", func() bool { return got.Of("after") > 0 })
	role, err := s.Nodes[0].Client(t).Do(ctx, "role").Slice()
	if f.Must(err); role[0] != "master" {
		t.Errorf("the old primary has become a %v", role[0])
	}
}

// TestLinkNoSentinelAnswers: an attempt has its bound, and the error the cause.
func TestLinkNoSentinelAnswers(t *testing.T) {
	t.Parallel()
	// by default go-redis goes on for 17 s
	cli := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "primary",
		SentinelAddrs: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, DialerRetries: 3})
	defer cli.Close()
	p := delayqueue.NewPublisher("q", cli)
	queuetest.Eventually(t, "the error of a send says that no sentinel can be reached", func() bool {
		_, err := p.Send(queuetest.Within(t, time.Second), "x")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Send: %v; want the deadline", err)
		}
		return strings.Contains(err.Error(), "sentinels")
	})
}

// deadEnd is a network that swallows connections from some point on.
type deadEnd struct {
	on      atomic.Bool
	dialing atomic.Int64
	ended   chan struct{} // closes when the test ends
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
	case <-d.ended:
		return nil, net.ErrClosed
	}
}

// TestLinkDialsHang: the log says so soon, though no dial has failed often, and
// a stop does not wait for the dials.
func TestLinkDialsHang(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	wire := redistest.NewWire(t, server.Addr())
	network := &deadEnd{ended: make(chan struct{})}
	cli := queuetest.ClientWith(t, &redis.Options{Addr: wire.Addr(), Dialer: network.dial, DialerRetries: 1})
	t.Cleanup(func() { close(network.ended) })
	handled := make(chan struct{}, 1)
	q := f.QueueOn(cli, func(string) bool { handled <- struct{}{}; return true }).WithLease(500 * time.Millisecond)
	done := q.StartConsume()
	f.Send(f.Queue(nil), "x")
	queuetest.Receive(t, "it works", handled)
	network.on.Store(true)
	wire.Cut()
	queuetest.Eventually(t, "the log says so", func() bool { return f.Log.Count("cannot work with Redis") > 0 })
	queuetest.Eventually(t, "a dial hangs", func() bool { return network.dialing.Load() > 0 }) // a slow machine may have logged that before
	q.StopConsume()
	queuetest.Receive(t, "done closes", done)
	if network.dialing.Load() == 0 { // each takes dialTimeout
		t.Error("the stop waited for all dials")
	}
}

// TestSendFindsAllInUse: a call whose context ends before it has a connection has changed nothing, and says so.
func TestSendFindsAllInUse(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	cli := f.Client()
	others := script.NewStore(cli, "dq", f.Name)
	others.AttemptTimeout = time.Hour
	const most = 64
	began, release := make(chan struct{}, most), make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	defer close(release)
	for range most {
		all.Go(func() {
			_ = others.Attempt(queuetest.CtxB, link.Effort{Call: func(context.Context, redis.UniversalClient) error { began <- struct{}{}; <-release; return nil }})
		})
	}
	for range most {
		queuetest.Receive(t, "a call has a connection", began)
	}
	p := delayqueue.NewPublisher(f.Name, cli)
	var late *delayqueue.SendError
	_, err := p.Send(queuetest.Within(t, 200*time.Millisecond), "x")
	if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || late.Stored != delayqueue.StoredNo {
		t.Errorf("Send until its context ends: %v", err)
	}
	if _, err := p.Intercept(queuetest.Within(t, 200*time.Millisecond), "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Intercept until its context ends: %v", err)
	}
}

// TestServerIsFullFromTheStart: whoever gets no connection says why, and goes on when there is room.
func TestServerIsFullFromTheStart(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t, "--maxclients", "1")
	f.Must(f.Cli.Ping(queuetest.CtxB).Err())
	got := make(chan string, 1)
	q := f.QueueOn(queuetest.RedisClient(t, server.Addr()), func(payload string) bool { got <- payload; return true })
	q.StartConsume()
	_, err := q.Send(f.UntilSendsFail(), "x")
	var failed *delayqueue.SendError
	if !errors.As(err, &failed) || failed.Stored != delayqueue.StoredNo || !strings.Contains(err.Error(), "maxclients") {
		t.Errorf("Send: %v", err)
	}
	queuetest.Eventually(t, "the log says why", func() bool { return f.Log.Count("cannot work with Redis", "maxclients") > 0 })
	f.Must(f.Cli.ConfigSet(queuetest.CtxB, "maxclients", "100").Err())
	f.Send(q, "y")
	if p := queuetest.Receive(t, "it is handled", got); p != "y" {
		t.Errorf("handled %q", p)
	}
}
