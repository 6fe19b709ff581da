package features

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestPoolOfManyQueues: many queues of a pool with one message each for one instant do not fetch again for each other's
// messages. A queue needs a fetch for its message, and makes one that finds nothing more. Twice that is allowed, and
// one for each second that it takes, because a queue looks so often.
func TestPoolOfManyQueues(t *testing.T) {
	t.Parallel()
	queues := testkit.Size(200, 40)
	f := face.New(t)
	cli := f.Client()
	count := face.CountCalls(t, cli, script.FetchScript.SHA)
	var handled atomic.Int64
	var all []*delayqueue.DelayQueue
	var shares []delayqueue.Share
	for i := range queues {
		q := delayqueue.NewQueue(fmt.Sprint(f.Name, "-", i), cli, func(string) bool { handled.Add(1); return true })
		all = append(all, face.NoTick(q).WithLogger(slog.New(slog.DiscardHandler)))
		shares = append(shares, delayqueue.Share{Queue: q})
		t.Cleanup(func() { f.Cli.Del(queuetest.CtxB, check.Queue{Prefix: "dq", Name: q.Name()}.Keys()...) })
	}
	p := delayqueue.NewPool(16, shares...)
	p.StartConsume()
	defer func() { f.Must(p.Shutdown(queuetest.Within(t, queuetest.Patience))) }()
	queuetest.Eventually(t, "all wait for wake-ups", func() bool { return int(count.Load()) >= queues })
	for wait := 2 * time.Second; ; wait *= 2 { // until all were sent before the instant
		due := time.Now().Add(wait)
		for _, q := range all {
			f.Send(q, "x", delayqueue.WithDelay(max(time.Until(due), time.Millisecond)))
		}
		before, begun := count.Load(), time.Now()
		queuetest.Reaches(t, "all are handled", queues, func() int { return int(handled.Load()) })
		handled.Store(0)
		if begun.After(due) {
			continue
		}
		took, fetches := time.Since(begun), int(count.Load()-before)
		if most := queues * (4 + int(took.Seconds())); fetches > most {
			t.Errorf("%d fetches of %d queues in %v, want at most %d", fetches, queues, took, most)
		}
		return
	}
}
