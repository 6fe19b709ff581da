package redistest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

func TestDropReplyOfScript(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *Server, w *Wire, cli *redis.Client) {
		ctx := testCtx(t)
		script := redis.NewScript(`return redis.call("INCR", KEYS[1])`)
		testkit.Must(t, script.Load(ctx, cli).Err())
		struck := w.DropReply(Script(script.Hash()))
		if err := cli.Incr(ctx, "other").Err(); err != nil {
			t.Fatalf("another command was harmed: %v", err)
		}
		mustBeOpen(t, struck, "a drop before its command")
		if err := script.Run(ctx, cli, []string{"n"}).Err(); err == nil {
			t.Fatal("the reply came")
		}
		testkit.Receive(t, "the drop", struck)
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
	both(t, func(t *testing.T, s *Server, w *Wire, cli *redis.Client) {
		ctx := testCtx(t)
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
		testkit.Receive(t, "the drop", struck)
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
		if !until(time.Minute, func() bool {
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
	write(t, conn, "first\r\n\r\nsecond\r\n*0\r\n*1\r\n$5\r\nthird\r\nfourth\r\n")
	var got bytes.Buffer
	if _, err := got.ReadFrom(conn); err != nil {
		t.Fatal(err)
	}
	testkit.Receive(t, "the drop", struck)
	// The push before the dropped reply has its own frame, and passes.
	if want := push + ":0\r\n" + push + attr + "~1\r\n:1\r\n" + push + push + push; got.String() != want {
		t.Fatalf("got %q, want %q", got.String(), want)
	}
}

func TestHoldReply(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *Server, w *Wire, cli *redis.Client) {
		ctx := testCtx(t)
		struck, release := w.HoldReply(is("incr", "n"))
		result := make(chan error, 1)
		go func() { result <- cli.Incr(ctx, "n").Err() }()
		testkit.Receive(t, "the hold", struck)
		if n, err := s.Client(t).Get(ctx, "n").Int(); n != 1 {
			t.Fatalf("the command was not executed: %d, %v", n, err)
		}
		if err := onWire(t, w, cli.Options().Protocol).Ping(ctx).Err(); err != nil {
			t.Fatalf("another connection waits too: %v", err)
		}
		select {
		case err := <-result:
			t.Fatalf("the reply came before its release: %v", err)
		default:
		}
		release()
		release()
		testkit.Must(t, <-result)
		if n, err := cli.Incr(ctx, "n").Result(); n != 2 {
			t.Fatalf("next call: %d, %v", n, err)
		}
	})
}

// The original is late: its client has given up and repeated the call.
func TestHoldCommandOutlivesItsClient(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *Server, w *Wire, cli *redis.Client) {
		ctx := testCtx(t)
		direct := s.Client(t)
		struck, release := w.HoldCommand(is("rpush", "l", "original"))
		hasty, given := onWire(t, w, cli.Options().Protocol), make(chan error, 1)
		pipe := hasty.Pipeline()
		pipe.RPush(ctx, "l", "before")
		pipe.RPush(ctx, "l", "original")
		pipe.RPush(ctx, "l", "behind")
		go func() { _, err := pipe.Exec(ctx); given <- err }()
		testkit.Receive(t, "the hold", struck)
		hasty.Close()
		if err := <-given; err == nil {
			t.Fatal("the reply came")
		}
		testkit.Must(t, direct.RPush(ctx, "l", "repeat").Err())
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
	_, w, cli := wired(t, 3)
	struckCmd, releaseCmd := w.HoldCommand(is("ping"))
	struckReply, releaseReply := w.HoldReply(is("ping"))
	releaseCmd()
	releaseReply()
	ping(t, cli)
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
	testkit.Receive(t, "the first drop", first)
	mustBeOpen(t, second, "the second drop")
	if err := cli.Incr(ctx, "n").Err(); err == nil {
		t.Fatal("no second reply was dropped")
	}
	testkit.Receive(t, "the second drop", second)
	if n, err := cli.Incr(ctx, "n").Result(); n != 3 {
		t.Fatalf("%d, %v", n, err)
	}
}
