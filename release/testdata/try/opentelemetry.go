package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/metrics/otelqueue"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	tracing := otelqueue.NewTracing(otelqueue.Config{})
	queue := delayqueue.NewQueue("traced", redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS")}),
		func(payload string) bool {
			fmt.Println("handled", payload)
			cancel()
			return true
		}).WithMiddleware(tracing.Middleware("traced"))
	if _, err := queue.Send(ctx, "42", tracing.Inject(ctx)...); err != nil {
		panic(err)
	}
	if err := queue.Run(ctx); err != nil {
		panic(err)
	}
}
