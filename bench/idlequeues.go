package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// idleCounts are the numbers of queues of one client that are measured idle together.
var idleCounts = []int{16, 1000}

func idleQueuesName(n int) string { return fmt.Sprintf("%d idle queues, one client", n) }

// idleQueues measures what n queues with nothing to do cost, each consumed by itself over the client of all.
func idleQueues(n int, over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		l, ok := t.sys.(*library)
		if !ok {
			return errors.ErrUnsupported
		}
		cli := l.net.client()
		defer cli.Close()
		for i := range n {
			queue := delayqueue.NewQueue(fmt.Sprint(queueName, i), cli, func(string) bool { return true }).
				WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
			done := queue.StartConsume()
			defer func() { <-done }()
			defer queue.StopConsume()
		}
		// Until their ticks are as far apart as they get; then what each looks at in its rarest tick is in it.
		return t.standStill(over/3, over)
	}
}
