package features

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// neverForgets keeps the queues of a client from forgetting old callers, which they do now and then.
func neverForgets(t *testing.T, cli redis.UniversalClient) {
	t.Cleanup(link.Interpose(cli, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) < 2 || args[1] != script.ForgetScript.SHA && args[1] != script.ForgetScript.Text {
			return next(ctx, cmd)
		}
		cmd.SetErr(queuetest.ErrBoom)
		return queuetest.ErrBoom
	})))
}

// TestCallersOfTheProcess: publishers that are made for one send each use the callers of others.
func TestCallersOfTheProcess(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	n := testkit.Size(1000, 200)
	for range n {
		f.Must(delayqueue.NewPublisher(f.Name, f.Cli).SendDelayMsg("x", time.Hour))
	}
	callers := 0
	for field := range f.Check().Fields {
		if strings.HasPrefix(field, "call:") {
			callers++
		}
	}
	if callers > n/2 { // other tests take some from time to time
		t.Errorf("%d publishers had %d callers", n, callers)
	}
}
