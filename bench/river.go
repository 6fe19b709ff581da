package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverSystem is github.com/riverqueue/river, its log silenced.
type riverSystem struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // which only sends
}

// riverJob is what it sends.
type riverJob struct {
	Payload string `json:"payload"`
}

func (riverJob) Kind() string { return "bench" }

func openRiver(addr string) (system, error) {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(addr)
	if err != nil {
		return nil, fmt.Errorf("river: %w", err)
	}
	config.MaxConns = riverConnections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("river: %w", err)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: noLog})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("river: %w", err)
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: noLog})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("river: %w", err)
	}
	return &riverSystem{pool: pool, client: client}, nil
}

const (
	// riverConnections are those of a process. With 4, which is pgxpool's default here, and with 64, sends of 64 callers
	// and a drain were as fast on two cores, within a fifth.
	riverConnections = 16
	// River's own benchmark has these two (and 2,000 workers), because with the defaults 64 workers get 64 messages each
	// 100 ms, and no more.
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
)

var noLog = slog.New(slog.NewTextHandler(io.Discard, nil))

// riverOptions of a message. With a ScheduledAt, what is due at once would wait until River's scheduler looks.
func riverOptions(m message) *river.InsertOpts {
	if m.delay == 0 && m.at.IsZero() {
		return nil
	}
	return &river.InsertOpts{ScheduledAt: m.due()}
}

func (r *riverSystem) send(ctx context.Context, m message) error {
	_, err := r.client.Insert(ctx, riverJob{m.payload}, riverOptions(m))
	return err
}

func (r *riverSystem) sendBatch(ctx context.Context, batch []message) error {
	jobs := make([]river.InsertManyParams, len(batch))
	for i, m := range batch {
		jobs[i] = river.InsertManyParams{Args: riverJob{m.payload}, InsertOpts: riverOptions(m)}
	}
	_, err := r.client.InsertManyFast(ctx, jobs)
	return err
}

func (r *riverSystem) consume(workers int, handle handler) (func(), error) {
	ctx, all := context.Background(), river.NewWorkers()
	river.AddWorker(all, river.WorkFunc(func(_ context.Context, job *river.Job[riverJob]) error {
		handle(job.Args.Payload, job.Attempt-1)
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll, Logger: noLog, Workers: all,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
	})
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("river: %w", err)
	}
	return func() { _ = client.Stop(ctx) }, nil // what it handled is completed before
}

func (r *riverSystem) left(ctx context.Context) (n int64, err error) {
	err = r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE finalized_at IS NULL").Scan(&n)
	return n, err
}

func (r *riverSystem) close() { r.pool.Close() }
