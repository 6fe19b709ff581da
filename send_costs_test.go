package delayqueue

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestSendBatchCosts: 500 messages a script call.
func TestSendBatchCosts(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	q := unhurried(f.queue(nil))
	q.batcher.forgetOdds = 0
	f.send(q, "first", WithDelay(time.Hour), WithKey("k")) // the script is loaded
	spent := commands(t, redisClient(t, server.Addr()), func() {
		if _, err := q.SendBatch(context.Background(), make([]Outgoing, 1200)); err != nil {
			t.Fatal(err)
		}
	})
	if spent["evalsha"] != 3 || spent["eval"] != 0 {
		t.Errorf("1,200 messages took %d script calls, want 3: %v", spent["evalsha"]+spent["eval"], spent)
	}
	if n := len(f.check().Messages); n != 1201 {
		t.Errorf("%d messages stored, want 1,201", n)
	}
}

// TestConcurrentSendsShareCalls: 64 callers need a third of the calls that one after the other
// would, or fewer.
func TestConcurrentSendsShareCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	var calls atomic.Int64
	hookOwn(t, f.cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			calls.Add(1)
		}
		return next(ctx, cmd)
	}))
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
	state := f.check()
	if len(state.Pending) != callers*each || n == 0 || n > callers*each/3 {
		t.Errorf("%d messages took %d calls, want %d in at most %d", len(state.Pending), n, callers*each, callers*each/3)
	}
}
