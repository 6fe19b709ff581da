package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// handling is how long each message keeps a worker.
const handling = 20 * time.Millisecond

// A class is one of the three queues, and what the program saw of it.
type class struct {
	name     string
	weight   int
	atMost   int
	starts   time.Duration // when its messages come
	messages int

	queue   *delayqueue.DelayQueue
	monitor *ops.Queue
	busy    atomic.Int64 // workers that handle a message of it
	sent    atomic.Int64
	handled atomic.Int64
	lateBy  atomic.Int64 // ns, of the last message
}

// newClasses makes the three queues. Their loads are such that two of them have something to do until the last fifth
// of length.
func newClasses(cli redis.UniversalClient, length time.Duration) []*class {
	all := int(length / handling * workers) // as many as the workers can handle
	classes := []*class{
		{name: "critical", weight: 6, starts: length * 4 / 10, messages: all * 15 / 100},
		{name: "normal", weight: 3, starts: length * 2 / 10, messages: all * 25 / 100},
		{name: "bulk", weight: 1, atMost: 6, messages: all * 70 / 100},
	}
	for _, c := range classes {
		name := "example-priorities-" + c.name
		c.queue = delayqueue.NewQueue(name, cli, nil).WithHandler(c.handle)
		c.monitor = ops.Of(delayqueue.NewMonitor(name, cli))
	}
	return classes
}

func (c *class) handle(ctx context.Context, msg *delayqueue.Message) error {
	c.busy.Add(1)
	defer c.busy.Add(-1)
	c.lateBy.Store(int64(time.Since(msg.Due)))
	select {
	case <-time.After(handling): // stands for the work
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.handled.Add(1)
	return nil
}

// load sends the messages of each class when they are to come.
func load(ctx context.Context, classes []*class) error {
	const batch = 500
	begun := time.Now()
	for i := len(classes) - 1; i >= 0; i-- { // in the order of their start
		c := classes[i]
		select {
		case <-time.After(c.starts - time.Since(begun)):
		case <-ctx.Done():
			return nil
		}
		for left := c.messages; left > 0; left -= batch {
			out := make([]delayqueue.Outgoing, min(left, batch))
			for i := range out {
				out[i].Payload = "work"
			}
			if _, err := c.queue.SendBatch(ctx, out); ctx.Err() != nil {
				return nil
			} else if err != nil {
				return fmt.Errorf("cannot send: %w", err)
			}
			c.sent.Add(int64(len(out)))
		}
	}
	return nil
}

// clear deletes what is left, so that the next run begins with nothing.
func (c *class) clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := c.monitor.DeleteQueue(ctx, true); err != nil {
		return fmt.Errorf("cannot delete what is left: %w", err)
	}
	return nil
}
