package features

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// TestThousandQueues: a thousand queues of one process share at most 20 connections, whatever they do at once, and each
// message is handled at its time.
func TestThousandQueues(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	n := testkit.Size(1000, 150)
	cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), ClientName: "tenants"})
	highest := 0
	open := func() int {
		list, err := f.Cli.ClientList(queuetest.CtxB).Result()
		f.Must(err)
		return strings.Count(list, "name=tenants ")
	}
	speed, untime := speedOf(cli)
	waiting, uncount := face.WaitingFor(cli)
	count := func() { highest = max(highest, open()) }
	var handled atomic.Int64
	queues := tenants(f, cli, n, func(string) { handled.Add(1) })
	count()
	queuetest.Reaches(t, "all listen", n, func() int {
		count()
		return waiting()
	})
	publishers := queuetest.RedisClient(t, server.Addr())
	due := time.Now().Add(3 * time.Second) // half of them at one instant, the others one by one
	for i, q := range queues {
		at := due
		if i%2 == 0 {
			at = due.Add(time.Duration(i) * time.Millisecond)
		}
		f.Must(delayqueue.NewPublisher(q.Name(), publishers).SendScheduleMsg("x", at))
	}
	if early := handled.Load(); early > 0 && time.Now().Before(due) {
		t.Errorf("%d were handled early", early)
	}
	queuetest.Reaches(t, "messages are handled before the first tick", n, func() int {
		count()
		return int(handled.Load())
	})
	for _, q := range queues {
		q.StopConsume()
	}
	for _, q := range queues {
		count()
		f.Must(q.Shutdown(queuetest.Within(t, queuetest.Patience)))
	}
	most := 20
	// On a slow machine answers are as late as if from afar: there may be 64 for calls, beside those that wait, and some are replaced.
	if speed.slow() || strings.Contains(f.Log.String(), "cannot w") {
		most = 100
	}
	if highest > most {
		t.Errorf("there were %d connections, want at most %d", highest, most)
	}
	untime() // both keep the link in use
	uncount()
	queuetest.Eventually(t, "all connections are closed", func() bool { return open() == 0 })
}

// A speedometer looks at how long a client's script calls take.
type speedometer struct {
	mu               sync.Mutex
	slowest, fastest time.Duration // of all; of these 1,024
	calls            int
	far              bool // no answer came within a millisecond in the first 64 calls, or in 1,024: the link takes that for a long way
}

// speedOf watches a client until it is released.
func speedOf(cli redis.UniversalClient) (s *speedometer, release func()) {
	s = &speedometer{fastest: time.Hour}
	return s, link.Interpose(cli, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		begun := time.Now()
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") {
			s.note(time.Since(begun))
		}
		return err
	}))
}

func (s *speedometer) note(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.slowest, s.fastest = max(s.slowest, took), min(s.fastest, took)
	s.far = s.far || s.fastest > 9*time.Millisecond/10 && (s.calls == 64 || s.calls%1024 == 0)
	if s.calls%1024 == 0 {
		s.fastest = time.Hour
	}
}

func (s *speedometer) slow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.far || s.slowest > 100*time.Millisecond
}

// TestServerIsFull: at maxclients queues go on over the connections that they have, dial now and then, and leave
// the next place to whoever wants it.
func TestServerIsFull(t *testing.T) {
	t.Parallel()
	const queues, places = 60, 8
	f, server := face.OwnServer(t, "--maxclients", fmt.Sprint(places))
	f.Must(f.Cli.Ping(queuetest.CtxB).Err()) // it has one of them
	got := make(chan string, 4*queues)
	begun := time.Now()
	cli := queuetest.RedisClient(t, server.Addr())
	waiting, release := face.WaitingFor(cli)
	defer release()
	all := tenants(f, cli, queues, func(name string) { got <- name })
	queuetest.Reaches(t, "all wait", queues, waiting)
	for _, q := range all {
		f.Send(q, "x", delayqueue.WithDelay(10*time.Millisecond))
	}
	for range all {
		queuetest.Receive(t, "it is handled before the first tick", got)
	}
	dials := f.InfoNumber("stats", "rejected_connections:%d")
	// Where the machine is slow, attempts end in vain, and each consumer may have its line dial anew. Queues that did not share
	// their backoff would dial some 400 times in the first second.
	if most := 4*queues + 100*int(1+time.Since(begun)/time.Second); dials == 0 || dials > most {
		t.Errorf("the server has refused %d connections, want some, and at most %d", dials, most)
	}
	f.Must(f.Cli.ConfigSet(queuetest.CtxB, "maxclients", fmt.Sprint(places+places)).Err())
	for range 3 {
		stranger := queuetest.RedisClient(t, server.Addr())
		queuetest.Eventually(t, "a stranger gets in", func() bool { return stranger.Ping(queuetest.CtxB).Err() == nil })
	}
}
