package redistest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

func TestCutReply(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, _ := wired(t, 3)
	testkit.Must(t, s.Client(t).Set(ctx, "k", "0123456789", 0).Err())
	struck := w.CutReply(is("get"))
	conn := dial(t, w.Addr())
	write(t, conn, "GET none\r\nPING\r\nGET k\r\n")
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "$-" { // of $-1\r\n
		t.Fatalf("read %q, %v", got, err)
	}
	testkit.Receive(t, "the cut", struck)
	struck = w.CutReply(is("get"))
	conn = dial(t, w.Addr())
	write(t, conn, "PING\r\nGET k\r\nINCR n\r\n")
	if got, err := io.ReadAll(conn); err != nil || string(got) != "+PONG\r\n$10\r\n012" {
		t.Fatalf("read %q, %v", got, err)
	}
	testkit.Receive(t, "the cut", struck)
	if n, err := s.Client(t).Get(ctx, "n").Int(); n != 1 {
		t.Fatalf("what came behind was not executed: %v", err)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, cli := wired(t, 3)
	ping(t, cli)
	conn := dial(t, w.Addr())
	w.Freeze()
	w.Freeze()
	result := make(chan error, 1)
	go func() { result <- cli.Incr(ctx, "n").Err() }()
	for _, c := range []net.Conn{conn, dial(t, w.Addr())} { // one from before, and a new one
		write(t, c, "INCR n\r\n")
		silent(t, c, 100*time.Millisecond)
	}
	if n, err := s.Client(t).Exists(ctx, "n").Result(); n != 0 {
		t.Fatalf("a command has passed: %v", err)
	}
	w.Thaw()
	w.Thaw()
	if err := <-result; err != nil {
		t.Fatalf("what waited did not pass: %v", err)
	}
	for n := 0; n != 3; {
		var err error
		if n, err = s.Client(t).Get(ctx, "n").Int(); err != nil {
			t.Fatal(err)
		}
	}
}

// A frozen wire can be cut, and closes at the end of its test; goleak sees what is left.
// A frozen network brings no end of a connection, from either side.
func TestFreezeHoldsEnds(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, _ := wired(t, 3)
	cli := s.Client(t)
	clients := func() int { return strings.Count(cli.ClientList(ctx).Val(), "name=here") }
	byClient, byServer := dial(t, w.Addr()), dial(t, w.Addr())
	for _, c := range []net.Conn{byClient, byServer} {
		write(t, c, "CLIENT SETNAME here\r\n")
		if _, err := io.ReadFull(c, make([]byte, len("+OK\r\n"))); err != nil {
			t.Fatal(err)
		}
	}
	w.Freeze()
	byClient.Close()
	time.Sleep(100 * time.Millisecond)
	if n := clients(); n != 2 {
		t.Errorf("the server has %d of 2 connections", n)
	}
	if n := cli.ClientKillByFilter(ctx, "TYPE", "normal").Val(); n != 2 {
		t.Errorf("it closed %d", n)
	}
	silent(t, byServer, 100*time.Millisecond)
	w.Thaw()
	_ = byServer.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := byServer.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("it read %d bytes: %v", n, err)
	}
}

func TestCutWhileFrozen(t *testing.T) {
	t.Parallel()
	_, w, cli := wired(t, 3)
	ping(t, cli)
	w.Freeze()
	result := make(chan error, 1)
	go func() { result <- cli.Ping(testCtx(t)).Err() }()
	w.Cut()
	if err := <-result; err == nil {
		t.Fatal("an answer came over a cut wire")
	}
	w.Mend()
	w.Thaw()
	ping(t, cli)
}

// struckConn is a connection that has been answered, and that strike has struck.
func struckConn(t *testing.T, w *Wire, strike func() int) net.Conn {
	t.Helper()
	conn := dial(t, w.Addr())
	write(t, conn, "PING\r\n")
	if _, err := io.ReadFull(conn, make([]byte, len("+PONG\r\n"))); err != nil {
		t.Fatal(err)
	}
	if n := strike(); n != 1 {
		t.Fatalf("%d connections were struck", n)
	}
	return conn
}

// silent fails the test if the connection answers within d.
func silent(t *testing.T, conn net.Conn, d time.Duration) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(d))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v", n, err)
	}
}

func TestHalfOpen(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, _ := wired(t, 3)
	conn := struckConn(t, w, w.HalfOpen)
	for range 3 { // all is swallowed, without an error and without an answer
		write(t, conn, "INCR n\r\n")
		silent(t, conn, 50*time.Millisecond)
	}
	if n, err := onWire(t, w, 3).Exists(ctx, "n").Result(); n != 0 || err != nil {
		t.Fatalf("a new connection sees %d, %v", n, err)
	}
	if n, err := s.Client(t).Exists(ctx, "n").Result(); n != 0 {
		t.Fatalf("a command has reached the server: %v", err)
	}
}

func TestHangUp(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, _ := wired(t, 3)
	conn := struckConn(t, w, w.HangUp)
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the client reads on: %v", err)
	}
	write(t, conn, "INCR n\r\n")
	testkit.Until(t, "what was sent afterwards arrives", func() bool { return s.Client(t).Get(ctx, "n").Val() == "1" })
}

func TestTrickle(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	_, w, cli := wired(t, 3)
	w.SetTrickle(true)
	value := bytes.Repeat([]byte("0123456789"), 1000)
	testkit.Must(t, cli.Set(ctx, "k", value, 0).Err())
	if got, err := cli.Get(ctx, "k").Bytes(); err != nil || !bytes.Equal(got, value) {
		t.Fatalf("%d bytes came back, %v", len(got), err)
	}
	// A reader that keeps up sees single bytes; one on a busy machine sees many, but no read holds the whole value.
	conn := dial(t, w.Addr())
	write(t, conn, "GET k\r\n")
	buf := make([]byte, 2*len(value))
	reads := 0
	for got := 0; got < len(value); reads++ {
		n, err := conn.Read(buf)
		testkit.Must(t, err)
		got += n
	}
	if reads < 2 {
		t.Errorf("10,000 bytes came in %d reads", reads)
	}
	w.SetTrickle(false)
	if err := cli.Get(ctx, "none").Err(); !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
}

func TestDarken(t *testing.T) {
	t.Parallel()
	_, w, _ := wired(t, 3)
	swallowed := func(conn net.Conn) {
		t.Helper()
		write(t, conn, "PING\r\n")
		silent(t, conn, 50*time.Millisecond)
	}
	before := dial(t, w.Addr())
	w.Darken()
	during := dial(t, w.Addr())
	swallowed(before)
	swallowed(during)
	w.Lighten()
	swallowed(before)
	swallowed(during)
	if err := onWire(t, w, 3).Ping(testCtx(t)).Err(); err != nil {
		t.Fatalf("a new connection: %v", err)
	}
}
