package delayqueue

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestStopWhileAFetchIsAnswered: what the fetch hands out after the stop is released at once, and
// does not wait for its lease to run out.
func TestStopWhileAFetchIsAnswered(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]bool{"the reply arrives": false, "the reply is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := wired(t)
			q := f.queueOn(cli, func(string) bool { t.Error("a handler started after the stop"); return true }).
				WithConcurrent(3).WithLease(time.Hour)
			var ids []string
			for range 3 {
				ids = append(ids, f.send(f.queue(nil), "x").ID)
			}
			struck, release := wire.HoldReply(redistest.Script(fetchScript.sha))
			done := q.StartConsume()
			receive(t, "the reply is held", struck)
			if n := len(f.check().Unack); n != 3 {
				t.Fatalf("%d are handed out, want 3", n)
			}
			q.StopConsume()
			if cut {
				wire.Cut()
				wire.Mend()
			}
			release()
			receive(t, "done closes", done)
			state := f.check()
			for _, id := range ids {
				if r := state.Fail[id]; state.Where(id) != "ready" || r.Delivery != 2 || r.Failures != 0 || r.Losses != 0 {
					t.Errorf("message %s is %s, record %+v; want ready, released once", id, state.Where(id), r)
				}
			}
			got := make(chan string, 3)
			noTick(f.queue(func(payload string) bool { got <- payload; return true })).StartConsume()
			for range 3 {
				receive(t, "another consumer has it before its first tick", got)
			}
			eventually(t, "all are acked", func() bool { return len(f.check().Messages) == 0 })
		})
	}
}

// TestStopHandsTheAlarmOnTwice: a stop looks twice, and the second look sets the alarm for
// whatever waits, taken or not.
func TestStopHandsTheAlarmOnTwice(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"something waits": true, "nothing waits": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t) // not over a wire, which tells the server of a closed connection in its own time
			q := noTick(f.queue(func(string) bool { return true }))
			var due int64
			if waits {
				due = f.send(f.queue(nil), "x", WithDelay(time.Hour)).Due.UnixMicro()
			}
			done := q.StartConsume()
			eventually(t, "the consumer listens, and has the alarm if there is one", func() bool {
				s := f.check()
				return s.Fields["seen"] != "" && s.Wake == 0 && (s.Fields["armed"] == strconv.FormatInt(due, 10) || !waits)
			})
			type look struct {
				want  int
				rearm bool
			}
			var mu sync.Mutex
			var looks []look
			hookOwn(t, f.cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if args := cmd.Args(); len(args) > 1 && args[1] == fetchScript.sha {
					args = args[3+len(q.store.keys.all):]
					mu.Lock()
					looks = append(looks, look{args[2].(int), args[7].(bool)})
					mu.Unlock()
				}
				return next(ctx, cmd)
			}))
			q.StopConsume()
			receive(t, "done closes", done)
			mu.Lock()
			defer mu.Unlock()
			if want := []look{{0, false}, {0, true}}; !slices.Equal(looks, want) {
				t.Errorf("the stop looked as %v, want %v", looks, want)
			}
			if state := f.check(); state.Wake != due {
				t.Errorf("the alarm stands at %d, want %d:\n%s", state.Wake, due, state.Dump())
			}
		})
	}
}

// TestStopWithRedisAway: done closes after one lease of trying, and the log names what was
// not settled.
func TestStopWithRedisAway(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	started, release := make(chan struct{}), make(chan struct{})
	q := f.queueOn(cli, nil).WithLease(2 * time.Second).WithHandler(func(context.Context, *Message) error {
		close(started)
		<-release
		return nil
	})
	info := f.send(q, "x")
	done := q.StartConsume()
	receive(t, "it starts", started)
	wire.Cut()
	q.StopConsume()
	close(release)
	receive(t, "done closes", done)
	if f.log.count(info.ID) == 0 || f.log.count("gave up settling") != 1 {
		t.Error("the log does not name what was not settled")
	}
	if where := f.where(info.ID); where != "unack" {
		t.Errorf("the message is %s, want unack until its lease runs out", where)
	}
}
