package delayqueue

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

func TestTryIntercept(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	intercepted := func(t *testing.T, f *fixture, q *DelayQueue, info *MessageInfo, want State) {
		t.Helper()
		r, err := q.TryIntercept(info)
		if err != nil || r.State != want || r.Intercepted != (want != StateGone) {
			t.Errorf("intercept: %+v, %v; want %v", r, err, want)
		}
		if where := f.where(info.ID); where != "gone" {
			t.Errorf("after the interception the message is %s", where)
		}
		if r, err := q.TryIntercept(info); err != nil || r.Intercepted || r.State != StateGone {
			t.Errorf("a second time: %+v, %v", r, err)
		}
	}
	t.Run("pending", func(t *testing.T) {
		f := newFixture(t)
		q := f.queue(nil)
		intercepted(t, f, q, f.send(q, "x", WithDelay(time.Hour), WithKey("k")), StatePending)
		f.checkEmpty()
	})
	t.Run("due, not handed out", func(t *testing.T) {
		f := newFixture(t)
		q := f.queue(nil)
		intercepted(t, f, q, f.send(q, "x"), StateReady)
	})
	t.Run("ready", func(t *testing.T) {
		f := newFixture(t)
		started := make(chan struct{})
		q := f.queue(nil).WithHandler(func(ctx context.Context, _ *Message) error { close(started); <-ctx.Done(); return nil })
		info := f.send(q, "x", WithKey("k"))
		done := q.StartConsume()
		receive(t, "it starts", started)
		stop, cancel := context.WithCancel(ctx)
		cancel()
		_ = q.Shutdown(stop) // releases it
		receive(t, "it stops", done)
		if where := f.where(info.ID); where != "ready" {
			t.Fatalf("the message is %s", where)
		}
		intercepted(t, f, q, info, StateReady)
		f.checkEmpty()
	})
	t.Run("waiting for retry", func(t *testing.T) {
		f := newFixture(t)
		q := f.queue(func(string) bool { return false }).WithNackRedeliveryDelay(time.Hour)
		info := f.send(q, "x", WithKey("k"))
		q.StartConsume()
		eventually(t, "it fails", func() bool { return f.where(info.ID) == "retry" })
		intercepted(t, f, q, info, StateRetry)
		f.checkEmpty()
	})
	t.Run("garbage", func(t *testing.T) {
		f := newFixture(t)
		q := f.queue(nil).WithHandler(func(context.Context, *Message) error { return ErrSkipRetry })
		info := f.send(q, "x", WithKey("k"))
		q.StartConsume()
		eventually(t, "it dies", func() bool { return f.where(info.ID) == "garbage" })
		intercepted(t, f, q, info, StateGarbage)
		f.checkEmpty()
	})
	t.Run("gone", func(t *testing.T) {
		f := newFixture(t)
		q := f.queue(nil)
		if _, err := q.TryIntercept(&MessageInfo{ID: "never sent"}); !errors.Is(err, ErrNoQueue) {
			t.Errorf("of no queue: %v, want ErrNoQueue", err)
		}
		f.checkEmpty()
		f.send(q, "x", inAnHour)
		intercepted(t, f, q, &MessageInfo{ID: uuid.NewString()}, StateGone)
		if _, err := q.TryIntercept(&MessageInfo{ID: "never sent"}); err == nil || !strings.Contains(err.Error(), "no id") {
			t.Errorf("of what is no id: %v", err)
		}
		if _, err := q.TryIntercept(nil); err == nil {
			t.Error("TryIntercept(nil) is no error")
		}
	})
}

