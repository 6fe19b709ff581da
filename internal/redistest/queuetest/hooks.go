package queuetest

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/redis/go-redis/v9"
)

// A CommandHook stands between a client and its server.
type CommandHook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (CommandHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h CommandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return EachOf(h.ProcessHook, next)
}

func (h CommandHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// EachOf is a hook of pipelines that gives another one each of their commands. What calls next for the last of them
// makes the call.
func EachOf(hook func(redis.ProcessHook) redis.ProcessHook, next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		process := func(ctx context.Context, _ redis.Cmder) error { return next(ctx, cmds) }
		for _, cmd := range slices.Backward(cmds) {
			rest := process
			inner := hook(func(ctx context.Context, cmd redis.Cmder) error { return cmp.Or(rest(ctx, cmd), cmd.Err()) })
			process = func(ctx context.Context, _ redis.Cmder) error { return inner(ctx, cmd) }
		}
		return process(ctx, nil)
	}
}

// A TripHook is called for each round trip, with one command or several.
type TripHook func(cmds []redis.Cmder, next func() error) error

func (TripHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h TripHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h TripHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(cmds, func() error { return next(ctx, cmds) })
	}
}

// Answer is an error that Redis answers.
type Answer string

func (a Answer) Error() string { return string(a) }
func (Answer) RedisError()     {}

// LoseReplies is a hook that loses the reply of every so many-th script call.
func LoseReplies(every int64, lost *atomic.Int64) CommandHook {
	var calls atomic.Int64
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && calls.Add(1)%every == 0 {
			lost.Add(1)
			err = io.EOF
			cmd.SetErr(err)
		}
		return err
	}
}

// UnknownClient is a client of a kind that the library has never heard of.
type UnknownClient struct{ redis.UniversalClient }

// OneNodeCluster makes the client of a Cluster of one node, as far as it knows.
func OneNodeCluster(t *testing.T, addr func() string) *redis.ClusterClient {
	cli := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr()}}}}, nil
	}})
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func RedisClient(t testing.TB, addr string) *redis.Client {
	return ClientWith(t, &redis.Options{Addr: addr})
}

// ClientWith makes a client that is closed at the end of the test.
func ClientWith(t testing.TB, opt *redis.Options) *redis.Client {
	cli := redis.NewClient(opt)
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// Deaf is event.Listeners that nobody is behind.
type Deaf struct{}

func (Deaf) On() bool                        { return false }
func (Deaf) Tell(event.Code, int, ...string) {}

func (Deaf) RolledBack(int, time.Time) {}
func (Deaf) Logger() *slog.Logger      { return slog.Default() }
