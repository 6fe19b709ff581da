package delayqueue

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

	"github.com/go-delayqueue/delayqueue/internal/redistest"
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
			f := newFixture(t)
			wire := redistest.NewWire(t, shared.Addr())
			opt.Addr = wire.Addr()
			cli := redis.NewClient(&opt)
			t.Cleanup(func() { _ = cli.Close() })
			var got tally
			release := make(chan struct{})
			q := f.queueOn(cli, nil).WithLease(time.Minute).WithConcurrent(2).WithHandler(func(ctx context.Context, msg *Message) error {
				if got.add(msg.Payload); msg.Payload == "long" {
					<-release
				}
				return nil
			})
			q.StartConsume()
			f.send(q, "long")
			eventually(t, "a handler is at work", func() bool { return got.of("long") == 1 })
			warm(t, cli, cmp.Or(opt.PoolSize, 12))
			wire.HalfOpen()
			struck := time.Now()
			f.send(q, "after")
			if took := time.Since(struck); took > soon {
				t.Errorf("the first send took %v", took)
			}
			eventually(t, "consuming goes on", func() bool { return got.of("after") == 1 })
			if took := time.Since(struck); took > soon {
				t.Errorf("consuming went on after %v", took)
			}
			for i := range 5 { // not one dead connection after the other
				f.send(q, fmt.Sprint(i))
			}
			if took := time.Since(struck); took > 2*soon {
				t.Errorf("six sends took %v", took)
			}
			close(release)
			eventually(t, "all is acked", func() bool { return len(f.check().Messages) == 0 })
			if n, total := got.counts(); total != n {
				t.Errorf("%d messages were handled %d times", n, total)
			}
		})
	}
}

// TestLinkHungServer: a server that stands still for a while is no reason to hand out anything twice.
func TestLinkHungServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	var got tally
	q := f.queue(func(payload string) bool { got.add(payload); return true })
	q.StartConsume()
	f.send(q, "before")
	eventually(t, "it is handled", func() bool { return got.of("before") == 1 })
	server.Pause()
	hung := time.AfterFunc(2500*time.Millisecond, server.Resume)
	defer hung.Stop()
	begun := time.Now()
	f.send(q, "while")
	if took := time.Since(begun); took > 2500*time.Millisecond+soon {
		t.Errorf("the send took %v", took)
	}
	eventually(t, "it is handled", func() bool { return got.of("while") == 1 })
	eventually(t, "all is acked", func() bool { return len(f.check().Messages) == 0 })
	if _, total := got.counts(); total != 2 {
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
			f := newFixture(t)
			opt.Addr = shared.Addr()
			cli := redis.NewClient(&opt)
			ctx, cancel := context.WithCancel(context.Background())
			var strangers sync.WaitGroup
			defer func() { cancel(); _ = cli.Close(); strangers.Wait() }()
			for range 40 {
				strangers.Go(func() {
					for ctx.Err() == nil {
						_ = cli.BLPop(ctx, 0, "nothing of "+f.name).Err() // until the client is closed
					}
				})
			}
			eventually(t, "the pool is used up", func() bool { return cli.PoolStats().TotalConns >= 10 })
			got := make(chan string, 10)
			q := f.queueOn(cli, func(payload string) bool { got <- payload; return true })
			done := q.StartConsume()
			begun := time.Now()
			for i := range 10 {
				f.send(q, fmt.Sprint(i))
				receive(t, "it is handled", got)
			}
			if took := time.Since(begun); took > soon {
				t.Errorf("10 messages took %v", took)
			}
			q.StopConsume()
			receive(t, "it stops", done)
		})
	}
}

