package delayqueue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A cron job: it handles what is due, and ends.
func ExampleDelayQueue_Drain() {
	redisCli, end := embedded() // yours: redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer end()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	queue := delayqueue.NewQueue("invoices", redisCli, func(payload string) bool {
		fmt.Println("invoice", payload)
		return true
	})
	for _, delay := range []time.Duration{0, 0, time.Hour} {
		if err := queue.SendDelayMsg(delay.String(), delay); err != nil {
			panic(err)
		}
	}
	n, err := queue.Drain(ctx)
	fmt.Println(n, "handled", err)
	// Output:
	// invoice 0s
	// invoice 0s
	// 2 handled <nil>
}
