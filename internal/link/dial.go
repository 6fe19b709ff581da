package link

import (
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

// dialTimeout is how long a dial goes on, also when nobody waits for it any more: to learn why it fails. Only tests change
// it.
var dialTimeout = 5 * time.Second

// A dialFunc is what redis.Options calls a Dialer.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer notes why dialling fails, for a call that has ended before its dial cannot say it.
func (l *Link) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.ownerClosed() {
			return nil, redis.ErrClosed
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
		defer cancel()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				err = fmt.Errorf("%w: %w", errHungUp, err)
			}
			l.dialErr.Store(&err)
			return nil, err
		}
		if !errors.Is(l.dialError(), ErrServerFull) { // which only a handshake shows
			l.dialErr.Store(nil)
		}
		l.server.note(conn)
		return l.watch(conn), nil
	}
}

// ownerClosed says whether the user has closed the client. It is false if a consumer uses the link, which goes on until
// it is stopped.
func (l *Link) ownerClosed() bool {
	links.mu.Lock()
	consumers := l.consumers
	links.mu.Unlock()
	node := l.node.Load()
	if consumers > 0 || node == nil || !isClosed(node) { // nil: of a Cluster that was never reached
		return false
	}
	cluster, ok := l.owner.(*redis.ClusterClient)
	if !ok {
		return true
	}
	var open atomic.Bool // a node that has left the Cluster is closed as well
	err := cluster.ForEachMaster(canceled, func(_ context.Context, node *redis.Client) error {
		open.CompareAndSwap(false, !isClosed(node))
		return nil
	})
	return err == nil && !open.Load()
}

// isClosed says whether a client is closed. Only a call shows that; this one ends before it takes a connection.
func isClosed(cli *redis.Client) bool {
	probe := cli.WithTimeout(time.Second)
	probe.Options().Limiter = nil // it would count a failure
	return errors.Is(probe.Ping(canceled).Err(), redis.ErrClosed)
}

// canceled has ended.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// errHungUp: a server closed a new connection without a word. On an encrypted connection a server that has no room cannot say so.
var errHungUp = errors.New("the server hung up before the connection was made: it may have reached maxclients, or speak no TLS")

// dialError is the error of the last dial; nil if that succeeded.
func (l *Link) dialError() error {
	if err := l.dialErr.Load(); err != nil {
		return *err
	}
	return nil
}

// A lastServer is the address of the server that a link dialled last. A name, a proxy or Sentinel may lead to one after the
// other.
type lastServer struct {
	mu      sync.Mutex // guards the fields below
	addr    string
	changed time.Time // when the address changed; zero: never
}

func (s *lastServer) note(conn net.Conn) {
	remote := conn.RemoteAddr()
	if remote == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if addr := remote.String(); addr != s.addr {
		if s.addr != "" {
			s.changed = time.Now()
		}
		s.addr = addr
	}
}

// OneServerSince says whether a connection that was made at an instant leads to the same server as all connections of a pool.
func (l *Link) OneServerSince(at time.Time) bool {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	changed := l.server.changed
	return changed.IsZero() || at.After(changed) && time.Since(changed) > LinkAge+LinkAge/5
}

// A DedicatedClient has one connection.
type DedicatedClient struct {
	*redis.Client

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

// HangUp is Cut, but a call that waits ends when the server has closed the connection. So the server gives that call nothing more. If
// the connection cannot be closed in one direction, it is cut.
func (c *DedicatedClient) HangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	conn, ok := c.conn.(interface{ CloseWrite() error })
	if c.conn != nil && (!ok || conn.CloseWrite() != nil) {
		_ = c.conn.Close() // as in Cut
	}
}

// dialer notes the client's connection.
func (c *DedicatedClient) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.isCut {
			_ = conn.Close() // as in Cut
			return conn, nil // go-redis would write an error of the dial to its own log, and finds out anyway
		}
		c.conn = conn
		return conn, nil
	}
}

// dedicated makes a client with one connection, for blocking calls. The caller closes it.
func (l *Link) dedicated(addr string) *DedicatedClient {
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
	return c
}
