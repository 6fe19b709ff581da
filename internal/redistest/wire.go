package redistest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	dialLimit   = time.Minute // for the upstream to accept
	listenLimit = time.Minute // for a wire's port to be free again
)

// Wire is a TCP proxy between clients and one server, with faults that a test
// turns on. Each client connection has its own to the server. Left alone it
// passes every byte unchanged. All methods are safe for concurrent use.
//
// DropReply, CutReply, HoldReply and HoldCommand strike the connections that send
// commands and get one reply for each, MULTI, blocking commands and RESP3's
// pushes included. A connection that has subscribed, monitors, replicates or
// switched replies off has no such order: from that command on it is passed
// through, and only what strikes every connection touches it.
//
// A cluster's client learns its nodes' own addresses and so passes a wire by.
type Wire struct {
	t        testing.TB
	upstream string
	port     int

	delay    atomic.Int64 // ns
	trickle  atomic.Bool
	dark     atomic.Bool // new connections are half open
	gate     gate
	commands atomic.Int64

	faultMu sync.Mutex
	faults  []*fault // armed, in order

	switchMu sync.Mutex // held by Cut and Mend from beginning to end
	closed   bool
	line     *line // nil while cut
}

// line is what a wire consists of between two cuts.
type line struct {
	ln     net.Listener
	ctx    context.Context // ends with the cut
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines of the line

	mu    sync.Mutex
	conns map[*wireConn]bool // nil once cut
}

// NewWire starts a wire to the server at upstream, a host:port, on a loopback
// port of its own. It is cut for good at the end of the test. The server may
// come and go: it is dialled for each new connection, and a client for which
// that fails sees its connection closed. Should anything but RESP pass, the
// test fails.
func NewWire(t testing.TB, upstream string) *Wire {
	t.Helper()
	w := &Wire{t: t, upstream: upstream}
	deadline := time.Now().Add(listenLimit)
	for {
		port, err := ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", loopback(port))
		if err == nil {
			w.port = port
			w.open(ln)
			break
		}
		ReleasePort(port)
		if time.Now().After(deadline) {
			t.Fatalf("redistest: wire: %v", err)
		}
	}
	t.Cleanup(func() {
		w.Cut()
		w.switchMu.Lock()
		defer w.switchMu.Unlock()
		w.closed = true
		ReleasePort(w.port)
	})
	return w
}

// Addr returns the host:port that clients connect to, the same for the wire's
// whole life.
func (w *Wire) Addr() string { return loopback(w.port) }

// Commands returns how many commands the wire has sent on to the server, those
// of go-redis's handshakes included.
func (w *Wire) Commands() int64 { return w.commands.Load() }

// SetDelay makes all that arrives from the server from now on reach the client
// d later, as a longer line would: replies overtake nothing, and many may be
// under way at once. 0, the initial value, is no delay.
func (w *Wire) SetDelay(d time.Duration) { w.delay.Store(int64(d)) }

// Cut closes all connections, to the server too, and refuses new ones until
// Mend. What a hold has held is lost; armed faults stay armed. When it returns
// nothing passes any more. Cutting what is cut does nothing.
func (w *Wire) Cut() {
	w.switchMu.Lock()
	defer w.switchMu.Unlock()
	if w.line == nil {
		return
	}
	w.line.cut()
	w.line = nil
}

// Mend accepts connections again after a Cut, on the same address. On a wire
// that is whole, and after the test's end, it does nothing.
func (w *Wire) Mend() {
	w.switchMu.Lock()
	defer w.switchMu.Unlock()
	if w.closed || w.line != nil {
		return
	}
	var ln net.Listener
	var err error
	if until(listenLimit, func() bool {
		ln, err = net.Listen("tcp", w.Addr())
		return err == nil
	}) {
		w.open(ln)
		return
	}
	w.t.Errorf("redistest: wire cannot be mended: %v", err)
}

// open starts to accept connections.
func (w *Wire) open(ln net.Listener) {
	l := &line{ln: ln, conns: map[*wireConn]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	w.line = l
	l.wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return // cut
			}
			l.wg.Go(func() { w.serve(l, client.(*net.TCPConn)) })
		}
	})
}

// serve joins a client's connection to one of its own to the server, until
// both have ended or the line is cut.
func (w *Wire) serve(l *line, client *net.TCPConn) {
	dialer := net.Dialer{Timeout: dialLimit}
	server, err := dialer.DialContext(l.ctx, "tcp", w.upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	c := newWireConn(w, client, server.(*net.TCPConn))
	if !l.add(c) {
		c.kill()
		return
	}
	if w.dark.Load() { // Darken may not have seen it
		c.forget()
	}
	c.run()
	l.remove(c)
}

// add registers a connection, unless the line is cut.
func (l *line) add(c *wireConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	l.conns[c] = true
	return true
}

// remove forgets a connection that has ended.
func (l *line) remove(c *wireConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// cut ends the line and waits for its goroutines. The listener goes first, so
// that no connection is left to be accepted; one that is being dialled finds
// conns nil.
func (l *line) cut() {
	// A process that is just being started has a copy of the socket until it runs its program, so Close is not enough.
	if raw, err := l.ln.(*net.TCPListener).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
	_ = l.ln.Close()
	l.cancel()
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	for c := range conns {
		c.kill()
	}
	l.mu.Unlock()
	l.wg.Wait()
}
