package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	flushSize  = 64 << 10 // bytes of replies that are passed on at once
	chunkQueue = 256      // chunks on their way to a client
	hangUpWait = 10 * time.Second
)

// wireConn is a client's connection through a wire. Three goroutines serve it:
//
//	client -> commands ----------> server
//	client <- deliver <- replies <- server
//
// commands notes for each command it forwards what shall become of its reply;
// replies pairs them up, in order; deliver writes, and does all the waiting.
type wireConn struct {
	w      *Wire
	client *net.TCPConn
	server *net.TCPConn
	chunks chan chunk  // from replies to deliver
	half   atomic.Bool // HalfOpen has struck

	gone     chan struct{} // closed by kill
	goneOnce sync.Once

	mu       sync.Mutex
	expected []expectation // one for each reply that is due
}

// expectation is what shall become of a reply.
type expectation struct {
	fault  *fault // nil: pass it on
	opaque bool   // from here on nothing can be paired
}

// chunk is something for deliver to do.
type chunk struct {
	due  time.Time // zero: now
	data []byte
	hold *fault // wait for its release before writing
	drop *fault // hang up after writing
}

func newWireConn(w *Wire, client, server *net.TCPConn) *wireConn {
	return &wireConn{
		w: w, client: client, server: server,
		chunks: make(chan chunk, chunkQueue),
		gone:   make(chan struct{}),
	}
}

// kill closes both ends at once; all three goroutines end. What waits at the gate goes on only when it can reach
// nobody any more.
func (c *wireConn) kill() {
	c.goneOnce.Do(func() {
		_ = c.client.Close()
		_ = c.server.Close()
		close(c.gone)
	})
}

// run serves the connection until both ends have closed, or kill.
//
// When the client closes, commands closes towards the server, which executes
// what it has, answers and closes; replies ends, then deliver. When the server
// closes, replies ends, deliver hangs up, and the client closes in turn.
func (c *wireConn) run() {
	var wg sync.WaitGroup
	wg.Go(c.commands)
	wg.Go(c.replies)
	wg.Go(c.deliver)
	wg.Wait()
	c.kill()
	for _, e := range c.expected {
		if e.fault != nil {
			e.fault.through.fire() // its reply never came
		}
	}
}

// commands forwards what the client sends, command by command.
func (c *wireConn) commands() {
	// Only this direction is closed: the server still reads all that was sent.
	defer func() {
		c.w.gate.pass(c.gone)
		_ = c.server.CloseWrite()
	}()
	defer func() {
		if c.half.Load() {
			_, _ = io.Copy(io.Discard, c.client) // until the client gives up
		}
	}()
	in := newFrameReader(c.client)
	out := bufio.NewWriterSize(c.server, readerSize)
	var frame []byte
	opaque := false
	for {
		var words []string
		var err error
		frame, words, err = in.readCommand(frame[:0])
		if err != nil {
			c.reportProtocol("command", err)
			_ = out.Flush()
			return
		}
		if len(words) > 0 && !opaque {
			opaque = isOpaque(words)
			var f *fault
			if !opaque {
				f = c.w.take(words)
			}
			if f != nil && f.kind == holdCommand {
				_ = out.Flush() // what came before is not held
				f.struck.fire()
				select {
				case <-f.released.c:
				case <-c.gone:
					f.through.fire()
					return
				}
			}
			// Before the command is sent, so that its reply finds it.
			c.expect(expectation{fault: f, opaque: opaque})
		}
		if len(words) > 0 {
			c.w.commands.Add(1)
		}
		c.w.gate.pass(c.gone)
		if _, err := out.Write(frame); err != nil {
			return
		}
		if !in.buffered() && out.Flush() != nil {
			return
		}
	}
}

