package docs

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
)

// The code of docs/from-hdt3213.md.

// The sample program of hdt3213/delayqueue, moved over.
func Example_movedFromHdt3213() {
	redisCli, end := embedded()
	defer end()

	queue := delayqueue.NewQueue("example", redisCli, func(payload string) bool {
		fmt.Println(payload)
		return true
	}).WithConcurrent(4)
	for i := 0; i < 10; i++ {
		_, err := queue.Send(context.Background(), strconv.Itoa(i), delayqueue.WithDelay(time.Millisecond),
			delayqueue.WithRetryCount(3))
		if err != nil {
			panic(err)
		}
	}
	done := queue.StartConsume()

	for count := int64(10); count > 0; time.Sleep(10 * time.Millisecond) {
		counts, err := delayqueue.NewMonitor("example", redisCli).Counts(context.Background())
		if err != nil {
			panic(err)
		}
		count = counts.Pending + counts.Ready + counts.Unack
	}
	queue.StopConsume()
	<-done
	// Unordered output:
	// 0
	// 1
	// 2
	// 3
	// 4
	// 5
	// 6
	// 7
	// 8
	// 9
}

// What hdt3213/delayqueue does unless it is told otherwise.
func Example_habitsOfHdt3213() {
	redisCli, end := embedded()
	defer end()
	callback := func(payload string) bool { return true }
	queue := asHdt3213(redisCli, callback)
	if err := interceptSent(queue); err != nil {
		panic(err)
	}
	stop, err := watch(redisCli, queue)
	if err != nil {
		panic(err)
	}
	stop()
	// Output:
	// not delivered
	// 0 pending
}

func asHdt3213(redisCli redis.UniversalClient, callback func(payload string) bool) *delayqueue.DelayQueue {
	queue := delayqueue.NewQueue("orders", redisCli, callback).
		WithMaxConsumeDuration(5 * time.Second).
		WithNackRedeliveryDelay(time.Second).
		WithLogger(slog.New(slog.NewTextHandler(log.Writer(), nil)))
	return queue
}

func interceptSent(queue *delayqueue.DelayQueue) error {
	info, err := queue.Send(context.Background(), "42", delayqueue.WithDelay(15*time.Minute),
		delayqueue.WithMsgTTL(time.Hour))
	if err != nil {
		return err
	}
	result, err := queue.TryIntercept(info) // Cancel takes out what is being handled, too
	if err != nil {
		return err
	}
	if result.Intercepted {
		fmt.Println("not delivered")
	}
	return nil
}

func watch(redisCli redis.UniversalClient, queue *delayqueue.DelayQueue) (stop func(), err error) {
	report := queue.EnableReport() // report.Stop ends it
	monitor := delayqueue.NewMonitor("orders", redisCli)
	subscription, err := monitor.ListenEvent(context.Background(), func(e delayqueue.Event) {
		fmt.Println(e.Code, e.Time, e.Count)
	})
	if err != nil {
		return nil, err
	}
	pending, err := monitor.GetPendingCount(context.Background())
	if err != nil && !errors.Is(err, delayqueue.ErrNoQueue) { // nothing was ever sent
		return nil, err
	}
	fmt.Println(pending, "pending")
	return func() { subscription.Stop(); report.Stop() }, nil
}

// embedded is a Redis inside this program, for an example that ends.
func embedded() (redis.UniversalClient, func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	cli := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return cli, func() {
		_ = cli.Close()
		server.Close()
	}
}
