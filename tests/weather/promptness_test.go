package weather

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// hastily is wired with a client whose calls have hasty for an answer.
func hastily(t *testing.T) (*face.Fixture, *redistest.Wire, *redis.Client) {
	f, wire, _ := face.Wired(t)
	cli := queuetest.ClientWith(t, &redis.Options{Addr: wire.Addr(), ReadTimeout: queuetest.Hasty})
	return f, wire, cli
}

// TestSlowLine: a line on which no attempt is answered in time still brings sends, deliveries and outcomes through, once each.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	f, wire, cli := hastily(t)
	var got queuetest.Tally
	q := f.QueueOn(cli, func(payload string) bool { got.Add(payload); return true })
	wire.SetDelay(4 * queuetest.Hasty)
	q.StartConsume()
	for _, payload := range []string{"a", "b"} {
		queuetest.Must(t, queuetest.Failure(q.Send(queuetest.Within(t, queuetest.Patience), payload)))
	}
	ids := message.NewIDSource()
	gone := ids.Next()
	queuetest.Eventually(t, "a look is answered", func() bool {
		r, err := q.Intercept(queuetest.CtxB, gone) // what is no id would be an error
		return err == nil && !r.Intercepted
	})
	queuetest.Eventually(t, "both are handled", func() bool { return got.Of("a") == 1 && got.Of("b") == 1 })
	wire.SetDelay(0)
	queuetest.Eventually(t, "all is acked", func() bool { return len(f.Check().Messages) == 0 })
	if _, total := got.Counts(); total != 2 {
		t.Errorf("handled %d times", total)
	}
}

type openBreaker struct{}

func (openBreaker) Allow() error { return queuetest.ErrBoom }

func (openBreaker) ReportResult(error) {}

// TestStopWithoutAConnection: a queue for which no connection can be made stops without waiting for a lease, whatever keeps
// the connection from being made: nothing was written.
func TestStopWithoutAConnection(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]redis.Options{
		"credentials": {CredentialsProviderContext: func(context.Context) (string, string, error) { return "", "", queuetest.ErrBoom }},
		"limiter":     {Limiter: openBreaker{}},
		"OnConnect":   {OnConnect: func(context.Context, *redis.Conn) error { return queuetest.ErrBoom }},
		"dialer":      {Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, queuetest.ErrBoom }},
		"nobody":      {Addr: "127.0.0.1:1", DialerRetries: 1},
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

// TestDeadBesideAlive: an attempt whose connection was never answered is given up after its second also if it waits for replicas,
// which takes longer, and while other connections to that server are answered.
func TestDeadBesideAlive(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	startReplica(t, primary)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	queuetest.Must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	var dials atomic.Int64
	dialed := conc.NewSignal()
	f := face.On(t, queuetest.PatientClient(primary.Addr()))
	f.Send(f.Queue(nil).WithReplicaAck(1, queuetest.Patience), "first", face.InAnHour) // waits for the replica
	cli := redis.NewClient(&redis.Options{Addr: primary.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			addr = silent.Addr().String()
			defer dialed.Send()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	t.Cleanup(func() { _ = cli.Close() })
	q := f.QueueOn(cli, nil).WithReplicaAck(1, 2*queuetest.Patience)
	dead := make(chan error, 1)
	go func() { _, err := q.Send(queuetest.Within(t, queuetest.Patience), "dead", face.InAnHour); dead <- err }()
	queuetest.Receive(t, "the first connection is made", dialed)
	f.Must(queuetest.Failure(q.Send(queuetest.Within(t, queuetest.Patience), "alive", face.InAnHour)))
	if err := queuetest.Receive(t, "the other send goes on", dead); err != nil {
		t.Error(err)
	}
	if n := len(f.Check().Pending); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
}

// TestSlowConnectionsTeach: an attempt that gets its connection too late says that the way is long, however long the call could have
// taken. Otherwise no later attempt would get one.
func TestSlowConnectionsTeach(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ack  time.Duration
		size int
	}{
		"small, no time for replicas": {10 * time.Millisecond, 1}, "small": {time.Second, 1},
		"large": {10 * time.Millisecond, 600 << 10}, "large, no replicas": {0, 600 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := hastily(t)
			q := f.QueueOn(cli, nil)
			if c.ack > 0 {
				q.WithReplicaAck(1, c.ack)
			}
			wire.SetDelay(4 * queuetest.Hasty)
			info, err := q.Send(queuetest.WithTimeout(t), strings.Repeat("x", c.size), face.InAnHour)
			if info.ID == "" || err != nil && !errors.Is(err, delayqueue.ErrNotReplicated) {
				t.Errorf("%+v, %v", info, err)
			}
			if n := len(f.Check().Pending); n != 1 {
				t.Errorf("%d are stored", n)
			}
		})
	}
}
