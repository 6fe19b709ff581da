package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestAwaitWhatIsDeleted: who waits for what is deleted hears that there is nothing to wait for any more.
func TestAwaitWhatIsDeleted(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(m *Queue, id string) error{
		"alone":          func(m *Queue, id string) error { return m.Delete(queuetest.CtxB, id) },
		"with its queue": func(m *Queue, _ string) error { return m.DeleteQueue(queuetest.CtxB, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			info := f.Send(f.Queue(nil), "x", face.InAnHour, delayqueue.WithRetention(time.Hour))
			looks, got, ctx := make(chan struct{}, 1), make(chan error, 1), queuetest.WithTimeout(t)
			t.Cleanup(link.Interpose(f.Cli, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				err := next(ctx, cmd)
				if args := cmd.Args(); err == nil && len(args) > 1 && (args[1] == script.AwaitScript.SHA || args[1] == script.AwaitScript.Text) {
					select {
					case looks <- struct{}{}:
					default:
					}
				}
				return err
			})))
			go func() { got <- queuetest.Failure(delayqueue.NewPublisher(f.Name, f.Cli).Await(ctx, info.ID)) }()
			queuetest.Receive(t, "it has looked", looks)
			f.Must(remove(Of(delayqueue.NewMonitor(f.Name, f.Cli)), info.ID))
			if err := queuetest.Receive(t, "an answer", got); !errors.Is(err, delayqueue.ErrNoResult) {
				t.Error(err)
			}
		})
	}
}
