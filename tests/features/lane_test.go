package features

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestLanes: 50 lanes of 40 messages over three consumers: each lane in order, one at a time, also beside failures;
// and beside each other.
func TestLanes(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const lanes, each = 50, 40
	var mu sync.Mutex
	busy, next, most := map[string]int{}, map[string]int{}, 0
	handle := func(_ context.Context, msg *delayqueue.Message) error {
		n, err := strconv.Atoi(msg.Payload)
		f.Must(err)
		mu.Lock()
		if busy[msg.Lane]++; busy[msg.Lane] > 1 {
			t.Errorf("%d messages of lane %s at a time", busy[msg.Lane], msg.Lane)
		}
		if n != next[msg.Lane] {
			t.Errorf("lane %s: message %d, want %d", msg.Lane, n, next[msg.Lane])
		}
		fails := n%7 == 3 && msg.Delivery < 3
		if !fails {
			next[msg.Lane]++
		}
		most = max(most, len(busy))
		mu.Unlock()
		defer func() {
			mu.Lock()
			if busy[msg.Lane]--; busy[msg.Lane] == 0 {
				delete(busy, msg.Lane)
			}
			mu.Unlock()
		}()
		time.Sleep(100 * time.Microsecond)
		if fails {
			return queuetest.ErrBoom
		}
		return nil
	}
	var queues []*delayqueue.DelayQueue
	for range 3 {
		queues = append(queues,
			f.Queue(nil).WithHandler(handle).WithConcurrent(8).WithNackRedeliveryDelay(5*time.Millisecond))
	}
	var batch []delayqueue.Outgoing
	for n := range each {
		for lane := range lanes {
			batch = append(batch, delayqueue.Outgoing{Payload: strconv.Itoa(n),
				Options: []delayqueue.MsgOption{delayqueue.WithLane(fmt.Sprint("customer-", lane))}})
		}
	}
	for _, q := range queues {
		q.StartConsume()
	}
	_, err := queues[0].SendBatch(queuetest.CtxB, batch)
	f.Must(err)
	f.Drained()
	f.CheckEmpty()
	for lane := range lanes {
		if n := next[fmt.Sprint("customer-", lane)]; n != each {
			t.Errorf("lane %d: %d handled", lane, n)
		}
	}
	if most < 5 {
		t.Errorf("at most %d lanes at a time", most)
	}
}

// TestLaneOptions: what a lane may not be.
func TestLaneOptions(t *testing.T) {
	t.Parallel()
	bad := func(name string, width ...int) badOptions {
		return badOptions{[]delayqueue.MsgOption{delayqueue.WithLane(name, width...)}, []string{"WithLane"}}
	}
	refusesOptions(face.New(t), map[string]badOptions{
		"no name": bad(""), "a control character": bad("a\x00b"), "a long name": bad(strings.Repeat("x", 201)),
		"no width": bad("a", 0), "too wide": bad("a", 101), "two widths": bad("a", 1, 2),
	})
}

// countTrips counts the round trips of the queues of a client, and how often they wait for wake-ups.
func countTrips(t *testing.T, cli redis.UniversalClient) (all, waits *atomic.Int64) {
	counts := func(n *atomic.Int64) queuetest.TripHook {
		return func(_ []redis.Cmder, next func() error) error { n.Add(1); return next() }
	}
	all, waits = new(atomic.Int64), new(atomic.Int64)
	t.Cleanup(link.Interpose(cli, counts(all)))
	t.Cleanup(link.InterposeWaits(cli, counts(waits)))
	return all, waits
}

// sendsLane sends so many messages of one lane, which have their numbers as payloads.
func sendsLane(f *face.Fixture, n int) {
	f.T.Helper()
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: strconv.Itoa(i), Options: []delayqueue.MsgOption{delayqueue.WithLane("l")}}
	}
	_, err := f.Queue(nil).SendBatch(queuetest.CtxB, batch)
	f.Must(err)
}

// inOrder is a handler that wants the messages of sendsLane in their order, each once. It acks most, and gives up
// some. next counts them.
func inOrder(t *testing.T, next *atomic.Int64) delayqueue.Handler {
	return func(ctx context.Context, msg *delayqueue.Message) error {
		n := next.Add(1)
		if want := strconv.FormatInt(n-1, 10); msg.Payload != want {
			t.Errorf("message %s, want %s", msg.Payload, want)
		}
		if n%10 == 0 {
			return fmt.Errorf("%w: to garbage", delayqueue.ErrSkipRetry)
		}
		return nil
	}
}

// TestLaneWithoutWakeUps: while a lane has a backlog, its consumer fetches the next message when it has settled one,
// without a wake-up.
func TestLaneWithoutWakeUps(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 10} {
		t.Run(strconv.Itoa(workers), func(t *testing.T) {
			t.Parallel()
			const messages, trips, more = 100, 2 * 100, 25
			var all, waits *atomic.Int64
			for try := range 3 { // a machine that stands still makes more of them: the best counts
				f := face.New(t)
				f = &face.Fixture{Base: f.Named(fmt.Sprint(f.Name, "-try-", try))}
				cli := f.Client()
				all, waits = countTrips(t, cli)
				var next atomic.Int64
				sendsLane(f, messages)
				unhurried(face.NoTick(f.QueueOn(cli, nil))).WithConcurrent(workers).WithHandler(inOrder(t, &next)).StartConsume()
				queuetest.Reaches(t, "messages are handled", messages, func() int { return int(next.Load()) })
				if all.Load() <= trips+more && waits.Load() <= more {
					break
				}
			}
			t.Logf("%d messages in %d round trips, and %d waits", messages, all.Load(), waits.Load())
			if all.Load() > trips+more || waits.Load() > more {
				t.Errorf("want %d at most, and %d waits", trips+more, more)
			}
		})
	}
}

// TestLanesWithoutBacklog: a message that did not wait for its turn is settled, and no fetch follows.
func TestLanesWithoutBacklog(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	cli := f.Client()
	fetches := face.CountCalls(t, cli, script.FetchScript.SHA)
	q := unhurried(face.NoTick(f.QueueOn(cli, func(string) bool { return true }))).WithConcurrent(4)
	q.StartConsume()
	for range 20 {
		sendsLane(f, 1)
		f.Drained()
	}
	if n := fetches.Load(); n > 30 {
		t.Errorf("%d fetches of 20 messages", n)
	}
}

// TestLanesLoseReplies: a settlement whose reply is lost is repeated, counts once, and lets its lane go on.
func TestLanesLoseReplies(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	cli := f.Client()
	_, waits := countTrips(t, cli)
	var settles atomic.Int64
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if args := cmd.Args(); len(args) > 1 && args[1] == script.SettleScript.SHA && settles.Add(1)%5 == 0 {
				err = io.EOF
				cmd.SetErr(err)
			}
			return err
		})))
	const messages = 60
	var next atomic.Int64
	sendsLane(f, messages)
	face.NoTick(f.QueueOn(cli, nil)).WithConcurrent(4).WithHandler(inOrder(t, &next)).StartConsume()
	queuetest.Reaches(t, "messages are handled", messages, func() int { return int(next.Load()) })
	if n := waits.Load(); n > 20 {
		t.Errorf("%d waits for wake-ups", n)
	}
}
