package features

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

func TestTryIntercept(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	intercepted := func(t *testing.T, f *face.Fixture, q *delayqueue.DelayQueue, info *delayqueue.MessageInfo,
		want delayqueue.State) {
		t.Helper()
		r, err := q.TryIntercept(info)
		if err != nil || r.State != want || r.Intercepted != (want != delayqueue.StateGone) {
			t.Errorf("intercept: %+v, %v; want %v", r, err, want)
		}
		if where := f.Where(info.ID); where != "gone" {
			t.Errorf("after the interception the message is %s", where)
		}
		if r, err := q.TryIntercept(info); err != nil || r.Intercepted || r.State != delayqueue.StateGone {
			t.Errorf("a second time: %+v, %v", r, err)
		}
	}
	t.Run("pending", func(t *testing.T) {
		f := face.New(t)
		q := f.Queue(nil)
		intercepted(t, f, q, f.Send(q, "x", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k")),
			delayqueue.StatePending)
		f.CheckEmpty()
	})
	t.Run("due, not handed out", func(t *testing.T) {
		f := face.New(t)
		q := f.Queue(nil)
		intercepted(t, f, q, f.Send(q, "x"), delayqueue.StateReady)
	})
	t.Run("ready", func(t *testing.T) {
		f := face.New(t)
		started := make(chan struct{})
		q := f.Queue(nil).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
			close(started)
			<-ctx.Done()
			return nil
		})
		info := f.Send(q, "x", delayqueue.WithKey("k"))
		done := q.StartConsume()
		queuetest.Receive(t, "it starts", started)
		stop, cancel := context.WithCancel(ctx)
		cancel()
		_ = q.Shutdown(stop) // releases it
		queuetest.Receive(t, "it stops", done)
		if where := f.Where(info.ID); where != "ready" {
			t.Fatalf("the message is %s", where)
		}
		intercepted(t, f, q, info, delayqueue.StateReady)
		f.CheckEmpty()
	})
	for state, failure := range map[delayqueue.State]error{delayqueue.StateRetry: queuetest.ErrBoom,
		delayqueue.StateGarbage: delayqueue.ErrSkipRetry} {
		t.Run(fmt.Sprint("in ", state), func(t *testing.T) {
			f := face.New(t)
			q := f.Queue(nil).WithHandler(func(context.Context, *delayqueue.Message) error {
				return failure
			}).WithNackRedeliveryDelay(time.Hour)
			info := f.Send(q, "x", delayqueue.WithKey("k"))
			q.StartConsume()
			queuetest.Eventually(t, "it fails", func() bool { return f.Where(info.ID) == fmt.Sprint(state) })
			intercepted(t, f, q, info, state)
			f.CheckEmpty()
		})
	}
	t.Run("gone", func(t *testing.T) {
		f := face.New(t)
		q := f.Queue(nil)
		if _, err := q.TryIntercept(&delayqueue.MessageInfo{ID: "never sent"}); !errors.Is(err, delayqueue.ErrNoQueue) {
			t.Errorf("of no queue: %v, want ErrNoQueue", err)
		}
		f.CheckEmpty()
		f.Send(q, "x", face.InAnHour)
		intercepted(t, f, q, &delayqueue.MessageInfo{ID: uuid.NewString()}, delayqueue.StateGone)
		if _, err := q.TryIntercept(&delayqueue.MessageInfo{ID: "never sent"}); err == nil ||
			!strings.Contains(err.Error(), "no id") {
			t.Errorf("of what is no id: %v", err)
		}
		if _, err := q.TryIntercept(nil); !errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("TryIntercept(nil): %v", err)
		}
	})
}

