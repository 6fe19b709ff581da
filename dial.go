package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file makes the connections of a link, and notes what that says of the server.

// dialTimeout is how long a dial goes on, also when nobody waits for it any more: to learn why it fails.
const dialTimeout = 5 * time.Second

// A dialFunc is what redis.Options calls a Dialer.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer notes why dialling fails, for a call that has ended before its dial cannot say it.
func (l *link) dialer(dial dialFunc) dialFunc {
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
		if !errors.Is(l.dialError(), errServerFull) { // which only a handshake shows
			l.dialErr.Store(nil)
		}
		l.server.note(conn)
		return l.watch(conn), nil
	}
}

// errHungUp is of a connection that is encrypted, on which a server that has no room for it says nothing of that.
var errHungUp = errors.New("the server hung up before the connection was made: it may have reached maxclients, or speak no TLS")

// dialError is the error of the last dial; nil if that succeeded.
func (l *link) dialError() error {
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
	changed time.Time // when it was another one; zero: never
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

// oneServerSince says whether a connection that was made at an instant, and all that a pool has now, lead to one server.
func (l *link) oneServerSince(at time.Time) bool {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	changed := l.server.changed
	return changed.IsZero() || at.After(changed) && time.Since(changed) > linkAge+linkAge/5
}
