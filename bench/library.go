package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
)

const queueName = "bench"

// library is this library, used as a service would: a publisher, and consumers that have
// a DelayQueue and a client each.
type library struct {
	net     *network
	cli     *redis.Client
	pub     *delayqueue.Publisher
	monitor *delayqueue.Monitor
	whole   bool // handlers get messages, not payloads alone
}

func openLibrary(net *network) system { return newLibrary(net) }

// openLibraryWhole has handlers that get messages, as those of other contenders get more than a payload.
func openLibraryWhole(net *network) system {
	l := newLibrary(net)
	l.whole = true
	return l
}

func newLibrary(net *network) *library {
	cli := net.client()
	return &library{
		net: net, cli: cli,
		pub:     delayqueue.NewPublisher(queueName, cli),
		monitor: delayqueue.NewMonitor(queueName, cli),
	}
}

func (l *library) send(_ context.Context, m message) error {
	switch {
	case m.lane != "":
		return l.pub.SendDelayMsg(m.payload, m.delay, delayqueue.WithLane(m.lane))
	case !m.at.IsZero():
		return l.pub.SendScheduleMsg(m.payload, m.at)
	}
	return l.pub.SendDelayMsg(m.payload, m.delay)
}

func (l *library) sendBatch(ctx context.Context, batch []message) error {
	out := make([]delayqueue.Outgoing, len(batch))
	var delay time.Duration
	var shared []delayqueue.MsgOption // of all messages with the same delay
	for i, m := range batch {
		switch {
		case m.lane != "":
			options := []delayqueue.MsgOption{delayqueue.WithLane(m.lane), delayqueue.WithDelay(m.delay)}
			out[i] = delayqueue.Outgoing{Payload: m.payload, Options: options}
			continue
		case !m.at.IsZero():
			out[i] = delayqueue.Outgoing{Payload: m.payload, Options: []delayqueue.MsgOption{delayqueue.WithSchedule(m.at)}}
			continue
		case shared == nil || m.delay != delay:
			delay, shared = m.delay, []delayqueue.MsgOption{delayqueue.WithDelay(m.delay)}
		}
		out[i] = delayqueue.Outgoing{Payload: m.payload, Options: shared}
	}
	_, err := l.pub.SendBatch(ctx, out)
	return err
}

func (l *library) consume(workers int, handle handler) (func(), error) {
	cli := l.net.client()
	queue := delayqueue.NewQueue(queueName, cli, func(payload string) bool {
		handle(payload, 0)
		return true
	}).WithConcurrent(workers).WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if l.whole {
		queue.WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			handle(msg.Payload, msg.Failures)
			return nil
		})
	}
	done := queue.StartConsume()
	return func() {
		queue.StopConsume()
		<-done
		_ = cli.Close() // nothing is under way any more
	}, nil
}

func (l *library) left(ctx context.Context) (int64, error) {
	var sum int64
	for _, count := range []func(context.Context) (int64, error){
		l.monitor.GetPendingCount, l.monitor.GetReadyCount, l.monitor.GetProcessingCount,
	} {
		n, err := count(ctx)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	// And those that wait for a retry, or are garbage: none should.
	n, err := l.cli.HLen(ctx, "{dq:"+queueName+"}:msg").Result()
	return max(sum, n), err
}

func (l *library) close() { _ = l.cli.Close() }
