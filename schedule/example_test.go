package schedule_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/redis/go-redis/v9"
)

// On every replica of a service.
func Example() {
	ctx := context.Background()
	redisCli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	queue := delayqueue.NewQueue("reports", redisCli,
		nil).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		name, instant := schedule.Of(msg)
		fmt.Println(name, "of", instant)
		return nil
	})

	s := schedule.New(queue)
	err := s.Set(ctx, schedule.Entry{
		Name: "report", Cron: "0 9 * * 1-5", Zone: "Europe/Berlin", Payload: "daily",
		Options: []delayqueue.MsgOption{delayqueue.WithRetryCount(5)}, Overlap: schedule.Skip, CatchUp: 1,
	})
	if err != nil {
		panic(err)
	}
	go s.Run(ctx)
	<-queue.StartConsume()
}

// At intervals, from a process that does not consume.
func ExampleEntry() {
	ctx := context.Background()
	redisCli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	s := schedule.New(delayqueue.NewPublisher("reports", redisCli))
	err := s.Set(ctx, schedule.Entry{
		Name: "clean up", Every: 15 * time.Minute, Offset: 5 * time.Minute, // 0:05, 0:20, 0:35, …
		Options: []delayqueue.MsgOption{delayqueue.WithMsgTTL(10 * time.Minute)}, // rather not at all than late
		CatchUp: schedule.NoCatchUp,
	})
	if err != nil {
		panic(err)
	}
	if err := s.Run(ctx); err != nil {
		fmt.Println(err) // ctx has ended
	}
}
