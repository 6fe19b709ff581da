package otelqueue_test

import (
	"context"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/metrics/otelqueue"
	"github.com/redis/go-redis/v9"
)

// The handler's span is linked to the one in which the message was sent, days before on another machine.
func ExampleTracing() {
	ctx := context.Background()
	redisCli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	queue := delayqueue.NewQueue("orders", redisCli, func(string) bool { return true })

	tracing := otelqueue.NewTracing(otelqueue.Config{}) // the global provider and propagator
	queue.WithMiddleware(tracing.Middleware("orders"))
	if _, err := queue.Send(ctx, "42", tracing.Inject(ctx)...); err != nil {
		panic(err)
	}
	<-queue.StartConsume()
}
