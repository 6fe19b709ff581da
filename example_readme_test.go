package delayqueue_test

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
)

func Example() {
	redisCli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	queue := delayqueue.NewQueue("example-queue", redisCli, func(payload string) bool {
		fmt.Println("got", payload)
		return true // handled; false: deliver it again
	}).WithConcurrent(4)
	for i := range 10 {
		err := queue.SendDelayMsg(strconv.Itoa(i), 3*time.Second, delayqueue.WithRetryCount(3))
		if err != nil {
			panic(err)
		}
	}
	done := queue.StartConsume()
	<-done
}
