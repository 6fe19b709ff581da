package typed_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/typed"
	"github.com/redis/go-redis/v9"
)

type Order struct{ ID, Cents int }

var (
	CloseOrder = typed.Kind[Order]("close-order")
	Refund     = typed.CallKind[Order, string]("refund")
)

// newService has every handler of the queue: a test calls it as main does.
func newService(redisCli redis.UniversalClient) *delayqueue.DelayQueue {
	mux := typed.NewMux()
	typed.Handle(mux, CloseOrder, func(ctx context.Context, o Order, msg *delayqueue.Message) error {
		fmt.Println("order", o.ID, "is closed")
		return nil
	})
	typed.HandleCall(mux, Refund, func(ctx context.Context, o Order, msg *delayqueue.Message) (string, error) {
		return fmt.Sprintf("%d cents for order %d", o.Cents, o.ID), nil
	})
	return delayqueue.NewQueue("orders", redisCli, nil).WithHandler(mux.Handler).WithConcurrent(4)
}

// A service in 40 lines: what it sends, what it handles, and a stop that loses nothing.
func Example() {
	redisCli, end := embedded() // yours: redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer end()
	ctx, queue := context.Background(), newService(redisCli)
	queue.StartConsume()
	sent, err := CloseOrder.Send(ctx, queue, Order{ID: 42}, delayqueue.WithDelay(20*time.Millisecond),
		delayqueue.WithRetention(time.Minute))
	if err != nil {
		panic(err)
	}
	closed, err := queue.Await(ctx, sent.ID)
	fmt.Println(closed.State, err)
	answer, err := Refund.Call(ctx, queue, Order{ID: 42, Cents: 999})
	fmt.Println(answer, err, queue.Shutdown(ctx))
	// Output:
	// order 42 is closed
	// done <nil>
	// 999 cents for order 42 <nil> <nil>
}
