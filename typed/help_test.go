package typed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// shared is the real server of all tests.
var shared *redistest.Server

func TestMain(m *testing.M) {
	os.Exit(leaks.Run(func() int { return redistest.Main(m, &shared) }))
}

// A fixture is one test's queue, beside which there may be another one, with this after its name.
type fixture struct {
	*testing.T
	name string
	cli  *redis.Client
	pub  *delayqueue.Publisher
	mon  *ops.Queue
	log  *testkit.Buffer
}

const also = "-also"

// onBoth runs a test on the embedded server and on a real one. The invariant checker reads what it leaves.
func onBoth(t *testing.T, test func(f *fixture)) {
	t.Helper()
	for kind, addr := range map[string]func(t *testing.T) string{
		"miniredis":    func(t *testing.T) string { return miniredis.RunT(t).Addr() },
		"redis-server": func(*testing.T) string { return shared.Addr() },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cli := redis.NewClient(&redis.Options{Addr: addr(t)})
			f := &fixture{T: t, name: strings.ReplaceAll(t.Name(), "/", "-"), cli: cli, log: &testkit.Buffer{}}
			f.pub, f.mon = delayqueue.NewPublisher(f.name, cli), ops.Of(delayqueue.NewMonitor(f.name, cli))
			t.Cleanup(func() {
				for _, name := range []string{f.name, f.name + also} {
					check.Assert(t, cli, "dq", name)
					f.until("the queue is deleted", func() bool { // a call is tried once
						err := ops.Of(delayqueue.NewMonitor(name, cli)).DeleteQueue(context.Background(), true)
						return err == nil || errors.Is(err, delayqueue.ErrNoQueue)
					})
				}
				if err := cli.Close(); err != nil {
					t.Error(err)
				}
				if t.Failed() {
					t.Logf("log:\n%s", f.log)
				}
			})
			test(f)
		})
	}
}

// mux makes a Mux whose unknown kinds come back soon, and are given up on after a time of the test's.
func (f *fixture) mux(hour time.Duration) *Mux {
	m := NewMux().WithLogger(slog.New(slog.NewTextHandler(f.log, nil)))
	m.hour, m.away = hour, 5*time.Millisecond
	return m
}

// consume starts a consumer that is stopped at the end of the test.
func (f *fixture) consume(mux *Mux) *delayqueue.DelayQueue {
	q := delayqueue.NewQueue(f.name, f.cli, nil).WithHandler(mux.Handler).WithConcurrent(4).
		WithRetryDelays(5 * time.Millisecond).WithLogger(slog.New(slog.NewTextHandler(f.log, nil)))
	q.StartConsume()
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		if err := q.Shutdown(ctx); err != nil {
			f.Error(err)
		}
	})
	return q
}

// must ends the test if there is an error.
func must[T any](f *fixture, v T, err error) T {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
	return v
}

// until waits until cond holds.
func (f *fixture) until(what string, cond func() bool) {
	f.Helper()
	testkit.Until(f, what, cond)
}

// garbage waits until a message is garbage, and returns it.
func (f *fixture) garbage(id string) (msg *ops.MessageStatus) {
	f.Helper()
	f.until("message "+id+" is garbage", func() bool {
		var err error
		msg, err = f.mon.Get(f.Context(), id)
		return err == nil && msg.State == delayqueue.StateGarbage
	})
	return msg
}
