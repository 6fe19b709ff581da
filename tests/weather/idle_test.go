package weather

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestIdleLostWakeUp: a look that goes by the alarm finds what is due although the marker is lost.
func TestIdleLostWakeUp(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	handled := make(chan string, 1)
	queues, cli := face.Siblings(f, 8), f.Client()
	type look struct { // is a fetch from the first queue
		at      time.Time
		byAlarm bool
	}
	var mu sync.Mutex
	var before, last look
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) > 3 && args[1] == script.FetchScript.SHA && args[3] == queues[0].Key("pending") {
				mu.Lock()
				before, last = last, look{time.Now(), args[3+args[2].(int)+6] == 2}
				mu.Unlock()
			}
			return next(ctx, cmd)
		})))
	for _, g := range queues {
		g.QueueOn(cli, func(payload string) bool { handled <- payload; return true }).StartConsume()
	}
	// A sender whose every call is made before, with the marker removed before anybody who waits is served; then it is a
	// repeat.
	sender := f.Client()
	t.Cleanup(link.Interpose(sender,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "evalsha" {
				_, err := f.Cli.TxPipelined(queuetest.CtxB, func(p redis.Pipeliner) error {
					p.Do(queuetest.CtxB, cmd.Args()...)
					p.ZRem(queuetest.CtxB, queues[0].Key("wake"), "w")
					return nil
				})
				f.Must(err)
			}
			return next(ctx, cmd)
		})))
	p := delayqueue.NewPublisher(queues[0].Name, sender)
	for _, d := range []time.Duration{0, time.Second} {
		queuetest.Eventually(t, "it is looked at rarely, by the alarm", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return before.byAlarm && last.byAlarm && last.at.Sub(before.at) > 1500*time.Millisecond
		})
		_, err := p.Send(queuetest.CtxB, fmt.Sprint("x", d), delayqueue.WithDelay(d))
		f.Must(err)
		queuetest.Receive(t, "it is handled", handled)
	}
}

// TestIdleGoroutines: an idle consumer has two, before its first message and after its last one.
func TestIdleGoroutines(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	garbage := make(chan string, 1)
	q := f.Queue(func(payload string) bool { return payload == "good" }).WithConcurrent(1).WithNackRedeliveryDelay(0).
		WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, _ error) { garbage <- msg.Payload })
	count := face.Goroutines(t, func() { q.StartConsume() })
	const idle = 2 // poller, wake listener
	queuetest.Eventually(t, "it is idle", func() bool { return count() <= idle })
	for range 2 {
		f.Send(q, "good")
		f.Send(q, "bad", delayqueue.WithRetryCount(0))
		queuetest.Receive(t, "the garbage handler is told", garbage)
		queuetest.Eventually(t, "it is idle again", func() bool { return count() <= idle })
	}
}
