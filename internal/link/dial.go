package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file makes the connections of a link, and notes what that says of the server.

// A dialFunc is what redis.Options calls a Dialer.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer notes why dialling fails, for a call that has ended before its dial cannot say it.
func (l *Link) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.ownerClosed() {
			return nil, redis.ErrClosed
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			err = hungUp(err)
			l.dialErr.Store(&err)
			return nil, err
		}
		l.dialErr.Store(nil)
		if plain, ok := conn.(plainConn); ok {
			return &newConn{plainConn: plain}, nil
		}
		return conn, nil
	}
}

// endInTime has the user's callbacks of a new connection end when the context of their call does, because go-redis
// waits for them.
func endInTime(opt *redis.Options) {
	connected, plain, inContext := opt.OnConnect, opt.CredentialsProvider, opt.CredentialsProviderContext
	opt.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		if connected != nil {
			if err := callUntil(ctx, func() error { return connected(ctx, conn) }); err != nil {
				return err
			}
		}
		return ctx.Err() // nothing is written for an attempt that nobody waits for any more
	}
	if plain == nil && inContext == nil {
		return
	}
	opt.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
		var user, password string
		err := callUntil(ctx, func() (err error) {
			if inContext != nil {
				user, password, err = inContext(ctx)
			} else {
				user, password = plain()
			}
			return err
		})
		if err != nil {
			return "", "", err // the callback may go on, and set them
		}
		return user, password, nil
	}
}

// errHungUp: a server closed a new connection without an answer to anything.
var errHungUp = errors.New("the server hung up before it answered anything: " +
	"it may have reached maxclients, or speak no TLS")

// hungUp adds errHungUp to the error of a new connection, if it fits.
func hungUp(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w: %w", errHungUp, err)
	}
	return err
}

// A plainConn is a connection that is not encrypted. go-redis asks its socket whether it is alive.
type plainConn interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// A newConn is a connection of which it is known whether the server took it. A server that has no room says so,
// unasked, and hangs up. go-redis would take that for the answer to its first command.
type newConn struct {
	plainConn
	heard bool // the server has answered
}

func (c *newConn) Read(b []byte) (int, error) {
	n, err := c.plainConn.Read(b)
	switch {
	case c.heard:
		return n, err
	case bytes.HasPrefix(b[:n], []byte("-ERR max number of clients")):
		return 0, fmt.Errorf("%w: %s", errHungUp, bytes.TrimSpace(b[1:n]))
	}
	c.heard = n > 0
	return n, hungUp(err)
}

// ownerClosed says whether the user has closed the client. It is false if a consumer uses the link, which goes on until
// it is stopped. Only a call shows it; this one ends before it takes a connection.
func (l *Link) ownerClosed() bool {
	if l.ConsumersNow() > 0 {
		return false
	}
	node, ok := l.owner.(*redis.Client)
	if !ok {
		var err error
		if node, err = l.owner.(*redis.ClusterClient).MasterForKey(canceled, ""); err != nil {
			return errors.Is(err, redis.ErrClosed) // else it knows no node yet
		}
	}
	probe := node.WithTimeout(time.Second)
	probe.Options().Limiter = nil // it would count a failure
	return errors.Is(probe.Ping(canceled).Err(), redis.ErrClosed)
}

// canceled has ended.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// A DedicatedClient has one connection, which is not made anew.
type DedicatedClient struct {
	*redis.Client

	dialled atomic.Bool

	mu    sync.Mutex // guards the fields below
	conn  net.Conn   // nil: it has made none
	isCut bool
}

// Cut ends what the client does, and lets it make no connection any more.
func (c *DedicatedClient) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	if c.conn != nil {
		_ = c.conn.Close() // a connection that is thrown away has nothing to tell
	}
}

// HangUp is Cut, but a call that waits ends when the server has closed the connection. So the server gives that call
// nothing more. If the connection cannot be closed in one direction, it is cut.
func (c *DedicatedClient) HangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	conn, ok := c.conn.(interface{ CloseWrite() error })
	if c.conn != nil && (!ok || conn.CloseWrite() != nil) {
		_ = c.conn.Close() // as in Cut
	}
}

// dialer makes the client's connection.
func (c *DedicatedClient) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if c.dialled.Swap(true) {
			return nil, net.ErrClosed
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.conn = conn; c.isCut {
			_ = conn.Close() // as in Cut; go-redis would write an error of the dial to its own log, and finds out anyway
		}
		return conn, nil
	}
}

// Dedicated makes a client with one connection to the server that holds the queue, for blocking calls. The caller
// closes it.
func (s *Server) Dedicated(ctx context.Context) (*DedicatedClient, error) {
	l := s.Link
	if l == nil {
		return nil, fmt.Errorf("%w: %T", ErrNoNode, s.Cli)
	}
	addr, err := s.findNode(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := new(DedicatedClient)
	opt := l.options(addr)
	opt.PoolSize, opt.MaxConcurrentDials, opt.ConnMaxLifetime = 1, 1, 0
	opt.Dialer = c.dialer(opt.Dialer)
	c.Client = redis.NewClient(opt)
	for _, hook := range l.waitHooks {
		c.AddHook(hook)
	}
	return c, nil
}
