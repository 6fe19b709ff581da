package delayqueue_test

import (
	"context"
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
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// neverForgets keeps the queues of a client from forgetting old callers, which they do now and then.
func neverForgets(t *testing.T, cli redis.UniversalClient) {
	t.Cleanup(link.Interpose(cli, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) < 2 || args[1] != script.ForgetScript.SHA && args[1] != script.ForgetScript.Text {
			return next(ctx, cmd)
		}
		cmd.SetErr(queuetest.ErrBoom)
		return queuetest.ErrBoom
	})))
}

// TestSendBatchCosts: 500 messages a script call.
func TestSendBatchCosts(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	q := unhurried(f.Queue(nil))
	neverForgets(t, f.Cli)
	f.Send(q, "first", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k")) // the script is loaded
	spent := queuetest.Commands(t, queuetest.RedisClient(t, server.Addr()), func() {
		if _, err := q.SendBatch(context.Background(), make([]delayqueue.Outgoing, 1200)); err != nil {
			t.Fatal(err)
		}
	})
	if spent["evalsha"] != 3 || spent["eval"] != 0 {
		t.Errorf("1,200 messages took %d script calls, want 3: %v", spent["evalsha"]+spent["eval"], spent)
	}
	if n := len(f.Check().Messages); n != 1201 {
		t.Errorf("%d messages stored, want 1,201", n)
	}
}

// TestConcurrentSendsShareCalls: 64 callers need a third of the calls that one after the other
// would, or fewer.
func TestConcurrentSendsShareCalls(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	var calls atomic.Int64
	t.Cleanup(link.Interpose(f.Cli, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			calls.Add(1)
		}
		return next(ctx, cmd)
	})))
	const callers, each = 64, 50
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				if err := q.SendDelayMsg("x", time.Hour); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	n := calls.Load() // before the check's
	state := f.Check()
	if len(state.Pending) != callers*each || n == 0 || n > callers*each/3 {
		t.Errorf("%d messages took %d calls, want %d in at most %d", len(state.Pending), n, callers*each, callers*each/3)
	}
}

// TestCallersOfTheProcess: publishers that are made for one send each use the callers of others.
func TestCallersOfTheProcess(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	n := testkit.Size(1000, 200)
	for range n {
		if err := delayqueue.NewPublisher(f.Name, f.Cli).SendDelayMsg("x", time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	callers := 0
	for field := range f.Check().Fields {
		if strings.HasPrefix(field, "call:") {
			callers++
		}
	}
	if callers > n/2 { // other tests take some from time to time
		t.Errorf("%d publishers had %d callers", n, callers)
	}
}
