package link

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestLastServer: a connection is interrupted over another one only if both lead to one server, as far as can be known.
func TestLastServer(t *testing.T) {
	t.Parallel()
	var l Link
	before := time.Now()
	l.server.note(remoteConn{addr: "10.0.0.1:6379"})
	l.server.note(remoteConn{addr: "10.0.0.1:6379"})
	if !l.OneServerSince(before) {
		t.Error("there has been one server only")
	}
	l.server.note(remoteConn{addr: "10.0.0.2:6379"})
	if l.OneServerSince(before) || l.OneServerSince(time.Now().Add(time.Second)) {
		t.Error("connections to the one before it may still be there")
	}
	l.server.changed = time.Now().Add(-2 * LinkAge)
	if !l.OneServerSince(before) {
		t.Error("all connections are younger")
	}
	if l.OneServerSince(l.server.changed.Add(-time.Second)) {
		t.Error("this connection leads to the one before it")
	}
}

type remoteConn struct {
	net.Conn
	addr string
}

func (c remoteConn) RemoteAddr() net.Addr { return c }
func (c remoteConn) Network() string      { return "tcp" }
func (c remoteConn) String() string       { return c.addr }

// TestUnblockOfOtherServer: it is not called where the id may be that of somebody else.
func TestUnblockOfOtherServer(t *testing.T) {
	t.Parallel()
	f, server := queuetest.OwnBase(t)
	s := patient(server.Client(t), f.Key("state")).ForConsumer(time.Hour)
	defer s.Release()
	f.Must(s.Unblock(queuetest.CtxB, 1, time.Now()))
	s.Link.server.note(remoteConn{addr: "10.0.0.1:6379"})
	if err := s.Unblock(queuetest.CtxB, 1, time.Now()); !errors.Is(err, ErrOtherServer) {
		t.Errorf("unblock: %v", err)
	}
	if n := f.InfoNumber("commandstats", "cmdstat_client|unblock:calls=%d,"); n != 1 {
		t.Errorf("CLIENT UNBLOCK was called %d times", n)
	}
}
