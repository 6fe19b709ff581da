package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/web"
	"github.com/redis/go-redis/v9"
)

func main() {
	redisCli := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS")})
	if _, err := delayqueue.NewPublisher("shown", redisCli).Send(context.Background(), "42"); err != nil {
		panic(err)
	}
	page := web.New(redisCli, web.Config{})
	defer page.Close()
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
	if answer.Code != 200 {
		panic(answer.Body.String())
	}
	fmt.Println("handled 42")
}
