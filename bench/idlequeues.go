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
		time.Sleep(over / 3) // until their ticks are as far apart as they get
		if err := t.meter.start(t.ctx); err != nil {
			return err
		}
		time.Sleep(over) // what each looks at in its rarest tick is in it
		c, err := t.meter.stop(t.ctx)
		if err != nil {
			return err
		}
		seconds := c.wall.Seconds()
		t.report(t.what.name, t.what.kind, figures{
			commandsSecond: c.commands / seconds, tripsSecond: c.trips / seconds,
			redisShare: 100 * c.redisCPU.Seconds() / seconds, clientShare: 100 * c.clientCPU.Seconds() / seconds,
		})
		return nil
	}
}
