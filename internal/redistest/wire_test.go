package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
	cli := redis.NewClient(&redis.Options{Addr: w.Addr(), Protocol: protocol, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// both runs a test with RESP2 and with RESP3.
func both(t *testing.T, test func(t *testing.T, protocol int)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			t.Parallel()
			test(t, protocol)
		})
	}
}

func TestWirePassesAllUnharmed(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, protocol int) {
		ctx := testCtx(t)
		_, w, cli := wired(t, protocol)
		struck := w.DropReply(is("no-such-command"))
		value := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // 32 MB
		if err := cli.Set(ctx, "big", value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := cli.Get(ctx, "big").Bytes()
		if err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d bytes came back, %v", len(got), err)
		}
		before := w.Commands()
		pipe := cli.Pipeline()
		for i := range 5000 {
			pipe.Incr(ctx, "n")
			pipe.Echo(ctx, i)
		}
		cmds, err := pipe.Exec(ctx)
		if err != nil || cmds[9998].(*redis.IntCmd).Val() != 5000 || cmds[9999].(*redis.StringCmd).Val() != "4999" {
			t.Fatalf("pipeline: %v, %v, %v", cmds[9998], cmds[9999], err)
		}
		if n := w.Commands() - before; n != 10000 {
			t.Errorf("%d commands counted", n)
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
		mustBeOpen(t, struck, "the drop of a command that was not sent")
	})
}

func TestDropReplyOfScript(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, protocol int) {
		ctx := testCtx(t)
		s, w, cli := wired(t, protocol)
		script := redis.NewScript(`return redis.call("INCR", KEYS[1])`)
		if err := script.Load(ctx, cli).Err(); err != nil {
			t.Fatal(err)
		}
		struck := w.DropReply(Script(script.Hash()))
		if err := cli.Incr(ctx, "other").Err(); err != nil {
			t.Fatalf("another command was harmed: %v", err)
		}
		mustBeOpen(t, struck, "a drop before its command")
		if err := script.Run(ctx, cli, []string{"n"}).Err(); err == nil {
			t.Fatal("the reply came")
		}
		mustClose(t, struck, "the drop")
		if n, err := s.Client(t).Get(ctx, "n").Int(); n != 1 {
			t.Fatalf("the script ran %d times: %v", n, err)
		}
		if n, err := script.Run(ctx, cli, []string{"n"}).Int(); n != 2 { // strikes once
			t.Fatalf("next call: %d, %v", n, err)
		}
	})
}

// The replies before the dropped one arrive, itself and those behind it do
// not, and the server executes the whole pipeline all the same.
func TestDropReplyInPipeline(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, protocol int) {
		ctx := testCtx(t)
		s, w, cli := wired(t, protocol)
		struck := w.DropReply(is("incrby", "n", "50"))
		pipe := cli.Pipeline()
		for range 49 {
			pipe.Incr(ctx, "n")
			pipe.Eval(ctx, `redis.setresp(3) return {{double=1.5}, {map={a=1}}, {set={b=true}}, true, false, "x",
				{big_number="123"}, {verbatim_string={format="txt", string="v"}}, {{}}}`, nil)
		}
		pipe.IncrBy(ctx, "n", 50)
		for range 49 {
			pipe.Incr(ctx, "n")
		}
		cmds, err := pipe.Exec(ctx)
		if err == nil {
			t.Fatal("no reply was dropped")
		}
		mustClose(t, struck, "the drop")
		// go-redis puts the error on every command; the values tell what came.
		for i, cmd := range cmds {
			cmd, ok := cmd.(*redis.IntCmd)
			if !ok {
				continue
			}
			want := int64(0)
			if i < 98 {
				want = int64(i/2 + 1)
			}
			if cmd.Val() != want {
				t.Fatalf("command %d: %v, want %d", i, cmd, want)
			}
		}
		if !until(5*time.Second, func() bool {
			n, _ := s.Client(t).Get(ctx, "n").Int()
			return n == 49+50+49
		}) {
			t.Fatal("the server has not executed the whole pipeline")
		}
	})
}

// Pushes and attributes between the replies do not confuse the count, and
// what is not the dropped reply comes as it was sent.
func TestDropReplyAmongPushes(t *testing.T) {
	t.Parallel()
	const push = ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n"
	const attr = "|1\r\n+ttl\r\n%1\r\n+a\r\n,1.5\r\n"
	addr := fakeServer(t, push+":0\r\n"+push, attr+"~1\r\n:1\r\n"+push+push, push+":2\r\n", ":3\r\n")
	w := NewWire(t, addr)
	conn := dial(t, w.Addr())
	struck := w.DropReply(is("third"))
	if _, err := conn.Write([]byte("first\r\n\r\nsecond\r\n*0\r\n*1\r\n$5\r\nthird\r\nfourth\r\n")); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := got.ReadFrom(conn); err != nil {
		t.Fatal(err)
	}
	mustClose(t, struck, "the drop")
	// The push before the dropped reply has its own frame, and passes.
	if want := push + ":0\r\n" + push + attr + "~1\r\n:1\r\n" + push + push + push; got.String() != want {
		t.Fatalf("got %q, want %q", got.String(), want)
	}
}

