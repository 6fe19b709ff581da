package redistest

import (
	"net"
	"sync"
)

// This file holds the faults that strike every connection of a wire at once. Those of
// single commands are in fault.go.

// Freeze lets nothing pass any more, in either direction, until Thaw: connections stay open,
// new ones are accepted, and all that is sent waits, the end of a connection too. It is a network that drops packets.
func (w *Wire) Freeze() { w.gate.close() }

// Thaw ends a Freeze: what has waited goes its way, if both ends are still there.
func (w *Wire) Thaw() { w.gate.open() }

// SetTrickle makes replies reach the clients one byte at a time, or no longer.
func (w *Wire) SetTrickle(on bool) { w.trickle.Store(on) }

// HalfOpen makes the server's end of every connection vanish, and no client hears of it:
// what they send is swallowed, and nothing comes back, until they give up. New connections
// work. It is what a server that lost its power, or a firewall that forgot, leaves behind. It
// returns how many connections there were.
func (w *Wire) HalfOpen() int { return w.each((*wireConn).forget) }

// Darken begins a silent outage: every connection is half open from now on, and so is every one that is made until
// Lighten. It is what a balancer that lost its flows and is replaced leaves behind.
func (w *Wire) Darken() {
	w.dark.Store(true)
	w.HalfOpen()
}

// Lighten ends a Darken. Connections that are made from now on work; those that there are stay half open.
func (w *Wire) Lighten() { w.dark.Store(false) }

// HangUp closes every connection towards its client alone: the client reads the end of the
// stream, while what it has sent, and what it sends within 10 seconds, still reaches the
// server. New connections work. It returns how many connections there were.
func (w *Wire) HangUp() int { return w.each((*wireConn).hangUp) }

// each calls f for every connection and returns how many there were.
func (w *Wire) each(f func(*wireConn)) int {
	w.switchMu.Lock()
	defer w.switchMu.Unlock()
	if w.line == nil {
		return 0
	}
	w.line.mu.Lock()
	defer w.line.mu.Unlock()
	for c := range w.line.conns {
		f(c)
	}
	return len(w.line.conns)
}

// gate is what Freeze closes. The zero value is open.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed by open; nil while the gate is open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// pass waits until the gate is open, or gone closes.
func (g *gate) pass(gone <-chan struct{}) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened == nil {
		return
	}
	select {
	case <-opened:
	case <-gone:
	}
}

// trickle writes data one byte at a time.
func trickle(conn net.Conn, data []byte) error {
	for i := range data {
		if _, err := conn.Write(data[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}
