package weather

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestStoodStill: a consumer that gets a fetch's reply when the lease is over, as after SIGSTOP or
// the pause of a virtual machine, starts no handler for it.
func TestStoodStill(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	cli := f.Client()
	struck, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if args := cmd.Args(); err == nil && len(args) > 1 && args[1] == script.FetchScript.SHA {
				once.Do(func() { close(struck); <-release })
			}
			return err
		})))
	var got queuetest.Tally
	consumer := func(name string, cli redis.UniversalClient, lease time.Duration) *delayqueue.DelayQueue {
		return f.QueueOn(cli, nil).WithLease(lease).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			got.Add(fmt.Sprintf("%s, %s, delivery %d", msg.Payload, name, msg.Delivery))
			return nil
		})
	}
	f.Send(f.Queue(nil), "x")
	frozen := consumer("frozen", cli, 2*time.Second)
	frozen.StartConsume()
	queuetest.Receive(t, "it stands still with the fetch's reply", struck)
	consumer("other", f.Client(), time.Minute).StartConsume()
	queuetest.Eventually(t, "the other has handled it", func() bool { return got.Of("x, other, delivery 2") == 1 })
	close(release)
	queuetest.Eventually(t, "the frozen one gives it up", func() bool { return f.Log.Count("came too late") == 1 })
	if _, total := got.Counts(); total != 1 {
		t.Errorf("handled %d times, want once", total)
	}
}

// TestKeysVanish: a flush under a running consumer is said once, the settlement of what is handled just then is void,
// and what is sent afterwards works.
func TestKeysVanish(t *testing.T) {
	t.Parallel()
	f, _ := face.OnDefaults(t)
	var got queuetest.Tally
	release := make(chan struct{})
	q := f.Queue(func(payload string) bool {
		if got.Add(payload); payload == "running" {
			<-release
		}
		return true
	}).WithConcurrent(2).WithLease(time.Minute) // no renewal notices
	events := face.CountEvents(t, q, delayqueue.VanishedEvent)
	q.StartConsume()
	f.Send(q, "before")
	queuetest.Eventually(t, "it is handled", func() bool { return got.Of("before") == 1 && len(f.Check().Messages) == 0 })
	const vanished = "keys of this queue have vanished"
	if n := f.Log.Count(vanished); n != 0 {
		t.Errorf("%q is in the log %d times before anything has", vanished, n)
	}
	f.Send(q, "running")
	queuetest.Eventually(t, "it runs", func() bool { return got.Of("running") == 1 })
	f.Send(q, "waiting", face.InAnHour)
	f.Must(f.Cli.FlushAll(queuetest.CtxB).Err())
	queuetest.Eventually(t, "it is in the log", func() bool { return f.Log.Count(vanished) == 1 })
	queuetest.Eventually(t, "an event says so", func() bool { return events.Load() == 1 })
	close(release)
	queuetest.Eventually(t, "its settlement is void", func() bool { return f.Log.Count("came too late") == 1 })
	f.Send(q, "after")
	queuetest.Eventually(t, "what is sent afterwards is handled", func() bool {
		return got.Of("after") == 1 && len(f.Check().Messages) == 0
	})
	if n := f.Log.Count(vanished); n != 1 {
		t.Errorf("%q is in the log %d times", vanished, n)
	}
}

