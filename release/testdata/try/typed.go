package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/typed"
	"github.com/redis/go-redis/v9"
)

type order struct{ ID int }

var closeOrder = typed.Kind[order]("close-order")

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	mux := typed.NewMux()
	typed.Handle(mux, closeOrder, func(ctx context.Context, o order, msg *delayqueue.Message) error {
		fmt.Println("handled", o.ID)
		cancel()
		return nil
	})
	queue := delayqueue.NewQueue("typed", redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS")}),
		nil).WithHandler(mux.Handler)
	if _, err := closeOrder.Send(ctx, queue, order{ID: 42}); err != nil {
		panic(err)
	}
	if err := queue.Run(ctx); err != nil {
		panic(err)
	}
}