// TestCancelOfARunningMessage: its handler's context ends, and it is delivered no more; an interception leaves it alone.
func TestCancelOfARunningMessage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, cancel := range map[string]func(q *DelayQueue, p *Publisher, m *Monitor, id string) (*InterceptResult, error){
		"of a queue": func(q *DelayQueue, _ *Publisher, _ *Monitor, id string) (*InterceptResult, error) {
			return q.Cancel(ctx, id)
		},
		"of a publisher, by key": func(_ *DelayQueue, p *Publisher, _ *Monitor, _ string) (*InterceptResult, error) {
			return p.CancelKey(ctx, "k")
		},
		"of a monitor": func(_ *DelayQueue, _ *Publisher, m *Monitor, id string) (*InterceptResult, error) {
			return m.Cancel(ctx, id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			started, cause := make(chan struct{}, 2), make(chan error, 1)
			const lease = 12 * time.Second
			q := f.queue(nil).WithLease(lease).WithHandler(func(ctx context.Context, _ *Message) error {
				started <- struct{}{}
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return errBoom // void
			})
			p, m := NewPublisher(f.name, f.client()), NewMonitor(f.name, f.client())
			info := f.send(q, "x", WithKey("k"))
			q.StartConsume()
			receive(t, "it starts", started)
			left := InterceptResult{State: StateUnack, ID: info.ID}
			for what, leave := range map[string]func() (*InterceptResult, error){
				"TryIntercept": func() (*InterceptResult, error) { return q.TryIntercept(info) },
				"Intercept":    func() (*InterceptResult, error) { return m.Intercept(ctx, info.ID) },
				"InterceptKey": func() (*InterceptResult, error) { return p.InterceptKey(ctx, "k") },
			} {
				if r, err := leave(); err != nil || *r != left {
					t.Errorf("%s: %+v, %v; want %+v", what, r, err, left)
				}
			}
			if where := f.where(info.ID); where != "unack" || len(cause) > 0 {
				t.Fatalf("it was left alone, and is %s", where)
			}
			taken := InterceptResult{Intercepted: true, State: StateUnack, ID: info.ID}
			if r, err := cancel(q, p, m, info.ID); err != nil || *r != taken {
				t.Errorf("cancel: %+v, %v; want %+v", r, err, taken)
			}
			if err := receive(t, "its context ends", cause); !errors.Is(err, ErrCanceled) {
				t.Errorf("cause %v", err)
			}
			if r, err := q.Cancel(ctx, info.ID); err != nil || *r != (InterceptResult{}) {
				t.Errorf("a second time: %+v, %v", r, err)
			}
			done := q.StartConsume()
			q.StopConsume()
			receive(t, "it stops", done)
			f.checkEmpty()
			if len(started) != 0 {
				t.Error("it was delivered again")
			}
		})
	}
}

func TestInterceptByKeyFromAnotherProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	info := f.send(q, "x", WithDelay(time.Hour), WithKey("order-42"))
	other := NewPublisher(f.name, f.client()) // knows the key alone
	if r, err := other.InterceptKey(context.Background(), "order-43"); err != nil || r.Intercepted || r.State != StateGone {
		t.Errorf("another key: %+v, %v", r, err)
	}
	if r, err := other.InterceptKey(context.Background(), "order-42"); err != nil || *r != (InterceptResult{true, StatePending, info.ID}) {
		t.Errorf("intercept by key: %+v, %v", r, err)
	}
	if where := f.where(info.ID); where != "gone" {
		t.Errorf("the message is %s", where)
	}
	f.checkEmpty()
}

// TestManyInterceptsShareCallers: state remembers 16 callers of a process at most, however many
// interceptions are under way at a time.
func TestManyInterceptsShareCallers(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	q := NewQueue(f.name, redisClient(t, server.Addr()), nil)
	const n = 100
	var infos []*MessageInfo
	for range n {
		infos = append(infos, f.send(f.queue(nil), "x", WithDelay(time.Hour)))
	}
	server.Pause()
	var under atomic.Int64
	var all sync.WaitGroup
	for _, info := range infos {
		all.Go(func() {
			under.Add(1)
			if r, err := q.TryIntercept(info); err != nil || r.State != StatePending {
				t.Errorf("intercept: %+v, %v", r, err)
			}
		})
	}
	eventually(t, "all are under way", func() bool { return under.Load() == n && len(q.calls.places()) == 16 })
	server.Resume()
	all.Wait()
	callers := 0
	for field, last := range f.check().Fields {
		if strings.HasPrefix(field, "call:") && strings.Contains(last, " pending ") {
			callers++
		}
	}
	if callers == 0 || callers > n/2 { // 16 at a time, of those that other tests use too
		t.Errorf("%d callers of %d interceptions, want few", callers, n)
	}
	f.checkEmpty()
}

// TestInterceptSaysWhy: the reason of the last attempt that failed by itself, not the deadline twice.
func TestInterceptSaysWhy(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{})
	defer cli.Close()
	var calls atomic.Int64
	second, deadline := make(chan struct{}), make(chan struct{})
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		if n := calls.Add(1); n > 1 { // no answer
			if n == 2 {
				close(second)
			}
			<-ctx.Done()
			return ctx.Err()
		}
		cmd.SetErr(io.ErrUnexpectedEOF)
		return io.ErrUnexpectedEOF
	}))
	go func() { <-second; close(deadline) }()
	_, err := NewPublisher("q", cli).Intercept(endsAt{context.Background(), deadline}, "the id")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Intercept: %v; want the deadline and the reason, %v", err, io.ErrUnexpectedEOF)
	}
}

// endsAt is a context whose deadline comes when its channel is closed.
type endsAt struct {
	context.Context
	deadline <-chan struct{}
}

func (c endsAt) Done() <-chan struct{} { return c.deadline }

func (c endsAt) Err() error {
	select {
	case <-c.deadline:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
