package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/redis/go-redis/v9"
)

func main() {
	redisCli := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS")})
	s := schedule.New(delayqueue.NewPublisher("reports", redisCli))
	entry := schedule.Entry{Name: "handled 42", Cron: "0 9 * * 1-5", Zone: "Europe/Berlin", Payload: "daily"}
	if err := s.Set(context.Background(), entry); err != nil {
		panic(err)
	}
	entries, err := s.List(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(entries[0].Entry.Name)
}
