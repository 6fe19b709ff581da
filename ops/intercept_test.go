package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestCancelOfARunningMessage: its handler's context ends, and it is delivered no more; an interception leaves it alone.
func TestCancelOfARunningMessage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, cancel := range map[string]func(q *delayqueue.DelayQueue, p *delayqueue.Publisher, m *Queue, id string) (*delayqueue.InterceptResult, error){
		"of a queue": func(q *delayqueue.DelayQueue, _ *delayqueue.Publisher, _ *Queue, id string) (*delayqueue.InterceptResult, error) {
			return q.Cancel(ctx, id)
		},
		"of a publisher, by key": func(_ *delayqueue.DelayQueue, p *delayqueue.Publisher, _ *Queue, _ string) (*delayqueue.InterceptResult, error) {
			return p.CancelKey(ctx, "k")
		},
		"of a monitor": func(_ *delayqueue.DelayQueue, _ *delayqueue.Publisher, m *Queue, id string) (*delayqueue.InterceptResult, error) {
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
			p, m := delayqueue.NewPublisher(f.Name, f.Client()), Of(delayqueue.NewMonitor(f.Name, f.Client()))
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
