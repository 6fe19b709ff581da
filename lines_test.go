package delayqueue

import (
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

// The clients of these tests have no settings but their address: a fault of the line is the library's to
// notice, whatever the timeouts are.

// soon is far above what must happen takes, and below the time in which attempts of the library try one dead
// connection after the other, which is doubled each time. Some of the clients would wait for an hour by themselves.
const soon = 10 * time.Second

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

// TestHalfOpenLine: every pooled connection dies without a word; new ones work.
func TestHalfOpenLine(t *testing.T) {
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
			q := f.queueOn(cli, nil).WithConcurrent(2).WithHandler(func(ctx context.Context, msg *Message) error {
				if got.add(msg.Payload); msg.Payload == "long" {
					<-release
				}
				return nil
			})
			q.StartConsume()
			f.send(q, "long")
			eventually(t, "a handler is at work", func() bool { return got.of("long") == 1 })
			warm(t, cli, 12)
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

// TestHungServer: a server that stands still for a while is no reason to hand out anything twice.
func TestHungServer(t *testing.T) {
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

// TestStrangersUseUpThePool: blocking calls of others on the same client keep neither sends nor consuming from going on.
func TestStrangersUseUpThePool(t *testing.T) {
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

// TestPlainClientOfACluster: a repeat does not mend the wrong kind of client.
func TestPlainClientOfACluster(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr()})
	defer cli.Close()
	hookOwn(t, cli, commandHook(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		err := answer("MOVED 3999 127.0.0.1:6381")
		cmd.SetErr(err)
		return err
	}))
	if _, err := NewPublisher("q", cli).Send(context.Background(), "x"); !errors.Is(err, ErrClusterNode) || !strings.Contains(err.Error(), "redis.NewClusterClient") {
		t.Errorf("Send: %v", err)
	}
}

// answer is an error that Redis answers.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// TestErrorCodes: the code is found wherever a server puts it.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	const script = "ERR Error running script (call to f_60d0): @user_script:68: @user_script: 68: "
	dial := &net.OpError{Op: "dial", Err: errBoom}
	failing, fault := new(link), error(dial)
	failing.dialErr.Store(&fault)
	s := newStore(redis.NewClusterClient(&redis.ClusterOptions{}), "dq", "q")
	for _, c := range []struct {
		err                 error
		transient, noEffect bool
		explained           string
	}{
		{answer("READONLY You can't write against a read only replica."), true, true, "replica"},
		{answer(script + "-READONLY You can't write against a read only replica. "), true, true, "replica"},
		{answer("ERR READONLY You can't write"), true, true, "replica"},
		{answer(script + "-NOREPLICAS Not enough good replicas to write."), true, true, ""},
		{answer("NOREPLICAS Not enough good replicas to write."), true, true, ""},
		{answer("LOADING Redis is loading the dataset in memory"), true, true, ""},
		{answer("CLUSTERDOWN The cluster is down"), true, true, ""},
		{answer("ERR max number of clients reached"), true, true, ""},
		{answer("UNBLOCKED force unblock from blocking operation"), true, false, ""},
		{answer("BUSY Redis is busy running a script."), true, true, ""},
		{answer("BUSYGROUP Consumer Group name already exists"), false, false, ""},
		{answer(script + "WRONGTYPE Operation against a key holding the wrong kind of value"), false, true, "belongs to another program"},
		{answer("WRONGTYPE Operation against a key holding the wrong kind of value"), false, true, "belongs to another program"},
		{answer(script + "-OOM command not allowed when used memory > 'maxmemory'."), false, true, ""},
		{answer("NOPERM this user has no permissions to run the 'evalsha' command"), false, true, "permission"},
		{answer("ERR ACL failure in script: User app has no permissions to run the 'zadd' command"), false, true, "permission"},
		{answer(script + "The user executing the script can't run this command or subcommand"), false, true, "permission"},
		{answer("ERR unauthenticated multibulk length"), false, false, "password"},
		{answer("ERR value is not an integer"), false, false, ""},
		{redis.ErrPoolExhausted, true, true, ""},
		{redis.ErrPoolTimeout, true, true, ""},
		{dial, true, true, ""},
		{&net.OpError{Op: "read", Err: errBoom}, true, false, ""},
		{&timeoutError{limit: time.Second, noConnection: true, link: failing}, true, true, "no connection within 1s: dial"},
		{&timeoutError{limit: time.Second}, true, false, "no answer within 1s"},
		{context.Canceled, false, false, ""},
		{redis.ErrClosed, false, false, ""},
	} {
		if got := transient(c.err); got != c.transient {
			t.Errorf("%v: may pass: %t", c.err, got)
		}
		if got := noEffect(c.err); got != c.noEffect {
			t.Errorf("%v: changed nothing: %t", c.err, got)
		}
		if got := s.explain(c.err); !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.explained) {
			t.Errorf("%v is explained as %v", c.err, got)
		}
	}
}

// TestPlannedFailover: the old primary is alive, takes writes and answers for some 8 s after it was replaced.
func TestPlannedFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1, 3)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f := fixtureOn(t, s.Client(t))
	var got tally
	q := f.queue(func(payload string) bool { got.add(payload); return true })
	q.StartConsume()
	f.send(q, "before")
	eventually(t, "it is handled", func() bool { return got.of("before") > 0 })
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Addrs()[0]})
	defer sentinel.Close()
	if err := sentinel.Failover(ctx, redistest.SentinelMaster).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is promoted", func() bool { return s.Primary(ctx) == s.Nodes[1] })
	f.send(f.queueOn(s.Nodes[1].Client(t), nil), "after")
	eventually(t, "it is handled", func() bool { return got.of("after") > 0 })
	role, err := s.Nodes[0].Client(t).Do(ctx, "role").Slice()
	f.must(err)
	if role[0] != "master" {
		t.Errorf("the new primary was found when the old one had become a %v", role[0])
	}
}

// TestNoSentinelAnswers: an attempt has its bound, and the error the cause.
func TestNoSentinelAnswers(t *testing.T) {
	t.Parallel()
	cli := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "primary", SentinelAddrs: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, DialerRetries: 3}) // by default go-redis goes on for 17 s
	defer cli.Close()
	p := NewPublisher("q", cli)
	l := linkOf(cli)
	defer l.release()
	deadline := make(chan struct{})
	go func() { // an attempt has ended, and why its dial failed is known
		defer close(deadline)
		for begun := time.Now(); l.dialError() == nil && time.Since(begun) < patience; {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	_, err := p.Send(endsAt{ctxB, deadline}, "x")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "sentinels") {
		t.Errorf("Send: %v; want the deadline and that no sentinel can be reached", err)
	}
}

// TestRefusals: only what the server itself says not to have done is certain not to be stored.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for text, refused := range map[string]bool{
		"OOM command not allowed when used memory > 'maxmemory'.":                                                  true,
		"ERR Protocol error: invalid bulk length":                                                                  true,
		"ERR Error running script (call to f_60d0): @user_script:68: @user_script: 68: -READONLY You can't write.": true,
		"UNBLOCKED force unblock from blocking operation, instance state changed":                                  false,
		"upstream failure": false, // a proxy's: it may have passed the call on
		"no upstream host": false,
		"":                 false,
	} {
		if got := refusal(answer(text)); got != refused {
			t.Errorf("%q: refused: %t", text, got)
		}
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
