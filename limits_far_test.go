package delayqueue

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// farther puts a time on the way to the server, and the same on the way back, of all commands of the library's own connections beside
// a client.
func farther(t *testing.T, cli redis.UniversalClient, way time.Duration) {
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		time.Sleep(way)
		err := next(ctx, cmd)
		time.Sleep(way)
		return err
	}))
}

// TestLimitsThatNeverBind: a limit that is never reached costs no fetches: as many are fetched ahead as without it.
func TestLimitsThatNeverBind(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(q *DelayQueue){
		"none":   func(*DelayQueue) {},
		"rate":   func(q *DelayQueue) { q.WithRateLimit(100_000, time.Second, 10_000) },
		"places": func(q *DelayQueue) { q.WithQueueConcurrency(5000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var book ledger
			cli := f.client()
			farther(t, cli, 10*time.Millisecond)
			book.of(t, cli)
			q := unhurried(noTick(f.queueOn(cli, func(string) bool { time.Sleep(time.Millisecond); return true }))).WithConcurrent(8)
			limit(q)
			const messages = 1500
			f.several(messages)
			q.StartConsume()
			f.drained()
			n, fetches := 0, 0
			for _, h := range book.fetches() {
				n, fetches = n+h.n, fetches+1
			}
			// The buffer lasts for a round trip, in which eight workers handle 160 at most; on a slow machine far fewer.
			if t.Logf("%d in %d fetches", n, fetches); n < messages || fetches > messages/6 { // without fetching ahead: a quarter
				t.Errorf("%d were handed out in %d fetches", n, fetches)
			}
		})
	}
}
