package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// is matches commands that begin with these words.
func is(words ...string) func([]string) bool {
	return func(cmd []string) bool {
		if len(cmd) < len(words) {
			return false
		}
		for i, word := range words {
			if !strings.EqualFold(cmd[i], word) {
				return false
			}
		}
		return true
	}
}

// wired returns a server, a wire to it, and a client on the wire which repeats
// nothing on its own.
func wired(t *testing.T, protocol int) (*Server, *Wire, *redis.Client) {
	t.Helper()
	s := Start(t)
	w := NewWire(t, s.Addr())
	return s, w, onWire(t, w, protocol)
}

func onWire(t *testing.T, w *Wire, protocol int) *redis.Client {
	t.Helper()
	cli := redis.NewClient(&redis.Options{
		Addr: w.Addr(), Protocol: protocol, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Minute,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// both runs a test with RESP2 and with RESP3, each time with what wired returns.
func both(t *testing.T, test func(t *testing.T, s *Server, w *Wire, cli *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			s, w, cli := wired(t, protocol)
			test(t, s, w, cli)
		})
	}
}

func TestWirePassesAllUnharmed(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, _ *Server, w *Wire, cli *redis.Client) {
		ctx := testCtx(t)
		var own, handshakes atomic.Int64 // some versions of go-redis open a connection for a pipeline
		struck := w.DropReply(func(cmd []string) bool {
			if is("hello")(cmd) || is("client")(cmd) {
				handshakes.Add(1)
			} else {
				own.Add(1)
			}
			return false
		})
		value := bytes.Repeat([]byte("0123456789abcdef"), testkit.Size(2<<20, 1<<18)) // 32 MB or 4
		testkit.Must(t, cli.Set(ctx, "big", value, 0).Err())
		got, err := cli.Get(ctx, "big").Bytes()
		if err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes came back, %v", len(got), err)
		}
		ownBefore := own.Load()
		pipe := cli.Pipeline()
		for i := range 5000 {
			pipe.Incr(ctx, "n")
			pipe.Echo(ctx, i)
		}
		cmds, err := pipe.Exec(ctx)
		if err != nil || cmds[9998].(*redis.IntCmd).Val() != 5000 || cmds[9999].(*redis.StringCmd).Val() != "4999" {
			t.Fatalf("pipeline: %v, %v, %v", cmds[9998], cmds[9999], err)
		}
		if n := own.Load() - ownBefore; n != 10000 {
			t.Errorf("%d commands of the pipeline passed, want 10000", n)
		}
		if n, want := w.Commands(), own.Load()+handshakes.Load(); n != want {
			t.Errorf("%d commands counted, %d passed", n, want)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					if err := cli.Incr(ctx, "n").Err(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n, err := cli.Get(ctx, "n").Int(); n != 5800 {
			t.Errorf("n is %d, %v", n, err)
		}
		if v, err := cli.BLPop(ctx, time.Second, "none").Result(); !errors.Is(err, redis.Nil) {
			t.Errorf("BLPOP: %v, %v", v, err)
		}
		mustBeOpen(t, struck, "a drop that matches no command")
	})
}

func TestCutAndMend(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, cli := wired(t, 3)
	ping(t, cli)
	conn := dial(t, w.Addr())
	// A process that is being started has a copy of the socket for a moment, and so has this file.
	child, err := w.line.ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	w.Cut()
	w.Cut()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("a connection has survived the cut")
	}
	if c, err := net.Dial("tcp", w.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			c.Close()
		}
		t.Fatalf("a cut wire does not refuse: %v", err)
	}
	if err := cli.Ping(ctx).Err(); err == nil {
		t.Fatal("a cut wire passes")
	}
	ping(t, s.Client(t))
	testkit.Must(t, child.Close())
	w.Mend()
	w.Mend()
	if err := cli.Ping(ctx).Err(); err != nil {
		t.Fatalf("after mending: %v", err)
	}
}

