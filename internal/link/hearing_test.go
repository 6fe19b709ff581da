package link

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestSubscriberEnds: when its context ends, in an outage too, when the client is closed, and if it cannot subscribe.
func TestSubscriberEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(wire *redistest.Wire, cli *redis.Client, cancel func()){
		"its context ends":              func(_ *redistest.Wire, _ *redis.Client, cancel func()) { cancel() },
		"its context ends in an outage": func(wire *redistest.Wire, _ *redis.Client, cancel func()) { wire.Cut(); cancel() },
		"the client is closed":          func(_ *redistest.Wire, cli *redis.Client, _ func()) { _ = cli.Close() },
		"it cannot subscribe":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := queuetest.WiredBase(t)
			ctx, cancel := context.WithCancel(queuetest.CtxB)
			defer cancel()
			s := patient(cli, f.Key("state"))
			if end == nil {
				wire.Cut()
				if _, err := s.Subscribe(queuetest.Within(t, time.Second), "a channel"); err == nil ||
					errors.Is(err, redis.ErrClosed) {
					t.Errorf("over a wire that is cut: %v", err)
				}
				return
			}
			sub, err := s.Subscribe(ctx, "a channel")
			f.Must(err)
			over := make(chan struct{})
			go func() {
				defer close(over)
				sub.Forward(ctx, func(string) {}, func() {}, func(int, error) {})
			}()
			end(wire, cli, cancel)
			queuetest.Receive(t, "it ends", over)
		})
	}
}

// TestSubscribeIsTriedAgain: one connection that cannot be made is not the end.
func TestSubscribeIsTriedAgain(t *testing.T) {
	t.Parallel()
	f, _, wired := queuetest.WiredBase(t)
	opt := *wired.Options()
	dial, dials := opt.Dialer, atomic.Int64{}
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			return nil, os.ErrDeadlineExceeded
		}
		return dial(ctx, network, addr)
	}
	cli := redis.NewClient(&opt)
	defer cli.Close()
	sub, err := NewServer(cli, f.Key("state")).Subscribe(queuetest.CtxB, "a channel")
	f.Must(err)
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	cancel()
	sub.Forward(ctx, func(string) {}, func() {}, func(int, error) {})
	if n := dials.Load(); n < 2 {
		t.Errorf("%d dials", n)
	}
}

// TestCutWhileDialing: the connection is closed. It is no error of the dial, which go-redis would write to its log.
func TestCutWhileDialing(t *testing.T) {
	t.Parallel()
	mine, theirs := net.Pipe()
	defer theirs.Close()
	c := new(DedicatedClient)
	conn, err := c.dialer(func(context.Context, string, string) (net.Conn, error) {
		c.Cut()
		return mine, nil
	})(queuetest.CtxB, "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("it is open: %v", err)
	}
}

// TestHangUpOfTwoDirections: a connection that cannot be closed in one direction, as that of a user's Dialer, is
// closed.
func TestHangUpOfTwoDirections(t *testing.T) {
	t.Parallel()
	mine, theirs := net.Pipe()
	defer theirs.Close()
	c := &DedicatedClient{conn: mine}
	c.HangUp()
	if _, err := mine.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) || !c.isCut {
		t.Errorf("it is open: %v", err)
	}
}

// TestDedicatedClientHasOneConnection: it does not make another one in place of one that broke.
func TestDedicatedClientHasOneConnection(t *testing.T) {
	t.Parallel()
	cli := queuetest.NewBase(t).Client()
	c, err := NewServer(cli, "a key").Dedicated(queuetest.CtxB)
	queuetest.Must(t, err)
	defer c.Close()
	queuetest.Must(t, c.Ping(queuetest.CtxB).Err())
	queuetest.Must(t, c.conn.Close())
	for range 3 {
		if err := c.Ping(queuetest.CtxB).Err(); err == nil {
			t.Error("it has another connection")
		}
	}
}
