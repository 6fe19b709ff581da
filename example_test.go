package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // a service leaves this out
	defer cancel()
	if err := queue.Run(ctx); err != nil { // until ctx ends and handlers have returned
		panic(err)
	}
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

func ExampleNewQueue() {
	redisCli, end := embedded() // yours: redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer end()

	var queue *delayqueue.DelayQueue
	queue = delayqueue.NewQueue("example-queue", redisCli, func(payload string) bool {
		fmt.Println("got", payload)
		queue.StopConsume()
		return true
	}).WithConcurrent(4)
	if err := queue.SendDelayMsg("hello", 20*time.Millisecond, delayqueue.WithRetryCount(3)); err != nil {
		panic(err)
	}
	done := queue.StartConsume()
	<-done
	// Output: got hello
}

// A handler sees the whole message, and its error says what is to happen next.
func ExampleDelayQueue_WithHandler() {
	redisCli, end := embedded()
	defer end()

	busy := errors.New("partner is busy")
	var queue *delayqueue.DelayQueue
	queue = delayqueue.NewQueue("callbacks", redisCli,
		nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		fmt.Println("delivery", msg.Delivery, "of", msg.Key, "after", msg.Failures, "failures")
		switch msg.Delivery {
		case 1:
			return busy // a failure, which is retried
		case 2:
			return delayqueue.Snooze(10 * time.Millisecond) // not now; no retry used
		}
		queue.StopConsume()
		return nil
	}).WithRetryDelays(10 * time.Millisecond)
	if _, err := queue.Send(context.Background(), "42", delayqueue.WithKey("order-42")); err != nil {
		panic(err)
	}
	<-queue.StartConsume()
	// Output:
	// delivery 1 of order-42 after 0 failures
	// delivery 2 of order-42 after 1 failures
	// delivery 3 of order-42 after 1 failures
}

// All that a handler may return. The first payload has no account, the second comes to a partner that is busy once.
func ExampleDelayQueue_WithHandler_returns() {
	redisCli, end := embedded()
	defer end()

	errNoSuchAccount, errBusy := errors.New("no such account"), errors.New("busy")
	errNotThereYet, errTooManyRequests := errors.New("not there yet"), errors.New("too many requests")
	calls := 0
	callBack := func(_ context.Context, payload string) error {
		calls++
		fmt.Println("call", calls, payload)
		switch {
		case payload == "41":
			return errNoSuchAccount
		case calls == 2:
			return errBusy
		}
		return nil
	}
	handle := func(ctx context.Context, msg *delayqueue.Message) error {
		err := callBack(ctx, msg.Payload)
		switch {
		case errors.Is(err, errNoSuchAccount):
			return fmt.Errorf("%w: %w", delayqueue.ErrSkipRetry, err) // to garbage at once
		case errors.Is(err, errBusy):
			return delayqueue.Snooze(time.Minute) // later; no retry is used
		case errors.Is(err, errNotThereYet):
			return delayqueue.Again(time.Minute) // handled well, and due again; failures count from 0
		case errors.Is(err, errTooManyRequests):
			return delayqueue.Throttle(time.Minute, err) // the whole queue waits; no retry is used
		}
		return err // nil: done; an error: retried
	}
	queue := delayqueue.NewQueue("accounts", redisCli, nil).WithHandler(handle).
		WithRetryDelays(30*time.Second, time.Minute, 10*time.Minute)
	ctx := context.Background()
	for _, account := range []string{"41", "42"} {
		if _, err := queue.Send(ctx, account); err != nil {
			panic(err)
		}
	}
	if _, err := queue.Drain(ctx); err != nil {
		panic(err)
	}
	counts, err := delayqueue.NewMonitor("accounts", redisCli).Counts(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("garbage", counts.Garbage, "waits", counts.Retry)
	// Output:
	// call 1 41
	// call 2 42
	// garbage 1 waits 1
}

// The order is paid: nothing is to be closed any more.
func ExampleDelayQueue_InterceptKey() {
	redisCli, end := embedded()
	defer end()

	ctx := context.Background()
	orders := delayqueue.NewPublisher("orders", redisCli)
	if _, err := orders.Send(ctx, "42", delayqueue.WithDelay(15*time.Minute), delayqueue.WithKey("order-42")); err != nil {
		panic(err)
	}
	result, err := orders.InterceptKey(ctx, "order-42")
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Intercepted, result.State)
	result, err = orders.InterceptKey(ctx, "order-42")
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Intercepted, result.State)
	// Output:
	// true pending
	// false gone
}

