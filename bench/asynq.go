package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const asynqTask = "bench"

// asynqSystem is github.com/hibiken/asynq with its defaults, its log silenced.
type asynqSystem struct {
	net    *network
	cli    *redis.Client
	client *asynq.Client
}

func openAsynq(net *network) system {
	cli := net.client()
	return &asynqSystem{net: net, cli: cli, client: asynq.NewClientFromRedisClient(cli)}
}

func (a *asynqSystem) send(ctx context.Context, m message) error {
	opt := asynq.ProcessIn(m.delay)
	if !m.at.IsZero() {
		opt = asynq.ProcessAt(m.at)
	}
	_, err := a.client.EnqueueContext(ctx, asynq.NewTask(asynqTask, []byte(m.payload)), opt)
	return err
}

// sendBatch is in no release of asynq.
func (a *asynqSystem) sendBatch(context.Context, []message) error { return errors.ErrUnsupported }

func (a *asynqSystem) consume(workers int, handle handler) (func(), error) {
	cli := a.net.client()
	server := asynq.NewServerFromRedisClient(cli, asynq.Config{Concurrency: workers, Logger: silent{}})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		retried, _ := asynq.GetRetryCount(ctx) // it is there in a handler
		handle(string(t.Payload()), retried)
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("asynq: %w", err)
	}
	return func() {
		server.Shutdown()
		_ = cli.Close() // nothing is under way any more
	}, nil
}

func (a *asynqSystem) left(ctx context.Context) (int64, error) {
	// Its client adds the queue's name once, and the bench empties the server after that.
	if err := a.cli.SAdd(ctx, "asynq:queues", "default").Err(); err != nil {
		return 0, err
	}
	info, err := asynq.NewInspectorFromRedisClient(a.cli).GetQueueInfo("default")
	if err != nil {
		return 0, fmt.Errorf("asynq: %w", err)
	}
	return int64(info.Size), nil
}

func (a *asynqSystem) close() { _ = a.cli.Close() }

// silent is a logger that says nothing.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}
