package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/outbox"
	"github.com/redis/go-redis/v9"
)

// A transaction shows what is written in it, because a driver would take minutes to compile.
func transaction(_ context.Context, _ string, args ...any) (int, error) {
	fmt.Printf("handled %s\n", args[2])
	return 1, nil
}

type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("no database") }
func (nowhere) Driver() driver.Driver                        { return nil }

func main() {
	redisCli := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS")})
	orders := delayqueue.NewPublisher("orders", redisCli)
	box, err := outbox.New(sql.OpenDB(nowhere{}), outbox.Postgres, orders)
	if err != nil {
		panic(err)
	}
	if err := box.Send(context.Background(), outbox.Exec(transaction), "orders", "42"); err != nil {
		panic(err)
	}
}
