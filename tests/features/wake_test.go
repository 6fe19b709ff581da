package features

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// refusesToBlock is a fixture on an embedded server that answers the wait for wake-ups with an error, and counts that.
func refusesToBlock(t *testing.T, text string) (*face.Fixture, *atomic.Int64) {
	mini, refused := miniredis.RunT(t), new(atomic.Int64)
	mini.Server().SetPreHook(func(c *miniserver.Peer, cmd string, _ ...string) bool {
		if cmd != "BZPOPMIN" {
			return false
		}
		refused.Add(1)
		c.WriteError(text)
		return true
	})
	return face.On(t, redis.NewClient(&redis.Options{Addr: mini.Addr()})), refused
}

// TestWakeUpsRefusedByTheHost: the queue says so once, and lives on the tick and on what its own
// process sends.
func TestWakeUpsRefusedByTheHost(t *testing.T) {
	t.Parallel()
	f, _ := refusesToBlock(t, "ERR unknown command 'bzpopmin'")
	got := make(chan string, 1)
	q := f.Queue(func(payload string) bool {
		got <- payload
		return true
	}).WithLease(time.Minute).WithFetchInterval(time.Hour)
	q.StartConsume()
	queuetest.Eventually(t, "it says so", func() bool { return f.Log.Count("cannot wait for wake-ups") == 1 })
	f.Send(q, "far", delayqueue.WithDelay(time.Hour))
	for i := range 3 {
		payload := fmt.Sprint(i)
		f.Send(q, payload, delayqueue.WithDelay(30*time.Millisecond))
		if p := queuetest.Receive(t, "what this process sends is served before the first tick", got); p != payload {
			t.Errorf("got %q, want %q", p, payload)
		}
	}
	if n := f.Log.Count("cannot wait for wake-ups"); n != 1 {
		t.Errorf("it says so %d times", n)
	}
}

// TestWakeUpsRefusedFromNowOn: a marker that was taken before does not say that they work.
func TestWakeUpsRefusedFromNowOn(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	got := make(chan string, 2)
	q := face.NoTick(f.QueueOn(server.Client(t), func(payload string) bool { got <- payload; return true }))
	q.StartConsume()
	queuetest.Eventually(t, "it listens", func() bool { return f.BlockedClients() > 0 })
	f.Must(f.Cli.Do(queuetest.CtxB, "ACL", "SETUSER", "default", "-bzpopmin").Err())
	f.Send(f.Queue(nil), "x", delayqueue.WithDelay(time.Second)) // so its marker is taken, and then the next is asked for
	queuetest.Eventually(t, "it says so", func() bool { return f.Log.Count("cannot wait for wake-ups") == 1 })
	queuetest.Receive(t, "what was woken for is served", got)
	f.Send(q, "y", delayqueue.WithDelay(30*time.Millisecond))
	queuetest.Receive(t, "what this process sends is served before the first tick", got)
	if f.Log.Count("wake-ups work again") != 0 {
		t.Error("it says that they work again")
	}
}

// TestWakeUpIsLeftBySaturatedConsumer: who has no free worker puts a marker back.
func TestWakeUpIsLeftBySaturatedConsumer(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan string, 4), make(chan struct{})
	defer close(release)
	work := func(payload string) bool {
		started <- payload
		if payload == "slow" {
			<-release
		}
		return true
	}
	busy := face.NoTick(f.QueueOn(f.Client(), work))
	busy.StartConsume()
	queuetest.Eventually(t, "it listens", func() bool { return f.BlockedClients() > 0 })
	f.Send(f.Queue(nil), "slow")
	queuetest.Receive(t, "the only worker is busy", started)
	// Whatever the busy one may have heard, an idle one serves the next message.
	face.NoTick(f.QueueOn(f.Client(), work)).StartConsume()
	for i := range 3 {
		payload := fmt.Sprint(i)
		f.Send(f.Queue(nil), payload, delayqueue.WithDelay(30*time.Millisecond))
		if p := queuetest.Receive(t, "the idle consumer serves it before the first tick", started); p != payload {
			t.Errorf("got %q", p)
		}
	}
}

// TestWakeUpIsOfOneConsumer: an instant wakes one consumer, not all.
func TestWakeUpIsOfOneConsumer(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	const consumers, messages = 16, 50
	got := make(chan string, messages)
	for range consumers {
		q := face.NoTick(f.QueueOn(server.Client(t), func(payload string) bool { got <- payload; return true }))
		q.StartConsume()
	}
	q := unhurried(f.Queue(nil))
	queuetest.Eventually(t, "all listen", func() bool { return f.BlockedClients() == consumers })
	before := f.ScriptCalls()
	for i := range messages {
		f.Send(q, "x", delayqueue.WithDelay(time.Duration(200+20*i)*time.Millisecond))
	}
	for range messages {
		queuetest.Receive(t, "it arrives", got)
	}
	// One send and one settlement a message, and at most two fetches, or some more on a slow machine. All would make 16.
	if calls := f.ScriptCalls() - before; calls > 8*messages+2*consumers {
		t.Errorf("%d script calls for %d messages and %d consumers", calls, messages, consumers)
	}
}

// noBlocking is a connection through a proxy that hangs up on a blocking command.
type noBlocking struct {
	net.Conn
	dropped *atomic.Int64
}

func (c noBlocking) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("bzpopmin")) {
		c.dropped.Add(1)
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// TestWakeUpsThroughProxyThatDropsBlockingCalls: it is said once, and what this process sends is on time.
func TestWakeUpsThroughProxyThatDropsBlockingCalls(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	var dropped atomic.Int64
	cli := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", queuetest.Shared.Addr())
		return noBlocking{conn, &dropped}, err
	}})
	t.Cleanup(func() { _ = cli.Close() })
	got := make(chan string, 1)
	q := face.NoTick(f.QueueOn(cli, func(payload string) bool { got <- payload; return true }))
	q.StartConsume()
	queuetest.Eventually(t, "it is said", func() bool { return f.Log.Count("cannot wait for wake-ups") == f.ShardCount() })
	for range 3 {
		f.Send(q, "x", delayqueue.WithDelay(30*time.Millisecond))
		queuetest.Receive(t, "what this process sends is served before the first tick", got)
	}
	if n := f.Log.Count("cannot wait for wake-ups"); n != f.ShardCount() {
		t.Errorf("it was said %d times", n)
	}
	// What was seen in time is on time too, whoever sent it, although the listener goes on failing.
	f.Send(f.Queue(nil), "x", delayqueue.WithDelay(3*time.Second))
	queuetest.Eventually(t, "a look has seen it", func() bool {
		return f.Check().Fields["armed"] != "0" || len(got) > 0
	})
	queuetest.Receive(t, "it is served before the next tick", got)
	if n := dropped.Load(); n < 2 {
		t.Errorf("%d blocking calls were dropped: the listener did not go on", n)
	}
}

// TestWakeConnectionFindsNoRoom: it does not hammer a server that has no room for its connection, and says why it has
// none.
func TestWakeConnectionFindsNoRoom(t *testing.T) {
	t.Parallel()
	const full = "ERR max number of clients reached"
	f, refused := refusesToBlock(t, full)
	f.Queue(func(string) bool { return true }).StartConsume()
	queuetest.Eventually(t, "it says why", func() bool {
		return f.Log.Count("cannot wait for wake-ups") == 1 && f.Log.Count(full) == 1
	})
	if n := refused.Load(); n > 20 {
		t.Errorf("%d calls were refused", n)
	}
}
