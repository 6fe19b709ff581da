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

// A look is a fetch of an idle queue.
type look struct {
	at      time.Time
	byAlarm bool
}

// looks notes the fetches of the queues of a client.
type looks struct {
	mu  sync.Mutex
	all map[string][]look // by the first key
}

func looksOf(t testing.TB, cli redis.UniversalClient) *looks {
	l := &looks{all: map[string][]look{}}
	t.Cleanup(link.Interpose(cli, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) > 3 && args[1] == script.FetchScript.SHA {
			l.mu.Lock()
			key := args[3].(string)
			l.all[key] = append(l.all[key], look{at: time.Now(), byAlarm: args[3+args[2].(int)+7] == 2})
			l.mu.Unlock()
		}
		return next(ctx, cmd)
	})))
	return l
}

// last is the last two looks at a queue, and how many there were.
func (l *looks) last(f *face.Fixture) (before, last look, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all[f.Key("pending")]
	if n = len(all); n > 1 {
		before, last = all[n-2], all[n-1]
	}
	return before, last, n
}

// rests waits until a queue is looked at no more than so often, by the alarm.
func (l *looks) rests(t *testing.T, f *face.Fixture, every time.Duration) {
	t.Helper()
	queuetest.Eventually(t, "it is looked at rarely", func() bool {
		before, last, _ := l.last(f)
		return before.byAlarm && last.byAlarm && last.at.Sub(before.at) > every
	})
}

// consumersOf begins a consumer of each of some queues, all over one more client, and notes its looks.
func consumersOf(queues []*face.Fixture, callback delayqueue.CallbackFunc) (l *looks, all []*delayqueue.DelayQueue) {
	cli := queues[0].Client()
	l = looksOf(queues[0].T, cli)
	for _, g := range queues {
		q := g.QueueOn(cli, callback)
		q.StartConsume()
		all = append(all, q)
	}
	return l, all
}

// TestIdleLostWakeUp: a tick that goes by the alarm finds what is due although the marker is lost.
func TestIdleLostWakeUp(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	handled := make(chan string, 1)
	queues := face.Siblings(f, 8)
	l, _ := consumersOf(queues, func(payload string) bool { handled <- payload; return true })
	// A sender whose every call is made before, with the marker removed before anybody who waits is served; then it is a repeat.
	sender := f.Client()
	t.Cleanup(link.Interpose(sender, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
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
		l.rests(t, queues[0], 1500*time.Millisecond)
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