// An error of a send says what became of its message.
func ExampleSendError() {
	redisCli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // where no Redis is
	defer redisCli.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := delayqueue.NewPublisher("orders", redisCli).Send(ctx, "42", delayqueue.WithDelay(15*time.Minute))
	var failed *delayqueue.SendError
	if errors.As(err, &failed) && failed.Stored == delayqueue.StoredNo {
		fmt.Println("safe to send again")
	}
	// Output: safe to send again
}

func ExampleQueue() {
	redisCli, end := embedded()
	defer end()

	ctx := context.Background()
	orders := delayqueue.NewPublisher("orders", redisCli)
	for _, id := range []string{"41", "42", "43"} {
		if _, err := orders.Send(ctx, id, delayqueue.WithDelay(15*time.Minute), delayqueue.WithKey("order-"+id)); err != nil {
			panic(err)
		}
	}
	m := ops.Of(delayqueue.NewMonitor("orders", redisCli))
	if _, err := m.GetKey(ctx, "order-44"); errors.Is(err, delayqueue.ErrNotFound) {
		fmt.Println("no order-44")
	}
	msg, err := m.GetKey(ctx, "order-42")
	if err != nil {
		panic(err)
	}
	fmt.Println(msg.Payload, "is", msg.State)
	result, err := m.BulkDelete(ctx, ops.Bulk{States: []delayqueue.State{delayqueue.StatePending}})
	if err != nil {
		panic(err)
	}
	fmt.Println("deleted", result.Done)
	// Output:
	// no order-44
	// 42 is pending
	// deleted 3
}

// A service that ends in good order: handlers get ten seconds to finish.
func ExampleDelayQueue_Shutdown() {
	redisCli, end := embedded()
	defer end()

	queue := delayqueue.NewQueue("orders", redisCli, func(string) bool { return true })
	queue.StartConsume()
	// … SIGTERM:
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(queue.Shutdown(ctx))
	// Output: <nil>
}

// Critical before bulk: of 64 workers six tenths, and 48 that bulk never has.
func ExampleNewPool() {
	redisCli, end := embedded()
	defer end()
	handle := func(payload string) bool {
		fmt.Println(payload)
		return true
	}
	critical := delayqueue.NewQueue("critical", redisCli, handle)
	normal := delayqueue.NewQueue("normal", redisCli, handle)
	bulk := delayqueue.NewQueue("bulk", redisCli, handle)

	pool := delayqueue.NewPool(64, // workers
		delayqueue.Share{Queue: critical, Weight: 6},
		delayqueue.Share{Queue: normal, Weight: 3},
		delayqueue.Share{Queue: bulk, Weight: 1, AtMost: 16})
	done := pool.StartConsume()
	pool.StopConsume()
	<-done
	// Output:
}

// In a test time need not pass: the embedded server's clock is the queue's.
func ExampleDelayQueue_tested() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	now := time.Now()
	server.SetTime(now)
	redisCli := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer redisCli.Close()

	closed := make(chan string)
	queue := delayqueue.NewQueue("orders", redisCli, func(id string) bool {
		closed <- id
		return true
	}).WithFetchInterval(10 * time.Millisecond)
	if err := queue.SendDelayMsg("42", 15*time.Minute); err != nil {
		panic(err)
	}
	done := queue.StartConsume()
	server.SetTime(now.Add(15 * time.Minute))
	fmt.Println("closed", <-closed)
	queue.StopConsume()
	<-done
	// Output: closed 42
}

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