// TestOutageUnderLoad: a server that starts anew, or forgets its scripts, costs no send and no retry, and consuming
// goes on by itself.
func TestOutageUnderLoad(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(f *face.Fixture, server *redistest.Server){
		"Redis restarts": func(f *face.Fixture, server *redistest.Server) {
			server.Kill()
			queuetest.Eventually(f.T, "what sends and what consumes have noticed", func() bool {
				return f.SendsFailed() >= 1 && f.Log.Count("cannot work with Redis") >= 2
			})
			server.Restart(f.T)
		},
		"SCRIPT FLUSH": func(f *face.Fixture, _ *redistest.Server) { f.Must(f.Cli.ScriptFlush(queuetest.CtxB).Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, server := face.OwnServer(t, "--appendonly", "yes", "--appendfsync", "always")
			cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), DialerRetries: 1})
			var got queuetest.Tally
			q := f.QueueOn(cli, nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
				if got.Add(msg.Payload); msg.Failures > 0 {
					t.Errorf("message %s used a retry", msg.Payload)
				}
				return nil
			})
			q.StartConsume()
			const n = 400
			var accepted atomic.Int64
			ctx := queuetest.Within(t, 5*queuetest.Patience)
			go func() {
				for i := range n {
					if _, err := q.Send(ctx, strconv.Itoa(i), delayqueue.WithDelay(time.Duration(i%50)*time.Millisecond)); err != nil {
						t.Errorf("send %d: %v", i, err)
					}
					accepted.Add(1)
				}
			}()
			queuetest.Reaches(t, "half is sent", n/2+1, func() int { return int(accepted.Load()) })
			strike(f, server)
			queuetest.Reaches(t, "all sends return", n, func() int { return int(accepted.Load()) })
			f.Drained()
			if distinct, total := got.Counts(); distinct != n || total != n {
				t.Errorf("%d of %d are handled, %d times", distinct, n, total)
			}
		})
	}
}

// TestOutageLongerThanTheLease: handlers that run right through it are not handed out again. Their contexts end with
// the leases, as far as those are known; what they return counts all the same.
func TestOutageLongerThanTheLease(t *testing.T) {
	t.Parallel()
	f, wire, _ := face.Wired(t)
	cli := queuetest.ClientWith(t, &redis.Options{Addr: wire.Addr(), DialerRetries: 1})
	const lease = 6 * time.Second // much more than a call takes on a slow machine
	var runs queuetest.Tally
	release, causes := make(chan struct{}), make(chan error, 4)
	handler := func(ctx context.Context, msg *delayqueue.Message) error {
		runs.Add(msg.Payload)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		<-release
		if msg.Payload == "0" && runs.Of("0") == 1 {
			return ctx.Err() // no failure of its own
		}
		return nil
	}
	for range 2 {
		f.QueueOn(cli, nil).WithLease(lease).WithConcurrent(3).WithHandler(handler).StartConsume()
	}
	q := f.Queue(nil)
	for i := range 4 {
		f.Send(q, strconv.Itoa(i), delayqueue.WithRetryCount(0))
	}
	queuetest.Eventually(t, "all run", func() bool { n, _ := runs.Counts(); return n == 4 })
	wire.Cut()
	for range 4 {
		if cause := queuetest.Receive(t, "its context ends", causes); !errors.Is(cause, delayqueue.ErrDeliveryLost) {
			t.Errorf("its context ends for %v", cause)
		}
	}
	wire.Mend()
	mended := time.Now()
	queuetest.Eventually(t, "the leases are renewed", func() bool {
		state := f.Check()
		ok := len(state.Unack) == 4
		for _, e := range state.Unack {
			ok = ok && e.Score > state.Now
		}
		return ok
	})
	close(release)
	queuetest.Eventually(t, "the one that failed for its context is handed out again", func() bool {
		return runs.Of("0") == 2
	})
	queuetest.Eventually(t, "the others are acked", func() bool { return len(f.Check().Messages) == 1 })
	// While a grace runs, leases that begin after it have none.
	queuetest.Eventually(t, "the grace after the outage is over", func() bool { return time.Since(mended) > 2*lease })
	wire.Cut() // its context waits for that
	queuetest.Receive(t, "its context ends", causes)
	wire.Mend()
	queuetest.Eventually(t, "all are acked", func() bool { return len(f.Check().Messages) == 0 })
	if _, total := runs.Counts(); total != 5 {
		t.Errorf("handled %d times, want 5", total)
	}
}
