package typed_test

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/typed"
)

func closeIfUnpaid(context.Context, int) error { return nil }

// The code of docs/recipes.md.
func Example_recipes() {
	var (
		ctx   context.Context
		queue *delayqueue.DelayQueue
	)
	send := func() error {
		var CloseOrder = typed.Kind[Order]("close-order")

		_, err := CloseOrder.Send(ctx, queue, Order{ID: 42}, delayqueue.WithDelay(15*time.Minute))
		return err
	}
	handle := func() {
		mux := typed.NewMux()
		typed.Handle(mux, CloseOrder, func(ctx context.Context, o Order, msg *delayqueue.Message) error {
			return closeIfUnpaid(ctx, o.ID)
		})
		queue.WithHandler(mux.Handler).WithKindHeader(typed.Header) // numbers of each kind
	}
	_, _ = send, handle
}