// TestManyInterceptsShareCallers: state remembers 16 callers of a process at most, however many
// interceptions are under way at a time.
func TestManyInterceptsShareCallers(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	cli := queuetest.RedisClient(t, server.Addr())
	q := delayqueue.NewQueue(f.Name, cli, nil)
	var mu sync.Mutex
	asking := map[string]bool{} // by caller
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) > 3 && args[1] == script.InterceptScript.SHA {
				keys, err := strconv.Atoi(fmt.Sprint(args[2]))
				f.Must(err)
				mu.Lock()
				asking[fmt.Sprint(args[3+keys])] = true
				mu.Unlock()
			}
			return next(ctx, cmd)
		})))
	const n = 100
	var infos []*delayqueue.MessageInfo
	for range n {
		infos = append(infos, f.Send(f.Queue(nil), "x", delayqueue.WithDelay(time.Hour)))
	}
	server.Pause()
	var under atomic.Int64
	var all sync.WaitGroup
	for _, info := range infos {
		all.Go(func() {
			under.Add(1)
			if r, err := q.TryIntercept(info); err != nil || r.State != delayqueue.StatePending {
				t.Errorf("intercept: %+v, %v", r, err)
			}
		})
	}
	queuetest.Eventually(t, "all are under way", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return under.Load() == n && len(asking) == 16
	})
	server.Resume()
	all.Wait()
	callers := 0
	for field, last := range f.Check().Fields {
		if strings.HasPrefix(field, "call:") && strings.Contains(last, " pending ") {
			callers++
		}
	}
	if callers == 0 || callers > n/2 { // 16 at a time, of those that other tests use too
		t.Errorf("%d callers of %d interceptions, want few", callers, n)
	}
	f.CheckEmpty()
}

// TestCancelOfARunningMessage: its handler's context ends, and it is delivered no more; an interception leaves it
// alone.
func TestCancelOfARunningMessage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, cancel := range map[string]func(q *delayqueue.DelayQueue, p *delayqueue.Publisher, m *ops.Queue,
		id string) (*delayqueue.InterceptResult, error){
		"of a queue": func(q *delayqueue.DelayQueue, _ *delayqueue.Publisher, _ *ops.Queue,
			id string) (*delayqueue.InterceptResult, error) {
			return q.Cancel(ctx, id)
		},
		"of a publisher, by key": func(_ *delayqueue.DelayQueue, p *delayqueue.Publisher, _ *ops.Queue,
			_ string) (*delayqueue.InterceptResult, error) {
			return p.CancelKey(ctx, "k")
		},
		"of a monitor": func(_ *delayqueue.DelayQueue, _ *delayqueue.Publisher, m *ops.Queue,
			id string) (*delayqueue.InterceptResult, error) {
			return m.Cancel(ctx, id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			started, cause := make(chan struct{}, 2), make(chan error, 1)
			const lease = 12 * time.Second
			q := f.Queue(nil).WithLease(lease).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
				started <- struct{}{}
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return queuetest.ErrBoom // void
			})
			p, m := delayqueue.NewPublisher(f.Name, f.Client()), ops.Of(delayqueue.NewMonitor(f.Name, f.Client()))
			info := f.Send(q, "x", delayqueue.WithKey("k"))
			q.StartConsume()
			queuetest.Receive(t, "it starts", started)
			left := delayqueue.InterceptResult{State: delayqueue.StateUnack, ID: info.ID}
			for what, leave := range map[string]func() (*delayqueue.InterceptResult, error){
				"TryIntercept": func() (*delayqueue.InterceptResult, error) { return q.TryIntercept(info) },
				"Intercept":    func() (*delayqueue.InterceptResult, error) { return m.Intercept(ctx, info.ID) },
				"InterceptKey": func() (*delayqueue.InterceptResult, error) { return p.InterceptKey(ctx, "k") },
			} {
				if r, err := leave(); err != nil || *r != left {
					t.Errorf("%s: %+v, %v; want %+v", what, r, err, left)
				}
			}
			if where := f.Where(info.ID); where != "unack" || len(cause) > 0 {
				t.Fatalf("it was left alone, and is %s", where)
			}
			taken := delayqueue.InterceptResult{Intercepted: true, State: delayqueue.StateUnack, ID: info.ID}
			if r, err := cancel(q, p, m, info.ID); err != nil || *r != taken {
				t.Errorf("cancel: %+v, %v; want %+v", r, err, taken)
			}
			if err := queuetest.Receive(t, "its context ends", cause); !errors.Is(err, delayqueue.ErrCanceled) {
				t.Errorf("cause %v", err)
			}
			if r, err := q.Cancel(ctx, info.ID); err != nil || *r != (delayqueue.InterceptResult{}) {
				t.Errorf("a second time: %+v, %v", r, err)
			}
			done := q.StartConsume()
			q.StopConsume()
			queuetest.Receive(t, "it stops", done)
			f.CheckEmpty()
			if len(started) != 0 {
				t.Error("it was delivered again")
			}
		})
	}
}