// TestLinkPlannedFailover: the old primary is alive, takes writes and answers for some 8 s after it was replaced; here for ever.
func TestLinkPlannedFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1, 3)
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	f := fixtureOn(t, s.Client(t))
	var got tally
	q := f.queue(func(payload string) bool { got.add(payload); return true })
	q.StartConsume()
	f.send(q, "before")
	eventually(t, "it is handled", func() bool { return got.of("before") > 0 })
	f.must(s.Nodes[0].Client(t).Do(ctx, "ACL", "SETUSER", "default", "-slaveof", "-replicaof").Err())
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Addrs()[0]})
	defer sentinel.Close()
	if err := sentinel.Failover(ctx, redistest.SentinelMaster).Err(); err != nil {
		t.Fatal(err)
	}
	for s.Primary(ctx) != s.Nodes[1] { // sentinels that saw a pause of the machine do nothing for 30 s
		f.must(ctx.Err())
		time.Sleep(50 * time.Millisecond)
	}
	f.send(f.queueOn(s.Nodes[1].Client(t), nil), "after")
	eventually(t, "it is handled", func() bool { return got.of("after") > 0 })
	role, err := s.Nodes[0].Client(t).Do(ctx, "role").Slice()
	if f.must(err); role[0] != "master" {
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
	p := NewPublisher("q", cli)
	noted := func() bool {
		p.batcher.mu.Lock()
		defer p.batcher.mu.Unlock()
		return p.batcher.lastErr != nil && strings.Contains(p.batcher.lastErr.Error(), "sentinels")
	}
	deadline := make(chan struct{})
	go func() { // an attempt has ended, and why its dial failed is noted
		defer close(deadline)
		for begun := time.Now(); !noted() && time.Since(begun) < patience; {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	_, err := p.Send(endsAt{ctxB, deadline}, "x")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "sentinels") {
		t.Errorf("Send: %v; want the deadline and that no sentinel can be reached", err)
	}
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
	f, wire, _ := wired(t)
	network := &deadEnd{ended: make(chan struct{})}
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), Dialer: network.dial, DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	t.Cleanup(func() { close(network.ended) })
	q := f.queueOn(cli, func(string) bool { return true }).WithLease(500 * time.Millisecond)
	done := q.StartConsume()
	eventually(t, "it listens", func() bool { return q.current().wakeUps.answered.Load() > 0 || blockedClients(t, f) > 0 })
	network.on.Store(true)
	wire.Cut()
	eventually(t, "the log says so", func() bool { return f.log.count("cannot work with Redis") > 0 })
	eventually(t, "a dial hangs", func() bool { return network.dialing.Load() > 0 }) // a slow machine may have logged that before
	q.StopConsume()
	receive(t, "done closes", done)
	if network.dialing.Load() == 0 { // each takes dialTimeout
		t.Error("the stop waited for all dials")
	}
}

// TestLinkIsIdle: connections of the library's own are closed when nobody has used them for a while, and not before.
func TestLinkIsIdle(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	name := fmt.Sprint(t.Name(), time.Now().UnixNano()) // a run before this one may have left connections
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr(), ClientName: name})
	t.Cleanup(func() { _ = cli.Close() })
	connections := func() int {
		list, err := f.cli.ClientList(ctxB).Result()
		f.must(err)
		return strings.Count(list, "name="+name+" ")
	}
	f.send(f.queueOn(cli, nil), "x", inAnHour)
	eventually(t, "it has one connection", func() bool { return connections() == 1 }) // where attempts ended in vain, there were more
	l := linkOf(cli)
	l.expire() // a call is under way
	l.release()
	l.expire() // it ended just now
	if n := connections(); n != 1 {
		t.Fatalf("%d connections after an expire that came too early", n)
	}
	links.mu.Lock()
	l.lastUsed = l.lastUsed.Add(-linkIdle)
	links.mu.Unlock()
	l.expire()
	eventually(t, "the connection is closed", func() bool { return connections() == 0 })
	f.send(f.queueOn(cli, nil), "y", inAnHour) // over a new one
}

// TestLinkOfClosedClient: who has closed the client has closed the queue's connections too, as they are replaced, if
// nothing consumes.
func TestLinkOfClosedClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, cli := range map[string]redis.UniversalClient{
		"client": f.client(), "client in use": f.client(), "Cluster in use": oneNodeCluster(t, shared.Addr),
	} {
		q, l := f.queueOn(cli, nil), linkOf(cli)
		if strings.Contains(name, "in use") {
			f.send(q, "x", inAnHour)
		}
		if _, ok := cli.(*redis.ClusterClient); ok {
			left := f.client() // a node that has left the Cluster
			f.must(left.Close())
			l.learnNode(left)
			renew(l)
			f.send(q, "y", inAnHour)
		}
		f.must(cli.Close())
		renew(l)
		for call, err := range map[string]error{"Send": failure(q.Send(ctxB, "x")), "Intercept": failure(q.Intercept(ctxB, "x"))} {
			if !errors.Is(err, redis.ErrClosed) {
				t.Errorf("%s: %s: %v", name, call, err)
			}
		}
		l.release()
	}
}

// TestLinkOfClosedClientIsClosedSoon: the connections of a queue whose client is closed are not kept for as long as those of
// one that is idle, so that a program may make a client for each of its jobs.
func TestLinkOfClosedClientIsClosedSoon(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr()})
	f.must(NewPublisher(f.name, cli).SendDelayMsg("x", time.Hour))
	links.mu.Lock()
	l := links.byClient[cli]
	links.mu.Unlock()
	look := func() (open bool) {
		links.mu.Lock()
		l.lastUsed = time.Now().Add(-linkLook)
		links.mu.Unlock()
		l.expire()
		links.mu.Lock()
		defer links.mu.Unlock()
		return links.byClient[cli] == l
	}
	// What a publisher does beside its first send, for which nobody waits, uses the link too.
	eventually(t, "nothing uses the link", func() bool {
		links.mu.Lock()
		defer links.mu.Unlock()
		return l.users == 0
	})
	if !look() {
		t.Error("the link of an open client was closed")
	}
	f.must(cli.Close())
	eventually(t, "the link of a closed client is closed", func() bool { return !look() })
}

// renew has later calls take new connections.
func renew(l *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pools {
		l.retire(p)
	}
}
