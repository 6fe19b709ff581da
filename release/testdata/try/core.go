package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	redisCli := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS")})
	queue := delayqueue.NewQueue("core", redisCli, func(payload string) bool {
		fmt.Println("handled", payload)
		cancel()
		return true
	})
	if _, err := queue.Send(ctx, "42", delayqueue.WithDelay(10*time.Millisecond)); err != nil {
		panic(err)
	}
	if err := queue.Run(ctx); err != nil {
		panic(err)
	}
}
