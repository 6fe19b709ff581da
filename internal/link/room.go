package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file says how many connections a link may have: few if the server is near, and no more than the server has room for.

// A pace is how long the fastest of the last calls took, of paceCalls to twice as many. That is the way to the server and
// back, however busy the server and this machine are.
type pace struct {
	calls           int
	fastest, before time.Duration // of the present paceCalls, and of those before; 0: of none
}

const (
	paceCalls = 1024
	paceLeast = 64 // calls, before they say anything
	// paceNear is how fast calls to a near server are at their fastest. To one that is farther consumers have a
	// connection for each pacePer of it.
	paceNear = time.Millisecond
	pacePer  = time.Millisecond / 16
)

func (p *pace) note(took time.Duration) {
	if p.fastest == 0 || took < p.fastest {
		p.fastest = took
	}
	if p.calls++; p.calls%paceCalls == 0 {
		p.before, p.fastest = p.fastest, 0
	}
}

// connections is how many consumers have.
func (p *pace) connections() int {
	fastest := p.fastest
	if fastest == 0 || p.before != 0 && p.before < fastest {
		fastest = p.before
	}
	if p.calls < paceLeast || fastest < paceNear {
		return linkFew
	}
	return min(int(fastest/pacePer), linkPool)
}

// widen allows consumers one connection more if none of their calls has ended for a while, and the server has room for those
// that they may have.
func (l *Link) widen(p *pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.kept[consuming] > 0 && p.refused[consuming] == 0 && time.Since(p.putAt) >= stuckAfter {
		p.putAt = time.Now()
		p.free(consuming)
	}
}

// free lets one call more have a connection, with link.mu held.
func (p *pool) free(of side) {
	p.kept[of]--
	<-p.inFlight[of]
}

// keep takes a place from calls that the pool has to spare.
func (p *pool) keep(of side) {
	p.inFlight[of] <- struct{}{}
	p.kept[of]++
}

// refuseAsBefore leaves as many places of a new pool empty as there were in the pool before, but for one of each side. A pool
// is retired for each call that is not answered in time, and the server has no more room for the next pool. link.mu is held.
func (l *Link) refuseAsBefore(p *pool) {
	for of, n := range l.room.before[p.addr] {
		for range min(n, linkPool-p.kept[of]-1) {
			p.keep(side(of))
			p.refused[of]++
			l.probeLater()
		}
	}
	delete(l.room.before, p.addr)
}

// A serverRoom notes that a server has no room for more connections (maxclients). Each call that is refused one leaves
// its place empty, so that the others share what there is. Then one place at a time is filled again: after a connection
// was made, or a backoff after the last refusal.
type serverRoom struct {
	refusals int                   // in a row
	probe    *time.Timer           // fills a place; nil: none is empty
	before   map[string][sides]int // places that were empty when the last pool of a server was retired
}

// RoomBackoff is how long to wait after so many refusals in a row.
func RoomBackoff(n int) time.Duration { return min(250*time.Millisecond<<min(n, 5), 4*time.Second) }

// probeLater begins a backoff, unless one has begun, with mu held.
func (l *Link) probeLater() {
	if l.room.probe != nil || l.closed {
		return
	}
	l.room.refusals++
	l.room.probe = time.AfterFunc(RoomBackoff(l.room.refusals), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.room.probe = nil
		l.fillPlace()
	})
}

// fillPlace lets one call have a connection in a place that was left empty, with mu held.
func (l *Link) fillPlace() {
	for _, p := range l.pools {
		for _, of := range []side{consuming, producing} {
			if p.refused[of] > 0 {
				p.refused[of]--
				p.free(of)
				l.probeLater() // for the next one, whatever becomes of this
				return
			}
		}
	}
	l.room.refusals = 0
}

// end stops the probe, with link.mu held.
func (r *serverRoom) end() {
	if r.probe != nil {
		r.probe.Stop()
		r.probe = nil
	}
}

// onConnect adds to what the user's client does with a new connection.
func (l *Link) onConnect(users func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		if errors.Is(l.dialError(), ErrServerFull) {
			l.dialErr.Store(nil)
			l.mu.Lock()
			l.room.refusals = 0
			l.fillPlace()
			l.mu.Unlock()
		}
		if users == nil {
			return nil
		}
		return users(ctx, conn)
	}
}

// onConnect notes that a connection is ready, and makes no call over it that nobody waits for any more.
func (p *pool) onConnect(then func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		state := standingOf(ctx)
		p.reached.Store(true)
		state.heard.Store(true)
		if err := then(ctx, conn); err != nil {
			return err
		}
		if state.left.Load() {
			return errLeft
		}
		return ctx.Err()
	}
}

// errLeft is of an attempt that has a connection when nobody waits for it any more.
var errLeft = errors.New("nobody waits for this attempt any more")

// ErrRevoked is errLeft of an attempt of which nothing was written.
var ErrRevoked = fmt.Errorf("%w, and nothing of it was written", errLeft)

// ErrServerFull: the server refuses connections.
var ErrServerFull = errors.New("the server has no room for another connection")

// A fullError is ErrServerFull, with the number of the link's connections. It has Is, because go-redis passes on only what an
// error wraps.
type fullError struct{ connections int64 }

func (e fullError) Error() string {
	return fmt.Sprintf("%v: its maxclients is reached, and %d of its clients are connections of this process", ErrServerFull, e.connections)
}

func (e fullError) Is(target error) bool { return target == ErrServerFull }

// A watchedConn is a connection of which it is known whether the server took it: one that has no room says so, unasked,
// and hangs up, and often the writer learns no more than that the pipe is broken.
type watchedConn struct {
	net.Conn
	link   *Link
	heard  atomic.Bool // the server has answered
	closed atomic.Bool
	full   atomic.Pointer[error] // the server has refused it; nil: not known
}

// watch counts a connection, and watches it. One that is no plain connection stays as it is.
func (l *Link) watch(conn net.Conn) net.Conn {
	if _, ok := conn.(syscall.Conn); !ok {
		return conn
	}
	l.open.Add(1)
	return &watchedConn{Conn: conn, link: l}
}

// SyscallConn is for go-redis, which looks whether a connection is alive before it takes it.
func (c *watchedConn) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn()
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.heard.Load() {
		return n, err
	}
	if bytes.HasPrefix(b[:n], []byte("-ERR max number of clients")) {
		c.uncount()
		time.AfterFunc(refusalAge, func() { _ = c.Conn.Close() }) // go-redis does not, and would like to read on
		full := error(fullError{c.link.open.Load()})
		c.link.dialErr.Store(&full)
		c.full.Store(&full)
	}
	if full := c.full.Load(); full != nil { // go-redis reads on
		return 0, *full
	}
	c.heard.Store(n > 0)
	return n, err
}

func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil || c.heard.Load() {
		return n, err
	}
	said := make([]byte, 64)
	_ = c.Conn.SetReadDeadline(time.Now().Add(refusalPatience)) // it has come, or never will
	if m, _ := c.Read(said); m > 0 {
		return n, err // it is no refusal
	}
	if full := c.full.Load(); full != nil {
		return n, *full
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.uncount()
	return c.Conn.Close()
}

// CloseWrite is that of the connection below, if it has one.
func (c *watchedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *watchedConn) uncount() {
	if !c.closed.Swap(true) {
		c.link.open.Add(-1)
	}
}

const (
	// refusalPatience is how long a refusal is waited for when a connection is broken.
	refusalPatience = 10 * time.Millisecond
	// refusalAge is when a connection that was refused is closed.
	refusalAge = time.Second
)
