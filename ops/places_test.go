package ops

import (
	"context"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestPlaceIsFreeWhenTheDeliveryEnds: the place of a handler that runs on is given to the next message, long before
// the lease is over.
func TestPlaceIsFreeWhenTheDeliveryEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *face.Fixture, q *delayqueue.DelayQueue, id string) error{
		"past its limit": func(*face.Fixture, *delayqueue.DelayQueue, string) error { return nil },
		"canceled": func(f *face.Fixture, _ *delayqueue.DelayQueue, id string) error {
			return queuetest.Failure(Of(delayqueue.NewMonitor(f.Name, f.Cli)).Cancel(queuetest.CtxB, id))
		},
		"canceled with others": func(f *face.Fixture, _ *delayqueue.DelayQueue, id string) error {
			return queuetest.Failure(Of(delayqueue.NewMonitor(f.Name, f.Cli)).BulkDelete(queuetest.CtxB,
				Bulk{States: []delayqueue.State{delayqueue.StateUnack}}))
		},
		"abandoned": func(_ *face.Fixture, q *delayqueue.DelayQueue, _ string) error {
			_ = q.Shutdown(queuetest.Over())
			q.StartConsume()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			started, leave := make(chan string, 2), make(chan struct{})
			face.Several(f, 2)
			q := f.Queue(nil).WithConcurrent(8).WithQueueConcurrency(1).WithLease(15 * time.Minute).WithRetryDelays(time.Hour).
				WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
					started <- msg.ID
					<-leave
					return nil
				})
			if name == "past its limit" {
				q.WithMaxConsumeDuration(20 * time.Millisecond)
			}
			q.StartConsume()
			first := queuetest.Receive(t, "one starts", started)
			if name != "past its limit" {
				queuetest.Eventually(t, "the other waits for its place", func() bool {
					n, err := f.Calls().Counts(queuetest.CtxB)
					return err == nil && n.Limited
				})
			}
			f.Must(end(f, q, first))
			if next := queuetest.Receive(t, "the next starts", started); name != "abandoned" && next == first {
				t.Errorf("it starts again")
			}
			close(leave)
		})
	}
}
