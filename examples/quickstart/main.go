// Quickstart sends five messages with delays of 1 to 3 s and prints each as it arrives,
// with how long after its due time that was. It ends when all have arrived.
//
//	go run ./examples/quickstart
//	REDIS_ADDR=127.0.0.1:6379 go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/examples/internal/connect"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	server, err := connect.Open()
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Fprintln(out, server.About)

	const name = "example-quickstart"
	// One worker, which is the default: prints do not mix.
	queue := delayqueue.NewQueue(name, server.Client, nil).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			// Due is by the server's clock: from another machine this shows the
			// difference of the clocks too.
			late := time.Since(msg.Due)
			fmt.Fprintf(out, "%-10s  due %s  %6.2f ms late\n",
				msg.Payload, msg.Due.Format("15:04:05.000"), late.Seconds()*1000)
			return nil // consumed; an error would have it delivered again
		})

	for i := range 5 {
		delay := time.Second + time.Duration(i)*500*time.Millisecond
		payload := fmt.Sprintf("message %d", i+1)
		if err := queue.SendDelayMsg(payload, delay); err != nil {
			return err
		}
		fmt.Fprintf(out, "%-10s  sent, due in %v\n", payload, delay)
	}

	done := queue.StartConsume()
	err = waitEmpty(delayqueue.NewMonitor(name, server.Client))
	queue.StopConsume()
	<-done
	return err
}

// waitEmpty waits until every message has arrived, those of an earlier run and of another
// process included. It looks in the order in which messages move on, so none slips past it.
func waitEmpty(monitor *delayqueue.Monitor) error {
	ctx := context.Background()
	for ; ; time.Sleep(50 * time.Millisecond) {
		pending, err := monitor.GetPendingCount(ctx)
		if err != nil {
			return err
		}
		ready, err := monitor.GetReadyCount(ctx)
		if err != nil {
			return err
		}
		processing, err := monitor.GetProcessingCount(ctx)
		if err != nil {
			return err
		}
		if pending+ready+processing == 0 {
			return nil
		}
	}
}
