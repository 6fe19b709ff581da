package ops_test

import (
	"context"
	"log"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// A Queue shows what is in garbage, and brings it back.
func Example() {
	ctx := context.Background()
	monitor := delayqueue.NewMonitor("orders", redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
	queue := ops.Of(monitor).WithOperator("ada").WithReason("the payment service is back")
	for message, err := range queue.All(ctx, delayqueue.StateGarbage, ops.Filter{}) {
		if err != nil {
			log.Fatal(err)
		}
		log.Println(message.ID, message.LastError)
		if err := queue.Requeue(ctx, message.ID); err != nil {
			log.Print(err)
		}
	}
}