// replies takes what the server sends apart and decides what becomes of it.
func (c *wireConn) replies() {
	defer close(c.chunks)
	in := newFrameReader(c.server)
	var out []byte
	for {
		start := len(out)
		var push bool
		var err error
		out, push, err = in.readReply(out)
		if err != nil {
			c.reportProtocol("reply", err)
			c.send(chunk{data: out[:start]})
			return
		}
		var e expectation
		if !push {
			e = c.nextExpected()
		}
		if e.opaque {
			c.send(chunk{data: out})
			c.passThrough(in)
			return
		}
		if f := e.fault; f != nil {
			switch f.kind {
			case dropReply:
				c.send(chunk{data: out[:start], drop: f})
				out = nil
			case cutReply:
				c.send(chunk{data: out[:start+(len(out)-start)/2], drop: f})
				out = nil
			case holdReply:
				c.send(chunk{data: out[:start]})
				c.send(chunk{data: out[start:], hold: f})
				f.struck.fire()
				out = nil
			case holdCommand: // has its answer
				f.through.fire()
			}
		}
		if !in.buffered() || len(out) >= flushSize {
			c.send(chunk{data: out})
			out = nil
		}
	}
}

// passThrough forwards all further bytes from the server as they come.
func (c *wireConn) passThrough(in *frameReader) {
	for {
		buf := make([]byte, readerSize)
		n, err := in.br.Read(buf)
		c.send(chunk{data: buf[:n]})
		if err != nil {
			return
		}
	}
}

// send hands a chunk to deliver, with the wire's delay.
func (c *wireConn) send(ch chunk) {
	if len(ch.data) == 0 && ch.hold == nil && ch.drop == nil {
		return
	}
	if d := time.Duration(c.w.delay.Load()); d > 0 {
		ch.due = time.Now().Add(d)
	}
	select {
	case c.chunks <- ch:
	case <-c.gone:
		if ch.hold != nil {
			ch.hold.through.fire()
		}
	}
}

// deliver writes to the client. Once that is not possible any more it goes on
// to take chunks, so that the server's side comes to its end in good order.
func (c *wireConn) deliver() {
	hungUp := false
	for ch := range c.chunks {
		c.awaitInstant(ch.due)
		if ch.hold != nil {
			select {
			case <-ch.hold.released.c:
			case <-c.gone:
			}
		}
		c.w.gate.pass(c.gone)
		if !hungUp {
			hungUp = c.write(ch.data) != nil
		}
		if ch.drop != nil {
			c.hangUp()
			hungUp = true
			ch.drop.struck.fire()
		}
		if ch.hold != nil {
			ch.hold.through.fire()
		}
	}
	c.w.gate.pass(c.gone)
	if !c.half.Load() {
		c.hangUp()
	}
}

// write passes data on to the client.
func (c *wireConn) write(data []byte) error {
	if c.w.trickle.Load() {
		return trickle(c.client, data)
	}
	_, err := c.client.Write(data)
	return err
}

// forget makes the server's end vanish.
func (c *wireConn) forget() {
	c.half.Store(true)
	_ = c.server.Close()
}

// hangUp ends the connection for the client. Its other direction stays open
// for a moment: were it closed with something unread in it, the system would
// reset the connection, and the client lose replies that it has not read yet.
// What the client has sent still goes to the server.
func (c *wireConn) hangUp() {
	_ = c.client.CloseWrite()
	_ = c.client.SetReadDeadline(time.Now().Add(hangUpWait))
}

// awaitInstant waits until due, or until the connection is gone.
func (c *wireConn) awaitInstant(due time.Time) {
	if due.IsZero() {
		return
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.gone:
	}
}

// expect notes what shall become of the next reply but those noted before.
func (c *wireConn) expect(e expectation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected = append(c.expected, e)
}

// nextExpected returns what shall become of a reply that has come. One that
// nobody asked for, such as a refusal at the connection's start, is passed on.
func (c *wireConn) nextExpected() expectation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.expected) == 0 {
		return expectation{}
	}
	e := c.expected[0]
	c.expected = c.expected[1:]
	return e
}

// reportProtocol fails the test if err is that of a stream which the wire does
// not understand, for then its faults mean nothing, and ends the connection.
func (c *wireConn) reportProtocol(what string, err error) {
	if errors.Is(err, errProtocol) {
		c.w.t.Errorf("redistest: wire to %s: %s: %v", c.w.upstream, what, err)
		c.kill()
	}
}

// isOpaque tells whether a command ends the order of one reply to each
// command.
func isOpaque(words []string) bool {
	switch strings.ToUpper(words[0]) {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE",
		"MONITOR", "SYNC", "PSYNC":
		return true
	case "CLIENT":
		return len(words) > 2 && strings.EqualFold(words[1], "REPLY") && !strings.EqualFold(words[2], "ON")
	}
	return false
}
