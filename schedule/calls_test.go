package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// TestContextsEndCalls: while a server is silent a call ends with its context, and Run too, whatever the client's
// timeouts are.
func TestContextsEndCalls(t *testing.T) {
	f, server := ownFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second}))
	_, s := f.wired(server, time.Minute)
	f.must(s.Set(f.ctx(), Entry{Name: "f", Every: time.Second})) // over a connection that is there
	monitor := delayqueue.NewMonitor(f.name, queuetest.RedisClient(t, server.Addr()))
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	f.until("it has looked", func() bool { one, err := s.get(f.ctx(), "e"); return err == nil && !one.Looked.IsZero() })
	server.Pause()
	defer server.Resume()

	const limit = 300 * time.Millisecond
	begun := testkit.Worked()
	var calls sync.WaitGroup
	for name, call := range map[string]func(ctx context.Context) error{
		"Set":    func(ctx context.Context) error { return s.Set(ctx, Entry{Name: "e", Every: time.Minute}) },
		"SetAll": func(ctx context.Context) error { return s.SetAll(ctx, "p", Entry{Name: "e", Every: time.Minute}) },
		"Change": func(ctx context.Context) error {
			return s.Change(ctx, "e", func(e *Entry) error { e.Payload = "x"; return nil })
		},
		"Pause":     func(ctx context.Context) error { return s.Pause(ctx, "e") },
		"Resume":    func(ctx context.Context) error { return s.Resume(ctx, "e") },
		"Remove":    func(ctx context.Context) error { return s.Remove(ctx, "e") },
		"RunNow":    func(ctx context.Context) error { _, err := s.RunNow(ctx, "e"); return err },
		"List":      func(ctx context.Context) error { _, err := s.List(ctx); return err },
		"Next":      func(ctx context.Context) error { _, err := s.Next(ctx, "e", 1); return err },
		"List of":   func(ctx context.Context) error { _, err := List(ctx, monitor); return err },
		"Get of":    func(ctx context.Context) error { _, err := Get(ctx, monitor, "e"); return err },
		"Next of":   func(ctx context.Context) error { _, err := Next(ctx, monitor, "e", 1); return err },
		"Stuck":     func(ctx context.Context) error { _, err := s.Stuck(ctx); return err },
		"no limits": func(context.Context) error { _, err := s.List(context.Background()); return err },
	} {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			err := call(ctx)
			if name == "no limits" && err == nil || name != "no limits" && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	calls.Wait()
	stop()
	if err := queuetest.Receive(t, "Run ends", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	if took := testkit.Worked() - begun; took > 20*time.Second {
		t.Errorf("all that took %v", took)
	}
}

// TestServiceBlocksItsConnections: entries need none of the connections of the user's client, and its hooks see no
// call for them.
func TestServiceBlocksItsConnections(t *testing.T) {
	f, server := ownFixture(t)
	cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), PoolSize: 1, ReadTimeout: time.Minute,
		PoolTimeout: time.Minute})
	var seen atomic.Int64
	cli.AddHook(queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			seen.Add(1)
		}
		return next(ctx, cmd)
	}))
	blocks, end := context.WithCancel(context.Background())
	defer end()
	var service sync.WaitGroup
	service.Go(func() { _ = cli.BLPop(blocks, 2*queuetest.Patience, "service").Err() })
	f.until("it blocks", func() bool {
		return strings.Contains(f.cli.ClientList(f.ctx()).Val(), "cmd=blpop")
	})

	s := New(delayqueue.NewPublisher(f.name, cli)).WithLogger(f.s.log)
	f.must(s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, Payload: "x"}))
	f.run(s)
	runs := make(chan string, 100)
	q := delayqueue.NewQueue(f.name, cli, func(payload string) bool { runs <- payload; return true })
	done := q.StartConsume()
	for i := range 12 { // more than are sent ahead
		queuetest.Receive(t, fmt.Sprint("run ", i), runs)
	}
	if _, err := s.List(f.ctx()); err != nil {
		t.Error(err)
	}
	if n := seen.Load(); n > 0 {
		t.Errorf("a hook of the client has seen %d calls", n)
	}
	q.StopConsume()
	<-done
	f.cli.RPush(f.ctx(), "service", "enough")
	service.Wait()
}
