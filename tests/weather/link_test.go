package weather

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// TestWakeConnectionIsSilent: one that brings nothing although messages come due is replaced long before it is
// noticed to be dead.
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

// TestServerIsFullFromTheStart: whoever gets no connection says why, and goes on when there is room.
func TestServerIsFullFromTheStart(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t, "--maxclients", "1")
	f.Must(f.Cli.Ping(queuetest.CtxB).Err())
	got := make(chan string, 1)
	q := f.QueueOn(queuetest.RedisClient(t, server.Addr()), func(payload string) bool { got <- payload; return true })
	q.StartConsume()
	_, err := q.Send(f.UntilSendsFail(), "x")
	if face.Fate(f, err) != delayqueue.StoredNo || !strings.Contains(err.Error(), "maxclients") {
		t.Errorf("Send: %v", err)
	}
	queuetest.Eventually(t, "the log says why", func() bool {
		return f.Log.Count("cannot work with Redis", "maxclients") > 0
	})
	f.Must(f.Cli.ConfigSet(queuetest.CtxB, "maxclients", "100").Err())
	f.Send(q, "y")
	if p := queuetest.Receive(t, "it is handled", got); p != "y" {
		t.Errorf("handled %q", p)
	}
}