func TestHoldReply(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, protocol int) {
		ctx := testCtx(t)
		s, w, cli := wired(t, protocol)
		struck, release := w.HoldReply(is("incr", "n"))
		result := make(chan error, 1)
		go func() { result <- cli.Incr(ctx, "n").Err() }()
		mustClose(t, struck, "the hold")
		if n, err := s.Client(t).Get(ctx, "n").Int(); n != 1 {
			t.Fatalf("the command was not executed: %d, %v", n, err)
		}
		if err := onWire(t, w, protocol).Ping(ctx).Err(); err != nil {
			t.Fatalf("another connection waits too: %v", err)
		}
		select {
		case err := <-result:
			t.Fatalf("the reply came before its release: %v", err)
		default:
		}
		release()
		release()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if n, err := cli.Incr(ctx, "n").Result(); n != 2 {
			t.Fatalf("next call: %d, %v", n, err)
		}
	})
}

// The original is late: its client has given up and repeated the call.
func TestHoldCommandOutlivesItsClient(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, protocol int) {
		ctx := testCtx(t)
		s, w, _ := wired(t, protocol)
		direct := s.Client(t)
		struck, release := w.HoldCommand(is("rpush", "l", "original"))
		hasty := redis.NewClient(&redis.Options{
			Addr: w.Addr(), Protocol: protocol, MaxRetries: -1, ReadTimeout: 100 * time.Millisecond,
		})
		pipe := hasty.Pipeline()
		pipe.RPush(ctx, "l", "before")
		pipe.RPush(ctx, "l", "original")
		pipe.RPush(ctx, "l", "behind")
		if _, err := pipe.Exec(ctx); err == nil {
			t.Fatal("the reply came")
		}
		mustClose(t, struck, "the hold")
		hasty.Close()
		if err := direct.RPush(ctx, "l", "repeat").Err(); err != nil {
			t.Fatal(err)
		}
		got, err := direct.LRange(ctx, "l", 0, -1).Result()
		if err != nil || fmt.Sprint(got) != "[before repeat]" {
			t.Fatalf("while held: %v, %v", got, err)
		}
		release()
		got, err = direct.LRange(ctx, "l", 0, 2).Result() // at once: release has waited
		if err != nil || fmt.Sprint(got) != "[before repeat original]" {
			t.Fatalf("after the release: %v, %v", got, err)
		}
		release()
	})
}

func TestReleaseBeforeStrikeDisarms(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	_, w, cli := wired(t, 3)
	struckCmd, releaseCmd := w.HoldCommand(is("ping"))
	struckReply, releaseReply := w.HoldReply(is("ping"))
	releaseCmd()
	releaseReply()
	if err := cli.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	mustBeOpen(t, struckCmd, "a disarmed hold")
	mustBeOpen(t, struckReply, "a disarmed hold")
}

// Of two faults on the same command the first has the first call, the second
// the next.
func TestFaultsStrikeInOrder(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	_, w, cli := wired(t, 3)
	first, second := w.DropReply(is("incr", "n")), w.DropReply(is("incr", "n"))
	if err := cli.Incr(ctx, "n").Err(); err == nil {
		t.Fatal("no reply was dropped")
	}
	mustClose(t, first, "the first drop")
	mustBeOpen(t, second, "the second drop")
	if err := cli.Incr(ctx, "n").Err(); err == nil {
		t.Fatal("no second reply was dropped")
	}
	mustClose(t, second, "the second drop")
	if n, err := cli.Incr(ctx, "n").Result(); n != 3 {
		t.Fatalf("%d, %v", n, err)
	}
}

func TestCutAndMend(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, cli := wired(t, 3)
	if err := cli.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, w.Addr())
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
	if err := s.Client(t).Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
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
	mustClose(t, struck, "the hold")
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
	ctx := testCtx(t)
	_, w, cli := wired(t, 3)
	if err := cli.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	const delay = 150 * time.Millisecond
	w.SetDelay(delay)
	begin := time.Now()
	if err := cli.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < delay {
		t.Fatalf("took %v, want at least %v", took, delay)
	}
	w.SetDelay(0)
	// Far more round trips than the delay would allow.
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for range 100 {
		if err := cli.Ping(short).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSubscribersPassThrough(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, protocol int) {
		ctx := testCtx(t)
		_, w, cli := wired(t, protocol)
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
		mustClose(t, struck, "the drop")
	})
}

// A server that goes is seen by the client, and one that comes back is found.
func TestWireFollowsItsServer(t *testing.T) {
	t.Parallel()
	ctx := testCtx(t)
	s, w, cli := wired(t, 3)
	conn := dial(t, w.Addr())
	if err := cli.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection has survived its server")
	}
	if err := cli.Ping(ctx).Err(); err == nil {
		t.Fatal("a dead server answers")
	}
	s.Restart(t)
	if err := cli.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestGarbageFailsTheTest(t *testing.T) {
	t.Parallel()
	fake := &fakeTB{TB: t}
	w := NewWire(fake, fakeServer(t, "HTTP/1.1 400 Bad Request\r\n"))
	conn := dial(t, w.Addr())
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
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
		if _, err := dial(t, w.Addr()).Write([]byte(cmd)); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, struckCmd, "the hold of a command")
	mustClose(t, struckReply, "the hold of a reply")
	s.Pause()
	if _, err := dial(t, w.Addr()).Write([]byte("three\r\n")); err != nil {
		t.Fatal(err)
	}
	w.SetDelay(time.Hour)
	fake.end()
	w.Mend() // does nothing any more
	if c, err := net.Dial("tcp", w.Addr()); err == nil {
		c.Close()
		t.Fatal("a closed wire was mended")
	}
}

// dial opens a bare connection, closed at the end of the test.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	t.Cleanup(func() { conn.Close() })
	return conn
}
