package delayqueue

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMonitorCounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := context.Background()
	started, release := make(chan struct{}, 1), make(chan struct{})
	q := f.queue(func(string) bool { started <- struct{}{}; <-release; return false }).WithNackRedeliveryDelay(time.Hour)
	m := NewMonitor(f.name, f.client())
	counts := func(what string, pending, ready, processing int64) {
		t.Helper()
		for name, c := range map[string]struct {
			get  func(context.Context) (int64, error)
			want int64
		}{"pending": {m.GetPendingCount, pending}, "ready": {m.GetReadyCount, ready}, "processing": {m.GetProcessingCount, processing}} {
			if n, err := c.get(ctx); err != nil || n != c.want {
				t.Errorf("%s: %d %s, %v; want %d", what, n, name, err, c.want)
			}
		}
	}
	counts("empty", 0, 0, 0)
	f.send(q, "far", WithDelay(time.Hour))
	f.send(q, "now")
	f.send(q, "now")
	counts("before consuming", 1, 2, 0)
	q.StartConsume()
	receive(t, "one is handled", started)
	counts("while one is handled", 1, 1, 1)
	close(release)
	eventually(t, "both wait for their retry", func() bool { return len(f.check().Retry) == 2 })
	counts("after two failures", 1, 0, 0)
}

func TestMonitorWithoutRedis(t *testing.T) {
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	defer cli.Close()
	if _, err := NewMonitor("nobody-there", cli).GetReadyCount(context.Background()); err == nil || !strings.Contains(err.Error(), `"nobody-there"`) {
		t.Errorf("error %v", err)
	}
}
