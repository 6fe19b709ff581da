package weather

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// freezable starts a server of a test's own, and returns a client of it that has a name.
func freezable(t *testing.T) (f *face.Fixture, cli *redis.Client, freeze, thaw func()) {
	f, server := face.OwnServer(t)
	cli = queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), ClientName: "frozen"})
	return f, cli, server.Pause, server.Resume
}

// TestStopAtFrozenServer: queues that have nothing in hand stop without waiting for a lease at a server that takes
// connections and answers nothing.
func TestStopAtFrozenServer(t *testing.T) {
	t.Parallel()
	f, cli, freeze, thaw := freezable(t)
	waiting, release := face.WaitingFor(cli)
	defer release()
	underWay := face.UnderWay(t, cli) // a fetch that is under way when the server freezes is waited for
	var all []*delayqueue.DelayQueue
	for range 100 { // none ticks
		all = append(all, face.NoLease(f.QueueOn(cli, func(string) bool { return true })).WithFetchInterval(time.Hour))
	}
	var done []<-chan struct{}
	for _, q := range all {
		done = append(done, q.StartConsume())
	}
	queuetest.Eventually(t, "all wait, and none fetches", func() bool {
		if waiting() < len(all) {
			return false
		}
		freeze()
		if underWay.Load() == 0 {
			return true
		}
		thaw()
		return false
	})
	defer thaw()
	for _, q := range all {
		q.StopConsume()
	}
	for _, d := range done {
		queuetest.Receive(t, "it has stopped", d)
	}
}

// TestStopAtFrozenServerWithoutALink: neither does one over a client of a kind that tells no options, of which the
// library has no connections of its own.
func TestStopAtFrozenServerWithoutALink(t *testing.T) {
	t.Parallel()
	f, cli, freeze, thaw := freezable(t)
	var begun, answered atomic.Int64
	cli.AddHook(queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		begun.Add(1)
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			answered.Add(1)
		}
		begun.Add(-1)
		return err
	}))
	q := face.NoLease(f.QueueOn(queuetest.UnknownClient{UniversalClient: cli}, func(string) bool { return true }))
	done := q.StartConsume()
	queuetest.Eventually(t, "it has fetched once, and again without wake-ups, and no call is under way", func() bool {
		if answered.Load() < 3 { // with a tick
			return false
		}
		freeze()
		if begun.Load() == 0 {
			return true
		}
		thaw()
		return false
	})
	defer thaw()
	q.StopConsume()
	queuetest.Receive(t, "it has stopped", done)
}

// TestStopWhenNothingWasEverAnswered: a fetch for which no connection was ready has taken nothing, so nothing is
// waited for, and it takes nothing when the server goes on. A send says that it is not stored.
func TestStopWhenNothingWasEverAnswered(t *testing.T) {
	t.Parallel()
	f, cli, freeze, thaw := freezable(t)
	info := f.Send(f.Queue(nil), "stays")
	freeze()
	defer thaw()
	q := face.NoLease(f.QueueOn(cli, func(string) bool { t.Error("it was handled"); return true }))
	done := q.StartConsume()
	queuetest.Eventually(t, "the log says so", func() bool {
		return f.Log.Count("cannot work with Redis", "no connection was ready within") > 0
	})
	if _, err := q.Send(queuetest.Within(t, 3*time.Second), "x"); face.Fate(f, err) != delayqueue.StoredNo {
		t.Errorf("Send: %v", err)
	}
	q.StopConsume()
	queuetest.Receive(t, "it has stopped", done)
	thaw()
	queuetest.Eventually(t, "no connection is left", func() bool {
		list, err := f.Cli.ClientList(queuetest.CtxB).Result()
		return err == nil && !strings.Contains(list, "name=frozen")
	})
	if s := f.Check(); s.Where(info.ID) != "pending" || len(s.Unack) != 0 || len(s.Messages) != 1 {
		t.Errorf("message is %s:\n%s", s.Where(info.ID), s.Dump())
	}
}

// TestServerHangsUpOnTLS: a server at maxclients closes an encrypted connection without a word. The log and a send
// say what that may be.
func TestServerHangsUpOnTLS(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	f.Must(err)
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
	cli := queuetest.ClientWith(t,
		&redis.Options{Addr: listener.Addr().String(), TLSConfig: &tls.Config{ServerName: "redis"}})
	q := f.QueueOn(cli, func(string) bool { return true })
	done := q.StartConsume()
	_, err = q.Send(f.UntilSendsFail(), "x")
	if face.Fate(f, err) != delayqueue.StoredNo || !strings.Contains(err.Error(), "maxclients") {
		t.Errorf("Send: %v", err)
	}
	queuetest.Eventually(t, "the log says so", func() bool {
		return f.Log.Count("cannot work with Redis", "may have reached maxclients") > 0
	})
	q.StopConsume()
	queuetest.Receive(t, "it has stopped", done)
}

type openBreaker struct{}

func (openBreaker) Allow() error { return queuetest.ErrBoom }

func (openBreaker) ReportResult(error) {}

// TestStopWithoutAConnection: a queue for which no connection can be made stops without waiting for a lease, whatever
// keeps the connection from being made: nothing was written.
func TestStopWithoutAConnection(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]redis.Options{
		"credentials": {CredentialsProviderContext: func(context.Context) (string, string, error) {
			return "", "", queuetest.ErrBoom
		}},
		"limiter":   {Limiter: openBreaker{}},
		"OnConnect": {OnConnect: func(context.Context, *redis.Conn) error { return queuetest.ErrBoom }},
		"dialer":    {Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, queuetest.ErrBoom }},
		"nobody":    {Addr: "127.0.0.1:1", DialerRetries: 1},
		"nothing answers a dial": {Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.OnShared(t)
			opt.Addr = cmp.Or(opt.Addr, queuetest.Shared.Addr())
			cli := queuetest.ClientWith(t, &opt)
			q := face.NoLease(f.QueueOn(cli, func(string) bool { return true }))
			done := q.StartConsume()
			queuetest.Eventually(t, "attempts fail", func() bool { return strings.Contains(f.Log.String(), "Redis") })
			if _, err := q.Send(queuetest.Within(t, time.Second), "x"); face.Fate(f, err) != delayqueue.StoredNo {
				t.Errorf("Send: %v", err)
			}
			q.StopConsume()
			queuetest.Receive(t, "it stops", done)
			q.StartConsume()
			f.Must(q.Shutdown(queuetest.CtxB))
			f.CheckEmpty()
		})
	}
}
