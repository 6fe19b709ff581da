package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// idle measures what a consumer with nothing to do costs.
func idle(over time.Duration) func(t *trial) error {
	return func(t *trial) error {
		stop, err := t.sys.consume(1, func(string, int) {})
		if err != nil {
			return err
		}
		defer stop()
		return t.standStill(time.Second, over)
	}
}

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

// standStill reports what is used while nothing is to be done, once all has settled down.
func (t *trial) standStill(settle, over time.Duration) error {
	debug.FreeOSMemory() // what other trials left would be collected meanwhile
	time.Sleep(settle)
	c, err := t.meter.of(t.ctx, func() error { time.Sleep(over); return nil })
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

// memory measures what a pending message takes on the server.
func memory(n int) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(1); err != nil {
			return err
		}
		before, err := t.meter.figures(t.ctx, "used_memory")
		if err != nil {
			return err
		}
		n := t.size(n)
		if err := t.fill(n, func(i int) message { return hourly(payload(i)) }); err != nil {
			return err
		}
		after, err := t.meter.figures(t.ctx, "used_memory")
		if err != nil {
			return err
		}
		t.report(t.what.name, t.what.kind, figures{bytesEach: (after[0] - before[0]) / float64(n)})
		return t.onlyLeft(int64(n))
	}
}
