package delayqueue

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// freezable starts a server of a test's own, and returns a client of it that has a name.
func freezable(t *testing.T) (f *fixture, cli *redis.Client, freeze, thaw func()) {
	f, server := ownServer(t)
	cli = redis.NewClient(&redis.Options{Addr: server.Addr(), ClientName: "frozen"})
	t.Cleanup(func() { _ = cli.Close() })
	return f, cli, server.Pause, server.Resume
}

// noLease makes it show whether anything waits for the end of a lease.
func noLease(q *DelayQueue) *DelayQueue { return q.WithLease(time.Hour).WithFetchInterval(time.Hour) }

// TestStopAtFrozenServer: queues that have nothing in hand stop without waiting for a lease at a server that takes
// connections and answers nothing, nor for the end of any call.
func TestStopAtFrozenServer(t *testing.T) {
	t.Parallel()
	f, cli, freeze, thaw := freezable(t)
	var all []*DelayQueue
	for range 100 {
		q := noLease(f.queueOn(cli, func(string) bool { return true }))
		q.store.attemptTimeout = time.Hour // nor for the end of an attempt
		all = append(all, q)
	}
	var done []<-chan struct{}
	for _, q := range all {
		done = append(done, q.StartConsume())
	}
	eventually(t, "all wait", func() bool { return waiting(cli) == len(all) })
	freeze()
	defer thaw()
	begun := time.Now()
	for _, q := range all {
		q.StopConsume()
	}
	for _, d := range done {
		receive(t, "it has stopped", d)
	}
	t.Logf("stopped in %v", time.Since(begun))
}

// TestStopAtFrozenServerWithoutALink: neither does one over a client of a kind that tells no options, of which the library has no
// connections of its own.
func TestStopAtFrozenServerWithoutALink(t *testing.T) {
	t.Parallel()
	f, cli, freeze, thaw := freezable(t)
	var answered atomic.Int64
	cli.AddHook(commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			answered.Add(1)
		}
		return err
	}))
	q := noLease(f.queueOn(unknownClient{cli}, func(string) bool { return true }))
	done := q.StartConsume()
	eventually(t, "it has fetched once, and again without wake-ups", func() bool { return answered.Load() >= 2 })
	freeze()
	defer thaw()
	q.StopConsume()
	receive(t, "it has stopped", done)
}

// TestStopWhenNothingWasEverAnswered: a fetch for which no connection was ready has taken nothing, so nothing is waited for, and it
// takes nothing when the server goes on. A send says that it is not stored.
func TestStopWhenNothingWasEverAnswered(t *testing.T) {
	t.Parallel()
	f, cli, freeze, thaw := freezable(t)
	info := f.send(f.queue(nil), "stays")
	freeze()
	thawed := false
	defer func() {
		if !thawed {
			thaw()
		}
	}()
	q := noLease(f.queueOn(cli, func(string) bool { t.Error("it was handled"); return true }))
	done := q.StartConsume()
	eventually(t, "the log says so", func() bool { return f.log.count("cannot work with Redis", "no answer on a new connection") > 0 })
	_, err := q.Send(within(t, 3*time.Second), "x")
	var failed *SendError
	if !errors.As(err, &failed) || failed.Stored != StoredNo {
		t.Errorf("Send: %v", err)
	}
	q.StopConsume()
	receive(t, "it has stopped", done)
	thaw()
	thawed = true
	eventually(t, "no connection is left", func() bool {
		list, err := f.cli.ClientList(ctxB).Result()
		return err == nil && !strings.Contains(list, "name=frozen")
	})
	if s := f.check(); s.Where(info.ID) != "pending" || len(s.Unack) != 0 || len(s.Messages) != 1 {
		t.Errorf("message is %s:\n%s", s.Where(info.ID), s.Dump())
	}
}

// TestServerHangsUpOnTLS: a server at maxclients closes an encrypted connection without a word. The log and a send say what that may be.
func TestServerHangsUpOnTLS(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	cli := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), TLSConfig: &tls.Config{ServerName: "redis"}})
	t.Cleanup(func() { _ = cli.Close() })
	q := f.queueOn(cli, func(string) bool { return true })
	done := q.StartConsume()
	_, err = q.Send(q.batcher.untilFailure(), "x")
	var failed *SendError
	if !errors.As(err, &failed) || failed.Stored != StoredNo || !strings.Contains(err.Error(), "maxclients") {
		t.Errorf("Send: %v", err)
	}
	eventually(t, "the log says so", func() bool { return f.log.count("cannot work with Redis", "may have reached maxclients") > 0 })
	q.StopConsume()
	receive(t, "it has stopped", done)
}