func TestCutLosesWhatIsHeld(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, cli := wired(t, 3)
	struck, release := w.HoldCommand(is("incr"))
	result := make(chan error, 1)
	go func() { result <- cli.Incr(ctx, "n").Err() }()
	testkit.Receive(t, "the hold", struck)
	w.Cut()
	if err := <-result; err == nil {
		t.Fatal("a reply came over a cut wire")
	}
	release()
	w.Mend()
	if n, err := s.Client(t).Exists(ctx, "n").Result(); n != 0 {
		t.Fatalf("the held command has reached the server: %v", err)
	}
}

func TestSetDelay(t *testing.T) {
	t.Parallel()
	_, w, cli := wired(t, 3)
	ping(t, cli)
	const delay = 150 * time.Millisecond
	w.SetDelay(delay)
	begin := time.Now()
	ping(t, cli)
	if took := time.Since(begin); took < delay {
		t.Fatalf("took %v, want at least %v", took, delay)
	}
	w.SetDelay(0)
	for took := delay; took >= delay; took = time.Since(begin) { // one of them is faster, however busy the machine is
		begin = time.Now()
		ping(t, cli)
	}
}

func TestSubscribersPassThrough(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, _ *Server, w *Wire, cli *redis.Client) {
		ctx := testCtx(t)
		sub := cli.Subscribe(ctx, "a", "b")
		defer sub.Close()
		for range 2 {
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		struck := w.DropReply(is("publish", "a", "2"))
		for _, payload := range []string{"1", "2", "3"} {
			err := cli.Publish(ctx, "a", payload).Err()
			if lost := err != nil; lost != (payload == "2") {
				t.Fatalf("publish %s: %v", payload, err)
			}
			if msg, err := sub.ReceiveMessage(ctx); err != nil || msg.Payload != payload {
				t.Fatalf("received %v, %v", msg, err)
			}
		}
		testkit.Receive(t, "the drop", struck)
	})
}

// A server that goes is seen by the client, and one that comes back is found.
func TestWireFollowsItsServer(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, cli := wired(t, 3)
	conn := dial(t, w.Addr())
	ping(t, cli)
	s.Kill()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection has survived its server")
	}
	if err := cli.Ping(ctx).Err(); err == nil {
		t.Fatal("a dead server answers")
	}
	s.Restart(t)
	ping(t, cli)
}

func TestGarbageFailsTheTest(t *testing.T) {
	t.Parallel()
	fake := &fakeTB{TB: t}
	w := NewWire(fake, fakeServer(t, "HTTP/1.1 400 Bad Request\r\n"))
	conn := dial(t, w.Addr())
	write(t, conn, "PING\r\n")
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%d bytes of garbage passed", n)
	}
	fake.end()
	if !strings.Contains(fake.errorText(), "HTTP/1.1") {
		t.Fatalf("errors: %q", fake.errorText())
	}
}

// A wire closes even with a hold that was never released, and with a server
// that does not answer; goleak sees what is left.
func TestWireClosesWhateverIsUnderWay(t *testing.T) {
	t.Parallel()
	s := Start(t)
	fake := &fakeTB{TB: t}
	w := NewWire(fake, s.Addr())
	struckCmd, _ := w.HoldCommand(is("one"))
	struckReply, _ := w.HoldReply(is("two"))
	for _, cmd := range []string{"one\r\n", "two\r\n"} {
		write(t, dial(t, w.Addr()), cmd)
	}
	testkit.Receive(t, "the hold of a command", struckCmd)
	testkit.Receive(t, "the hold of a reply", struckReply)
	s.Pause()
	write(t, dial(t, w.Addr()), "three\r\n")
	w.SetDelay(time.Hour)
	fake.end()
	w.Mend() // does nothing any more
	if c, err := net.Dial("tcp", w.Addr()); err == nil {
		c.Close()
		t.Fatal("a closed wire was mended")
	}
}

func ping(t *testing.T, cli *redis.Client) {
	t.Helper()
	testkit.Must(t, cli.Ping(testCtx(t)).Err())
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// dial opens a bare connection, closed at the end of the test.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	testkit.Must(t, err)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { conn.Close() })
	return conn
}
